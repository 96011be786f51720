//! `!command` at the prompt: a command of the user's own, shown as it runs, and what the model gets of it.

use std::io;
use std::path::Path;
use std::process::Stdio;

use crab_core::clip;
use crab_core::process::{Environment, SHELL};
use tokio::io::AsyncReadExt;
use tokio::process::Command;

/// As much of the output goes along with the next prompt.
const MOST: usize = 30_000;

/// What a command did.
pub(crate) struct Ran {
    pub(crate) output: String,
    /// `exit 0`, or how else it ended.
    pub(crate) ended: String,
}

/// Runs the command to its end, or until `stop` is ready; `show` gets the output as it comes.
pub(crate) async fn run(
    command: &str,
    cwd: &Path,
    environment: &Environment,
    mut show: impl FnMut(&str) -> io::Result<()>,
    stop: impl Future<Output = ()>,
) -> io::Result<Ran> {
    let mut bash = Command::new(SHELL);
    // One pipe for both streams keeps their order.
    bash.args(["-c", "exec 2>&1; eval \"$1\"", SHELL, command]).current_dir(cwd);
    bash.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut spawned = environment.spawn(bash)?;
    let mut bytes = vec![];
    let ended = {
        let mut pipe = spawned.child.stdout.take();
        let run = async {
            let mut piece = [0; 8192];
            while let Some(pipe) = &mut pipe {
                let read = pipe.read(&mut piece).await?;
                if read == 0 {
                    break;
                }
                bytes.extend_from_slice(&piece[..read]);
                show(&String::from_utf8_lossy(&piece[..read]))?;
            }
            spawned.child.wait().await
        };
        tokio::select! {
            status = run => Some(status?),
            () = stop => None,
        }
    };
    let ended = ended.map_or_else(
        || "stopped".to_owned(),
        |status| match status.code() {
            Some(code) => format!("exit {code}"),
            None => status.to_string(),
        },
    );
    // Whatever it started and left ends with it, when the group is dropped.
    drop(spawned);
    Ok(Ran { output: clip::middle(&String::from_utf8_lossy(&bytes), MOST), ended })
}

/// What the model gets: a block that cannot be taken for the task.
pub(crate) fn block(command: &str, ran: &Ran) -> String {
    let Ran { output, ended } = ran;
    let bytes = output.len();
    format!(
        "The user ran a command.\n<command bytes=\"{bytes}\" ended=\"{ended}\">\n$ {command}\n{}\n</command>",
        output.trim_end()
    )
}

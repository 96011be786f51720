//! The user's own editor, for what is longer than a line.

use std::fs::File;
use std::io::{self, PipeReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Lets the user change a text, which lies under this name meanwhile. Gives it without white space at its end. With a
/// terminal the editor runs there; what the pipe holds or its end takes the text back from it.
pub(crate) fn edit(text: &str, name: &str, at: Option<(&File, &PipeReader)>) -> Result<String, String> {
    let folder = tempfile::tempdir().map_err(|err| format!("no temporary folder: {err}"))?;
    let file = folder.path().join(name);
    std::fs::write(&file, text).map_err(|err| format!("cannot write `{}`: {err}", file.display()))?;
    let editor = chosen();
    let status = run(command(&file), at).map_err(|err| format!("cannot start `{editor}`: {err}"))?;
    if !status.success() {
        return Err(format!("`{editor}` ended with {status}; the text is as it was"));
    }
    let text =
        std::fs::read_to_string(&file).map_err(|err| format!("cannot read `{}`: {err}", file.display()))?;
    Ok(text.trim_end().to_owned())
}

/// What opens a file in the editor; its words may hold options.
pub(crate) fn command(file: &Path) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{} \"$1\"", chosen())).arg("sh").arg(file);
    command
}

/// `$VISUAL`, else `$EDITOR`, else what is everywhere.
fn chosen() -> String {
    let set = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".to_owned())
}

fn run(mut command: Command, at: Option<(&File, &PipeReader)>) -> io::Result<ExitStatus> {
    let Some((terminal, woken)) = at else { return command.status() };
    command.stdin(terminal.try_clone()?).stdout(terminal.try_clone()?).stderr(terminal.try_clone()?);
    let mut child = command.spawn()?;
    let ended = wait(&mut child, woken);
    if !matches!(ended, Ok(Some(_))) {
        // It may have ended by itself in the same moment.
        let _ = child.kill();
        child.wait()?;
    }
    ended?.ok_or_else(|| io::Error::other("the question was taken back"))
}

/// Waits for the end of the editor; `None` when the pipe says something first.
fn wait(child: &mut Child, woken: &PipeReader) -> io::Result<Option<ExitStatus>> {
    const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 30_000_000 };
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        match poll(&mut [PollFd::new(woken, PollFlags::IN)], Some(&MOMENT)) {
            Err(rustix::io::Errno::INTR) | Ok(0) => {}
            Err(err) => return Err(err.into()),
            Ok(_) => return Ok(None),
        }
    }
}

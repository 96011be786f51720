//! `bash`: one command line in a fresh shell, in a process group of its own.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};

use super::{Access, Cx, Kind, Output, Permit, Running, Tool, View, parse};
use crate::message::Part;
use crate::output::Collected;
use crate::process::{Group, Spawned};
use crate::{clip, shell};

const DEFAULT_TIMEOUT: f64 = 120.0;
const MAX_TIMEOUT: f64 = 3_600.0;
/// How long a command may take to end by itself before it is killed.
const GRACE: Duration = Duration::from_millis(300);
/// What a pipe can hold when its writer ends; more than this comes from somebody who still writes.
const PIPE: usize = 1 << 20;

pub(super) struct Bash;

#[derive(Deserialize)]
struct Arguments {
    command: String,
    timeout: Option<f64>,
}

impl Tool for Bash {
    fn name(&self) -> &str {
        "bash"
    }

    fn description(&self) -> &str {
        "Runs a command line with `bash -c` and returns stdout and stderr in order, then [exit code, time]. Each call is a fresh shell \
         in the working directory: cd and variables do not persist. No terminal and no input: prompts, pagers and editors end at once. \
         Escape codes are removed. Over 30,000 bytes the middle is left out; the result names the file with all of it. At the timeout \
         everything started is killed and the output so far returned. A background job (`cmd &`) lives on until crab exits. A \
         non-zero exit is reported, not an error of the tool. Prefer read, glob and grep for looking."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "command": {"type": "string"},
                "timeout": {"type": "number", "description": "seconds, default 120, at most 3600"}
            },
            "required": ["command"]
        })
    }

    fn access(&self, arguments: &Value, _: &Cx) -> Access {
        let command = arguments["command"].as_str().unwrap_or_default();
        let line = shell::parse(command);
        let kind = if shell::is_read_only(&line) { Kind::Read } else { Kind::Execute };
        Access {
            kind,
            also: shell::hidden(&line),
            opaque: line.is_opaque,
            class: shell::class(command, &line),
            subjects: line.commands.iter().map(|words| words.join(" ")).collect(),
        }
    }

    fn title(&self, arguments: &Value) -> String {
        let command = arguments["command"].as_str().unwrap_or_default().trim();
        let first = command.lines().next().unwrap_or_default();
        let more = if command.lines().count() > 1 { " …" } else { "" };
        format!("$ {}{more}", clip::line(first, 100))
    }

    fn preview(&self, arguments: &Value, _: &Cx) -> View {
        let command = arguments["command"].as_str().unwrap_or_default().to_owned();
        View::Command { command, outcome: String::new() }
    }

    fn run<'a>(&'a self, arguments: Value, _: Permit, cx: Cx) -> Running<'a> {
        Box::pin(async move {
            let Arguments { command, timeout } = parse(self, arguments)?;
            if command.trim().is_empty() {
                return Err("`command` is empty; give the command line to run".into());
            }
            let limit = timeout.unwrap_or(DEFAULT_TIMEOUT);
            if !(limit > 0.0 && limit <= MAX_TIMEOUT) {
                return Err(format!(
                    "`timeout` is {limit}, but it counts seconds, above 0 and at most {MAX_TIMEOUT}"
                ));
            }
            Call::start(command, &cx)?.finish(Duration::from_secs_f64(limit), cx).await
        })
    }
}

/// How a command came to its end.
enum Ended {
    Exited(ExitStatus),
    TimedOut(Duration),
    Interrupted,
}

/// A command that runs.
struct Call {
    command: String,
    child: Child,
    group: Group,
    pipe: Receiver,
    output: Collected,
    notes: Vec<String>,
    start: Instant,
}

impl Call {
    fn start(command: String, cx: &Cx) -> Result<Self, String> {
        let mut notes = vec![];
        let folder = existing(&cx.cwd);
        if folder != cx.cwd {
            notes.push(format!(
                "the working directory {} is gone; this ran in {}: make it again, or cd elsewhere in the command",
                cx.cwd.display(),
                folder.display()
            ));
        }
        let failed = |err: io::Error| format!("bash could not be started: {err}");
        let (reader, writer) = io::pipe().map_err(failed)?;
        let mut shell = Command::new("bash");
        shell.arg("-c").arg(&command).current_dir(folder).stdin(Stdio::null());
        shell.stdout(writer.try_clone().map_err(failed)?).stderr(writer);
        let pipe = Receiver::from_owned_fd(reader.into()).map_err(failed)?;
        let Spawned { child, group, warning } = cx.environment.spawn(shell).map_err(failed)?;
        notes.extend(warning);
        Ok(Self { command, child, group, pipe, output: Collected::new(cx), notes, start: Instant::now() })
    }

    async fn finish(mut self, limit: Duration, cx: Cx) -> Result<Output, String> {
        let watched = tokio::time::timeout(limit, self.watch());
        let ended = match cx.cancel.run_until_cancelled(watched).await {
            Some(Ok(status)) => {
                Ended::Exited(status.map_err(|err| format!("bash could not be waited for: {err}"))?)
            }
            Some(Err(_)) => Ended::TimedOut(limit),
            None => Ended::Interrupted,
        };
        if !matches!(ended, Ended::Exited(_)) {
            if !self.group.end(GRACE).await {
                self.notes.push(format!("processes that cannot be killed: {:?}", self.group.members()));
            }
            // Killed already, so this only takes the dead shell out of the process table.
            let _ = self.child.wait().await;
        }
        let is_open = self.drain();
        Ok(self.report(ended, is_open))
    }

    /// Reads until the shell ends. Others may hold the pipe for longer: that is not waited for.
    async fn watch(&mut self) -> io::Result<ExitStatus> {
        let mut wait = std::pin::pin!(self.child.wait());
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = std::pin::pin!(self.pipe.read(&mut buffer));
            match select(wait.as_mut(), read).await {
                Either::Left((status, _)) => return status,
                Either::Right((Ok(0), _)) => return wait.await,
                Either::Right((Ok(count), _)) => self.output.push(&buffer[..count]),
                Either::Right((Err(err), _)) => return Err(err),
            }
            // A flood is always ready: timeout and abort must get their turn.
            tokio::task::yield_now().await;
        }
    }

    /// Takes what is in the pipe already. True when somebody still holds its other end.
    fn drain(&mut self) -> bool {
        let mut buffer = vec![0; 64 << 10];
        let mut taken = 0;
        while taken < PIPE {
            match self.pipe.try_read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => {
                    taken += count;
                    self.output.push(&buffer[..count]);
                }
                Err(err) => return err.kind() == io::ErrorKind::WouldBlock,
            }
        }
        true
    }

    fn report(mut self, ended: Ended, is_open: bool) -> Output {
        let time = format!("{:.1} s", self.start.elapsed().as_secs_f64());
        let outcome = match ended {
            Ended::Exited(status) => format!("{}, {time}", exit(status)),
            Ended::TimedOut(limit) => {
                format!(
                    "timed out after {} s: the command and all it started were killed",
                    limit.as_secs_f64()
                )
            }
            Ended::Interrupted => {
                format!("interrupted by the user after {time}: the command and all it started were killed")
            }
        };
        let behind = self.group.members();
        if behind.is_empty() || !is_open {
            self.output.finish();
        }
        let mut text = self.output.text();
        if text.trim().is_empty() {
            text = "(no output)".into();
        }
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!("[{outcome}]"));
        if !behind.is_empty() {
            let pids: Vec<String> = behind.iter().take(10).map(u32::to_string).collect();
            let place = if is_open { self.output.keep_file() } else { None };
            let place =
                place.map(|path| format!("; what they print goes to {}", path.display())).unwrap_or_default();
            self.notes.push(format!(
                "{} background process(es) still run (pid {}); they end with crab{place}",
                behind.len(),
                pids.join(", ")
            ));
        }
        self.notes.iter().for_each(|note| text.push_str(&format!("\n[{note}]")));
        let command = std::mem::take(&mut self.command);
        self.group.release();
        if is_open && !behind.is_empty() {
            tokio::spawn(follow(self.pipe, self.output));
        }
        Output { content: vec![Part::text(text)], view: View::Command { command, outcome } }
    }
}

/// Goes on reading what background processes print, so that they neither block nor die of a closed pipe.
async fn follow(mut pipe: Receiver, mut output: Collected) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count) = pipe.read(&mut buffer).await
        && count > 0
    {
        output.push(&buffer[..count]);
        tokio::task::yield_now().await;
    }
    output.finish();
}

/// The nearest folder upwards that is still there.
fn existing(folder: &Path) -> PathBuf {
    folder.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/")).to_path_buf()
}

fn exit(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => match SIGNALS.iter().find(|(number, _)| *number == signal) {
            Some((_, name)) => format!("killed by signal {signal} ({name})"),
            None => format!("killed by signal {signal}"),
        },
        (None, None) => "ended".into(),
    }
}

/// Those whose numbers are the same everywhere.
const SIGNALS: &[(i32, &str)] = &[
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (3, "SIGQUIT"),
    (4, "SIGILL"),
    (6, "SIGABRT"),
    (8, "SIGFPE"),
    (9, "SIGKILL"),
    (11, "SIGSEGV"),
    (13, "SIGPIPE"),
    (14, "SIGALRM"),
    (15, "SIGTERM"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::text_of;
    use crate::output::LIMIT;
    use crate::tools::tests::{Folder, description_bytes};

    async fn run_in(cx: &Cx, arguments: Value) -> Result<String, String> {
        let output = Bash.run(arguments, Permit::for_tests(), cx.clone()).await?;
        Ok(text_of(&output.content))
    }

    async fn run(command: &str) -> String {
        run_in(&Folder::new().cx, json!({"command": command})).await.unwrap()
    }

    #[tokio::test]
    async fn both_streams_come_in_order_with_the_exit() {
        let text = run("echo a; echo b >&2; echo c; exit 3").await;
        assert!(text.starts_with("a\nb\nc\n[exit 3, "), "{text}");
        assert!(run("true").await.starts_with("(no output)\n[exit 0, "));
        assert!(run("kill -9 $$").await.contains("[killed by signal 9 (SIGKILL), "));
        assert!(run("nosuchcmd").await.contains("nosuchcmd: command not found\n[exit 127"));
        assert!(run("printf x").await.starts_with("x\n[exit 0"));
    }

    #[tokio::test]
    async fn a_command_has_no_terminal() {
        let text = run("cat; read x; echo got=$x; (exec 3</dev/tty) 2>/dev/null || echo no tty").await;
        assert!(text.starts_with("got=\nno tty\n"), "{text}");
    }

    #[tokio::test]
    async fn a_background_child_does_not_hold_the_call_and_is_named() {
        let folder = Folder::new();
        let text = run_in(&folder.cx, json!({"command": "sleep 1000 & echo started"})).await.unwrap();
        assert!(text.starts_with("started\n[exit 0"), "{text}");
        assert!(text.contains("1 background process(es) still run (pid "), "{text}");
        assert!(text.contains("what they print goes to "), "{text}");
        folder.cx.environment.close();
    }

    #[tokio::test]
    async fn a_timeout_kills_everything_and_keeps_the_output() {
        let folder = Folder::new();
        let command = "echo part; bash -c 'trap \"\" TERM; sleep 1000 & echo $! > pid; wait' | cat";
        let text = run_in(&folder.cx, json!({"command": command, "timeout": 0.5})).await.unwrap();
        assert!(text.starts_with("part\n[timed out after 0.5 s"), "{text}");
        if let Ok(pid) = String::from_utf8(folder.get("pid")) {
            assert!(!Path::new(&format!("/proc/{}", pid.trim())).exists());
        }
    }

    #[tokio::test]
    async fn an_abort_ends_the_command_and_says_so() {
        let folder = Folder::new();
        let cx = folder.cx.clone();
        let (tell, told) = tokio::sync::oneshot::channel();
        let tell = std::sync::Mutex::new(Some(tell));
        let cx = Cx {
            output: std::sync::Arc::new(move |_| drop(tell.lock().unwrap().take().map(|tell| tell.send(())))),
            ..cx
        };
        let cancel = cx.cancel.clone();
        let call =
            tokio::spawn(async move { run_in(&cx, json!({"command": "echo begun; sleep 1000"})).await });
        told.await.unwrap();
        cancel.cancel();
        let text = call.await.unwrap().unwrap();
        assert!(text.starts_with("begun\n[interrupted by the user"), "{text}");
    }

    #[tokio::test]
    async fn floods_are_bounded_and_the_timeout_still_fires() {
        let folder = Folder::new();
        let text = run_in(&folder.cx, json!({"command": "yes", "timeout": 0.3})).await.unwrap();
        assert!(text.len() < LIMIT + 600 && text.contains("bytes left out") && text.contains("timed out"));
    }

    #[tokio::test]
    async fn a_removed_working_directory_is_said() {
        let folder = Folder::new();
        let mut cx = folder.cx.clone();
        cx.cwd = folder.path("gone/deeper");
        let text = run_in(&cx, json!({"command": "echo alive"})).await.unwrap();
        assert!(text.starts_with("alive\n") && text.contains("is gone; this ran in"), "{text}");
    }

    #[tokio::test]
    async fn secrets_do_not_reach_the_file_of_a_long_output() {
        let folder = Folder::new();
        let mut cx = folder.cx.clone();
        cx.secrets =
            std::sync::Arc::new(crate::redact::Secrets::new(vec![("KEY".into(), "sk-canary-1".into())]));
        let text = run_in(&cx, json!({"command": "seq 10000; echo sk-canary-1"})).await.unwrap();
        assert!(text.contains("[redacted KEY]"));
        let file = std::fs::read_dir(&cx.spill).unwrap().next().unwrap().unwrap().path();
        let kept = std::fs::read_to_string(file).unwrap();
        assert!(kept.ends_with("10000\n[redacted KEY]\n") && kept.starts_with("1\n2\n"));
    }

    #[tokio::test]
    async fn bad_arguments_say_what_is_expected() {
        let folder = Folder::new();
        for arguments in [
            json!({}),
            json!({"command": " "}),
            json!({"command": "x", "timeout": 120_000}),
            json!({"command": "x", "timeout": 0}),
        ] {
            assert!(run_in(&folder.cx, arguments.clone()).await.is_err(), "{arguments}");
        }
    }

    #[test]
    fn access_tells_what_rules_need() {
        let folder = Folder::new();
        let access = |command: &str| Bash.access(&json!({"command": command}), &folder.cx);
        assert_eq!(access("ls -la").kind, Kind::Read);
        assert_eq!(access("ls && rm x").subjects, ["ls", "rm x"]);
        assert!(access("sudo rm x").also.contains(&"rm x".to_owned()));
        assert!(access("echo $(rm x)").opaque);
        assert_eq!(Bash.access(&json!({}), &folder.cx).kind, Kind::Execute);
    }

    #[test]
    fn the_title_is_one_line() {
        assert_eq!(Bash.title(&json!({"command": "make test\nmake doc"})), "$ make test …");
        assert_eq!(Bash.title(&json!({})), "$ ");
    }

    #[test]
    fn the_description_keeps_within_its_budget() {
        assert!(description_bytes(&Bash) <= 900, "{} bytes", description_bytes(&Bash));
    }
}

//! `bash`: runs one command line, and says how it ended.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::unix::pipe::Receiver;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::{Access, Cx, Kind, Output, Permit, Running, Tool, View};
use crate::capture::{Capture, LIVE_PAUSE};
use crate::message::Part;
use crate::process::{Group, Spawned};
use crate::{programs, shell};

/// Runs command lines.
pub(super) struct Bash;

/// Seconds, when the call names none.
const DEFAULT_TIMEOUT: f64 = 120.0;
/// Seconds, at most.
const MAX_TIMEOUT: f64 = 3_600.0;
/// How long a command may take to end after it was asked to, before it is killed.
const GRACE: Duration = Duration::from_millis(250);
/// So much is read at once.
const CHUNK: usize = 64 << 10;
/// So much is read after the shell's end: what is in the pipe by then, but not what a child goes on to write for ever.
const DRAIN: usize = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    command: String,
    timeout: Option<f64>,
}

impl Tool for Bash {
    fn name(&self) -> &str {
        "bash"
    }

    fn description(&self) -> &str {
        "Runs `bash -c command` in the working directory; cd and variables do not persist: each call is a fresh shell. \
         No terminal, stdin is at EOF. Returns stdout and stderr in order, then `[exit N, time]`; a non-zero exit is no tool error. \
         Over 30000 bytes the middle is left out and a file named that has all. At `timeout` (s, default 120, max 3600) the \
         process group is killed, the output so far returned. Children started with & keep running until crab exits and do not \
         delay the result; use that for servers. Prefer read, grep, glob, edit for files."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "command": {"type": "string"},
                "timeout": {"type": "number", "description": "seconds"},
            },
            "required": ["command"],
            "additionalProperties": false,
        })
    }

    fn access(&self, arguments: &Value, _cx: &Cx) -> Access {
        let command = command_of(arguments);
        let reading = shell::read(command);
        let kind = if is_read(&reading) { Kind::Read } else { Kind::Execute };
        Access {
            kind,
            class: class(command, &reading),
            subjects: reading.subjects,
            reads: reading.reads,
            opaque: reading.opaque,
        }
    }

    fn title(&self, arguments: &Value) -> String {
        let command = command_of(arguments).trim();
        let line = command.lines().next().unwrap_or_default();
        let clipped: String = line.chars().take(100).collect();
        let more = if clipped.len() < command.len() { "…" } else { "" };
        format!("{clipped}{more}")
    }

    fn preview(&self, arguments: &Value, _cx: &Cx) -> View {
        View::Command { command: command_of(arguments).to_owned(), outcome: String::new() }
    }

    fn edited(&self, arguments: &Value, command: &str) -> Option<Value> {
        let mut arguments = arguments.as_object()?.clone();
        arguments.insert("command".into(), command.into());
        Some(Value::Object(arguments))
    }

    fn run<'a>(&'a self, arguments: Value, _permit: Permit, cx: Cx) -> Running<'a> {
        Box::pin(async move {
            let arguments: Arguments = super::parse(self, arguments)?;
            let limit = limit(arguments.timeout)?;
            run(arguments.command, limit, cx).await
        })
    }
}

fn command_of(arguments: &Value) -> &str {
    arguments["command"].as_str().unwrap_or_default()
}

fn is_read(reading: &shell::Reading) -> bool {
    reading.plain.as_deref().is_some_and(programs::only_reads)
}

/// What the answer "a" grants: calls of one kind where two words tell the kind, else this very command alone.
fn class(command: &str, reading: &shell::Reading) -> String {
    if let Some(kind) = reading.plain.as_deref().and_then(programs::kind_of) {
        return format!("single bash commands that begin with `{kind}`");
    }
    let shown: String = command.chars().take(60).flat_map(char::escape_debug).collect();
    if shown == command {
        return format!("exactly this bash command: `{shown}`");
    }
    use std::hash::{DefaultHasher, Hasher as _};
    let mut hasher = DefaultHasher::new();
    hasher.write(command.as_bytes());
    format!("exactly this bash command: `{shown}…` ({} bytes, {:016x})", command.len(), hasher.finish())
}

fn limit(timeout: Option<f64>) -> Result<Duration, String> {
    let seconds = timeout.unwrap_or(DEFAULT_TIMEOUT);
    if seconds > 0.0 && seconds <= MAX_TIMEOUT {
        return Ok(Duration::from_secs_f64(seconds));
    }
    Err(format!(
        "`timeout` is {seconds}, expected are seconds above 0 and up to {MAX_TIMEOUT}: for longer work start the command with \
         `&`, its output in a file, and look at that file later"
    ))
}

/// How a command ended.
enum Ending {
    Exited(ExitStatus),
    TimedOut(Duration),
    Interrupted,
}

async fn run(command: String, limit: Duration, cx: Cx) -> Result<Output, String> {
    if command.contains('\0') {
        return Err("`command` holds a NUL character, which no command line can: leave it out".into());
    }
    let (folder, mut notes) = folder(&cx.cwd);
    let started = Instant::now();
    let (Spawned { mut child, group, warning }, receiver) = start(&command, &folder, &cx)?;
    notes.extend(warning);
    let stream = Stream {
        receiver: receiver.into(),
        capture: Arc::new(Capture::new(&cx.spill, cx.output.clone(), cx.secrets.clone()).into()),
    };
    let mut pump = AbortOnDropHandle::new(tokio::spawn(stream.clone().pump()));

    let ending = match cx.cancel.run_until_cancelled(timeout(limit, child.wait())).await {
        Some(Ok(Ok(status))) => Ending::Exited(status),
        Some(Ok(Err(err))) => return Err(format!("the command's end could not be waited for: {err}")),
        Some(Err(_)) => Ending::TimedOut(limit),
        None => Ending::Interrupted,
    };
    let is_open = match ending {
        // A child that is just being started holds the pipe until it has sent its output elsewhere.
        Ending::Exited(_) => stream.drain() && timeout(LIVE_PAUSE, &mut pump).await.is_err(),
        Ending::TimedOut(_) | Ending::Interrupted => {
            if !group.end(GRACE).await {
                notes.push(format!(
                    "these processes do not react to being killed: {}",
                    list(&group.members())
                ));
            }
            // The shell is dead or hopeless: this only collects its status.
            let _ = timeout(GRACE, child.wait()).await;
            stream.drain();
            false
        }
    };
    stream.lock().finish();
    let outcome = outcome(&ending, started.elapsed());
    let mut text = stream.lock().text();
    match stream.lock().overwritten() {
        0 => {}
        count => notes.push(format!("{count} states of lines that overwrote themselves (\\r) left out")),
    }
    if matches!(ending, Ending::Exited(_)) {
        notes.extend(leave(group, is_open, &stream, pump));
    }
    text.truncate(text.trim_end_matches('\n').len());
    if text.is_empty() {
        text.push_str("(no output)");
    }
    for note in notes.iter().chain([&outcome]) {
        text.push_str(&format!("\n[{note}]"));
    }
    Ok(Output { content: vec![Part::text(text)], view: View::Command { command, outcome } })
}

/// The nearest folder that exists, and a note when it is not the session's own.
fn folder(cwd: &Path) -> (PathBuf, Vec<String>) {
    if cwd.is_dir() {
        return (cwd.to_owned(), vec![]);
    }
    let parent = cwd.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    let note = format!(
        "the working directory `{}` is gone or not accessible, so this ran in `{}`; make the directory again, or `cd` in each command",
        cwd.display(),
        parent.display()
    );
    (parent.to_owned(), vec![note])
}

fn start(command: &str, folder: &Path, cx: &Cx) -> Result<(Spawned, Receiver), String> {
    let pipes = || {
        let (reader, writer) = std::io::pipe()?;
        let receiver = Receiver::from_owned_fd(OwnedFd::from(reader))?;
        Ok::<_, std::io::Error>((receiver, writer.try_clone()?, writer))
    };
    let (receiver, stdout, stderr) =
        pipes().map_err(|err| format!("no pipe for the command's output: {err}"))?;
    let mut bash = tokio::process::Command::new("bash");
    bash.args(["-c", command]).current_dir(folder);
    bash.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    if is_read(&shell::read(command)) {
        keep_git_quiet(&mut bash);
    }
    let spawned = cx.environment.spawn(bash).map_err(|err| match err.raw_os_error() {
        Some(code) if code == rustix::io::Errno::TOOBIG.raw_os_error() => format!(
            "the command did not start: its {} bytes are more than the system takes ({err}); `write` them to a file and run that",
            command.len()
        ),
        _ => format!("`bash` did not start in `{}`: {err}; is it installed and in PATH?", folder.display()),
    })?;
    Ok((spawned, receiver))
}

/// What is taken for a read must not refresh git's index nor start the file system monitor that its configuration names.
fn keep_git_quiet(bash: &mut tokio::process::Command) {
    let count =
        std::env::var("GIT_CONFIG_COUNT").ok().and_then(|count| count.parse::<usize>().ok()).unwrap_or(0);
    bash.env("GIT_OPTIONAL_LOCKS", "0").env("GIT_CONFIG_COUNT", (count + 1).to_string());
    bash.env(format!("GIT_CONFIG_KEY_{count}"), "core.fsmonitor")
        .env(format!("GIT_CONFIG_VALUE_{count}"), "false");
}

/// Lets children that still run live on, and says so.
fn leave(group: Group, is_open: bool, stream: &Stream, pump: AbortOnDropHandle<()>) -> Option<String> {
    let members = group.members();
    group.release();
    let who = match members.as_slice() {
        [] => "something".to_owned(),
        [pid] => format!("1 background process (pid {pid})"),
        pids => format!("{} background processes (pids {})", pids.len(), list(pids)),
    };
    if !is_open {
        return (!members.is_empty()).then(|| format!("{who} still running; ends with crab"));
    }
    let output = match stream.lock().go_on_in_file() {
        Ok(path) => format!("further output goes to `{}`", path.display()),
        Err(reason) => format!("further output is lost: {reason}"),
    };
    // The pipe must be read on, or the child would block once it is full.
    drop(pump.detach());
    Some(format!("{who} still running with the output open; ends with crab; {output}"))
}

fn list(pids: &[u32]) -> String {
    let shown: Vec<String> = pids.iter().take(20).map(u32::to_string).collect();
    let more = if pids.len() > 20 { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

fn outcome(ending: &Ending, took: Duration) -> String {
    let took = format!("{:.1} s", took.as_secs_f64());
    match ending {
        Ending::TimedOut(limit) => format!(
            "timed out after {} s; the command and its children were killed; give a longer `timeout`, or run it in the background",
            limit.as_secs_f64()
        ),
        Ending::Interrupted => {
            format!("interrupted by the user after {took}; the command and its children were killed")
        }
        Ending::Exited(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit {code}, {took}"),
            (None, Some(signal)) => format!("killed by signal {signal}{}, {took}", signal_name(signal)),
            (None, None) => format!("{status}, {took}"),
        },
    }
}

fn signal_name(signal: i32) -> String {
    use rustix::process::Signal;
    let names = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
    ];
    let name = names.iter().find(|(known, _)| known.as_raw() == signal);
    name.map(|(_, name)| format!(" ({name})")).unwrap_or_default()
}

/// The pipe of a command and what came out of it.
#[derive(Clone)]
struct Stream {
    receiver: Arc<Receiver>,
    capture: Arc<Mutex<Capture>>,
}

impl Stream {
    /// Reads until the last writer has closed the pipe.
    async fn pump(self) {
        let mut buffer = vec![0; CHUNK];
        loop {
            match timeout(LIVE_PAUSE, self.receiver.readable()).await {
                Err(_) => {
                    self.lock().show();
                    continue;
                }
                Ok(Err(_)) => return,
                Ok(Ok(())) => {}
            }
            if self.read_one(&mut buffer) {
                return;
            }
            // A flood must not keep the rest of crab from its turn.
            tokio::task::yield_now().await;
        }
    }

    /// Takes what one read gives, and says whether it was the last. Reads under the lock, so that `drain` cannot read
    /// something newer in between and keep it in front.
    fn read_one(&self, buffer: &mut [u8]) -> bool {
        let mut capture = self.lock();
        match self.receiver.try_read(buffer) {
            Ok(0) => return true,
            Ok(count) => capture.push(&buffer[..count]),
            Err(err) => return err.kind() != std::io::ErrorKind::WouldBlock,
        }
        false
    }

    /// Reads what is in the pipe now, and says whether somebody may still write to it. Asks the system itself: the
    /// runtime may not have heard yet of what was written last.
    fn drain(&self) -> bool {
        let mut buffer = vec![0; CHUNK];
        let mut read = 0;
        let mut capture = self.lock();
        while read < DRAIN {
            match rustix::io::read(&*self.receiver, &mut buffer) {
                Ok(0) => return false,
                Ok(count) => {
                    capture.push(&buffer[..count]);
                    read += count;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(err) => return err == rustix::io::Errno::AGAIN,
            }
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, Capture> {
        self.capture.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::message::text_of;
    use crate::process::Environment;

    struct Place {
        folder: tempfile::TempDir,
        cx: Cx,
    }

    impl Place {
        fn new(session: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let cx = Cx {
                cwd: folder.path().canonicalize().unwrap(),
                seen: Arc::default(),
                changes: Arc::default(),
                cancel: CancellationToken::new(),
                output: Arc::new(|_: &str| {}),
                environment: Arc::new(Environment::new(session, vec!["CRAB_TEST_KEY".into()])),
                spill: folder.path().join("spill"),
                hidden: None,
                secrets: Arc::default(),
            };
            Self { folder, cx }
        }

        async fn call(&self, arguments: Value) -> Result<Output, String> {
            Bash.run(arguments, Permit::for_tests(), self.cx.clone()).await
        }

        async fn bash(&self, command: &str) -> String {
            text_of(&self.call(json!({"command": command})).await.unwrap().content)
        }

        async fn limited(&self, command: &str, timeout: f64) -> String {
            text_of(&self.call(json!({"command": command, "timeout": timeout})).await.unwrap().content)
        }
    }

    /// The text without the time that it took.
    fn timeless(text: &str) -> String {
        let cut = text.rfind(", ").unwrap();
        format!("{}]", &text[..cut])
    }

    fn runs(pid: &str) -> bool {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())) else { return false };
        !stat.contains(") Z ")
    }

    #[tokio::test]
    async fn output_and_exit_are_reported_in_order() {
        let place = Place::new("b-exit");
        for (command, expected) in [
            ("echo out; echo err >&2; exit 3", "out\nerr\n[exit 3]"),
            ("kill -9 $$", "(no output)\n[killed by signal 9 (SIGKILL)]"),
            ("false | true", "(no output)\n[exit 0]"),
            ("cat; read -p 'Proceed? ' x; echo got=$x", "got=\n[exit 0]"),
            ("printf '\\xf0\\xff ok\\n'", "\u{fffd}\u{fffd} ok\n[exit 0]"),
            ("cd /tmp; Q=1", "(no output)\n[exit 0]"),
            ("echo q=$Q", "q=\n[exit 0]"),
            (": 2>/dev/null </dev/tty || echo none", "none\n[exit 0]"),
        ] {
            assert_eq!(timeless(&place.bash(command).await), expected, "{command}");
        }
        let unknown = place.bash("nosuchcmd").await;
        assert!(unknown.contains("not found") && unknown.contains("[exit 127, "));
        let view = place.call(json!({"command": "true"})).await.unwrap().view;
        assert!(
            matches!(view, View::Command { command, outcome } if command == "true" && outcome.starts_with("exit 0, "))
        );
    }

    #[tokio::test]
    async fn progress_bars_come_as_their_last_state() {
        let text = Place::new("b-bar")
            .bash("for i in $(seq 1 5000); do printf '\\r%d%%' $i; done; echo; echo end")
            .await;
        assert!(text.starts_with("5000%\nend\n[4999 states"), "{text}");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_background_child_delays_nothing_and_ends_with_crab() {
        let place = Place::new("b-background");
        for command in [
            "sleep 1000 & echo started; echo $! >pid",
            "(while :; do echo tick; sleep 0.01; done) & echo $! >pid; echo started",
            "setsid sleep 1000 & echo $! >pid; echo started",
            "{ sleep 1000 & echo $! >pid; } >/dev/null 2>&1; echo started",
        ] {
            let text = place.limited(command, 20.0).await;
            let pid = std::fs::read_to_string(place.cx.cwd.join("pid")).unwrap();
            assert!(text.contains("started") && text.contains("[exit 0"), "{text}");
            assert!(text.contains("background") && text.contains(pid.trim()), "{text}");
            assert_eq!(text.contains("further output goes to"), !command.contains("/dev/null"), "{text}");
            assert!(runs(&pid));
            place.cx.environment.close();
            let gone = async {
                while runs(&pid) {
                    tokio::task::yield_now().await;
                }
            };
            timeout(Duration::from_secs(20), gone).await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_a_background_child_writes_later_is_in_the_file() {
        let place = Place::new("b-later");
        assert!(
            std::process::Command::new("mkfifo").arg(place.cx.cwd.join("fifo")).status().unwrap().success()
        );
        let text = place.bash("(read x <fifo; echo later $x) & echo now").await;
        let path = text.split('`').nth(1).unwrap().to_owned();
        place.bash("echo word >fifo; wait").await;
        let arrived = async {
            while std::fs::read_to_string(&path).unwrap() != "now\nlater word\n" {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(20), arrived).await.unwrap();
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_timeout_kills_the_whole_tree_and_keeps_the_output() {
        let place = Place::new("b-timeout");
        for command in [
            "echo part; bash -c 'echo $$ >pid; exec sleep 1000' | cat",
            "echo part; trap '' TERM; (trap '' TERM; echo $BASHPID >pid; sleep 1000); sleep 1000",
            "echo part; (env -i setsid bash -c 'echo $$ >pid; exec sleep 1000') & sleep 1000",
        ] {
            let text = place.limited(command, 1.0).await;
            assert!(text.starts_with("part\n[timed out after 1 s"), "{text}");
            assert!(!runs(&std::fs::read_to_string(place.cx.cwd.join("pid")).unwrap()), "{command}");
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn an_abort_and_a_dropped_call_kill_the_whole_tree() {
        let mut place = Place::new("b-abort");
        let command = json!({"command": "echo $$; sleep 1000; touch late"});
        for is_dropped in [false, true] {
            let cancel = CancellationToken::new();
            let (send, mut pids) = tokio::sync::mpsc::unbounded_channel();
            place.cx.cancel = cancel.clone();
            place.cx.output = Arc::new(move |text: &str| drop(send.send(text.to_owned())));
            let call = Bash.run(command.clone(), Permit::for_tests(), place.cx.clone());
            let call = AbortOnDropHandle::new(tokio::spawn(call));
            let pid = pids.recv().await.unwrap();
            if is_dropped {
                call.abort();
                assert!(call.await.unwrap_err().is_cancelled());
            } else {
                cancel.cancel();
                let text = text_of(&call.await.unwrap().unwrap().content);
                assert!(text.contains("[interrupted"), "{text}");
                assert!(!runs(&pid));
            }
            let gone = async {
                while runs(&pid) {
                    tokio::task::yield_now().await;
                }
            };
            timeout(Duration::from_secs(20), gone).await.unwrap();
            assert!(!place.cx.cwd.join("late").exists());
        }
    }

    #[tokio::test]
    async fn a_flood_is_bounded_and_the_timeout_still_fires() {
        let place = Place::new("b-flood");
        let text = place.limited("yes", 0.5).await;
        assert!(text.len() < 32_000 && text.contains("left out") && text.contains("[timed out after 0.5 s"));
        let text = place.bash("head -c 3000000 /dev/zero | tr '\\0' e >&2; echo out").await;
        assert!(text.len() < 32_000 && text.contains("out\n[exit 0"));
        for entry in std::fs::read_dir(&place.cx.spill).unwrap() {
            assert!(entry.unwrap().metadata().unwrap().len() <= crate::capture::FILE_LIMIT as u64);
        }
    }

    #[tokio::test]
    async fn a_working_directory_that_is_gone_is_named_and_the_command_runs_above_it() {
        let mut place = Place::new("b-gone");
        place.cx.cwd = place.cx.cwd.join("sub/deep");
        let text = place.bash("echo alive; cd / && echo x-$PWD").await;
        assert!(
            text.starts_with("alive\nx-/\n[the working directory `") && text.contains("is gone"),
            "{text}"
        );
        assert!(
            text.contains(&format!("ran in `{}`", place.folder.path().canonicalize().unwrap().display())),
            "{text}"
        );
    }

    #[tokio::test]
    async fn wrong_arguments_say_what_is_expected() {
        let place = Place::new("b-wrong");
        for (arguments, expected) in [
            (json!({"command": "true", "timeout": 0}), "seconds above 0 and up to 3600"),
            (json!({"command": "true", "timeout": 120_000}), "`timeout` is 120000"),
            (json!({"cmd": "true"}), "unknown field `cmd`"),
            (json!({"command": "a\0b"}), "NUL"),
            (json!({"command": "x".repeat(3_000_000)}), "`write` them to a file"),
            (json!("{"), "do not fit"),
        ] {
            let err = place.call(arguments).await.unwrap_err();
            assert!(err.contains(expected), "{err}");
        }
    }

    fn access(command: &str) -> Access {
        Bash.access(&json!({"command": command}), &Place::new("b-access").cx)
    }

    #[test]
    fn only_known_reads_pass_unasked() {
        for command in [
            "echo hi\nrm -rf canary",
            "echo x > canary/f",
            "echo hi & rm -rf canary",
            "ls <(rm -rf canary)",
            "env rm -rf canary",
            "nohup rm -rf canary",
            "git branch -D main",
            "git tag -d v1",
            "git remote set-url origin http://127.0.0.1:9/x",
            "git status && rm -rf canary",
            "ls | xargs rm -rf",
            "cat f; rm -rf canary",
            "find canary -delete",
            "find canary -exec rm -rf {} +",
            "sort -o canary/f f",
            "echo \"$(rm -rf canary)\"",
            "printenv",
            "",
        ] {
            assert_eq!(access(command).kind, Kind::Execute, "{command}");
        }
        for command in ["ls -la", "git status --short", "git log -3", "cat f"] {
            assert_eq!(access(command).kind, Kind::Read, "{command}");
        }
        assert_eq!(Bash.access(&json!(7), &Place::new("b-odd").cx).kind, Kind::Execute);
    }

    #[test]
    fn a_grant_is_narrow_and_says_what_it_covers() {
        assert_eq!(access("cargo test -q").class, access("cargo test --lib").class);
        assert!(access("cargo test -q").class.contains("bash commands that begin with `cargo test`"));
        for (one, other) in [
            ("git status && rm -rf ./tmp1", "rm -rf canary"),
            ("cargo test", "cargo test; rm x"),
            ("rm a", "rm b"),
            ("git push", "git push -f"),
            ("a\nb", "a\\nb"),
        ] {
            assert_ne!(access(one).class, access(other).class);
        }
        let long = "echo ".repeat(100);
        assert_ne!(access(&format!("{long}; a")).class, access(&format!("{long}; b")).class);
        assert!(!access("a\n\u{1b}[2K\u{200b}b").class.chars().any(|c| c.is_control() || c == '\u{200b}'));
        assert!(access("ls; x").class.contains("bash"));
    }

    #[test]
    fn a_title_is_the_first_line() {
        let title = |command: &str| Bash.title(&json!({"command": command}));
        assert_eq!(title("ls -la"), "ls -la");
        assert_eq!(title("a\nb"), "a…");
        assert_eq!(title(&"ü".repeat(200)), format!("{}…", "ü".repeat(100)));
        assert_eq!(Bash.title(&Value::Null), "");
    }

    #[test]
    fn what_the_model_reads_about_it_keeps_its_budget() {
        let bytes = Bash.name().len() + Bash.description().len() + Bash.schema().to_string().len();
        assert!(bytes <= 900, "{bytes}");
    }
}

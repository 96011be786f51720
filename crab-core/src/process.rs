//! Commands: their environment, their process group, and the guard that ends them with crab.

use std::io::{self, Write};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tokio::time::sleep;

/// Names the session in a command's environment; the guard finds by it what left its process group.
const SESSION: &str = "CRAB_SESSION_ID";
/// Names one command in its environment, so that all its descendants can be told from those of others.
const COMMAND: &str = "CRAB_COMMAND_ID";
/// How often the process table is looked at while something is about to end.
const GLANCE: Duration = Duration::from_millis(10);
/// How long killed processes may take to vanish before crab goes on without them.
const VANISH: Duration = Duration::from_secs(1);

/// What every command that crab starts finds in its environment.
#[derive(Debug, Default)]
pub struct Environment {
    /// Variables to set.
    pub set: Vec<(String, String)>,
    /// Variables to take out: the keys that crab knows.
    pub remove: Vec<String>,
    session: String,
    started: AtomicU64,
    guard: Arc<Mutex<Guard>>,
}

/// The program that reads commands.
pub const SHELL: &str = "bash";

/// A command that runs.
#[derive(Debug)]
pub struct Spawned {
    /// The process, for its pipes and its status.
    pub child: tokio::process::Child,
    /// The command and all that it starts.
    pub group: Group,
    /// What the user should know: the guard could not be started.
    pub warning: Option<String>,
}

impl Environment {
    /// The environment of a session's commands. `remove` names the variables that hold keys.
    pub fn new(session_id: &str, remove: Vec<String>) -> Self {
        let fixed = [
            ("AI_AGENT", "crab"),
            (SESSION, session_id),
            ("PAGER", "cat"),
            ("GIT_PAGER", "cat"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_EDITOR", "true"),
            ("EDITOR", "true"),
            ("VISUAL", "true"),
            ("TERM", "dumb"),
        ];
        let set = fixed.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let guard = Guard { session: session_id.to_owned(), ..Guard::default() };
        Self {
            set,
            remove,
            session: session_id.to_owned(),
            started: AtomicU64::default(),
            guard: Arc::new(guard.into()),
        }
    }

    /// Starts the command with this environment, in a session and process group of its own, without a controlling
    /// terminal. It dies with crab: at once on Linux, through the guard elsewhere; so do its children.
    ///
    /// Call it on a thread that lives as long as crab does: Linux sends the parent-death signal when the *thread* ends.
    pub fn spawn(&self, mut command: tokio::process::Command) -> io::Result<Spawned> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}.{}.{number}", self.session, std::process::id());
        command.envs(self.set.iter().map(|(name, value)| (name, value))).env(COMMAND, &id);
        for name in &self.remove {
            command.env_remove(name);
        }
        before_exec(command.as_std_mut(), die_with(rustix::process::getpid()));
        // Before there is anything to end: crab may be killed in the next moment. What keeps it from starting is told below.
        let _ = lock(&self.guard).ready();
        let child = command.spawn()?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let pid = pid.ok_or_else(|| io::Error::other("the command ended before it had a process id"))?;
        let group = Group {
            id: pid,
            marker: format!("{COMMAND}={id}\0"),
            guard: Arc::clone(&self.guard),
            armed: true,
        };
        let warning = lock(&self.guard).watch(pid).err().map(|err| {
            format!("the guard that ends commands with crab did not start (`/bin/sh`: {err}): if crab is killed, this command's children may live on")
        });
        Ok(Spawned { child, group, warning })
    }

    /// Ends everything that commands left behind, and waits for that a second at most.
    pub fn close(&self) {
        lock(&self.guard).close();
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        self.close();
    }
}

/// A command and all that it started. Dropped, it kills them.
#[derive(Debug)]
pub struct Group {
    id: Pid,
    marker: String,
    guard: Arc<Mutex<Guard>>,
    armed: bool,
}

impl Group {
    /// The processes that run, also those that left the group. Elsewhere than on Linux, the group's number stands for
    /// all that are in it.
    pub fn members(&self) -> Vec<u32> {
        let members = members(self.id, &self.marker, &[]);
        members.into_iter().map(|pid| pid.as_raw_nonzero().get().cast_unsigned()).collect()
    }

    /// Asks all to end, kills after `grace` what still runs, and says whether all are gone.
    pub async fn end(&self, grace: Duration) -> bool {
        // What was known once stays known: a child whose parent ended first can have nothing left to tell it by.
        let mut known = self.signal(Signal::TERM, &[]);
        let polite = Instant::now() + grace;
        let deadline = polite + VANISH;
        while Instant::now() < deadline {
            known = match Instant::now() < polite {
                true => members(self.id, &self.marker, &known),
                false => self.signal(Signal::KILL, &known),
            };
            if known.is_empty() {
                return true;
            }
            sleep(GLANCE).await;
        }
        false
    }

    /// Lets what still runs live on, until crab ends.
    pub fn release(mut self) {
        self.armed = false;
        lock(&self.guard).prune();
    }

    /// Returns those that were there to get it.
    fn signal(&self, signal: Signal, known: &[Pid]) -> Vec<Pid> {
        let members = members(self.id, &self.marker, known);
        // A failure means that the process is gone, or is not ours to end.
        let _ = rustix::process::kill_process_group(self.id, signal);
        if cfg!(target_os = "linux") {
            for pid in &members {
                let _ = rustix::process::kill_process(*pid, signal);
            }
        }
        members
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        // Twice, since a process may start another while the first list is made.
        let known = self.signal(Signal::KILL, &[]);
        self.signal(Signal::KILL, &known);
        lock(&self.guard).prune();
    }
}

/// One small shell that outlives crab for a moment. It reads process groups from a pipe that only crab holds open, and
/// kills them when the pipe ends, in whatever way crab did.
#[derive(Debug, Default)]
struct Guard {
    session: String,
    shell: Option<Child>,
    groups: Vec<Pid>,
}

/// `$1` is the session, `$2` crab's own process, which is never a target. A pipe that ends without a `.` was crab's sudden
/// end: then it looks again, for a process that is just becoming another program has no environment for a moment.
const GUARD: &str = r#"
trap '' INT TERM HUP QUIT TSTP
groups=' '
calm=
while read -r line; do
    id=${line#?}
    case $line in
        +*) groups="$groups$id " ;;
        -*) case $groups in *" $id "*) groups="${groups%% $id *} ${groups#* $id }" ;; esac ;;
        .*) calm=1 ;;
    esac
done
for id in $groups; do kill -s KILL -- "-$id" 2>/dev/null; done
[ -n "$1" ] && [ -d /proc/self ] || exit 0
quiet=0
for round in 1 2 3 4 5 6 7 8; do
    found=
    for file in $(grep -lszxF -e "CRAB_SESSION_ID=$1" /proc/[0-9]*/environ); do
        pid=${file#/proc/}
        pid=${pid%/environ}
        [ "$pid" = "$2" ] || { kill -s KILL "$pid" 2>/dev/null && found=1; }
    done
    [ -z "$found" ] || { quiet=0; continue; }
    quiet=$((quiet + 1))
    if [ -n "$calm" ] || [ $quiet -ge 3 ]; then exit 0; fi
    sleep 0.05
done
"#;

impl Guard {
    /// There is one. It finds by their environment also those commands that it was not told of any more.
    fn ready(&mut self) -> io::Result<()> {
        if self.shell.is_some() { Ok(()) } else { self.start() }
    }

    fn watch(&mut self, group: Pid) -> io::Result<()> {
        self.prune();
        self.groups.push(group);
        if let Some(shell) = &mut self.shell
            && tell(shell, '+', group).is_ok()
        {
            return Ok(());
        }
        self.start()
    }

    /// Starts a shell, also in place of one that somebody has ended, and tells it all that it must know.
    fn start(&mut self) -> io::Result<()> {
        self.reap(Duration::ZERO);
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        let mut command = std::process::Command::new("/bin/sh");
        command.args(["-c", GUARD, "crab-guard", &self.session, &std::process::id().to_string()]);
        // An empty environment: an outer crab that sweeps its own session must not take this guard for its prey.
        command.env_clear().env("PATH", path).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        before_exec(&mut command, || rustix::process::setsid().map(drop).map_err(io::Error::from));
        let mut shell = command.spawn()?;
        for group in &self.groups {
            tell(&mut shell, '+', *group)?;
        }
        self.shell = Some(shell);
        Ok(())
    }

    /// Forgets groups that are empty: their numbers may come to name somebody else's.
    fn prune(&mut self) {
        let is_empty =
            |group: &Pid| rustix::process::test_kill_process_group(*group) == Err(rustix::io::Errno::SRCH);
        let (gone, left) = std::mem::take(&mut self.groups).into_iter().partition(is_empty);
        self.groups = left;
        let gone: Vec<Pid> = gone;
        if let Some(shell) = &mut self.shell {
            // A guard that is gone is noticed, and replaced, when the next command starts.
            let _ = gone.into_iter().try_for_each(|group| tell(shell, '-', group));
        }
    }

    fn close(&mut self) {
        self.prune();
        for group in self.groups.drain(..) {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        self.reap(VANISH);
    }

    fn reap(&mut self, limit: Duration) {
        let Some(mut shell) = self.shell.take() else { return };
        if let Some(mut stdin) = shell.stdin.take() {
            // One that is gone needs no farewell.
            let _ = stdin.write_all(b".\n");
        }
        let deadline = Instant::now() + limit;
        while let Ok(None) = shell.try_wait()
            && Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn tell(shell: &mut Child, sign: char, group: Pid) -> io::Result<()> {
    let stdin = shell.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
    stdin.write_all(format!("{sign}{}\n", group.as_raw_nonzero()).as_bytes())
}

fn lock(guard: &Mutex<Guard>) -> MutexGuard<'_, Guard> {
    guard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a command does between fork and exec: a session of its own, and death with `crab`.
fn die_with(crab: Pid) -> impl FnMut() -> io::Result<()> + Send + Sync + 'static {
    move || {
        rustix::process::setsid()?;
        #[cfg(target_os = "linux")]
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // Crab may have died before the signal was asked for.
        if rustix::process::getppid() == Some(crab) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }
}

#[expect(
    unsafe_code,
    reason = "only the child itself can leave the session and ask for the parent-death signal"
)]
fn before_exec(
    command: &mut std::process::Command,
    act: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) {
    use std::os::unix::process::CommandExt as _;
    // SAFETY: both callers' closures make plain system calls (setsid, prctl, getppid) and build errors without
    // allocating; they take no lock and touch no memory that another thread may have held at the fork.
    unsafe { command.pre_exec(act) };
}

/// One line of the process table.
#[cfg(target_os = "linux")]
#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    is_dead: bool,
}

#[cfg(target_os = "linux")]
/// The living processes of a group, those with the marker, those that are `known`, and all their descendants.
fn members(group: Pid, marker: &str, known: &[Pid]) -> Vec<Pid> {
    use std::collections::HashSet;
    let group = group.as_raw_nonzero().get();
    let known: HashSet<i32> = known.iter().map(|pid| pid.as_raw_nonzero().get()).collect();
    let own = std::process::id().cast_signed();
    let table: Vec<Process> = processes().into_iter().filter(|process| process.pid != own).collect();
    let belongs = |process: &&Process| {
        let is_named = process.group == group || known.contains(&process.pid);
        !process.is_dead && (is_named || is_marked(process.pid, marker.as_bytes()))
    };
    let mut found: HashSet<i32> = table.iter().filter(belongs).map(|process| process.pid).collect();
    // A child with an empty environment in a group of its own is known by its parent only.
    loop {
        let before = found.len();
        let children = table.iter().filter(|process| !process.is_dead && found.contains(&process.parent));
        let children: Vec<i32> = children.map(|process| process.pid).collect();
        found.extend(children);
        if found.len() == before {
            break;
        }
    }
    let mut found: Vec<i32> = found.into_iter().collect();
    found.sort_unstable();
    found.into_iter().filter_map(Pid::from_raw).collect()
}

#[cfg(not(target_os = "linux"))]
fn members(group: Pid, _marker: &str, _known: &[Pid]) -> Vec<Pid> {
    let runs = rustix::process::test_kill_process_group(group).is_ok();
    runs.then_some(group).into_iter().collect()
}

#[cfg(target_os = "linux")]
fn processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return vec![] };
    let pids = entries.flatten().filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit());
    // Processes end while the list is made: what cannot be read any more is gone.
    pids.filter_map(|entry| parse_stat(&std::fs::read(entry.path().join("stat")).ok()?)).collect()
}

/// The program's name stands in parentheses and may itself hold any byte, so the fields count from the last `)`.
#[cfg(target_os = "linux")]
fn parse_stat(stat: &[u8]) -> Option<Process> {
    let pid = std::str::from_utf8(stat.split(|byte| *byte == b' ').next()?).ok()?.parse().ok()?;
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(name_end + 2..)?).ok()?;
    let mut fields = rest.split(' ');
    let is_dead = matches!(fields.next()?, "Z" | "X" | "x");
    Some(Process { pid, parent: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()?, is_dead })
}

#[cfg(target_os = "linux")]
fn is_marked(pid: i32, marker: &[u8]) -> bool {
    let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else { return false };
    environment.windows(marker.len()).any(|window| window == marker)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

    fn bash(script: &str) -> tokio::process::Command {
        let mut command = tokio::process::Command::new("bash");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    fn runs(pid: u32) -> bool {
        let Ok(stat) = std::fs::read(format!("/proc/{pid}/stat")) else { return false };
        parse_stat(&stat).is_some_and(|process| !process.is_dead)
    }

    /// Starts a script that prints a child's pid as its first line.
    async fn start(environment: &Environment, script: &str) -> (Spawned, u32) {
        let mut spawned = environment.spawn(bash(script)).unwrap();
        let mut line = String::new();
        BufReader::new(spawned.child.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
        (spawned, line.trim().parse().unwrap())
    }

    fn wait_until(mut holds: impl FnMut() -> bool) -> bool {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !holds() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    #[tokio::test]
    async fn commands_get_the_environment_without_the_keys_and_without_a_terminal() {
        let environment = Environment::new("s-env", vec!["HOME".into()]);
        let script = "echo $AI_AGENT,$CRAB_SESSION_ID,$PAGER,$GIT_PAGER,$GIT_TERMINAL_PROMPT,$GIT_EDITOR,$TERM,${HOME-none}; \
                      : 2>/dev/null </dev/tty || echo no tty";
        let mut spawned = environment.spawn(bash(script)).unwrap();
        let mut text = String::new();
        spawned.child.stdout.take().unwrap().read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "crab,s-env,cat,cat,0,true,dumb,none\nno tty\n");
        assert_eq!(spawned.warning, None);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_dropped_group_is_killed_with_children_that_left_it() {
        let environment = Environment::new("s-drop", vec![]);
        let (spawned, child) = start(&environment, "setsid sleep 1000 & echo $!; wait").await;
        assert!(spawned.group.members().contains(&child));
        drop(spawned);
        assert!(wait_until(|| !runs(child)));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn what_ignores_a_polite_signal_is_killed_and_gone_when_end_returns() {
        let environment = Environment::new("s-end", vec![]);
        let script = "trap '' TERM; (trap '' TERM; env -i setsid sleep 1000) & sleep 1000 & echo $!; wait";
        let (mut spawned, child) = start(&environment, script).await;
        assert!(spawned.group.end(Duration::from_millis(50)).await);
        assert!(!runs(child));
        assert_eq!(spawned.group.members(), Vec::<u32>::new());
        spawned.child.wait().await.unwrap();
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn released_commands_end_when_the_environment_is_closed() {
        let environment = Environment::new("s-close", vec![]);
        let (mut inside, first) = start(&environment, "sleep 1000 >/dev/null & echo $!").await;
        let (mut outside, second) = start(&environment, "setsid sleep 1000 >/dev/null & echo $!").await;
        inside.child.wait().await.unwrap();
        outside.child.wait().await.unwrap();
        inside.group.release();
        outside.group.release();
        assert!(runs(first) && runs(second));
        environment.close();
        assert!(wait_until(|| !runs(first) && !runs(second)));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_guard_that_was_ended_is_replaced_and_knows_the_older_groups() {
        let environment = Environment::new("s-guard", vec![]);
        let (mut old, child) = start(&environment, "env -i sleep 1000 >/dev/null & echo $!").await;
        old.child.wait().await.unwrap();
        old.group.release();
        {
            let mut guard = lock(&environment.guard);
            let shell = guard.shell.as_mut().unwrap();
            shell.kill().unwrap();
            shell.wait().unwrap();
        }
        let (new, _) = start(&environment, "echo 1").await;
        assert_eq!(new.warning, None);
        // Only the shell acts from here on: the pipe ends as it does when crab is killed.
        lock(&environment.guard).shell.as_mut().unwrap().stdin = None;
        assert!(wait_until(|| !runs(child)));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_line_of_the_process_table_is_read_whatever_the_program_is_called() {
        let process = parse_stat(b"12 (a) Z 9 (b) S 3 4 5 6").unwrap();
        assert_eq!(process, Process { pid: 12, parent: 3, group: 4, is_dead: false });
        assert!(parse_stat(b"12 (x) Z 3 4 5").unwrap().is_dead);
        assert_eq!(parse_stat(b"no"), None);
    }
}

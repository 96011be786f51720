//! A run of crab as a test says it: a home, a folder, a script of the mock model, and what came out.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use assert_cmd::Command;

/// Upper bound for what has no reason to take long; only ever reached by a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A home and a working folder, both empty.
pub(crate) struct Crab {
    folder: tempfile::TempDir,
}

/// What a run left behind.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }

    #[track_caller]
    pub(crate) fn fails(self, code: i32, said: &str) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.out, self.err);
        assert!(self.err.contains(said), "{}", self.err);
        let lines: Vec<&str> = self
            .err
            .lines()
            .filter(|line| line.starts_with("crab: ") && !line.starts_with("crab: warning"))
            .collect();
        assert!(!lines.is_empty(), "no `crab: …` line: {}", self.err);
        self
    }

    pub(crate) fn json(&self) -> Vec<serde_json::Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Crab {
    pub(crate) fn new() -> Self {
        let crab = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::create_dir(crab.dir()).unwrap();
        crab
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.folder.path().join("dir")
    }

    pub(crate) fn put(&self, name: &str, text: &str) {
        let path = self.dir().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn get(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir().join(name)).unwrap_or_default()
    }

    /// The mock's script, one answer a line.
    pub(crate) fn script(&self, lines: &[&str]) {
        std::fs::write(self.folder.path().join("script.jsonl"), lines.join("\n")).unwrap();
    }

    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        let mut environment = vec![
            ("PATH".into(), std::env::var("PATH").unwrap()),
            ("HOME".into(), text(self.folder.path().to_path_buf())),
            ("CRAB_HOME".into(), text(self.home())),
            ("TERM".into(), "xterm-256color".into()),
        ];
        let script = self.folder.path().join("script.jsonl");
        if script.exists() {
            environment.push(("CRAB_MOCK_SCRIPT".into(), text(script)));
        }
        environment
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crab"));
        command.env_clear().envs(self.environment()).current_dir(self.dir()).args(args).timeout(PATIENCE);
        command
    }

    /// Runs crab with these arguments and nothing on standard input.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.command(args).output().unwrap().into()
    }

    /// Runs the mock in print mode.
    pub(crate) fn mock(&self, args: &[&str]) -> Ran {
        self.run(&[&["--provider", "mock"], args].concat())
    }

    pub(crate) fn spawn(&self, args: &[&str]) -> std::process::Child {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_crab"));
        command.env_clear().envs(self.environment()).current_dir(self.dir()).args(args);
        let piped = std::process::Stdio::piped;
        command.stdin(std::process::Stdio::null()).stdout(piped()).stderr(piped()).spawn().unwrap()
    }

    /// Every session file.
    pub(crate) fn sessions(&self) -> Vec<PathBuf> {
        let mut found = vec![];
        for folder in std::fs::read_dir(self.home().join("sessions")).into_iter().flatten() {
            let files = std::fs::read_dir(folder.unwrap().path()).unwrap();
            found.extend(files.map(|file| file.unwrap().path()));
        }
        found
    }
}

/// Waits for a condition that another process brings about.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what} did not happen");
        std::thread::yield_now();
    }
}

/// Whether a process is there and not only waits to be collected.
pub(crate) fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim().starts_with('Z'))
}

//! `crab doctor`: what crab finds around it, and what is wrong with that. Nothing is sent to anybody.

use std::io::{self, IsTerminal};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crab_core::config::Keys;
use crab_core::home::Home;
use crab_core::process::SHELL;
use serde_json::{Value, json};

use crate::args::Args;
use crate::choice::Choice;
use crate::render::Format;
use crate::setup::{self, Ground, Stop, env};
use crate::{caret, local};

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Good,
    /// Worth knowing; crab works.
    Note,
    /// Crab does not work, or a secret is open to others.
    Bad,
}

/// One thing that was looked at.
struct Check {
    what: &'static str,
    state: State,
    text: String,
}

#[derive(Default)]
struct Report(Vec<Check>);

impl Report {
    fn add(&mut self, state: State, what: &'static str, text: impl Into<String>) {
        self.0.push(Check { what, state, text: text.into() });
    }
}

/// The report as text or JSON, and whether all is well.
pub(crate) fn report(args: &Args) -> (String, bool) {
    let mut report = Report::default();
    let version = env!("CARGO_PKG_VERSION");
    report.add(
        State::Good,
        "crab",
        format!("{version} on {} {}", std::env::consts::OS, std::env::consts::ARCH),
    );
    match setup::ground(args) {
        Ok(ground) => configured(args, &ground, &mut report),
        Err(stop) => report.add(State::Bad, "configuration", stop.failure.message),
    }
    servers(&mut report);
    network(&mut report);
    programs(&mut report);
    terminal(&mut report);
    let is_well = report.0.iter().all(|check| check.state != State::Bad);
    let text = if args.output_format == Format::Text { as_text(&report) } else { as_json(&report) };
    (text, is_well)
}

fn configured(args: &Args, ground: &Ground, report: &mut Report) {
    let Ground { cwd, home, config } = ground;
    match home {
        Some(home) => {
            report.add(State::Good, "home", home.dir().display().to_string());
            files(home, report);
        }
        None => report.add(State::Note, "home", "none: set CRAB_HOME or HOME, or nothing is kept"),
    }
    let count = config.settings.len();
    report.add(State::Good, "configuration", format!("{count} settings; `crab config` shows them"));
    for warning in &config.warnings {
        report.add(State::Note, "configuration", warning.clone());
    }
    let mut keys = Keys::load(home.as_ref(), config, &env);
    if let Some(warning) = keys.warning() {
        report.add(State::Bad, "auth.json", warning);
    }
    match asked(args, ground, &mut keys) {
        Ok(text) => report.add(State::Good, "model", text),
        Err(stop) => {
            let line = stop.failure.message.lines().next().unwrap_or_default().to_owned();
            report.add(State::Bad, "model", line);
        }
    }
    report.add(State::Good, "directory", cwd.display().to_string());
}

/// Who would be asked, with which key.
fn asked(args: &Args, ground: &Ground, keys: &mut Keys) -> Result<String, Stop> {
    // A command that prints a key may ask a person for something; here it is only named.
    let commands = ground.config.providers.iter().filter(|(_, own)| own.api_key_cmd.is_some());
    let commands: Vec<_> = commands.map(|(name, _)| name.clone()).collect();
    let mut choice = Choice { args, config: &ground.config, keys };
    let chosen = choice.model(None)?;
    let name = format!("{}/{}", chosen.provider, chosen.model);
    if commands.contains(&chosen.provider) {
        return Ok(format!("{name}, key from `api_key_cmd`, which was not run"));
    }
    let options = choice.options(&chosen.provider, args.base_url.clone())?;
    let key =
        options.key.as_ref().map_or_else(|| "no key".to_owned(), |key| format!("key from {}", key.source));
    Ok(format!("{name}, {key}"))
}

/// Whether what is private is closed to others.
fn files(home: &Home, report: &mut Report) {
    let mut open = vec![];
    for path in [home.dir().to_path_buf(), home.auth_file(), home.history_file(), home.sessions_dir()] {
        if is_open(&path) {
            open.push(path.display().to_string());
        }
    }
    if open.is_empty() {
        return report.add(State::Good, "files", "closed to other users");
    }
    report.add(
        State::Bad,
        "files",
        format!("others can read {}: `chmod -R go= {}`", open.join(", "), home.dir().display()),
    );
}

fn is_open(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0)
}

fn servers(report: &mut Report) {
    for (name, address) in local::servers() {
        report.add(
            State::Good,
            "local models",
            format!("`{name}` answers on {address}: `crab --provider {name}`"),
        );
    }
}

fn network(report: &mut Report) {
    let names = ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"];
    for name in names {
        let value = env(name).or_else(|| env(&name.to_lowercase())).filter(|value| !value.is_empty());
        if let Some(value) = value {
            let shown = value.rsplit_once('@').map_or(value.as_str(), |(_, host)| host);
            report.add(State::Good, "proxy", format!("{name} is {shown}"));
        }
    }
    for name in ["SSL_CERT_FILE", "SSL_CERT_DIR"] {
        let Some(value) = env(name).filter(|value| !value.is_empty()) else { continue };
        match std::env::split_paths(&value).all(|path| path.exists()) {
            true => report.add(State::Good, "certificates", format!("{name} is {value}")),
            false => {
                report.add(State::Bad, "certificates", format!("{name} names {value}, which is not there"))
            }
        }
    }
}

fn programs(report: &mut Report) {
    match first_line("git", &["--version"]) {
        Some(version) => {
            let top = first_line("git", &["rev-parse", "--show-toplevel"]);
            let place =
                top.map_or_else(|| "no repository here".to_owned(), |top| format!("repository {top}"));
            report.add(State::Good, "git", format!("{}, {place}", version.trim_start_matches("git ")));
        }
        None => report.add(State::Note, "git", "not found: AGENTS.md is looked for in this directory alone"),
    }
    match first_line(SHELL, &["--version"]) {
        Some(version) => report.add(State::Good, SHELL, version),
        None => report.add(State::Bad, SHELL, "not found: no command can be run"),
    }
    let sandbox = match std::fs::read_to_string("/sys/kernel/security/lsm") {
        Ok(list) if list.contains("landlock") => "the kernel has Landlock",
        _ if Path::new("/usr/bin/sandbox-exec").exists() => "sandbox-exec is there",
        _ => "no sandbox of the system was found",
    };
    report.add(State::Good, "sandbox", format!("{sandbox}; the gate is a seatbelt, see README"));
}

fn first_line(program: &str, args: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    let output = command.args(args).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(|| text.lines().next().unwrap_or_default().to_owned())
}

fn terminal(report: &mut Report) {
    let name = env("TERM").unwrap_or_default();
    let colours = match env("COLORTERM").as_deref() {
        Some("truecolor" | "24bit") => "24 bit colours",
        _ => "16 colours",
    };
    let streams = [io::stdin().is_terminal(), io::stdout().is_terminal(), io::stderr().is_terminal()];
    let size =
        crossterm::terminal::size().map_or_else(|_| "size unknown".into(), |(x, y)| format!("{x} by {y}"));
    match (streams.iter().any(|is| *is), name.as_str()) {
        (false, _) => {
            report.add(State::Note, "terminal", "none: standard input, output and error are something else")
        }
        (true, "" | "dumb") => {
            report.add(State::Note, "terminal", "TERM says that it is dumb: plain lines, no editor")
        }
        (true, name) => report.add(State::Good, "terminal", format!("{name}, {size}, {colours}")),
    }
}

fn as_text(report: &Report) -> String {
    let line = |check: &Check| {
        let mark = match check.state {
            State::Good => "ok  ",
            State::Note => "note",
            State::Bad => "BAD ",
        };
        format!("{mark}  {:13}  {}\n", check.what, caret::line(&check.text))
    };
    report.0.iter().map(line).collect()
}

fn as_json(report: &Report) -> String {
    let object = |check: &Check| {
        let state = match check.state {
            State::Good => "ok",
            State::Note => "note",
            State::Bad => "bad",
        };
        json!({"check": check.what, "state": state, "text": check.text})
    };
    let list: Vec<Value> = report.0.iter().map(object).collect();
    format!("{}\n", Value::Array(list))
}

//! The list of sessions: printed, or to choose from.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crab_core::home::Home;
use crab_core::protocol::FailureKind;
use crab_core::session::{self, Listed};

use crate::caret;
use crate::setup::Stop;
use crate::tty;

/// How many sessions are offered.
const OFFERED: usize = 20;

/// Lets the user choose on the controlling terminal.
pub(crate) fn session(home: &Home) -> Result<PathBuf, Stop> {
    let Some(mut terminal) = tty::controlling() else {
        return Err(Stop::wrong(
            "choosing a session needs a terminal; name one: `crab -r ID` (`crab sessions` lists them)",
        ));
    };
    let (mut sessions, _) = session::list(home, None)?;
    sessions.truncate(OFFERED);
    if sessions.is_empty() {
        return Err(Stop::new(FailureKind::Session, "nothing to resume: there is no session yet"));
    }
    let failed =
        |err: std::io::Error| Stop::new(FailureKind::Internal, format!("cannot use the terminal: {err}"));
    let mut text = String::new();
    for (number, listed) in sessions.iter().enumerate() {
        text.push_str(&format!("{:>3}  {}  {}\n", number + 1, line(listed), listed.cwd));
    }
    text.push_str("number, or Enter for none: ");
    terminal.write_all(text.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    BufReader::new(&terminal).read_line(&mut answer).map_err(failed)?;
    let chosen = answer.trim().parse::<usize>().ok().and_then(|number| sessions.get(number.checked_sub(1)?));
    match chosen {
        Some(listed) => Ok(listed.file.clone()),
        None => Err(Stop::new(FailureKind::Session, "no session was chosen")),
    }
}

/// `crab sessions`: the sessions of a directory, newest first.
pub(crate) fn table(home: &Home, cwd: &Path) -> Result<(String, Vec<String>), Stop> {
    let (sessions, warnings) = session::list(home, Some(cwd))?;
    if sessions.is_empty() {
        return Ok((format!("no sessions of `{}` yet\n", cwd.display()), warnings));
    }
    Ok((sessions.iter().map(|listed| line(listed) + "\n").collect(), warnings))
}

fn line(listed: &Listed) -> String {
    let prompt: String = listed.prompt.split_whitespace().collect::<Vec<_>>().join(" ");
    let prompt: String = caret::strict(&prompt).chars().take(60).collect();
    format!("{}  {:>8}  {prompt}", listed.id, age(listed.modified))
}

fn age(time: SystemTime) -> String {
    let seconds = SystemTime::now().duration_since(time).unwrap_or_default().as_secs();
    match seconds {
        0..60 => "now".into(),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

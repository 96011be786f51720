//! The list of sessions to choose from.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;

use crab_core::home::Home;
use crab_core::protocol::FailureKind;
use crab_core::session;

use crate::sessions::line;
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
        text.push_str(&format!("{:>3}  {}\n", number + 1, line(listed, true)));
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

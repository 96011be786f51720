//! `crab sessions`: lists, searches, shows, exports and removes sessions.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{Parser, Subcommand, ValueEnum};
use crab_core::home::Home;
use crab_core::protocol::FailureKind;
use crab_core::session::{self, Listed, Transcript};
use serde_json::json;

use crate::caret;
use crate::export;
use crate::setup::Stop;
use crate::tty;

/// Places of one session that a search shows.
const PLACES: usize = 3;

/// Lists, searches, shows and removes sessions
#[derive(Debug, Parser)]
#[command(
    name = "crab sessions",
    bin_name = "crab sessions",
    disable_help_subcommand = true,
    max_term_width = 100
)]
struct Line {
    #[command(subcommand)]
    what: Option<What>,
    /// Those of every directory
    #[arg(long, global = true)]
    all: bool,
    /// One JSON value instead of text
    #[arg(long, global = true)]
    json: bool,
    /// Those of DIR
    #[arg(short = 'C', long = "cd", value_name = "DIR", global = true)]
    cd: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The sessions of this directory, newest first (as without a word)
    List,
    /// What was said, asked or put out with these words in it, in the sessions of every directory
    Search {
        /// The words; upper and lower case are the same
        #[arg(required = true)]
        words: Vec<String>,
    },
    /// A session as text
    Show {
        /// Its id, or how it begins
        id: String,
    },
    /// A session in another form
    Export {
        /// Its id, or how it begins
        id: String,
        /// The form
        #[arg(long, value_enum, default_value = "md")]
        format: Form,
    },
    /// Remove sessions
    Rm {
        /// Their ids, or how they begin
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Remove the sessions of this directory that were not written to for a time
    Prune {
        /// Such as 30d, 12h or 8w
        #[arg(long, value_name = "TIME", value_parser = span)]
        older_than: Duration,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

/// The forms of a session outside its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// Markdown.
    Md,
    /// A page that needs nothing beside it.
    Html,
    /// Each entry as it stands in the file.
    Json,
}

/// What the command line asks of `crab sessions`, when it is more than the bare word.
pub(crate) fn asked(line: impl IntoIterator<Item = OsString>) -> Option<Vec<OsString>> {
    const WORDS: [&str; 11] =
        ["list", "search", "show", "export", "rm", "prune", "--all", "--json", "--cd", "--help", "-h"];
    let line: Vec<OsString> = line.into_iter().collect();
    let [name, second, ..] = line.as_slice() else { return None };
    let second = second.to_string_lossy();
    (name == "sessions" && (WORDS.contains(&&*second) || second.starts_with("-C"))).then_some(line)
}

/// Does it. Gives what is for standard output.
pub(crate) fn run(line: Vec<OsString>) -> Result<String, Stop> {
    let line = match Line::try_parse_from(line) {
        Ok(line) => line,
        Err(err) if !err.use_stderr() => return Ok(err.to_string()),
        Err(err) => {
            let text = err.to_string();
            return Err(Stop::wrong(text.trim_start_matches("error: ").trim_end()));
        }
    };
    let home = Home::from_env().ok_or_else(|| {
        Stop::new(FailureKind::Session, "there is no home for sessions: set CRAB_HOME or HOME")
    })?;
    let cwd = line.cd.clone().map_or_else(std::env::current_dir, Ok);
    let cwd =
        cwd.map_err(|err| Stop::new(FailureKind::Session, format!("there is no working directory: {err}")))?;
    let place = if line.all { None } else { Some(cwd.as_path()) };
    match line.what {
        None | Some(What::List) => list(&home, place, line.json),
        Some(What::Search { words }) => search(&home, line.cd.as_deref(), &words.join(" "), line.json),
        Some(What::Show { id }) => Ok(export::markdown(&transcript(&home, &id)?)),
        Some(What::Export { id, format }) => export::whole(&transcript(&home, &id)?, format),
        Some(What::Rm { ids }) => remove_named(&home, &ids),
        Some(What::Prune { older_than, yes }) => prune(&home, place, older_than, yes),
    }
}

fn transcript(home: &Home, id: &str) -> Result<Transcript, Stop> {
    let transcript = Transcript::read(&session::find(home, id)?)?;
    warn(&transcript.warnings);
    Ok(transcript)
}

fn warn(warnings: &[String]) {
    for warning in warnings {
        // What was asked for is on standard output; a closed standard error does not take it away.
        let _ = writeln!(io::stderr(), "crab: warning: {}", caret::answer(warning));
    }
}

/// The sessions of a directory, or of all.
pub(crate) fn list(home: &Home, cwd: Option<&Path>, as_json: bool) -> Result<String, Stop> {
    let (sessions, warnings) = session::list(home, cwd)?;
    warn(&warnings);
    if as_json {
        return Ok(json(sessions.iter().map(facts).collect()));
    }
    if sessions.is_empty() {
        return Ok(match cwd {
            Some(cwd) => format!(
                "no sessions of `{}` yet; `crab sessions --all` lists those of every directory\n",
                cwd.display()
            ),
            None => "no sessions yet\n".to_owned(),
        });
    }
    Ok(sessions.iter().map(|listed| line(listed, cwd.is_none()) + "\n").collect())
}

fn json(value: serde_json::Value) -> String {
    format!("{value:#}\n")
}

fn facts(listed: &Listed) -> serde_json::Value {
    let modified = listed.modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let totals = &listed.totals;
    json!({
        "id": listed.id, "cwd": listed.cwd, "created": listed.created, "modified_unix": modified,
        "title": totals.title, "prompt": listed.prompt, "turns": totals.turns, "usage": totals.usage,
        "file": listed.file,
    })
}

/// One session on one line.
pub(crate) fn line(listed: &Listed, has_place: bool) -> String {
    let about = listed.totals.title.as_ref().unwrap_or(&listed.prompt);
    let about: Vec<&str> = about.split_whitespace().collect();
    let about: String = caret::strict(&about.join(" ")).chars().take(60).collect();
    let turns = match listed.totals.turns {
        1 => "1 turn".to_owned(),
        turns => format!("{turns} turns"),
    };
    let cost = listed.totals.usage.cost_usd.map(|cost| format!("${cost:.2}")).unwrap_or_default();
    let place = if has_place { format!("  {}", caret::line(&listed.cwd)) } else { String::new() };
    format!("{}  {:>8}  {turns:>9}  {cost:>7}  {about}{place}", listed.id, age(listed.modified))
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

fn search(home: &Home, cwd: Option<&Path>, words: &str, as_json: bool) -> Result<String, Stop> {
    let (found, warnings) = session::search(home, cwd, words, PLACES)?;
    warn(&warnings);
    if as_json {
        let place = |found: &session::Found| json!({"session": facts(&found.session), "type": found.kind, "line": found.line});
        return Ok(json(found.iter().map(place).collect()));
    }
    let mut out = String::new();
    let mut last = "";
    for place in &found {
        if place.session.id != last {
            out.push_str(&format!("{}\n", line(&place.session, true)));
            last = &place.session.id;
        }
        out.push_str(&format!("    {}: {}\n", place.kind, around(&place.line, words)));
    }
    if out.is_empty() { Ok(format!("no session has `{}`\n", caret::line(words))) } else { Ok(out) }
}

/// As much of a line as stands around the words.
fn around(line: &str, words: &str) -> String {
    const ROOM: usize = 40;
    let lower = line.to_lowercase();
    let at = lower.find(&words.to_lowercase()).map_or(0, |at| lower[..at].chars().count());
    let piece: String =
        line.chars().skip(at.saturating_sub(ROOM)).take(words.chars().count() + 2 * ROOM).collect();
    caret::line(piece.trim())
}

fn remove_named(home: &Home, ids: &[String]) -> Result<String, Stop> {
    // Nothing goes when one of them is not there.
    let files = ids.iter().map(|id| session::find(home, id)).collect::<Result<Vec<_>, _>>()?;
    let mut out = String::new();
    for file in files {
        let id = session::remove(home, &file)?;
        out.push_str(&format!("removed {id}\n"));
    }
    Ok(out)
}

fn prune(home: &Home, cwd: Option<&Path>, older_than: Duration, yes: bool) -> Result<String, Stop> {
    let (sessions, warnings) = session::list(home, cwd)?;
    warn(&warnings);
    let is_old = |listed: &&Listed| {
        SystemTime::now().duration_since(listed.modified).is_ok_and(|age| age > older_than)
    };
    let old: Vec<&Listed> = sessions.iter().filter(is_old).collect();
    if old.is_empty() {
        return Ok("no session is that old\n".to_owned());
    }
    if !yes && !agreed(&old)? {
        return Err(Stop::new(FailureKind::Session, "nothing was removed"));
    }
    let mut out = String::new();
    for listed in old {
        match session::remove(home, &listed.file) {
            Ok(id) => out.push_str(&format!("removed {id}\n")),
            Err(err) => warn(&[err.to_string()]),
        }
    }
    Ok(out)
}

/// Shows what would go, and waits for a yes.
fn agreed(old: &[&Listed]) -> Result<bool, Stop> {
    let terminal = tty::controlling().filter(|_| io::stderr().is_terminal());
    let Some(mut terminal) = terminal else {
        return Err(Stop::wrong("there is no terminal to ask on: `--yes` removes without asking"));
    };
    let lines: String = old.iter().map(|listed| line(listed, true) + "\n").collect();
    let mut answer = String::new();
    let asked = write!(terminal, "{lines}remove these {}? [y/N] ", old.len());
    asked
        .and_then(|()| BufReader::new(&terminal).read_line(&mut answer))
        .map_err(|err| Stop::new(FailureKind::Internal, format!("cannot use the terminal: {err}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// `30d`, `12h`, `8w`, `90m`.
fn span(text: &str) -> Result<Duration, String> {
    let end = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len();
    let (number, unit) = text.split_at(end);
    let seconds = match unit {
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return Err("give a number and a unit: m, h, d or w, such as 30d".into()),
    };
    let number: u64 = number.parse().map_err(|_| "give a whole number, such as 30d".to_owned())?;
    Ok(Duration::from_secs(number.saturating_mul(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_says_to_a_model_is_a_command() {
        let is_asked = |line: &[&str]| asked(line.iter().map(|word| OsString::from(*word))).is_some();
        assert!(is_asked(&["sessions", "search", "x"]) && is_asked(&["sessions", "--all"]));
        assert!(
            !is_asked(&["sessions"])
                && !is_asked(&["sessions", "are", "lost"])
                && !is_asked(&["search", "x"])
        );
        <Line as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn spans_have_a_unit() {
        assert_eq!(span("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(span("2h"), Ok(Duration::from_secs(7_200)));
        assert!(span("30").is_err() && span("d").is_err() && span("-1d").is_err());
    }

    #[test]
    fn a_place_is_shown_with_what_stands_around_it() {
        let line = format!("{}needle{}", "a".repeat(100), "b".repeat(100));
        assert_eq!(around(&line, "NEEDLE"), format!("{}needle{}", "a".repeat(40), "b".repeat(40)));
        assert_eq!(around("short", "or"), "short");
    }
}

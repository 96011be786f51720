//! Chooses a session: a few lines on the terminal that shrink to what is typed, and leave nothing behind.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;

use crab_core::home::Home;
use crab_core::protocol::FailureKind;
use crab_core::session::{self, Listed};
use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, read};
use unicode_width::UnicodeWidthChar;

use crate::sessions::line;
use crate::setup::Stop;
use crate::tty;

/// Sessions that stand there at once.
const SHOWN: usize = 8;

/// Lets the user choose on the controlling terminal.
pub(crate) fn session(home: &Home) -> Result<PathBuf, Stop> {
    let Some(terminal) = tty::controlling() else {
        return Err(Stop::wrong(
            "choosing a session needs a terminal; name one: `crab -r ID` (`crab sessions` lists them)",
        ));
    };
    let (sessions, _) = session::list(home, None)?;
    if sessions.is_empty() {
        return Err(Stop::new(FailureKind::Session, "nothing to resume: there is no session yet"));
    }
    let failed = |err: io::Error| Stop::new(FailureKind::Internal, format!("cannot use the terminal: {err}"));
    let chosen = if tty::is_dumb() {
        by_number(&terminal, &sessions).map_err(failed)?
    } else {
        by_words(terminal, &sessions).map_err(failed)?
    };
    let none = || Stop::new(FailureKind::Session, "no session was chosen");
    chosen.map(|listed| listed.file.clone()).ok_or_else(none)
}

/// For a terminal that cannot take lines away.
fn by_number<'a>(mut terminal: &File, sessions: &'a [Listed]) -> io::Result<Option<&'a Listed>> {
    let offered = &sessions[..sessions.len().min(20)];
    let mut text = String::new();
    for (number, listed) in offered.iter().enumerate() {
        text.push_str(&format!("{:>3}  {}\n", number + 1, line(listed, true)));
    }
    text.push_str("number, or Enter for none: ");
    terminal.write_all(text.as_bytes())?;
    let mut answer = String::new();
    BufReader::new(terminal).read_line(&mut answer)?;
    let number: Option<usize> = answer.trim().parse().ok();
    Ok(number.and_then(|number| offered.get(number.checked_sub(1)?)))
}

fn by_words(mut terminal: File, sessions: &[Listed]) -> io::Result<Option<&Listed>> {
    tty::touch();
    crossterm::terminal::enable_raw_mode()?;
    let chosen = choose(&mut terminal, sessions);
    let restored = crossterm::terminal::disable_raw_mode();
    let chosen = chosen?;
    restored?;
    Ok(chosen)
}

fn choose<'a>(terminal: &mut File, sessions: &'a [Listed]) -> io::Result<Option<&'a Listed>> {
    let mut picker = Picker { sessions, words: String::new(), at: 0 };
    loop {
        let (width, rows) = crossterm::terminal::size().map_or((80, 24), |(w, h)| (w.into(), h.into()));
        terminal.write_all(picker.drawn(width, rows).as_bytes())?;
        let step = match read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => picker.press(key),
            _ => Step::Goes,
        };
        match step {
            Step::Goes => {}
            Step::Done(chosen) => {
                terminal.write_all(b"\r\x1b[J")?;
                return Ok(chosen);
            }
        }
    }
}

/// What a key leads to.
#[derive(Debug)]
enum Step<'a> {
    Goes,
    Done(Option<&'a Listed>),
}

struct Picker<'a> {
    sessions: &'a [Listed],
    words: String,
    /// The place of the chosen one among those that fit.
    at: usize,
}

impl<'a> Picker<'a> {
    /// Those that have all the words, the newest first.
    fn fitting(&self) -> Vec<&'a Listed> {
        let words: Vec<String> = self.words.split_whitespace().map(str::to_lowercase).collect();
        let fits = |listed: &&Listed| {
            let text = line(listed, true).to_lowercase();
            words.iter().all(|word| text.contains(word.as_str()))
        };
        self.sessions.iter().filter(fits).collect()
    }

    /// The line with the words, and below it what fits; the cursor stays behind the words.
    fn drawn(&self, width: usize, rows: usize) -> String {
        let fitting = self.fitting();
        let room = SHOWN.min(rows.saturating_sub(2)).max(1);
        let from = (self.at + 1).saturating_sub(room);
        let mut lines = vec![];
        for (at, listed) in fitting.iter().enumerate().skip(from).take(room) {
            let mark = if at == self.at { "›" } else { " " };
            lines.push(cut(&format!("{mark} {}", line(listed, true)), width));
        }
        if fitting.is_empty() {
            lines.push(cut("  no session has these words", width));
        } else if fitting.len() > lines.len() {
            lines.push(cut(&format!("  {} of {}", self.at + 1, fitting.len()), width));
        }
        let head = cut(&format!("resume which? {}", self.words), width);
        let up = lines.len();
        format!("\r\x1b[J{head}\r\n{}\x1b[{up}A\r{head}", lines.join("\r\n"))
    }

    fn press(&mut self, key: KeyEvent) -> Step<'a> {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let last = self.fitting().len().saturating_sub(1);
        match key.code {
            KeyCode::Esc => return Step::Done(None),
            KeyCode::Char('c' | 'd') if is_control => return Step::Done(None),
            KeyCode::Enter => return Step::Done(self.fitting().get(self.at).copied()),
            KeyCode::Up => self.at = self.at.saturating_sub(1),
            KeyCode::Down => self.at = (self.at + 1).min(last),
            KeyCode::Char('p') if is_control => self.at = self.at.saturating_sub(1),
            KeyCode::Char('n') if is_control => self.at = (self.at + 1).min(last),
            KeyCode::Char('u') if is_control => self.type_over(String::new()),
            KeyCode::Backspace => {
                let mut words = self.words.clone();
                words.pop();
                self.type_over(words);
            }
            KeyCode::Char(c) if !is_control => self.type_over(format!("{}{c}", self.words)),
            _ => {}
        }
        Step::Goes
    }

    fn type_over(&mut self, words: String) {
        (self.words, self.at) = (words, 0);
    }
}

/// As much as fits before the last column: a line that wraps could not be taken away.
fn cut(line: &str, width: usize) -> String {
    let mut columns = 0;
    let fits = |c: &char| {
        columns += c.width().unwrap_or(0);
        columns < width
    };
    line.chars().take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    fn sessions(prompts: &[&str]) -> Vec<Listed> {
        let listed = |(number, prompt): (usize, &&str)| Listed {
            id: format!("id{number}"),
            cwd: "/work".into(),
            created: String::new(),
            modified: SystemTime::now(),
            prompt: (*prompt).to_owned(),
            totals: session::Totals::default(),
            file: PathBuf::new(),
        };
        prompts.iter().enumerate().map(listed).collect()
    }

    fn typed(picker: &mut Picker, text: &str) {
        for c in text.chars() {
            picker.press(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
        }
    }

    #[test]
    fn words_in_any_order_narrow_the_list() {
        let sessions = sessions(&["fix the parser", "write docs", "parser docs"]);
        let mut picker = Picker { sessions: &sessions, words: String::new(), at: 0 };
        typed(&mut picker, "docs PAR");
        assert_eq!(picker.fitting().iter().map(|listed| listed.id.as_str()).collect::<Vec<_>>(), ["id2"]);
        let enter = KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE);
        assert!(matches!(picker.press(enter), Step::Done(Some(listed)) if listed.id == "id2"));
        typed(&mut picker, "x");
        assert!(matches!(picker.press(enter), Step::Done(None)));
        assert!(picker.drawn(80, 24).contains("no session has these words"));
    }

    #[test]
    fn the_list_moves_with_the_mark_and_no_line_wraps() {
        let many: Vec<String> = (0..30).map(|n| format!("日本語 prompt {n}")).collect();
        let sessions = sessions(&many.iter().map(String::as_str).collect::<Vec<_>>());
        let mut picker = Picker { sessions: &sessions, words: String::new(), at: 0 };
        for _ in 0..20 {
            picker.press(KeyEvent::new(KeyCode::Down, KeyModifiers::NONE));
        }
        let drawn = picker.drawn(40, 24);
        assert!(drawn.contains("› id20") && drawn.contains("id13") && !drawn.contains("id12"), "{drawn}");
        assert!(drawn.contains("21 of 30"), "{drawn}");
        let widest = picker
            .drawn(30, 6)
            .split("\r\n")
            .map(|line| line.chars().map(|c| c.width().unwrap_or(0)).sum::<usize>())
            .max();
        assert!(widest.unwrap() < 60, "the head stands there twice with sequences in between");
    }
}

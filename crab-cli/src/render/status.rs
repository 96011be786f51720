//! What stands below everything while a turn runs: the last lines of a running command, and one quiet line that tells what
//! runs, for how long and what it cost. All of it is taken away before anything is printed and leaves nothing behind.

use std::collections::VecDeque;
use std::time::Instant;

use crab_core::message::Usage;
use unicode_width::UnicodeWidthChar;

use super::terminal::{Paint, Style};
use crate::caret;

/// Columns of a title: the line above has all of it.
const TITLE: usize = 24;
/// Lines of a running command.
const TAIL: usize = 5;
/// No line is longer, for on some terminals that are made narrower it could not be taken away then.
const LONGEST: usize = 79;
/// Of an output that comes in floods so many bytes are looked at, which is more than can be shown.
const LOOK: usize = 2_000;

/// What the lines tell.
pub(super) struct Status {
    /// Lines on the screen.
    shown: Vec<String>,
    /// Whether the terminal wraps anew what stands there when its width changes.
    rewraps: bool,
    /// Since when something runs; `None`: nothing does.
    since: Option<Instant>,
    /// What runs, the newest last: an id and its name.
    running: Vec<(String, String)>,
    /// The last lines that a running command wrote; the last one may still grow.
    tail: VecDeque<String>,
    usage: Usage,
    /// Tokens of the model's window.
    window: Option<u64>,
    /// Tokens in the last request.
    filled: Option<u64>,
}

impl Status {
    pub(super) fn new(window: Option<u64>) -> Self {
        Self {
            shown: vec![],
            rewraps: rewraps(|name| std::env::var(name).ok()),
            since: None,
            running: vec![],
            tail: VecDeque::new(),
            usage: Usage::default(),
            window,
            filled: None,
        }
    }

    /// A turn begins.
    pub(super) fn begin(&mut self) {
        (self.since, self.usage) = (Some(Instant::now()), Usage::default());
        self.running.clear();
        self.tail.clear();
    }

    /// The turn is over.
    pub(super) fn end(&mut self) {
        self.since = None;
    }

    pub(super) fn started(&mut self, id: &str, title: &str) {
        self.running.push((id.to_owned(), title.to_owned()));
        self.tail.clear();
    }

    pub(super) fn stopped(&mut self, id: &str) {
        self.running.retain(|(own, _)| own != id);
        self.tail.clear();
    }

    /// Takes what a command wrote.
    pub(super) fn wrote(&mut self, chunk: &str) {
        let chunk = caret::strict(&chunk[chunk.ceil_char_boundary(chunk.len().saturating_sub(LOOK))..]);
        for piece in chunk.split_inclusive('\n') {
            match self.tail.back_mut().filter(|line| !line.ends_with('\n')) {
                Some(line) if line.len() < LOOK => line.push_str(piece),
                // What is longer than any terminal is wide only has to come to its end.
                Some(line) if piece.ends_with('\n') => line.push('\n'),
                Some(_) => {}
                None => self.tail.push_back(piece.to_owned()),
            }
        }
        self.tail.retain(|line| !line.trim().is_empty());
        self.tail.drain(..self.tail.len().saturating_sub(TAIL));
    }

    pub(super) fn counted(&mut self, usage: &Usage) {
        self.usage.add(usage);
        let answered = usage.output.unwrap_or(0);
        self.filled = usage.input.map(|input| input.saturating_add(answered)).or(self.filled);
    }

    /// Whether there is something to take away.
    pub(super) fn is_shown(&self) -> bool {
        !self.shown.is_empty()
    }

    /// What takes the lines away, when they are there, on a terminal of this width by now.
    pub(super) fn clear(&mut self, width: usize) -> String {
        let height = self.height(width);
        self.shown.clear();
        match height {
            0 => String::new(),
            1 => "\r\x1b[K".to_owned(),
            rows => format!("\r\x1b[{}A\x1b[J", rows - 1),
        }
    }

    /// Rows of the screen that the lines take. Where it is not known that the terminal has wrapped them anew, their
    /// beginning may stay: whoever moves up too far eats what was said.
    fn height(&self, width: usize) -> usize {
        let rows = |line: &String| if self.rewraps { wrapped(line, width) } else { 1 };
        self.shown.iter().map(rows).sum()
    }

    /// What brings the lines on a terminal of this size up to date, in place and without a gap, while something runs;
    /// `draft` is what the user is typing. `None`: nothing has changed.
    pub(super) fn draw(
        &mut self,
        draft: &str,
        (width, rows): (usize, usize),
        paint: Paint,
    ) -> Option<String> {
        let columns = width.saturating_sub(1).min(LONGEST);
        // On a small screen what was said before has the greater claim.
        let tail = self.tail.iter().skip(self.tail.len().saturating_sub(rows / 4));
        let mut lines: Vec<String> = tail
            .map(|line| fitting(&format!("  {}", line.trim_end().replace('\t', "    ")), columns))
            .collect();
        lines.push(self.line(draft, columns)?);
        if lines == self.shown {
            return None;
        }
        let height = self.height(width);
        let mut out = match height {
            0 => String::new(),
            1 => "\r".to_owned(),
            rows => format!("\r\x1b[{}A", rows - 1),
        };
        let painted: Vec<String> =
            lines.iter().map(|line| paint.paint(Style::Dim, line) + "\x1b[K").collect();
        out.push_str(&painted.join("\n"));
        if lines.len() < height {
            out.push_str("\x1b[J");
        }
        self.shown = lines;
        Some(out)
    }

    fn line(&self, draft: &str, columns: usize) -> Option<String> {
        let seconds = format!("{} s", self.since?.elapsed().as_secs());
        if draft.is_empty() {
            return Some(fitting(&self.told(seconds), columns));
        }
        // Of what is being typed the end counts.
        let head = format!("… {seconds} · > ");
        let room = columns.saturating_sub(head.chars().count());
        let end: String = draft.chars().rev().collect();
        let end: String = fitting(&end, room).chars().rev().collect();
        Some(fitting(&(head + &end), columns))
    }

    fn told(&self, seconds: String) -> String {
        let mut parts = vec![seconds];
        if let Some((_, title)) = self.running.last() {
            let more = self.running.len() - 1;
            let more = if more > 0 { format!(" (+{more})") } else { String::new() };
            parts.push(format!("{}{more}", fitting(title, TITLE)));
        }
        if let Some(output) = self.usage.output {
            parts.push(format!("{} in, {output} out", self.usage.input.unwrap_or(0)));
        }
        parts.extend(self.usage.cost_usd.map(|cost| format!("${cost:.4}")));
        if let (Some(filled), Some(window)) = (self.filled, self.window.filter(|window| *window > 0)) {
            parts.push(format!("{} % of the window", filled.saturating_mul(100).div_ceil(window)));
        }
        format!("… {}", parts.join(" · "))
    }
}

/// Rows that a line takes on a terminal of this width.
fn wrapped(line: &str, width: usize) -> usize {
    let (mut rows, mut column) = (1, 0);
    for c in line.chars() {
        let columns = c.width().unwrap_or(0);
        if column + columns > width.max(2) {
            (rows, column) = (rows + 1, 0);
        }
        column += columns;
    }
    rows
}

/// Whether the terminal is one that wraps lines anew when its width changes, as far as it can be told from outside. To
/// take one for such that is none would eat what was said.
fn rewraps(env: impl Fn(&str) -> Option<String>) -> bool {
    const SIGNS: [&str; 8] = [
        "TMUX",
        "VTE_VERSION",
        "KITTY_WINDOW_ID",
        "WEZTERM_PANE",
        "KONSOLE_VERSION",
        "WT_SESSION",
        "ALACRITTY_WINDOW_ID",
        "GHOSTTY_RESOURCES_DIR",
    ];
    let term = env("TERM").unwrap_or_default();
    let is_known = ["tmux", "foot", "alacritty", "xterm-kitty", "xterm-ghostty", "wezterm"];
    let is_program = env("TERM_PROGRAM").is_some_and(|name| name == "iTerm.app" || name == "vscode");
    is_program
        || is_known.iter().any(|name| term.starts_with(name))
        || SIGNS.iter().any(|name| env(name).is_some_and(|value| !value.is_empty()))
}

/// As much of a line as fits into so many columns; a line that wraps could not be taken away again.
fn fitting(line: &str, columns: usize) -> String {
    let mut width = 0;
    let fits = |c: &char| {
        width += c.width().unwrap_or(0);
        width <= columns
    };
    line.chars().take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Paint = Paint { is_on: false };

    /// The lines that stand there, on a terminal of this size.
    fn drawn(status: &mut Status, draft: &str, size: (usize, usize)) -> Vec<String> {
        status.draw(draft, size, PLAIN);
        status.shown.clone()
    }

    #[test]
    fn the_line_tells_what_runs_and_fits_the_terminal() {
        let mut status = Status::new(Some(1_000));
        assert_eq!(status.draw("", (80, 24), PLAIN), None);
        status.begin();
        status.started("1", "run cargo test");
        status.started("2", "read a.rs");
        status.counted(&Usage { input: Some(90), output: Some(10), ..Usage::default() });
        let told = "… 0 s · read a.rs (+1) · 90 in, 10 out · 10 % of the window";
        assert_eq!(drawn(&mut status, "", (80, 24)), [told]);
        assert_eq!(drawn(&mut status, "more", (80, 24)), ["… 0 s · > more"]);
        assert_eq!(drawn(&mut status, "one two three", (16, 24)), ["… 0 s · > three"]);
        status.stopped("2");
        assert!(drawn(&mut status, "", (80, 24))[0].contains("run cargo test"));
        assert!(drawn(&mut status, "日本語日本語", (20, 24))[0].chars().count() <= 19);
        assert_eq!(status.clear(80), "\r\x1b[K");
        assert_eq!(status.clear(80), "");
    }

    #[test]
    fn lines_that_were_wrapped_anew_are_taken_away_whole() {
        let mut status = Status { rewraps: true, ..Status::new(None) };
        status.begin();
        status.started("1", "make");
        status.wrote(&format!("{}\n日本語日本語\n", "x".repeat(50)));
        drawn(&mut status, "", (80, 24));
        // 52 columns in 20 take three rows; the wide characters leave a column empty at 13.
        assert_eq!(status.height(20), 3 + 1 + 1);
        assert_eq!(status.height(13), 4 + 2 + 1);
        assert_eq!(Status { rewraps: false, ..status }.height(13), 3);
        let is = |name: &'static str, value: &'static str| {
            rewraps(move |asked| (asked == name).then(|| value.to_owned()))
        };
        assert!(is("TMUX", "/tmp/tmux-0/default,1,0") && is("TERM", "foot-extra"));
        assert!(!is("TERM", "xterm-256color") && !is("TERM", "linux") && !is("TMUX", ""));
    }

    #[test]
    fn the_last_lines_of_a_command_stand_above_it_and_are_replaced_in_place() {
        let mut status = Status::new(None);
        status.begin();
        status.started("1", "make");
        status.wrote("one\n\ntwo\nthr");
        let first = status.draw("", (80, 24), PLAIN).unwrap();
        assert_eq!(first, "  one\x1b[K\n  two\x1b[K\n  thr\x1b[K\n… 0 s · make\x1b[K");
        assert_eq!(status.draw("", (80, 24), PLAIN), None);
        status.wrote("ee\nfour\nfive\nsix\n");
        let second = status.draw("", (80, 24), PLAIN).unwrap();
        assert!(second.starts_with("\r\x1b[3A  two\x1b[K\n  three\x1b[K\n"), "{second:?}");
        assert_eq!(drawn(&mut status, "", (80, 8)), ["  five", "  six", "… 0 s · make"]);
        status.wrote(&"x".repeat(9_000));
        assert_eq!(drawn(&mut status, "", (200, 8))[1].len(), LONGEST);
        assert_eq!(status.clear(80), "\r\x1b[2A\x1b[J");
        status.stopped("1");
        assert_eq!(drawn(&mut status, "", (80, 24)), ["… 0 s"]);
    }
}

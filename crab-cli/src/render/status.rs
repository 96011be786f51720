//! One quiet line below everything: what runs, for how long, what it cost. It is taken away before anything is printed and
//! leaves nothing behind.

use std::time::Instant;

use crab_core::message::Usage;
use unicode_width::UnicodeWidthChar;

/// Columns of a title: the line above has all of it.
const TITLE: usize = 24;

/// What the line tells.
pub(super) struct Status {
    /// Whether the line is on the screen.
    is_shown: bool,
    /// Since when something runs; `None`: nothing does.
    since: Option<Instant>,
    /// What runs, the newest last: an id and its name.
    running: Vec<(String, String)>,
    /// The last line that a running command wrote.
    tail: String,
    usage: Usage,
    /// Tokens of the model's window.
    window: Option<u64>,
    /// Tokens in the last request.
    filled: Option<u64>,
}

impl Status {
    pub(super) fn new(window: Option<u64>) -> Self {
        let (running, tail) = (vec![], String::new());
        Self { is_shown: false, since: None, running, tail, usage: Usage::default(), window, filled: None }
    }

    /// A turn begins.
    pub(super) fn begin(&mut self) {
        (self.since, self.usage) = (Some(Instant::now()), Usage::default());
        self.running.clear();
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

    /// Takes what a command wrote, as it may be shown.
    pub(super) fn wrote(&mut self, chunk: &str) {
        if let Some(line) = chunk.lines().rfind(|line| !line.trim().is_empty()) {
            line.clone_into(&mut self.tail);
        }
    }

    pub(super) fn counted(&mut self, usage: &Usage) {
        self.usage.add(usage);
        let answered = usage.output.unwrap_or(0);
        self.filled = usage.input.map(|input| input + answered).or(self.filled);
    }

    /// What takes the line away, when it is there. A terminal that was made narrower meanwhile may have wrapped it; its
    /// beginning then stays, for whoever moves up on a terminal that does not wrap eats what was said.
    pub(super) fn clear(&mut self) -> &'static str {
        if std::mem::take(&mut self.is_shown) { "\r\x1b[K" } else { "" }
    }

    /// The line for a terminal of this width, while something runs; `draft` is what the user is typing.
    pub(super) fn draw(&mut self, draft: &str, width: usize) -> Option<String> {
        let seconds = format!("{} s", self.since?.elapsed().as_secs());
        let columns = width.saturating_sub(1);
        let line = if draft.is_empty() {
            self.told(seconds)
        } else {
            // Of what is being typed the end counts.
            let head = format!("… {seconds} · > ");
            let room = columns.saturating_sub(head.chars().count());
            let end: String = draft.chars().rev().collect();
            head + &fitting(&end, room).chars().rev().collect::<String>()
        };
        self.is_shown = true;
        Some(fitting(&line, columns))
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
            parts.push(format!("{} % of the window", (filled * 100).div_ceil(window)));
        }
        parts.extend((!self.tail.is_empty()).then(|| self.tail.clone()));
        format!("… {}", parts.join(" · "))
    }
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

    #[test]
    fn the_line_tells_what_runs_and_fits_the_terminal() {
        let mut status = Status::new(Some(1_000));
        assert_eq!(status.draw("", 80), None);
        status.begin();
        status.started("1", "run cargo test");
        status.started("2", "read a.rs");
        status.wrote("one\ntwo\n\n");
        status.counted(&Usage { input: Some(90), output: Some(10), ..Usage::default() });
        let line = status.draw("", 80).unwrap();
        assert_eq!(line, "… 0 s · read a.rs (+1) · 90 in, 10 out · 10 % of the window · two");
        assert_eq!(status.draw("more", 80).unwrap(), "… 0 s · > more");
        assert_eq!(status.draw("one two three", 16).unwrap(), "… 0 s · > three");
        status.stopped("2");
        assert!(status.draw("", 80).unwrap().contains("run cargo test"));
        assert!(status.draw("日本語日本語", 20).unwrap().chars().count() <= 19);
        assert_eq!(status.clear(), "\r\x1b[K");
        assert_eq!(status.clear(), "");
    }
}

//! The lines that a search shows: bounded, cut around their matches, and without keys.

use std::sync::Arc;

use super::MAX_BYTES;
use crate::redact::Secrets;
use crate::search::{Line, Search, line_end};

/// Matching lines of one call.
const MAX_MATCHES: usize = 200;
/// Bytes of one line, and how many of them stand before its match.
const MAX_LINE: usize = 500;
const LEAD: usize = 120;

/// What is shown, until it is full.
#[derive(Default)]
pub(super) struct Page {
    pub(super) text: String,
    pub(super) path: String,
    pub(super) context: usize,
    pub(super) matches: usize,
    pub(super) full: bool,
    pub(super) secrets: Arc<Secrets>,
}

impl Page {
    /// Shows the matches of a file.
    pub(super) fn file(&mut self, search: &Search, text: &[u8]) {
        let end = line_end(text);
        let mut found = search.lines(text).peekable();
        // The next line that is not shown yet, and a line whose number is known.
        let (mut next, mut known) = (0, (0, 1));
        while let Some(line) = found.next() {
            let start = line.range.start;
            let from = self.start_of_context(&text[next..start], end) + next;
            if self.context > 0 && !self.text.is_empty() && (next == 0 || from > next) {
                self.text.push_str("--\n");
            }
            let number = known.1 + breaks(&text[known.0..from], end);
            let mut place = self.context_lines(search, text, (from, number), start);
            self.line(':', place.1, &text[line.range.clone()], line.at);
            if self.full {
                return;
            }
            self.matches += 1;
            place = (search.line(text, start, end).1, place.1 + 1);
            let until = found.peek().map_or(text.len(), |line: &Line| line.range.start);
            known = self.context_lines(search, text, place, until);
            next = known.0;
            self.full = self.matches == MAX_MATCHES;
            if self.full {
                return;
            }
        }
    }

    /// Where the lines before a match begin, among those that are not shown yet.
    fn start_of_context(&self, before: &[u8], end: u8) -> usize {
        let mut from = before.len();
        for _ in 0..self.context {
            let Some(above) = from.checked_sub(1) else { break };
            from = before[..above].iter().rposition(|byte| *byte == end).map_or(0, |at| at + 1);
        }
        from
    }

    /// Shows lines from a place (start and number) on, as many as are wanted and lie before `until`. Returns where it ends.
    fn context_lines(
        &mut self,
        search: &Search,
        text: &[u8],
        place: (usize, usize),
        until: usize,
    ) -> (usize, usize) {
        let (mut start, mut number) = place;
        for _ in 0..self.context {
            if start >= until || self.full {
                break;
            }
            let (range, next) = search.line(text, start, line_end(text));
            self.line('-', number, &text[range], 0);
            (start, number) = (next, number + 1);
        }
        (start, number)
    }

    /// Half a key would not be known as one any more, so keys go before the line is cut.
    fn clean(&self, line: &[u8], at: usize) -> String {
        let text = String::from_utf8_lossy(line);
        if self.secrets.found_in(&text) {
            clipped(self.secrets.redact(&text).as_bytes(), at)
        } else {
            clipped(line, at)
        }
    }

    fn line(&mut self, sign: char, number: usize, line: &[u8], at: usize) {
        let shown = format!("{}{sign}{number}{sign}{}\n", self.path, self.clean(line, at));
        if self.full || self.text.len() + shown.len() > MAX_BYTES {
            self.full = true;
            return;
        }
        self.text.push_str(&shown);
    }
}

fn breaks(text: &[u8], end: u8) -> usize {
    text.iter().filter(|byte| **byte == end).count()
}

/// The line, or what is around its match when it is long.
fn clipped(line: &[u8], at: usize) -> String {
    let show = |bytes| String::from_utf8_lossy(bytes).replace('\0', "\u{2400}");
    if line.len() <= MAX_LINE {
        return show(line);
    }
    // A cut within a character would show a sign that the file does not hold.
    let inside = |place: usize| line.get(place).is_some_and(|byte| byte & 0xC0 == 0x80);
    let border =
        |place: usize| (place.saturating_sub(3)..=place).rev().find(|at| !inside(*at)).unwrap_or(place);
    let from = border(at.saturating_sub(LEAD).min(line.len() - MAX_LINE));
    let to = border((from + MAX_LINE).min(line.len()));
    let mut text = show(&line[from..to]);
    if from > 0 {
        text.insert_str(0, &format!("[... {from} bytes] "));
    }
    if to < line.len() {
        text.push_str(&format!(" [... {} more bytes]", line.len() - to));
    }
    text
}

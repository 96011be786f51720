//! Markdown: styles an answer while it arrives, in any pieces, and never changes or moves what is printed.
//!
//! A terminal line that is printed stays, so a style is only opened where its mark cannot well be something
//! else, and ends with its line at the latest. What a few characters more would decide is held back.

use super::highlight::{Ahead, Highlighter, Kind, is_blank, is_word};

/// The sequences that open each style, which may be empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    /// The text of a heading.
    pub(crate) heading: &'static str,
    /// `**strong**`.
    pub(crate) strong: &'static str,
    /// `*emphasis*`.
    pub(crate) emphasis: &'static str,
    /// `~~strike~~`.
    pub(crate) strike: &'static str,
    /// Code within a line.
    pub(crate) code: &'static str,
    /// The bullet, number or box of a list item.
    pub(crate) marker: &'static str,
    /// A quoted line.
    pub(crate) quote: &'static str,
    /// Markdown's own marks.
    pub(crate) faint: &'static str,
    /// A bare URL.
    pub(crate) link: &'static str,
    /// In code blocks: a word of the language.
    pub(crate) keyword: &'static str,
    /// In code blocks: text in quotes.
    pub(crate) string: &'static str,
    /// In code blocks: a comment.
    pub(crate) comment: &'static str,
    /// In code blocks: a number.
    pub(crate) number: &'static str,
    /// In diffs: a line that comes.
    pub(crate) inserted: &'static str,
    /// In diffs: a line that goes.
    pub(crate) deleted: &'static str,
}

/// Closes whatever a theme opens.
const RESET: &str = "\x1b[0m";

/// Styles one message after the other.
pub(crate) struct Markdown {
    held: String,
    pen: Pen,
    line: Line,
    fence: Option<Fence>,
    highlighter: Highlighter,
}

impl Markdown {
    /// At the start of a message.
    pub(crate) fn new(theme: Theme) -> Self {
        let pen = Pen { theme, out: String::new(), looks: PLAIN, is_open: false };
        let highlighter = Highlighter::new("");
        Self {
            held: String::new(),
            pen,
            line: Line { previous: '\n', ..Line::default() },
            fence: None,
            highlighter,
        }
    }

    /// Takes the next piece of the message; what can be printed now comes back.
    pub(crate) fn push(&mut self, text: &str) -> String {
        self.advance(text, false);
        std::mem::take(&mut self.pen.out)
    }

    /// Ends the message; what was held back comes out, with no style left on.
    pub(crate) fn finish(&mut self) -> String {
        self.advance("", true);
        self.pen.close();
        let fresh = Self::new(self.pen.theme);
        std::mem::replace(self, fresh).pen.out
    }

    fn advance(&mut self, text: &str, is_end: bool) {
        let mut held = std::mem::take(&mut self.held);
        held.push_str(text);
        let mut at = 0;
        while let Some(len) = self.step(Ahead { rest: &held[at..], is_end }) {
            at += len;
        }
        held.drain(..at);
        self.held = held;
    }

    /// Writes the next piece and tells its length, or `None` to wait for more. A length of 0 means that only
    /// the place has changed.
    fn step(&mut self, ahead: Ahead) -> Option<usize> {
        match (ahead.rest.chars().next()?, self.line.place) {
            ('\n', _) => Some(self.newline()),
            (first, Place::Prefix) => match self.fence {
                Some(fence) => self.fenced_prefix(ahead, first, fence),
                None => self.prefix(ahead, first),
            },
            (first, Place::Text) => self.text(ahead, first),
            (first, Place::Escaped) => self.lead(ahead, first.len_utf8(), self.line.looks),
            (first, Place::Code(ticks)) => self.code(ahead, first, ticks),
            (first, Place::Target(depth)) => self.target(ahead, first, depth),
            (first, Place::Url) => self.url(ahead, first),
            (_, Place::Block) => self.block(ahead),
        }
    }

    fn newline(&mut self) -> usize {
        self.pen.close();
        self.pen.out.push('\n');
        self.highlighter.newline();
        self.line = Line { previous: '\n', ..Line::default() };
        1
    }

    fn write(&mut self, ahead: Ahead, len: usize, looks: Looks) -> Option<usize> {
        let text = &ahead.rest[..len];
        self.line.previous = text.chars().next_back().unwrap_or(self.line.previous);
        self.pen.write(text, looks);
        Some(len)
    }

    /// Writes a piece after which the line goes on as text.
    fn lead(&mut self, ahead: Ahead, len: usize, looks: Looks) -> Option<usize> {
        self.line.place = Place::Text;
        self.write(ahead, len, looks)
    }

    fn blank(&mut self, ahead: Ahead, first: char) -> Option<usize> {
        self.line.indent += if first == '\t' { 4 - self.line.indent % 4 } else { 1 };
        self.write(ahead, 1, PLAIN)
    }

    fn quote(&mut self, ahead: Ahead) -> Option<usize> {
        self.line = Line { indent: 0, quotes: self.line.quotes + 1, looks: QUOTE, ..self.line };
        self.write(ahead, 1, QUOTE)
    }

    fn prefix(&mut self, ahead: Ahead, first: char) -> Option<usize> {
        if is_blank(first) {
            return self.blank(ahead, first);
        }
        if is_quote(ahead, first)? {
            return self.quote(ahead);
        }
        if let len @ 1.. = rule(ahead, first)? {
            return self.lead(ahead, len, FAINT);
        }
        if let len @ 1.. = item(ahead, first)? {
            self.line.indent += len;
            self.line.is_item = true;
            return self.write(ahead, len, MARKER);
        }
        if let len @ 1.. = fence(ahead, first)? {
            return self.open_fence(ahead, first, len);
        }
        if self.line.is_item && task(ahead, first)? {
            return self.lead(ahead, "[ ]".len(), MARKER);
        }
        let can_head = self.line.is_item || self.line.indent < 4;
        if can_head && let len @ 1.. = heading(ahead)? {
            self.line.looks |= HEADING;
            return self.lead(ahead, len, FAINT);
        }
        self.line.is_row = first == '|';
        self.line.place = Place::Text;
        Some(0)
    }

    fn open_fence(&mut self, ahead: Ahead, mark: char, len: usize) -> Option<usize> {
        let info = ahead.rest[..len].trim_start_matches(mark);
        let line = self.line;
        self.fence = Some(Fence { mark, len: len - info.len(), indent: line.indent, quotes: line.quotes });
        self.highlighter = Highlighter::new(info);
        self.lead(ahead, len, FAINT)
    }

    /// A code line has the quote marks and the indentation of its fence before it.
    fn fenced_prefix(&mut self, ahead: Ahead, first: char, fence: Fence) -> Option<usize> {
        let is_quoted = self.line.quotes >= fence.quotes;
        if is_blank(first) && (!is_quoted || self.line.indent < fence.indent) {
            return self.blank(ahead, first);
        }
        if !is_quoted {
            if first == '>' {
                return self.quote(ahead);
            }
            self.fence = None;
            return Some(0);
        }
        if let len @ 1.. = closing(ahead, fence)? {
            self.fence = None;
            return self.lead(ahead, len, FAINT);
        }
        self.line.place = Place::Block;
        Some(0)
    }

    fn block(&mut self, ahead: Ahead) -> Option<usize> {
        let (len, kind) = self.highlighter.piece(ahead)?;
        let looks = match kind {
            Kind::Plain => PLAIN,
            Kind::Keyword => KEYWORD,
            Kind::String => STRING,
            Kind::Comment => COMMENT,
            Kind::Number => NUMBER,
            Kind::Inserted => INSERTED,
            Kind::Deleted => DELETED,
        };
        self.write(ahead, len, looks)
    }

    fn text(&mut self, ahead: Ahead, first: char) -> Option<usize> {
        let looks = self.line.looks;
        match first {
            '*' | '_' | '~' => return self.mark(ahead, first),
            '`' => {
                let ticks = ahead.run(0, |it| it == '`')?;
                self.line.place = Place::Code(ticks);
                return self.write(ahead, ticks, FAINT);
            }
            '\\' if ahead.at(1)?.is_ascii_punctuation() => {
                self.line.place = Place::Escaped;
                return self.write(ahead, 1, FAINT);
            }
            '[' => self.line.is_bracket |= !is_word(self.line.previous),
            ']' if self.line.is_bracket && ahead.at(1)? == '(' => {
                self.line.is_bracket = false;
                self.line.place = Place::Target(1);
                return self.write(ahead, 2, FAINT);
            }
            '|' if self.line.is_row => return self.write(ahead, 1, FAINT),
            'h' if !is_word(self.line.previous)
                && (ahead.starts("https://")? || ahead.starts("http://")?) =>
            {
                self.line.place = Place::Url;
                return Some(0);
            }
            _ => {}
        }
        let tail = &ahead.rest.as_bytes()[first.len_utf8()..];
        let len = tail.iter().position(|it| b"\n*_~`\\[]|h".contains(it)).unwrap_or(tail.len());
        self.write(ahead, first.len_utf8() + len, looks)
    }

    /// A run of one mark that may open or close a style.
    fn mark(&mut self, ahead: Ahead, mark: char) -> Option<usize> {
        let len = ahead.run(0, |it| it == mark)?;
        let style = match (mark, len) {
            ('*', 1) => STARRED,
            ('*', 2) => STRONG,
            ('*', 3) => STARRED | STRONG,
            ('_', 1) => UNDERLINED,
            ('~', 2) => STRIKE,
            _ => return self.write(ahead, len, self.line.looks),
        };
        let (previous, next) = (self.line.previous, ahead.at(len)?);
        let is_within = mark == '_' && is_word(next);
        if self.line.looks & style != 0 && !previous.is_whitespace() && !is_within {
            self.line.looks &= !style;
            return self.write(ahead, len, FAINT);
        }
        if !opens(previous, next, len) || mark == '_' && is_name(ahead)? {
            return self.write(ahead, len, self.line.looks);
        }
        // Where the style is on already, it was this mark that meant it, so that the next one closes it.
        self.line.looks |= style;
        self.write(ahead, len, FAINT);
        // For a mark right behind it, an opened one is like the start of a line.
        self.line.previous = '\n';
        Some(len)
    }

    fn code(&mut self, ahead: Ahead, first: char, ticks: usize) -> Option<usize> {
        if first != '`' {
            let len = ahead.rest.find(['`', '\n']).unwrap_or(ahead.rest.len());
            return self.write(ahead, len, CODE);
        }
        match ahead.run(0, |it| it == '`')? {
            len if len == ticks => self.lead(ahead, len, FAINT),
            len => self.write(ahead, len, CODE),
        }
    }

    /// What is between `](` and its `)`, which holds no blanks unless it has a title.
    fn target(&mut self, ahead: Ahead, first: char, depth: usize) -> Option<usize> {
        let is_stop = |it: char| it.is_whitespace() || "()".contains(it);
        let len = ahead.rest.find(is_stop).unwrap_or(ahead.rest.len());
        let (len, place) = match first {
            '(' => (1, Place::Target(depth + 1)),
            ')' if depth > 1 => (1, Place::Target(depth - 1)),
            ')' => (1, Place::Text),
            _ if len == 0 => (0, Place::Text),
            _ => (len, Place::Target(depth)),
        };
        self.line.place = place;
        self.write(ahead, len, FAINT)
    }

    /// A full stop or a closing mark ends an URL only where nothing of it follows.
    fn url(&mut self, ahead: Ahead, first: char) -> Option<usize> {
        let is_stop = |it: char| it.is_whitespace() || ")]}>\"'`<|*”’»".contains(it);
        let is_loose = |it: char| ".,;:!?_~".contains(it);
        let len = if is_loose(first) {
            ahead.run(0, is_loose)?
        } else {
            ahead.rest.find(|it| is_stop(it) || is_loose(it)).unwrap_or(ahead.rest.len())
        };
        if len == 0 || is_loose(first) && is_stop(ahead.at(len)?) {
            return self.lead(ahead, 0, LINK);
        }
        self.write(ahead, len, self.line.looks | LINK)
    }
}

/// Where on its line the text is, and what is open there.
#[derive(Clone, Copy, Default)]
struct Line {
    place: Place,
    previous: char,
    /// Columns since the line or its innermost quote has begun, as long as nothing but marks was seen.
    indent: usize,
    quotes: usize,
    is_item: bool,
    is_row: bool,
    is_bracket: bool,
    looks: Looks,
}

#[derive(Clone, Copy, Default)]
enum Place {
    #[default]
    Prefix,
    Text,
    Escaped,
    Code(usize),
    Target(usize),
    Url,
    Block,
}

#[derive(Clone, Copy)]
struct Fence {
    mark: char,
    len: usize,
    indent: usize,
    quotes: usize,
}

/// A set of styles.
type Looks = u16;

const PLAIN: Looks = 0;
const HEADING: Looks = 1;
const QUOTE: Looks = 1 << 1;
const STRONG: Looks = 1 << 2;
const STARRED: Looks = 1 << 3;
const UNDERLINED: Looks = 1 << 4;
const STRIKE: Looks = 1 << 5;
const LINK: Looks = 1 << 6;
const CODE: Looks = 1 << 7;
const MARKER: Looks = 1 << 8;
const FAINT: Looks = 1 << 9;
const KEYWORD: Looks = 1 << 10;
const STRING: Looks = 1 << 11;
const COMMENT: Looks = 1 << 12;
const NUMBER: Looks = 1 << 13;
const INSERTED: Looks = 1 << 14;
const DELETED: Looks = 1 << 15;

/// Writes text and the changes of style between its pieces, so that how it was cut does not show.
struct Pen {
    theme: Theme,
    out: String,
    looks: Looks,
    is_open: bool,
}

impl Pen {
    fn write(&mut self, text: &str, looks: Looks) {
        if looks != self.looks && !text.is_empty() {
            self.close();
            self.open(looks);
        }
        self.out.push_str(text);
    }

    fn open(&mut self, looks: Looks) {
        let it = self.theme;
        // In the order of the bits: where two set the same thing, the later one shows.
        let openers = [
            [it.heading, it.quote, it.strong, it.emphasis, it.emphasis, it.strike, it.link, it.code],
            [it.marker, it.faint, it.keyword, it.string, it.comment, it.number, it.inserted, it.deleted],
        ];
        for (bit, opener) in openers.as_flattened().iter().enumerate() {
            if looks & (1 << bit) != 0 && !opener.is_empty() {
                self.out.push_str(opener);
                self.is_open = true;
            }
        }
        self.looks = looks;
    }

    fn close(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.out.push_str(RESET);
        }
        self.looks = PLAIN;
    }
}

fn is_quote(ahead: Ahead, first: char) -> Option<bool> {
    Some(first == '>' && matches!(ahead.at(1)?, ' ' | '\t' | '\n' | '>'))
}

/// The length of `---`, `* * *` or the row below a table's head; 0 for anything else, here and below.
fn rule(ahead: Ahead, first: char) -> Option<usize> {
    let (set, mark, least) = match first {
        '*' => ("* \t", '*', 3),
        '_' => ("_ \t", '_', 3),
        '-' | ':' => ("-:| \t", '-', 3),
        '|' => ("-:| \t", '-', 1),
        _ => return Some(0),
    };
    let len = ahead.run(0, |it| set.contains(it))?;
    let is_rule = ahead.at(len)? == '\n' && ahead.rest[..len].matches(mark).count() >= least;
    Some(if is_rule { len } else { 0 })
}

/// A bullet or a number with its mark.
fn item(ahead: Ahead, first: char) -> Option<usize> {
    let digits = ahead.run(0, |it| it.is_ascii_digit())?;
    let len = match (first, digits) {
        ('-' | '*' | '+', _) => 1,
        (_, 1..=9) if matches!(ahead.at(digits)?, '.' | ')') => digits + 1,
        _ => return Some(0),
    };
    Some(if is_blank(ahead.at(len)?) { len } else { 0 })
}

fn task(ahead: Ahead, first: char) -> Option<bool> {
    let is_box = first == '[' && matches!(ahead.at(1)?, ' ' | 'x' | 'X') && ahead.at(2)? == ']';
    Some(is_box && is_blank(ahead.at(3)?))
}

fn heading(ahead: Ahead) -> Option<usize> {
    let len = ahead.run(0, |it| it == '#')?;
    let is_heading = (1..=6).contains(&len) && ahead.at(len)?.is_whitespace();
    Some(if is_heading { len } else { 0 })
}

/// A fence with its info string. A backtick in that makes it code within a line, so all of it is waited for.
fn fence(ahead: Ahead, first: char) -> Option<usize> {
    if first != '`' && first != '~' {
        return Some(0);
    }
    let marks = ahead.run(0, |it| it == first)?;
    if marks < 3 {
        return Some(0);
    }
    let len = ahead.run(marks, |it| it != '\n' && (first == '~' || it != '`'))?;
    Some(if ahead.at(len)? == '\n' { len } else { 0 })
}

fn closing(ahead: Ahead, fence: Fence) -> Option<usize> {
    let indent = ahead.rest.bytes().take(4).take_while(|it| *it == b' ').count();
    if indent > 3 || ahead.at(indent)? != fence.mark {
        return Some(0);
    }
    let end = ahead.run(indent, |it| it == fence.mark)?;
    let len = ahead.run(end, is_blank)?;
    let is_closing = end - indent >= fence.len && ahead.at(len)? == '\n';
    Some(if is_closing { len } else { 0 })
}

/// Whether a run of marks between these two opens a style: `2 * 3`, `a*b`, `src/*.rs`, `**/x` and `"*"` do not.
/// Languages that put no blanks between words open one anywhere.
fn opens(previous: char, next: char, len: usize) -> bool {
    let is_apart = previous.is_whitespace() || previous >= '\u{2e80}';
    if next.is_alphanumeric() {
        let is_mark = !previous.is_ascii() && !previous.is_alphanumeric();
        return is_apart || is_mark || "([\"':|>".contains(previous);
    }
    let is_start = !next.is_ascii() && !next.is_whitespace() || "`\"'([<\\".contains(next);
    is_apart && (is_start || len > 1 && ".-_*~$#@!+&{".contains(next))
}

/// Whether the word that begins with `_` has more of it inside, as `_a_name` and not as `_emphasis_`.
fn is_name(ahead: Ahead) -> Option<bool> {
    let len = ahead.run(0, is_word)?;
    Some(ahead.rest[1..len].trim_end_matches('_').contains('_'))
}

#[cfg(test)]
#[path = "markdown_tests.rs"]
mod tests;

//! The lines of a text that match a pattern: pure, and line by line in all that it says.

use std::ops::Range;

use regex::bytes::{Regex, RegexBuilder};

/// What a pattern may grow to when it is compiled.
const MAX_COMPILED: usize = 20 << 20;

/// A pattern that is looked for in each line on its own.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    regex: Regex,
    /// Whether a carriage return before a line feed is a part of the line break.
    crlf: bool,
    /// Whether a search of the whole text may miss lines that match on their own.
    by_line: bool,
}

/// A line that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Where it is, without its break.
    pub(crate) range: Range<usize>,
    /// Where in it the match begins.
    pub(crate) at: usize,
}

impl Search {
    /// The error says what is wrong with the pattern and what to do.
    pub(crate) fn new(pattern: &str, ignore_case: bool) -> Result<Self, String> {
        if wants_line_feed(pattern) {
            return Err(format!(
                "`{}` asks for a line feed, but matching is line by line: search for one line of it, with `context` to \
                 see those around it",
                pattern.replace('\n', "\\n")
            ));
        }
        let crlf = !pattern.contains('\r') && !pattern.contains("\\r");
        let mut builder = RegexBuilder::new(pattern);
        builder.multi_line(true).crlf(crlf).case_insensitive(ignore_case).size_limit(MAX_COMPILED);
        let regex = builder.build().map_err(|err| refused(pattern, &err))?;
        // Borders of the text are borders of each line here; flags can make `^` and `$` such borders.
        let by_line = ["\\A", "\\z"].iter().any(|border| pattern.contains(border))
            || (pattern.contains("(?") && pattern.contains('-'));
        Ok(Self { regex, crlf, by_line })
    }

    /// Whether the bytes have a match at all, for what has no lines.
    pub(crate) fn is_in(&self, bytes: &[u8]) -> bool {
        self.regex.is_match(bytes)
    }

    /// The lines that match, in order.
    pub(crate) fn lines<'a>(&'a self, text: &'a [u8]) -> Lines<'a> {
        Lines { search: self, text, end: line_end(text), at: 0, by_line: self.by_line }
    }

    /// The line that starts at `start`, without its break, and the start of the next one.
    pub(crate) fn line(&self, text: &[u8], start: usize, end: u8) -> (Range<usize>, usize) {
        let rest = &text[start..];
        let length = rest.iter().position(|byte| *byte == end).unwrap_or(rest.len());
        let body = if self.crlf { rest[..length].strip_suffix(b"\r") } else { None };
        let length_shown = body.map_or(length, <[u8]>::len);
        (start..start + length_shown, (start + length + 1).min(text.len()))
    }
}

/// What ends a line: the line feed, except in a text that has only carriage returns.
pub(crate) fn line_end(text: &[u8]) -> u8 {
    if !text.contains(&b'\n') && text.contains(&b'\r') { b'\r' } else { b'\n' }
}

/// See [`Search::lines`].
pub(crate) struct Lines<'a> {
    search: &'a Search,
    text: &'a [u8],
    end: u8,
    at: usize,
    by_line: bool,
}

impl Iterator for Lines<'_> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        while self.at < self.text.len() {
            let matched = match self.by_line {
                true => None,
                // The search of the whole is much faster; the line of what it finds is looked at on its own.
                false => Some(self.search.regex.find_at(self.text, self.at)?),
            };
            let start = matched.map_or(self.at, |found| self.start_of(found.start()));
            if start >= self.text.len() {
                return None;
            }
            let (range, next) = self.search.line(self.text, start, self.end);
            self.at = next;
            match matched {
                Some(found) if found.end() <= range.end => {
                    return Some(Line { at: found.start() - start, range });
                }
                // A pattern that runs over line ends could make each of these searches as long as the text.
                Some(found) => self.by_line = found.end() > next || self.by_line,
                None => {}
            }
            if let Some(found) = self.search.regex.find(&self.text[range.clone()]) {
                return Some(Line { at: found.start(), range });
            }
        }
        None
    }
}

impl Lines<'_> {
    fn start_of(&self, place: usize) -> usize {
        let before = &self.text[self.at..place];
        before.iter().rposition(|byte| *byte == self.end).map_or(self.at, |at| self.at + at + 1)
    }
}

/// Whether a line feed is asked for, other than in a set that excludes it.
fn wants_line_feed(pattern: &str) -> bool {
    // Whether each open set is a negated one.
    let mut sets: Vec<bool> = Vec::new();
    let mut chars = pattern.chars().peekable();
    while let Some(char) = chars.next() {
        let feed = match char {
            '\\' => chars.next() == Some('n'),
            '[' => {
                sets.push(chars.next_if_eq(&'^').is_some());
                // A bracket right behind the start is one of the set's characters.
                let _ = chars.next_if_eq(&']');
                false
            }
            ']' => {
                sets.pop();
                false
            }
            char => char == '\n',
        };
        if feed && !sets.contains(&true) {
            return true;
        }
    }
    false
}

fn refused(pattern: &str, err: &regex::Error) -> String {
    let reason = match err {
        regex::Error::CompiledTooBig(_) => {
            "it grows too large when it is compiled; use smaller repetitions".to_owned()
        }
        err => err.to_string(),
    };
    let hint = if reason.contains("look-around") {
        "the `regex` crate has no lookahead and no lookbehind: search for more, and pick from the matches"
            .to_owned()
    } else if reason.contains("backreference") {
        "the `regex` crate has no backreferences: write out what they stand for".to_owned()
    } else {
        format!("as literal text it is `{}`", regex::escape(pattern))
    };
    format!("`{pattern}` is not a valid pattern: {reason}\n{hint}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(pattern: &str, text: &[u8]) -> Vec<String> {
        let search = Search::new(pattern, false).unwrap();
        search.lines(text).map(|line| String::from_utf8_lossy(&text[line.range]).into_owned()).collect()
    }

    #[track_caller]
    fn check(pattern: &str, text: &str, expected: &[&str]) {
        assert_eq!(found(pattern, text.as_bytes()), expected, "{pattern} in {text:?}");
    }

    #[test]
    fn borders_are_those_of_lines() {
        check("^b", "ab\nb\nxb", &["b"]);
        check("b$", "ab\nbx\nb", &["ab", "b"]);
        check("b$", "ab\r\nbx\r\nb\r\n", &["ab", "b"]);
        check("^$", "a\n\nb\n", &[""]);
        check("^$", "a\r\n\r\nb\r\n", &[""]);
        check("\\Ab", "a\nb\n", &["b"]);
        check("(?-m)^b", "a\nb\n", &["b"]);
        check("b\\z", "b\na\n", &["b"]);
        check("x*", "a\nb", &["a", "b"]);
        check("a\\r$", "a\r\na\n", &["a\r"]);
        check("b", "a\rb\rc", &["b"]);
        check("a", "", &[]);
    }

    #[test]
    fn no_match_runs_over_a_line_end() {
        check("a\\s+b", "a\nb\na b\n", &["a b"]);
        check("(?s)a.*b", "a\nxb\na.b", &["a.b"]);
        check("a[^b]*", "a\nb\nab\n", &["a", "ab"]);
        check("a[^\\n]*c", "a\nc\nabc", &["abc"]);
        check("\\s$", "a\nb \nc\r\n", &["b "]);
    }

    #[test]
    fn a_pattern_that_needs_more_than_a_line_is_refused_with_the_reason() {
        for (pattern, reason) in [
            ("foo(", "unclosed group"),
            ("(?<=a)b", "no lookahead and no lookbehind"),
            ("(a)\\1", "no backreferences"),
            ("a\\nb", "matching is line by line"),
            ("a\nb", "matching is line by line"),
            ("[a\\n]", "matching is line by line"),
            ("((\\w{100}){100}){100}", "too large"),
        ] {
            let err = Search::new(pattern, false).unwrap_err();
            assert!(err.contains(reason), "{pattern}: {err}");
        }
        for pattern in ["a\\\\n", "[^\\n]*", "[^]\\n]x", "[]n]", "--no-verify", "-f"] {
            assert!(Search::new(pattern, false).is_ok(), "{pattern}");
        }
    }

    #[test]
    fn a_greedy_pattern_does_not_make_a_long_text_slow() {
        let text = "a needle here\n".repeat(100_000);
        assert_eq!(found("needle[^q]*", text.as_bytes()).len(), 100_000);
    }

    proptest! {
        #[test]
        fn the_whole_and_its_lines_give_the_same(
            text in "[ab \r\n]{0,40}",
            pattern in prop::sample::select(vec!["a", "^a", "b$", "a\\s*b", "[^a]+b", "\\bb", "a|b$", "^\\s*$", "a.b", "\\Aa", "(a|\\s)+b"]),
        ) {
            let search = Search::new(pattern, false).unwrap();
            let slow = Search { by_line: true, ..search.clone() };
            let by = |search: &Search| search.lines(text.as_bytes()).map(|line| line.range).collect::<Vec<_>>();
            prop_assert_eq!(by(&search), by(&slow));
        }
    }
}

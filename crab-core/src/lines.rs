//! The lines of a file that match a regular expression: bytes in, places out.

use std::ops::Range;

use regex::bytes::Regex;

/// How much of a file tells whether it is binary.
const SNIFF: usize = 8 << 10;
/// UTF-16 with a mark becomes UTF-8; a mark of UTF-8 goes, so that `^` finds the first line.
pub(crate) fn decode(content: Vec<u8>) -> Vec<u8> {
    let wide = |from: fn([u8; 2]) -> u16| {
        let units = content[2..].chunks_exact(2).map(|pair| from([pair[0], pair[1]]));
        String::from_utf16_lossy(&units.collect::<Vec<_>>()).into_bytes()
    };
    match content.as_slice() {
        [0xff, 0xfe, ..] => wide(u16::from_le_bytes),
        [0xfe, 0xff, ..] => wide(u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => rest.to_vec(),
        _ => content,
    }
}

/// A stray NUL does not make a text binary; several near its start do, or one among bytes that are no text.
pub(crate) fn is_binary(content: &[u8]) -> bool {
    let start = &content[..content.len().min(SNIFF)];
    match start.iter().filter(|byte| **byte == 0).count() {
        0 => false,
        1..=3 => start.utf8_chunks().filter(|chunk| !chunk.invalid().is_empty()).count() > 1,
        _ => true,
    }
}

/// Lines that match: where the line is, and where in it the match.
pub(crate) struct Matches<'a> {
    regex: &'a Regex,
    content: &'a [u8],
    at: usize,
    is_by_line: bool,
}

impl Iterator for Matches<'_> {
    type Item = (Range<usize>, Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.content.len() {
            let line = match self.is_by_line {
                true => line_around(self.content, self.at),
                false => self.leap()?,
            };
            self.at = line.end + 1;
            if let Some(found) = self.regex.find(&self.content[line.clone()]) {
                return Some((line, found.range()));
            }
        }
        None
    }
}

impl<'a> Matches<'a> {
    pub(crate) fn new(regex: &'a Regex, content: &'a [u8]) -> Self {
        Self { regex, content, at: 0, is_by_line: false }
    }

    /// The next line in which a match begins. A match that runs on into other lines may run on to the file's end, from
    /// every line anew: then the rest is searched line by line.
    fn leap(&mut self) -> Option<Range<usize>> {
        let found = self.regex.find_at(self.content, self.at)?;
        let line = line_around(self.content, found.start());
        self.is_by_line = found.end() > line.end;
        // Behind the last line break there is no line.
        (line.start < self.content.len()).then_some(line)
    }
}

/// Without its line break.
fn line_around(content: &[u8], at: usize) -> Range<usize> {
    let start = content[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    let end =
        content[at..].iter().position(|byte| *byte == b'\n').map_or(content.len(), |newline| at + newline);
    start..end
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::bytes::RegexBuilder;

    use super::*;

    #[test]
    fn a_stray_nul_does_not_make_a_text_binary() {
        assert!(!is_binary("ä text with \0 one".as_bytes()));
        assert!(is_binary(&[0; 4]));
        assert!(is_binary(b"\x89PNG\x00\xff"));
        assert!(!is_binary(b"\xff\xfe latin"));
    }

    proptest! {
        #[test]
        fn lines_found_are_those_that_match_by_themselves(
            content in "[ab\n]{0,40}",
            pattern in proptest::sample::select(vec!["a", "^a", "b$", "a\\s*b", "[^a]", "^$", "b*", "(?s)a.b"]),
        ) {
            let regex = RegexBuilder::new(pattern).multi_line(true).crlf(true).build().unwrap();
            let found: Vec<usize> = Matches::new(&regex, content.as_bytes()).map(|(line, _)| line.start).collect();
            let starts = content.split_inclusive('\n').scan(0, |at, line| {
                let start = *at;
                *at += line.len();
                Some((start, line.trim_end_matches('\n')))
            });
            let expected: Vec<usize> =
                starts.filter(|(_, line)| regex.is_match(line.as_bytes())).map(|(start, _)| start).collect();
            prop_assert_eq!(found, expected);
        }
    }
}

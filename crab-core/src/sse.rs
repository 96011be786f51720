//! Bytes of a server-sent event stream to events. Pure: any cut of the bytes gives the same events.

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The `event:` line, where there was one.
    pub name: Option<String>,
    /// The `data:` lines, joined by line breaks.
    pub data: String,
}

/// What the body has shown itself to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Body {
    /// Only white space so far.
    #[default]
    Unknown,
    /// Lines of an event stream.
    Events,
    /// JSON, a page or other markup: kept as it is.
    Foreign,
}

/// The parser. [`Parser::feed`] only stores and cuts lines; [`Parser::next`] gives what is whole.
///
/// Bytes become text only when an event is whole, so a character may be split between reads. The content type of the
/// response says nothing reliable, so the first byte decides whether this is an event stream at all.
#[derive(Debug, Default)]
pub struct Parser {
    body: Body,
    /// The line that is not whole yet; for a foreign body, all of it.
    line: Vec<u8>,
    /// The last read ended in a carriage return, whose line feed may come with the next.
    skip_line_feed: bool,
    /// The byte order mark has come; a second one is text.
    is_marked: bool,
    name: Option<Vec<u8>>,
    data: Option<Vec<u8>>,
    ready: std::collections::VecDeque<Event>,
    stray: Option<String>,
}

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

impl Parser {
    /// Takes the next piece of the body.
    pub fn feed(&mut self, bytes: &[u8]) {
        match self.body {
            Body::Foreign => self.line.extend_from_slice(bytes),
            Body::Events => self.lines(bytes),
            Body::Unknown => self.open(bytes),
        }
    }

    /// The event that the end of the body leaves without its closing blank line. It may have been cut in the middle:
    /// whether its data is whole is for the caller to check. Call it when [`Parser::next`] has nothing more.
    pub fn finish(&mut self) -> Option<Event> {
        if self.body == Body::Foreign {
            return None;
        }
        let rest = std::mem::take(&mut self.line);
        self.line(&rest);
        self.dispatch();
        self.ready.pop_front()
    }

    /// The body as it came, when it is no event stream: JSON, a page.
    pub fn foreign(&self) -> Option<&[u8]> {
        (self.body == Body::Foreign).then_some(self.line.as_slice())
    }

    /// The first line that belongs to no event stream.
    pub fn stray(&self) -> Option<&str> {
        self.stray.as_deref()
    }

    /// Bytes held back until an event is whole.
    pub fn pending(&self) -> usize {
        self.line.len() + self.data.as_ref().map_or(0, Vec::len)
    }

    /// Looks for the first byte that is no white space, behind a byte order mark.
    fn open(&mut self, bytes: &[u8]) {
        self.line.extend_from_slice(bytes);
        // White space before the first line means nothing, however much of it comes.
        let mut text = self.line.trim_ascii_start();
        if !self.is_marked {
            if !text.is_empty() && text.len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(text) {
                self.line = text.to_vec();
                return;
            }
            if let Some(rest) = text.strip_prefix(BYTE_ORDER_MARK) {
                self.is_marked = true;
                text = rest.trim_ascii_start();
            }
        }
        let text = text.to_vec();
        match text.first() {
            None => self.line.clear(),
            Some(b'{' | b'[' | b'<') => {
                self.line = text;
                self.body = Body::Foreign;
            }
            Some(_) => {
                self.line.clear();
                self.body = Body::Events;
                self.lines(&text);
            }
        }
    }

    fn lines(&mut self, mut bytes: &[u8]) {
        if self.skip_line_feed && !bytes.is_empty() {
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            self.skip_line_feed = false;
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (head, rest) = bytes.split_at(end);
            if self.line.is_empty() {
                self.line(head);
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(head);
                self.line(&line);
            }
            bytes = match rest {
                [b'\r', b'\n', rest @ ..] => rest,
                [b'\r'] => {
                    self.skip_line_feed = true;
                    &[]
                }
                _ => &rest[1..],
            };
        }
        self.line.extend_from_slice(bytes);
    }

    fn line(&mut self, line: &[u8]) {
        if line.is_empty() {
            return self.dispatch();
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => self.data = Some(value.to_vec()),
            },
            b"event" => self.name = Some(value.to_vec()),
            b"" | b"id" | b"retry" => {}
            _ => self.note_stray(line),
        }
    }

    fn note_stray(&mut self, line: &[u8]) {
        if self.stray.is_none() {
            self.stray = Some(String::from_utf8_lossy(&line[..line.len().min(500)]).into_owned());
        }
    }

    fn dispatch(&mut self) {
        let (name, data) = (self.name.take(), self.data.take());
        if name.is_none() && data.is_none() {
            return;
        }
        let text = |bytes: Vec<u8>| match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(err) => String::from_utf8_lossy(err.as_bytes()).into_owned(),
        };
        self.ready.push_back(Event { name: name.map(text), data: data.map(text).unwrap_or_default() });
    }
}

impl Iterator for Parser {
    type Item = Event;

    /// The next event that is whole by now; there may be more when more bytes have come.
    fn next(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(body: &[u8], step: usize) -> Vec<(Option<String>, String)> {
        let mut parser = Parser::default();
        let mut events = vec![];
        for piece in body.chunks(step) {
            parser.feed(piece);
            events.extend(std::iter::from_fn(|| parser.next()));
        }
        events.extend(parser.finish());
        events.into_iter().map(|event| (event.name, event.data)).collect()
    }

    #[track_caller]
    fn check(body: &str, expected: &[(&str, &str)]) {
        let name = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        let expected: Vec<_> = expected.iter().map(|(n, data)| (name(n), (*data).to_owned())).collect();
        for step in [usize::MAX, 1, 2, 3, 7] {
            assert_eq!(
                parse(body.as_bytes(), step.min(body.len().max(1))),
                expected,
                "{body:?} in pieces of {step}"
            );
        }
    }

    #[test]
    fn the_many_spellings_of_a_stream_give_the_same_events() {
        check("data: a\n\ndata: b\n\n", &[("", "a"), ("", "b")]);
        check("data: a\r\n\r\ndata: b\r\n\r\n", &[("", "a"), ("", "b")]);
        check("data: a\r\rdata: b\r\r", &[("", "a"), ("", "b")]);
        check("data:a\n\ndata:  b\n\n", &[("", "a"), ("", " b")]);
        check("\u{feff}data: a\n\n\n\ndata: b", &[("", "a"), ("", "b")]);
        check("data: a\ndata: b\ndata\n\n", &[("", "a\nb\n")]);
        check(": hello\n:\n\nevent: ping\ndata: {}\nid: 7\nretry: 5\n\n", &[("ping", "{}")]);
        check("id: 1\n\n: beat\n\ndata:\n\ndata: x\n\n", &[("", ""), ("", "x")]);
        check("data: 你好 🌍 „ok“\n\n", &[("", "你好 🌍 „ok“")]);
        check("event: error\n\n", &[("error", "")]);
        check("", &[]);
        check("\n\n", &[]);
    }

    #[test]
    fn a_line_may_be_as_long_as_it_is() {
        let long = "x".repeat(120_000);
        check(&format!("data: {long}\n\n"), &[("", &long)]);
    }

    #[test]
    fn a_mark_in_the_middle_of_the_stream_is_text() {
        check("data: a\n\ndata: \u{feff}b\n\n", &[("", "a"), ("", "\u{feff}b")]);
        check("\n\u{feff}\ndata: a\n\n", &[("", "a")]);
        check("\n\u{feff}\n\u{feff}data: a\n\ndata: b\n\n", &[("", "b")]);
    }

    #[test]
    fn a_body_that_is_no_stream_is_kept_whole() {
        for body in ["{\"error\":\n\n\"x\"}", "\r\n [1]", "\u{feff}<html>\n\n</html>"] {
            for step in [1, 2, 100] {
                let mut parser = Parser::default();
                body.as_bytes().chunks(step).for_each(|piece| parser.feed(piece));
                assert_eq!(parser.next(), None);
                assert_eq!(parser.finish(), None);
                let kept = parser.foreign().map(|body| String::from_utf8_lossy(body).trim().to_owned());
                assert_eq!(kept.as_deref(), Some(body.trim_start_matches('\u{feff}').trim()));
            }
        }
    }

    #[test]
    fn plain_text_where_a_stream_was_expected_is_noticed() {
        let mut parser = Parser::default();
        parser.feed(b"Bad gateway\nsorry\n");
        assert_eq!((parser.next(), parser.finish()), (None, None));
        assert_eq!(parser.stray(), Some("Bad gateway"));
    }

    #[test]
    fn five_megabytes_in_single_bytes_take_linear_time() {
        let body = format!("data: {}\n\ndata: end\n\n", "x".repeat(5_000_000));
        let events = parse(body.as_bytes(), 1);
        assert_eq!((events.len(), events[0].1.len(), events[1].1.as_str()), (2, 5_000_000, "end"));
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_events(body in "(data: ?[a-zé:]{0,4}|event: [a-z]|:|id: 1|[{x]|\r\n|\r|\n){0,30}", step in 1usize..9) {
            prop_assert_eq!(parse(body.as_bytes(), step), parse(body.as_bytes(), body.len().max(1)));
        }
    }
}

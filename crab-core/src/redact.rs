//! Keeps the keys that crab knows out of everything that it writes, shows or sends.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use crate::message::{Assistant, Block, Part};

/// Values that must not be seen, each with the name that stands in its place.
#[derive(Clone, Default)]
pub struct Secrets {
    /// Longest first, so that a key that begins with another one is found whole.
    needles: Vec<Needle>,
}

#[derive(Clone)]
struct Needle {
    text: String,
    /// `[redacted NAME]`.
    mark: String,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.needles.iter().map(|needle| &needle.mark)).finish()
    }
}

impl Secrets {
    /// Secrets from pairs of name and value. Values of less than eight characters are let be: they are no keys, and
    /// taking them out would garble ordinary text.
    pub fn new(pairs: Vec<(String, String)>) -> Self {
        const SHORTEST: usize = 8;
        let mut needles: Vec<Needle> = Vec::new();
        for (name, value) in pairs {
            let value = value.trim();
            if value.chars().count() < SHORTEST {
                continue;
            }
            let mark = format!("[redacted {}]", plain_name(&name));
            for text in spellings(value) {
                if needles.iter().all(|needle| needle.text != text) {
                    needles.push(Needle { text, mark: mark.clone() });
                }
            }
        }
        needles.sort_by(|a, b| b.text.len().cmp(&a.text.len()).then_with(|| a.text.cmp(&b.text)));
        Self { needles }
    }

    /// Whether one of them stands in the text.
    pub fn found_in(&self, text: &str) -> bool {
        self.needles.iter().any(|needle| text.contains(&needle.text))
    }

    /// The text with `[redacted NAME]` in the place of each of them.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if !self.found_in(text) {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len());
        let rest = self.scan(text, &mut out, true);
        debug_assert!(rest.is_empty());
        Cow::Owned(out)
    }

    /// A mark that takes a secret's place from the old text to the new one: there are more of the mark, and fewer of what
    /// it stands for.
    pub fn mark_put_into(&self, old: &[u8], new: &[u8]) -> Option<&str> {
        let marks = self.needles.iter().map(|needle| needle.mark.as_str());
        let secrets = |text: &[u8], mark: &str| -> usize {
            let needles = self.needles.iter().filter(|needle| needle.mark == mark);
            needles.map(|needle| occurrences(text, &needle.text)).sum()
        };
        let mut marks = marks.filter(|mark| occurrences(new, mark) > occurrences(old, mark));
        marks.find(|mark| secrets(new, mark) < secrets(old, mark))
    }

    /// A mark that stands in the text.
    pub fn mark_in(&self, text: &[u8]) -> Option<&str> {
        self.needles.iter().map(|needle| needle.mark.as_str()).find(|mark| occurrences(text, mark) > 0)
    }

    /// Redacts a text in place.
    pub fn redact_string(&self, text: &mut String) {
        if let Cow::Owned(clean) = self.redact(text) {
            *text = clean;
        }
    }

    /// Redacts all strings of a JSON value, the names of its fields included.
    pub fn redact_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.redact_string(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(item)),
            Value::Object(fields) => {
                let old = std::mem::take(fields);
                for (mut name, mut value) in old {
                    self.redact_string(&mut name);
                    self.redact_value(&mut value);
                    fields.insert(name, value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Redacts the texts of what a user or a tool says.
    pub fn redact_parts(&self, parts: &mut [Part]) {
        for part in parts {
            if let Part::Text { text } = part {
                self.redact_string(text);
            }
        }
    }

    /// Redacts what a model says. Names, ids and signatures stay: changed ones would be refused by its service.
    pub fn redact_assistant(&self, message: &mut Assistant) {
        message.refusal.iter_mut().for_each(|refusal| self.redact_string(refusal));
        for block in &mut message.content {
            match block {
                Block::Text { text, .. } => self.redact_string(text),
                Block::Thinking(thinking) => {
                    self.redact_string(&mut thinking.text);
                    thinking.details.iter_mut().for_each(|detail| self.redact_value(detail));
                    thinking.item.iter_mut().for_each(|item| self.redact_value(item));
                }
                Block::ToolCall(call) => {
                    self.redact_value(&mut call.arguments);
                    call.extra.iter_mut().for_each(|extra| self.redact_value(extra));
                }
            }
        }
    }

    /// Writes the clean form of `text` to `out` and gives back the end of it that may be the beginning of a secret;
    /// nothing is held back when the text is `whole`.
    fn scan<'a>(&self, text: &'a str, out: &mut String, whole: bool) -> &'a str {
        let mut at = 0;
        let mut clean = 0;
        while at < text.len() {
            let rest = &text[at..];
            if !whole && self.needles.iter().any(|n| n.text.len() > rest.len() && n.text.starts_with(rest)) {
                break;
            }
            let found = self.needles.iter().find(|needle| rest.starts_with(&needle.text));
            if let Some(needle) = found {
                out.push_str(&text[clean..at]);
                out.push_str(&needle.mark);
                at += needle.text.len();
                clean = at;
            } else {
                at = text.ceil_char_boundary(at + 1);
            }
        }
        out.push_str(&text[clean..at]);
        &text[at..]
    }
}

/// Redacts a text that comes in pieces: any cut gives what the whole would have given.
#[derive(Debug)]
pub struct Redacting {
    secrets: Arc<Secrets>,
    held: String,
}

impl Redacting {
    /// A stream without any text yet.
    pub fn new(secrets: Arc<Secrets>) -> Self {
        Self { secrets, held: String::new() }
    }

    /// Takes a piece and gives back what can be shown by now.
    pub fn push(&mut self, piece: &str) -> String {
        self.held.push_str(piece);
        let mut out = String::with_capacity(self.held.len());
        let kept = self.secrets.scan(&self.held, &mut out, false).len();
        self.held.drain(..self.held.len() - kept);
        out
    }

    /// Gives back the rest.
    pub fn finish(self) -> String {
        self.secrets.redact(&self.held).into_owned()
    }
}

/// How often a text stands in another one.
pub(crate) fn occurrences(text: &[u8], sought: &str) -> usize {
    match std::str::from_utf8(text) {
        Ok(text) => text.matches(sought).count(),
        Err(_) => text.windows(sought.len()).filter(|part| *part == sought.as_bytes()).count(),
    }
}

/// The value as it is, and as it stands in JSON text, and in JSON text that is itself a JSON string.
fn spellings(value: &str) -> Vec<String> {
    let once = json_escaped(value);
    let slashes = once.replace('/', "\\/");
    let twice = json_escaped(&once);
    let slashes_twice = json_escaped(&slashes);
    vec![value.to_owned(), once, slashes, twice, slashes_twice]
}

fn json_escaped(text: &str) -> String {
    let quoted = Value::String(text.to_owned()).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// The mark stands in JSON text too, so nothing in it may need escaping.
fn plain_name(name: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || " _-.".contains(c) { c } else { '_' };
    name.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn secrets(values: &[&str]) -> Secrets {
        Secrets::new(values.iter().enumerate().map(|(n, value)| (format!("K{n}"), (*value).into())).collect())
    }

    #[track_caller]
    fn check(values: &[&str], text: &str, expected: &str) {
        assert_eq!(secrets(values).redact(text), expected);
    }

    #[test]
    fn values_are_replaced_by_their_names() {
        check(&["sk-CANARY123"], "key=sk-CANARY123\nsk-CANARY123", "key=[redacted K0]\n[redacted K0]");
        check(&["sk-CANARY123"], "sk-CANARY12", "sk-CANARY12");
        check(&["short", "  ", ""], "short and blank", "short and blank");
        check(&["ünï-cödé-8"], "äünï-cödé-8ä", "ä[redacted K0]ä");
        check(&["12345678", "1234567890"], "1234567890 12345678", "[redacted K1] [redacted K0]");
        check(&["padded-key-1\n"], "x padded-key-1 y", "x [redacted K0] y");
        check(&[], "anything", "anything");
    }

    #[test]
    fn escaped_spellings_are_found() {
        let key = "a/b+c\"d\\efgh";
        for text in [
            json!({ "key": key }).to_string(),
            json!({ "arguments": json!({ "key": key }).to_string() }).to_string(),
            json!({ "key": key }).to_string().replace('/', "\\/"),
        ] {
            let clean = secrets(&[key]).redact(&text).into_owned();
            assert!(clean.contains("[redacted K0]"), "{text}");
            assert!(serde_json::from_str::<Value>(&clean).is_ok(), "{clean}");
        }
    }

    #[test]
    fn names_cannot_break_json_text() {
        let secrets = Secrets::new(vec![("a\"b\\c".into(), "12345678".into())]);
        assert_eq!(secrets.redact("\"12345678\""), "\"[redacted a_b_c]\"");
    }

    #[test]
    fn values_are_redacted_with_their_field_names() {
        let mut value = json!({"sk-CANARY123": ["x sk-CANARY123", 1, null]});
        secrets(&["sk-CANARY123"]).redact_value(&mut value);
        assert_eq!(value, json!({"[redacted K0]": ["x [redacted K0]", 1, null]}));
    }

    #[test]
    fn a_debug_print_shows_no_value() {
        assert!(!format!("{:?}", secrets(&["sk-CANARY123"])).contains("CANARY"));
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_as_the_whole(pieces in prop::collection::vec("[ab/ä]{0,9}|abababab|abababab/a|bbbbäaaaa", 0..12)) {
            let secrets = Arc::new(secrets(&["abababab", "abababab/a", "bbbbäaaaa", "babababa"]));
            let mut stream = Redacting::new(secrets.clone());
            let mut shown: String = pieces.iter().map(|piece| stream.push(piece)).collect();
            shown.push_str(&stream.finish());
            prop_assert_eq!(shown, secrets.redact(&pieces.concat()).into_owned());
        }
    }
}

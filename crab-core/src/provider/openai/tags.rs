//! Reasoning that a local model writes into its text, between tags at the very beginning.

use super::chunk::TAGS;
use crate::provider::Delta;

const PAIRS: [(&str, &str); 2] = [("<think>", "</think>"), ("<thought>", "</thought>")];

/// Parts reasoning from text, whatever pieces they come in.
#[derive(Debug, Default)]
pub(super) struct Tags {
    state: State,
    /// What may be the beginning of a tag.
    held: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum State {
    /// Nothing but white space has come.
    Start,
    /// Until this tag.
    Inside(&'static str),
    /// Behind the closing tag, where the line breaks before the answer belong to nobody.
    Behind,
    /// Text that is not looked at any more.
    #[default]
    Text,
}

impl Tags {
    /// Looks for tags, or lets everything through.
    pub(super) fn new(is_on: bool) -> Self {
        Self { state: if is_on { State::Start } else { State::Text }, held: String::new() }
    }

    /// Takes a delta of the content.
    pub(super) fn take(&mut self, delta: Delta, out: &mut Vec<Delta>) {
        match (delta, self.state) {
            (Delta::Text(text), State::Text) => out.push(Delta::Text(text)),
            (Delta::Text(text), _) => {
                self.held.push_str(&text);
                while self.step(out) {}
            }
            (delta, _) => out.push(delta),
        }
    }

    /// Gives out what was held back.
    pub(super) fn finish(&mut self, out: &mut Vec<Delta>) {
        let held = std::mem::take(&mut self.held);
        let inside = matches!(self.state, State::Inside(_));
        out.extend((!held.is_empty()).then(|| if inside { thinking(held) } else { Delta::Text(held) }));
    }

    /// Whether what is held was understood as something, and there may be more to understand.
    fn step(&mut self, out: &mut Vec<Delta>) -> bool {
        match self.state {
            State::Start => self.start(out),
            State::Inside(close) => self.inside(close, out),
            State::Behind => {
                let text = self.held.trim_start();
                if !text.is_empty() {
                    out.push(Delta::Text(text.to_owned()));
                    self.state = State::Text;
                }
                self.held.clear();
                false
            }
            State::Text => {
                self.finish(out);
                false
            }
        }
    }

    fn start(&mut self, out: &mut Vec<Delta>) -> bool {
        let text = self.held.trim_start();
        if let Some((open, close)) = PAIRS.into_iter().find(|(open, _)| text.starts_with(open)) {
            self.held = text[open.len()..].to_owned();
            self.state = State::Inside(close);
            return true;
        }
        if PAIRS.iter().any(|(open, _)| open.starts_with(text)) {
            return false;
        }
        self.state = State::Text;
        self.finish(out);
        false
    }

    fn inside(&mut self, close: &'static str, out: &mut Vec<Delta>) -> bool {
        if let Some(at) = self.held.find(close) {
            let rest = self.held.split_off(at);
            let text = std::mem::replace(&mut self.held, rest[close.len()..].to_owned());
            out.extend((!text.is_empty()).then(|| thinking(text)));
            self.state = State::Behind;
            return true;
        }
        let keep = (1..close.len()).rev().find(|len| self.held.ends_with(&close[..*len])).unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        let text = std::mem::replace(&mut self.held, rest);
        out.extend((!text.is_empty()).then(|| thinking(text)));
        false
    }
}

fn thinking(text: String) -> Delta {
    Delta::Thinking { text, field: TAGS }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reasoning and text of an answer that comes in pieces of so many bytes.
    fn split(answer: &str, size: usize) -> (String, String) {
        let mut tags = Tags::new(true);
        let mut out = vec![];
        let chars: Vec<char> = answer.chars().collect();
        for piece in chars.chunks(size) {
            tags.take(Delta::Text(piece.iter().collect()), &mut out);
        }
        tags.finish(&mut out);
        let (mut thinking, mut said) = (String::new(), String::new());
        for delta in out {
            match delta {
                Delta::Thinking { text, .. } => thinking.push_str(&text),
                Delta::Text(text) => said.push_str(&text),
                other => panic!("{other:?}"),
            }
        }
        (thinking, said)
    }

    #[track_caller]
    fn check(answer: &str, thinking: &str, said: &str) {
        for size in 1..=answer.len().max(1) {
            assert_eq!(split(answer, size), (thinking.to_owned(), said.to_owned()), "in pieces of {size}");
        }
    }

    #[test]
    fn reasoning_at_the_beginning_is_told_from_the_answer() {
        check("<think>hm\n</think>\n\nYes.", "hm\n", "Yes.");
        check("\n<think></think>Yes.", "", "Yes.");
        check("<thought>é</thought> ok", "é", "ok");
        check("<think>never </thin closed", "never </thin closed", "");
        check("<think>a<think>b</think>c</think>d", "a<think>b", "c</think>d");
    }

    #[test]
    fn text_that_speaks_of_tags_stays_text() {
        check("Use `<think>` here", "", "Use `<think>` here");
        check("<thin", "", "<thin");
        check("<thinking>x", "", "<thinking>x");
        check("\n\nplain", "", "\n\nplain");
    }

    #[test]
    fn where_no_tags_are_looked_for_all_is_text() {
        let mut out = vec![];
        Tags::new(false).take(Delta::Text("<think>a".into()), &mut out);
        assert_eq!(out, [Delta::Text("<think>a".into())]);
    }
}

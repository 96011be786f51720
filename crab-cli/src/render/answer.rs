//! The text of a turn's messages, whole and in order, whatever events a slow reader missed.

use std::sync::Arc;

use crab_core::message::{Assistant, Stop};

/// What of the turn's text was given out already.
#[derive(Default)]
pub(crate) struct Answer {
    request: u32,
    given: usize,
    whole: u32,
    lagged: bool,
}

impl Answer {
    /// Events were missed: from here on a message may be complete without having been seen.
    pub(crate) fn lagged(&mut self) {
        self.lagged = true;
    }

    /// What of this piece can be given out now; nothing behind a gap.
    pub(crate) fn delta<'a>(&mut self, request: u32, offset: usize, delta: &'a str) -> &'a str {
        if request <= self.whole || self.must_wait(request) {
            return "";
        }
        if request != self.request {
            (self.request, self.given) = (request, 0);
        }
        if offset != self.given {
            return "";
        }
        self.given += delta.len();
        delta
    }

    /// The rest of a message that is done. `None` when it must wait for an earlier one that was missed.
    pub(crate) fn done(&mut self, request: u32, message: &Assistant) -> Option<String> {
        if request <= self.whole || self.must_wait(request) {
            return None;
        }
        let mut rest = message.text();
        if request == self.request {
            rest = rest.get(self.given..).unwrap_or_default().to_owned();
        }
        self.whole = request;
        Some(rest)
    }

    /// The rest of each message that is not whole yet, by request, at the end of the turn. Begins anew.
    pub(crate) fn ended(&mut self, messages: &[Arc<Assistant>]) -> Vec<(u32, String)> {
        let mut rest = vec![];
        for (request, message) in (1..).zip(messages) {
            self.lagged = false;
            rest.extend(self.done(request, message).map(|text| (request, text)));
        }
        *self = Self::default();
        rest
    }

    fn must_wait(&self, request: u32) -> bool {
        self.lagged && request > self.whole + 1
    }
}

/// The last message that says something, with the beginning of it that broke off and was gone on with.
pub(crate) fn last_text(messages: &[Arc<Assistant>]) -> Option<String> {
    let says = |message: &Arc<Assistant>| !message.text().trim().is_empty();
    let last = messages.iter().rposition(says)?;
    let is_begun = |message: &&Arc<Assistant>| says(message) && message.stop == Stop::Cut;
    // A request that failed in between, before another model went on, left a message without a word.
    let heard = |message: &&Arc<Assistant>| says(message) || message.stop != Stop::Cut;
    let mut pieces: Vec<String> = messages[..last]
        .iter()
        .rev()
        .filter(heard)
        .take_while(is_begun)
        .map(|message| message.text())
        .collect();
    pieces.reverse();
    Some(pieces.concat() + &messages[last].text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crab_core::message::Block;
    use proptest::prelude::*;

    fn message(text: &str) -> Arc<Assistant> {
        Arc::new(Assistant { content: vec![Block::text(text)], ..Assistant::default() })
    }

    #[test]
    fn an_answer_that_another_model_went_on_with_is_one() {
        let cut = |text: &str| Arc::new(Assistant { stop: Stop::Cut, ..message(text).as_ref().clone() });
        let nothing = Arc::new(Assistant { stop: Stop::Cut, ..Assistant::default() });
        assert_eq!(last_text(&[cut("it is "), nothing, message("43")]).as_deref(), Some("it is 43"));
        assert_eq!(last_text(&[cut("it is "), message("one"), message("two")]).as_deref(), Some("two"));
    }

    #[test]
    fn a_gap_is_filled_by_the_whole_message() {
        let mut answer = Answer::default();
        assert_eq!(answer.delta(1, 0, "one "), "one ");
        answer.lagged();
        assert_eq!(answer.delta(1, 8, "three"), "");
        assert_eq!(answer.done(1, &message("one two three")).unwrap(), "two three");
    }

    #[test]
    fn a_message_behind_a_missed_one_waits_for_the_end() {
        let mut answer = Answer::default();
        answer.lagged();
        assert_eq!(answer.delta(2, 0, "second"), "");
        assert_eq!(answer.done(2, &message("second")), None);
        let rest = answer.ended(&[message("first"), message("second")]);
        assert_eq!(rest, [(1, "first".into()), (2, "second".into())]);
    }

    #[test]
    fn a_failed_request_without_a_message_holds_nothing_up() {
        let mut answer = Answer::default();
        assert_eq!(answer.delta(1, 0, "cut"), "cut");
        assert_eq!(answer.delta(2, 0, "again"), "again");
        assert_eq!(answer.done(2, &message("again")).unwrap(), "");
        assert_eq!(answer.ended(&[message("again")]), []);
    }

    proptest! {
        #[test]
        fn whatever_is_missed_the_text_is_whole(
            texts in prop::collection::vec("[a-zé\n]{0,12}", 1..5),
            seen in prop::collection::vec(prop::bool::ANY, 100),
        ) {
            let mut answer = Answer::default();
            let mut seen = seen.into_iter();
            let mut sees = |answer: &mut Answer| {
                let sees = seen.next().unwrap_or(true);
                if !sees {
                    answer.lagged();
                }
                sees
            };
            let mut out = String::new();
            for (request, text) in (1..).zip(&texts) {
                for (offset, c) in text.char_indices() {
                    if sees(&mut answer) {
                        out.push_str(answer.delta(request, offset, c.encode_utf8(&mut [0; 4])));
                    }
                }
                if sees(&mut answer) {
                    out.extend(answer.done(request, &message(text)));
                }
            }
            let messages: Vec<_> = texts.iter().map(|text| message(text)).collect();
            out.extend(answer.ended(&messages).into_iter().map(|(_, text)| text));
            prop_assert_eq!(out, texts.concat());
        }
    }
}

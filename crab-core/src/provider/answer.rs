//! One answer from its first byte to its last, without IO: bytes in, deltas out, or how it broke.

use std::collections::VecDeque;

use serde_json::Value;

use super::Delta;
use super::failure::{Said, foreign};
use crate::message::Stop;
use crate::sse::{Event, Parser};

/// What a protocol makes of the events of one answer. Must not panic on anything that a service may send.
pub(super) trait Decode: Send {
    /// Takes one event. What could be read goes out even when the event brings an error.
    fn event(&mut self, event: &Event, out: &mut Vec<Delta>) -> Result<(), Said>;
    /// Takes a whole answer that came as one JSON body.
    fn whole(&mut self, body: &Value, out: &mut Vec<Delta>) -> Result<(), Said>;
    /// Nothing more will come, even when the connection stays open.
    fn is_done(&self) -> bool;
    /// The answer is whole; at most its figures are missing.
    fn is_finished(&self) -> bool;
    /// Why the answer ended, or how it broke, when all that came has been taken.
    fn end(&mut self, out: &mut Vec<Delta>) -> Result<Stop, Broken>;
}

/// How an answer broke.
#[derive(Debug, PartialEq)]
pub(super) enum Broken {
    /// The service told of a failure in the middle of a stream that it had accepted.
    Said(Said),
    /// The body was nothing but the news of a failure.
    Refused(Said),
    /// The end came before the answer was finished.
    Cut,
    /// Something else than an answer: a page, plain text.
    Foreign(String),
    /// One event is longer than anything sensible.
    Overlong,
}

/// Far above any event seen (100 KB) and any answer, far below what would hurt.
const LONGEST: usize = 64 << 20;

/// The answer so far.
pub(super) struct Answer {
    parser: Parser,
    decoder: Box<dyn Decode>,
    out: VecDeque<Delta>,
    events: u64,
}

impl Answer {
    pub(super) fn new(decoder: Box<dyn Decode>) -> Self {
        Self { parser: Parser::default(), decoder, out: VecDeque::new(), events: 0 }
    }

    /// How many events have come.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// The next delta.
    pub(super) fn next(&mut self) -> Option<Delta> {
        self.out.pop_front()
    }

    pub(super) fn is_done(&self) -> bool {
        self.decoder.is_done()
    }

    pub(super) fn is_finished(&self) -> bool {
        self.decoder.is_finished()
    }

    /// Takes the next piece of the body.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        self.parser.feed(bytes);
        while let Some(event) = self.parser.next() {
            self.events += 1;
            self.take(|decoder, out| decoder.event(&event, out)).map_err(Broken::Said)?;
            if self.is_done() {
                return Ok(());
            }
        }
        let held = self.parser.foreign().map_or_else(|| self.parser.pending(), <[u8]>::len);
        if held > LONGEST { Err(Broken::Overlong) } else { Ok(()) }
    }

    /// Ends the answer: the body ended, or nothing more will come.
    pub(super) fn end(&mut self) -> Result<(), Broken> {
        self.last()?;
        let mut out = vec![];
        let stop = self.decoder.end(&mut out);
        self.out.extend(out);
        self.out.push_back(Delta::Stop(stop?));
        Ok(())
    }

    /// What the end of the body leaves over.
    fn last(&mut self) -> Result<(), Broken> {
        if let Some(body) = self.parser.foreign() {
            let Ok(body) = serde_json::from_slice::<Value>(body) else {
                let cut = matches!(body.first(), Some(b'{' | b'['));
                return Err(if cut { Broken::Cut } else { Broken::Foreign(foreign(body)) });
            };
            return self.take(|decoder, out| decoder.whole(&body, out)).map_err(Broken::Refused);
        }
        if self.is_done() {
            return Ok(());
        }
        if let Some(event) = self.parser.finish() {
            let text = event.data.trim();
            // A last event that is not whole was cut; that it is missing tells the rest.
            if text == "[DONE]" || serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() {
                self.events += 1;
                self.take(|decoder, out| decoder.event(&event, out)).map_err(Broken::Said)?;
            }
        }
        match self.parser.stray() {
            Some(line) if self.events == 0 => Err(Broken::Foreign(foreign(line.as_bytes()))),
            _ => Ok(()),
        }
    }

    fn take(
        &mut self,
        step: impl FnOnce(&mut dyn Decode, &mut Vec<Delta>) -> Result<(), Said>,
    ) -> Result<(), Said> {
        let mut out = vec![];
        let taken = step(self.decoder.as_mut(), &mut out);
        self.out.extend(out);
        taken
    }
}

/// The event's data as JSON; an empty one is nothing, as heartbeats are.
pub(super) fn json(event: &Event) -> Result<Option<Value>, Said> {
    let text = event.data.trim();
    if text.is_empty() {
        return Ok(None);
    }
    serde_json::from_str(text).map(Some).map_err(|_| {
        let head: String = text.chars().take(200).collect();
        let mut said = Said::text(format!("the stream holds an event that is not JSON: `{head}`"), None);
        said.tags = "server_error".into();
        said
    })
}

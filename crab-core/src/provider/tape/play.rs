//! Reads a recording and answers from it.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use base64::Engine;
use serde_json::{Map, Value};

use super::{Header, Line, Lost, VERSION};
use crate::message::Part;

/// A recording that is played.
pub struct Player {
    header: Header,
    prompts: Vec<Vec<Part>>,
    state: Mutex<Play>,
}

struct Play {
    exchanges: VecDeque<Exchange>,
    /// How many prompts have been sent.
    prompts: usize,
    /// How many exchanges are used up.
    used: usize,
}

/// A recorded exchange.
#[derive(Debug, Default)]
pub(in crate::provider) struct Exchange {
    /// Its number, from 1.
    pub(in crate::provider) n: u64,
    /// How many prompts stand before it.
    prompt: usize,
    /// What was sent then.
    pub(in crate::provider) body: Value,
    pub(in crate::provider) status: u16,
    pub(in crate::provider) headers: Map<String, Value>,
    pub(in crate::provider) pieces: VecDeque<Vec<u8>>,
    /// How it ended; `None`: the recording ends before it does.
    pub(in crate::provider) end: Option<Option<Lost>>,
}

impl Player {
    /// Reads a recording. A torn last line is what a killed run leaves.
    ///
    /// # Errors
    /// Names the file, the line and what is wrong with it.
    pub fn open(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let text =
            std::fs::read(path).map_err(|err| format!("the recording `{shown}` can't be read: {err}"))?;
        let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
        let mut read = Read::default();
        for (number, line) in (1..).zip(&lines).filter(|(_, line)| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(line) => read.take(line).map_err(|why| format!("`{shown}`, line {number}: {why}"))?,
                Err(_) if number == lines.len() && number > 1 => {}
                Err(err) => {
                    let why = err.to_string();
                    // The parser sees one line only, so its own line number would mislead.
                    let why = why.rsplit_once(" at line ").map_or(why.as_str(), |(why, _)| why);
                    return Err(format!("`{shown}` is no recording: line {number}: {why}"));
                }
            }
        }
        let header = read.header.filter(|header| !header.models.is_empty());
        let header =
            header.ok_or_else(|| format!("`{shown}` is no recording: its first line names no model"))?;
        let exchanges = read.exchanges.into_values().collect();
        let state = Mutex::new(Play { exchanges, prompts: 0, used: 0 });
        Ok(Self { header, prompts: read.prompts, state })
    }

    /// What the recorded run was.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What the user said in it, in order.
    pub fn prompts(&self) -> &[Vec<Part>] {
        &self.prompts
    }

    /// The next prompt is sent: what is left of the exchanges of earlier ones is nobody's, for a turn that was stopped
    /// had no use for them.
    pub fn prompt(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.prompts += 1;
        let sent = state.prompts;
        state.exchanges.retain(|exchange| exchange.prompt >= sent);
    }

    /// The next exchange, or why there is none.
    pub(in crate::provider) fn next(&self) -> Result<Exchange, String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_next = state.exchanges.front().is_some_and(|next| next.prompt <= state.prompts);
        let next = if is_next { state.exchanges.pop_front() } else { None };
        state.used += usize::from(next.is_some());
        next.ok_or_else(|| {
            let used = state.used;
            format!("the recording has no further answer to this prompt: {used} of its exchanges were used")
        })
    }
}

/// What has been read so far.
#[derive(Default)]
struct Read {
    header: Option<Header>,
    prompts: Vec<Vec<Part>>,
    exchanges: BTreeMap<u64, Exchange>,
}

impl Read {
    fn exchange(&mut self, n: u64) -> &mut Exchange {
        let exchange = self.exchanges.entry(n).or_default();
        if exchange.n == 0 {
            (exchange.n, exchange.prompt) = (n, self.prompts.len());
        }
        exchange
    }

    fn take(&mut self, line: Line) -> Result<(), String> {
        match line {
            Line::Recording { version, .. } if version > VERSION => {
                return Err(format!(
                    "version {version} is of a newer crab; this one reads version {VERSION}"
                ));
            }
            Line::Recording { header, .. } => self.header = Some(header),
            Line::Prompt { content } => self.prompts.push(content),
            Line::Request { n, body, .. } => self.exchange(n).body = body,
            Line::Response { n, status, headers, .. } => {
                let exchange = self.exchange(n);
                (exchange.status, exchange.headers) = (status, headers);
            }
            Line::Data { n, text: Some(text), .. } => self.exchange(n).pieces.push_back(text.into_bytes()),
            Line::Data { n, base64, .. } => {
                let bytes = base64::engine::general_purpose::STANDARD.decode(base64.unwrap_or_default());
                self.exchange(n).pieces.push_back(bytes.map_err(|err| format!("`base64`: {err}"))?);
            }
            Line::End { n, failure, .. } => self.exchange(n).end = Some(failure),
            Line::Unknown => {}
        }
        Ok(())
    }
}

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
    exchanges: Mutex<VecDeque<Exchange>>,
    count: usize,
}

/// A recorded exchange.
#[derive(Debug, Default)]
pub(in crate::provider) struct Exchange {
    /// Its number, from 1.
    pub(in crate::provider) n: u64,
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
        let exchanges: VecDeque<_> = read.exchanges.into_values().collect();
        let count = exchanges.len();
        Ok(Self { header, prompts: read.prompts, exchanges: Mutex::new(exchanges), count })
    }

    /// What the recorded run was.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What the user said in it, in order.
    pub fn prompts(&self) -> &[Vec<Part>] {
        &self.prompts
    }

    /// The next exchange, or why there is none.
    pub(in crate::provider) fn next(&self) -> Result<Exchange, String> {
        let next = self.exchanges.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        next.ok_or_else(|| {
            format!("the recording has no answer to this request: it holds {} exchanges", self.count)
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
        exchange.n = n;
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

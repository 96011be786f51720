//! Recordings of a run at the wire: what was asked and what came back, without secrets, and the same run again from
//! such a file without a network.
//!
//! A recording is JSON Lines. The first line is `{"type":"recording","version":1,…}` with what is needed to run it
//! again; then, in the order in which they happened: `prompt` (what the user said), and for each exchange, told apart by
//! its number `n`, `request`, `response` (status and headers), `data` (`text`, or `base64` where it is none) and `end`,
//! which says how the exchange ended: well, or in which failure. `at_ms` counts from the start of the recording.

mod play;
mod record;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Effort;
use super::retry::Fault;
use crate::message::Part;
pub(super) use play::Exchange;
pub use play::Player;
pub use record::Recorder;
pub(super) use record::Track;

/// The format of this crab.
const VERSION: u32 = 1;

/// What becomes of the wire.
#[derive(Clone)]
pub enum Tape {
    /// It is written down.
    Record(Arc<Recorder>),
    /// It is none: answers come from a recording.
    Replay(Arc<Player>),
}

/// What a recording says about the run that it is of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Who was asked, and then those that it could fall back on.
    pub models: Vec<Asked>,
    /// How hard the model should think.
    #[serde(default)]
    pub effort: Option<Effort>,
    /// At most so many requests for a prompt.
    #[serde(default)]
    pub max_turns: Option<u32>,
    /// The tools that were on offer, when not all of them were.
    #[serde(default)]
    pub tools: Option<Vec<String>>,
}

/// A model with the configuration of its provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// The provider's name.
    pub provider: String,
    /// The model's name.
    pub model: String,
    /// What the provider speaks, as the configuration names it.
    pub api: String,
    /// Its address, when it was not the one that crab knows.
    #[serde(default)]
    pub base_url: Option<String>,
    /// At most so many output tokens.
    #[serde(default)]
    pub max_output: Option<u32>,
    /// At most so many retries.
    #[serde(default)]
    pub max_retries: Option<u32>,
    /// Where its key came from, for the words of failures.
    #[serde(default)]
    pub key_source: Option<String>,
    /// The longest silence, in seconds, when the user set it.
    #[serde(default)]
    pub stream_idle_timeout: Option<f64>,
    /// Differences that the user set.
    #[serde(default)]
    pub compat: Map<String, Value>,
}

/// A line of a recording.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    Recording {
        version: u32,
        crab: String,
        #[serde(flatten)]
        header: Header,
    },
    Prompt {
        content: Vec<Part>,
    },
    Request {
        n: u64,
        at_ms: u64,
        method: String,
        url: String,
        headers: Map<String, Value>,
        body: Value,
    },
    Response {
        n: u64,
        at_ms: u64,
        status: u16,
        headers: Map<String, Value>,
    },
    Data {
        n: u64,
        at_ms: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base64: Option<String>,
    },
    End {
        n: u64,
        at_ms: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Lost>,
    },
    /// A line of a newer crab.
    #[serde(other)]
    Unknown,
}

/// How an exchange failed below the protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Lost {
    /// No response came; a failure in crab's words, and how often it was worth trying again.
    Unanswered(Fault),
    /// The connection broke in the middle of the body, for this reason.
    Broke(String),
    /// Nothing came for so long that it was given up.
    Silent,
}

/// What a replay says when it comes to where the recorded run was stopped.
pub(super) const STOPPED: &str = "the recorded run was stopped in the middle of this answer";

/// Where a recording differs from what is asked now, as a path into the body; `None`: nowhere that matters. The date and the
/// place stand in the system prompt, and the session's name in other keys, so only what was said is compared.
pub(super) fn difference(then: &Value, now: &Value) -> Option<String> {
    let key = ["messages", "input"].into_iter().find(|key| now.get(key).is_some())?;
    let said = |body: &Value| -> Vec<Value> {
        let list = body.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        list.into_iter().filter(|message| message["role"] != "system").collect()
    };
    let (then, now) = (said(then), said(now));
    let longer = then.len().max(now.len());
    (0..longer).find(|at| then.get(*at) != now.get(*at)).map(|at| format!("{key}[{at}]"))
}

#[cfg(test)]
mod tests;

//! What a provider is: a request in, a stream of deltas out.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use serde_json::Value;

use crate::message::{Message, Stop, Usage};
use crate::protocol::{Failure, FailureKind};

/// How hard the model should think.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// Not at all, where the model can do without.
    Off,
    /// A little.
    Low,
    /// As much as most tasks need.
    Medium,
    /// As much as it can.
    High,
}

/// A tool as a provider needs to know it.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// The JSON schema of its arguments.
    pub schema: Value,
}

/// One model request. Bodies built from equal requests are equal byte for byte.
#[derive(Clone)]
pub struct Request {
    /// The model's name as the service knows it.
    pub model: String,
    /// The system prompt.
    pub system: Arc<str>,
    /// The conversation, valid: each call has one result, right behind it; no message is empty.
    pub messages: Vec<Message>,
    /// The tools on offer, in a fixed order.
    pub tools: Arc<[ToolSpec]>,
    /// `None`: whatever the service does by itself.
    pub effort: Option<Effort>,
    /// At most so many output tokens; `None`: the provider's own default.
    pub max_output: Option<u32>,
    /// Stable within a session: a hint for the service's prompt cache.
    pub session: String,
}

/// A piece of a message, as `accumulate` puts it together.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// Text of the answer.
    Text(String),
    /// Text of the reasoning, and the field of a chat completions chunk that it came in.
    Thinking {
        /// The text.
        text: String,
        /// The field; empty for other protocols.
        field: &'static str,
    },
    /// The signature of the reasoning block before it; closes that block.
    Signature(String),
    /// A whole redacted reasoning block.
    Redacted(String),
    /// One element of `reasoning_details`.
    Details(Value),
    /// A piece of a tool call; every field may be missing.
    Call {
        /// The service's number of the call.
        index: Option<u64>,
        /// The service's id.
        id: Option<String>,
        /// The tool.
        name: Option<String>,
        /// A piece of the arguments' JSON text.
        arguments: Option<String>,
        /// What goes back with the call.
        extra: Option<Value>,
    },
    /// Tokens; a later one replaces the fields that it has.
    Usage(Usage),
    /// Why the message ended. The last one counts.
    Stop(Stop),
    /// The request is tried again after a pause; nothing of the failed try was given out.
    Retrying {
        /// The number of the try that follows, from 2.
        attempt: u32,
        /// The pause.
        delay: Duration,
        /// Why.
        reason: String,
    },
}

/// Why a request failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", failure.message)]
pub struct Error {
    /// For people and scripts.
    pub failure: Failure,
    /// How long the service asks to wait.
    pub retry_after: Option<Duration>,
}

impl Error {
    /// Whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        use FailureKind::*;
        matches!(self.failure.kind, RateLimit | Overloaded | Server | Cut | ToolFailed | Network)
    }
}

/// Deltas, ended by the end of the message or by one error.
pub type Deltas = Pin<Box<dyn Stream<Item = Result<Delta, Error>> + Send>>;

/// A service that answers requests.
///
/// Failures are items of the stream, never a panic and never a hang: a stream that stays silent longer than the
/// provider's idle limit ends with an error. Dropping the stream cancels the request. A stream that ends without an
/// error carried a whole message, with a [`Delta::Stop`].
pub trait Provider: Send + Sync + 'static {
    /// The name in the configuration, such as `openai`.
    fn name(&self) -> &str;
    /// Sends the request. Retries are the provider's own affair, as long as it has given out no other delta.
    fn stream(&self, request: Request) -> Deltas;
}

//! The conversation, neutral of any provider; also the shape of the session file.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A piece of what a user or a tool says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Plain text.
    Text {
        /// The text itself.
        text: String,
    },
    /// A picture.
    Image {
        /// The MIME type, such as `image/png`.
        media_type: String,
        /// The bytes in standard base64.
        data: String,
    },
}

impl Part {
    /// A text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// The text of all text parts, joined by line breaks.
pub fn text_of(parts: &[Part]) -> String {
    let texts = parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.as_str()),
        Part::Image { .. } => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// A piece of what the model says, in the order in which it came.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Text for the user.
    Text {
        /// The text itself.
        text: String,
        /// What the Responses API calls this text (`commentary`, `final_answer`); goes back with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        phase: Option<String>,
    },
    /// Reasoning.
    Thinking(Thinking),
    /// A request to run a tool.
    ToolCall(ToolCall),
}

impl Block {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), phase: None }
    }
}

/// Reasoning, with what its own provider needs to get it back unchanged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Thinking {
    /// The readable text; empty when the provider hides it.
    pub text: String,
    /// Anthropic's signature of the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// The opaque data of a redacted block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted: Option<String>,
    /// The field in which a chat completions service sent it (`reasoning_content`, `reasoning`, …).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// `reasoning_details` of OpenRouter and its kin, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Value>,
    /// The whole reasoning item of the Responses API, its encrypted content included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<Value>,
}

/// A request of the model to run a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Unique within the session.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// A JSON object, or a string with the raw text when that was not a whole JSON object.
    pub arguments: Value,
    /// What the service wants back with the call (`extra_content` of Gemini).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Value>,
}

/// Why a message ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The model was done.
    #[default]
    End,
    /// It wants tools to run.
    ToolCalls,
    /// The limit of output tokens, or the model's window.
    Length,
    /// The service refused to go on (content filter, refusal).
    Refusal,
    /// The service paused a long turn; sending the message back goes on.
    Pause,
    /// The user stopped it.
    Aborted,
    /// The connection or the service failed in mid-message.
    Cut,
    /// A word of a newer crab.
    #[serde(other)]
    Other,
}

/// Tokens of one request. `None` means that the service did not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// All prompt tokens, cached ones included.
    pub input: Option<u64>,
    /// All generated tokens, reasoning included.
    pub output: Option<u64>,
    /// Prompt tokens read from the cache.
    pub cache_read: Option<u64>,
    /// Prompt tokens written to the cache.
    pub cache_write: Option<u64>,
    /// Generated tokens that were reasoning.
    pub reasoning: Option<u64>,
    /// US dollars.
    pub cost_usd: Option<f64>,
}

impl Usage {
    /// Adds another request's figures; unknown plus known is known.
    pub fn add(&mut self, other: &Self) {
        fn sum<T: Copy>(a: Option<T>, b: Option<T>, add: fn(T, T) -> T) -> Option<T> {
            a.zip(b).map(|(a, b)| add(a, b)).or(a).or(b)
        }
        // A service may send any number; rubbish must not become a small figure.
        let tokens = |a, b| sum(a, b, u64::saturating_add);
        self.input = tokens(self.input, other.input);
        self.output = tokens(self.output, other.output);
        self.cache_read = tokens(self.cache_read, other.cache_read);
        self.cache_write = tokens(self.cache_write, other.cache_write);
        self.reasoning = tokens(self.reasoning, other.reasoning);
        self.cost_usd = sum(self.cost_usd, other.cost_usd, |a, b| a + b);
    }
}

/// One whole message of the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Assistant {
    /// What it said, in order.
    pub content: Vec<Block>,
    /// The words of a refusal, which are no answer and never go back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// The provider's name in the configuration.
    pub provider: String,
    /// The model that was asked.
    pub model: String,
    /// Why it ended.
    pub stop: Stop,
    /// What it cost.
    #[serde(default)]
    pub usage: Usage,
}

impl Assistant {
    /// All text blocks, one after the other, as a pipe gets them.
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|block| match block {
            Block::Text { text, .. } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// The calls, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.content.iter().filter_map(|block| match block {
            Block::ToolCall(call) => Some(call),
            _ => None,
        })
    }
}

/// The answer to one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call that it answers.
    pub tool_call_id: String,
    /// The tool's name.
    pub name: String,
    /// Whether the tool failed, was refused or did not run.
    pub is_error: bool,
    /// What the model gets; never empty.
    pub content: Vec<Part>,
    /// How long it took, in milliseconds.
    pub ms: u64,
}

/// One message of a request, as `context` derives it from a session's path.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// What the user said.
    User(Vec<Part>),
    /// What the model said.
    Assistant(Assistant),
    /// What a tool answered.
    ToolResult(ToolResult),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_add_up_and_rubbish_never_becomes_a_small_one() {
        let usage = |input| Usage { input, ..Usage::default() };
        let mut sum = usage(Some(1));
        sum.add(&usage(None));
        sum.add(&usage(Some(u64::MAX)));
        assert_eq!((sum.input, sum.output), (Some(u64::MAX), None));
    }
}

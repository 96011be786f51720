//! In what a service differs from the others: data, known by the table of services, set by the user, or learnt from a
//! refusal.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What a service wants, takes and refuses. The configuration can set each field but what is learnt under
/// `[providers.NAME.compat]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compat {
    /// The name of the output limit in chat completions.
    pub max_tokens_field: TokensField,
    /// Whether it takes `stream_options`, without which some never tell what an answer cost.
    pub stream_options: bool,
    /// How it is asked to think.
    pub reasoning: Ask,
    /// How its reasoning goes back.
    pub reasoning_echo: Echo,
    /// Which call ids it takes.
    pub tool_ids: IdRule,
    /// Whether a message of the model that only calls tools carries an empty `content`.
    pub empty_content: bool,
    /// Whether it takes images; otherwise a line stands in their place.
    pub images: bool,
    /// Whether a user's message may stand right behind a tool's result.
    pub user_after_tool: bool,
    /// How it is told what to cache.
    pub cache: Cache,
    /// Whether an answer that begins with `<think>` begins with reasoning.
    pub think_tags: bool,
    /// Whether a call of another model needs a stand-in for the signature that the service's own calls have.
    pub call_signature: bool,
    /// Messages: whether thinking is asked for by a word instead of a number; `None`: the model's name tells.
    pub adaptive_thinking: Option<bool>,
    /// Messages: whether a summary of the thinking is asked for where thinking is asked for by a word.
    pub thinking_display: bool,
    /// Responses: whether reasoning is asked for in a form that can go back.
    pub encrypted_reasoning: bool,
    /// Responses: whether a summary of the reasoning is asked for.
    pub reasoning_summary: bool,
    /// Whether a 400 without a word means that the conversation is too long.
    pub mute_overflow: bool,
    /// The most output tokens that the service was found to allow; learnt, never configured.
    #[serde(skip)]
    pub output_limit: Option<u32>,
    /// So many messages at the beginning hold reasoning that is not taken back; learnt, never configured.
    #[serde(skip)]
    pub void_reasoning: usize,
}

/// The name of the output limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokensField {
    /// What everybody's copy knows.
    MaxTokens,
    /// What OpenAI's reasoning models insist on.
    MaxCompletionTokens,
}

/// How a chat completions service is asked to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Not at all.
    None,
    /// `reasoning_effort`; nothing is sent for `off`, which few know a word for.
    Effort,
    /// `reasoning_effort`, and `none` for `off`.
    EffortNone,
    /// `reasoning_effort` that knows `high` and `none` alone.
    HighNone,
    /// `thinking: {type}`.
    Thinking,
    /// `thinking: {type}` and `reasoning_effort`.
    ThinkingEffort,
    /// `thinking: {type}`, with `clear_thinking: false` so that earlier reasoning counts.
    ThinkingKept,
    /// `enable_thinking`.
    EnableThinking,
    /// `chat_template_kwargs: {enable_thinking}`.
    Template,
    /// `reasoning: {effort}`, and `{enabled: false}` for `off`.
    Object,
    /// `reasoning: {enabled}`.
    Enabled,
    /// `reasoning: {enabled}` and `reasoning_effort`.
    EnabledEffort,
}

/// How reasoning goes back to the model that it came from; to another it never does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Echo {
    /// In the field that it came in.
    SameField,
    /// Not at all.
    Never,
    /// In `reasoning_content` of every message of the assistant, empty where there was none or another model made it.
    EveryMessage,
    /// As `every_message`, but only on messages that call tools.
    CallMessages,
    /// In the field that it came in, but only behind the last message of the user.
    ToolLoop,
    /// As a part of `content`; the service refuses keys that it does not know.
    ContentPart,
    /// In front of the text, between `<think>` and `</think>`; not to `gpt-oss`, whose template knows no such tags.
    ThinkTags,
}

/// Which call ids a service takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdRule {
    /// Any: they go back as they came.
    Any,
    /// At most 40 out of `[a-zA-Z0-9_-]`.
    Plain40,
    /// At most 64 out of `[a-zA-Z0-9_-]`.
    Plain64,
    /// Exactly 9 letters and digits.
    Alnum9,
}

/// How a service is told what to cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// It finds out by itself.
    None,
    /// `prompt_cache_key`, the same in all requests of a session.
    Key,
    /// `cache_control` on text parts, for the models that need it.
    Parts,
}

impl Compat {
    /// What a service gets of which nothing is known.
    pub const UNKNOWN: Self = Self {
        max_tokens_field: TokensField::MaxTokens,
        stream_options: true,
        reasoning: Ask::Effort,
        reasoning_echo: Echo::SameField,
        tool_ids: IdRule::Plain40,
        empty_content: false,
        images: true,
        user_after_tool: true,
        cache: Cache::None,
        think_tags: true,
        call_signature: false,
        adaptive_thinking: None,
        thinking_display: true,
        encrypted_reasoning: true,
        reasoning_summary: true,
        mute_overflow: false,
        output_limit: None,
        void_reasoning: 0,
    };

    /// With what the user set.
    ///
    /// # Errors
    /// Names the field, and what it can be.
    pub fn with(&self, set: &Map<String, Value>) -> Result<Self, String> {
        let Ok(Value::Object(mut all)) = serde_json::to_value(self) else { return Ok(*self) };
        all.extend(set.clone());
        serde_json::from_value(Value::Object(all)).map_err(|err| err.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_user_can_set_each_field() {
        let set =
            json!({"max_tokens_field": "max_completion_tokens", "reasoning": "high_none", "images": false});
        let compat = Compat::UNKNOWN.with(set.as_object().unwrap()).unwrap();
        assert_eq!((compat.reasoning, compat.images), (Ask::HighNone, false));
        let wrong = json!({"reasoning": "loudly"});
        assert!(Compat::UNKNOWN.with(wrong.as_object().unwrap()).unwrap_err().contains("loudly"));
    }
}

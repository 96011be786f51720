//! In what a service differs from the others: data, known by the table of services, set by the user, or learnt from a
//! refusal.

use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What a service wants, takes and refuses. The configuration can set each field but the last under
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
    /// Whether it takes images.
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
    /// Responses: whether reasoning is asked for in a form that can go back.
    pub encrypted_reasoning: bool,
    /// Responses: whether a summary of the reasoning is asked for.
    pub reasoning_summary: bool,
    /// The most output tokens that the service was found to allow; learnt, never configured.
    #[serde(skip)]
    pub output_limit: Option<u32>,
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
    /// `enable_thinking`.
    EnableThinking,
    /// `chat_template_kwargs: {enable_thinking}`.
    Template,
    /// `reasoning: {effort}`, and `{enabled: false}` for `off`.
    Object,
    /// `reasoning: {enabled}`.
    Enabled,
}

/// How reasoning goes back to the model that it came from; to another it never does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Echo {
    /// In the field that it came in.
    SameField,
    /// Not at all.
    Never,
    /// In `reasoning_content` of every message of the model, empty where there was none, once it thinks.
    EveryMessage,
    /// As `every_message`, but only on messages that call tools.
    CallMessages,
    /// In the field that it came in, but only behind the last message of the user.
    ToolLoop,
    /// As a part of `content`; the service refuses keys that it does not know.
    ContentPart,
    /// In front of the text, between `<think>` and `</think>`.
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
        encrypted_reasoning: true,
        reasoning_summary: true,
        output_limit: None,
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

    /// What the words of a refusal teach about something that `body` holds, if anything.
    pub(super) fn learn(&self, words: &str, body: &Value) -> Option<Self> {
        let mut new = *self;
        let lower = words.to_lowercase();
        if !new.learn_limit(&lower, body) {
            RULES.iter().find(|rule| rule.fits(&lower, body)).inspect(|rule| (rule.change)(&mut new));
        }
        (new != *self).then_some(new)
    }

    /// A limit that is too high, and the right one is in the words; or one that stands under the wrong name.
    fn learn_limit(&mut self, words: &str, body: &Value) -> bool {
        const FIELDS: [&str; 3] = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
        let Some((field, sent)) =
            FIELDS.iter().find_map(|field| Some((*field, u32::try_from(body.get(field)?.as_u64()?).ok()?)))
        else {
            return false;
        };
        if let Some(limit) = lower_limit(words).filter(|limit| *limit < sent) {
            self.output_limit = Some(limit);
            return true;
        }
        let is_value =
            ["too large", "at most", "less than", "exceed"].iter().any(|word| words.contains(word));
        if !words.contains(field) || (is_value && !words.contains("instead")) {
            return false;
        }
        self.max_tokens_field = match self.max_tokens_field {
            TokensField::MaxTokens => TokensField::MaxCompletionTokens,
            TokensField::MaxCompletionTokens => TokensField::MaxTokens,
        };
        true
    }
}

/// What teaches what.
struct Rule {
    /// Holds when this stands in the request's body, anywhere.
    sent: &'static str,
    /// Any of these words, in lower case, is in the refusal.
    words: &'static [&'static str],
    change: fn(&mut Compat),
}

impl Rule {
    fn fits(&self, words: &str, body: &Value) -> bool {
        self.words.iter().any(|word| words.contains(word)) && body.to_string().contains(self.sent)
    }
}

const RULES: &[Rule] = &[
    Rule { sent: "\"stream_options\"", words: &["stream_options"], change: |c| c.stream_options = false },
    Rule { sent: "\"prompt_cache_key\"", words: &["prompt_cache_key"], change: |c| c.cache = Cache::None },
    Rule {
        sent: "\"budget_tokens\"",
        words: &["budget_tokens", "thinking.type", "`thinking.enabled`"],
        change: |c| c.adaptive_thinking = Some(true),
    },
    Rule {
        sent: "\"adaptive\"",
        words: &["adaptive", "output_config"],
        change: |c| c.adaptive_thinking = Some(false),
    },
    Rule {
        sent: "\"reasoning.encrypted_content\"",
        words: &["encrypted", "'include'", "include[0]"],
        change: |c| c.encrypted_reasoning = false,
    },
    Rule { sent: "\"summary\":\"auto\"", words: &["summar"], change: |c| c.reasoning_summary = false },
    Rule {
        sent: "\"reasoning_content\"",
        words: &[
            "reasoning_content: extra",
            "reasoning_content\": extra",
            "unknown field `reasoning_content`",
        ],
        change: |c| c.reasoning_echo = Echo::Never,
    },
    Rule {
        sent: "",
        words: &[
            "`reasoning_content` in the thinking mode",
            "reasoning_content is missing",
            "missing `reasoning_content`",
        ],
        change: |c| c.reasoning_echo = Echo::EveryMessage,
    },
    Rule {
        sent: "\"reasoning_effort\"",
        words: &["reasoning_effort", "reasoning effort"],
        change: |c| c.reasoning = Ask::None,
    },
    Rule {
        sent: "\"reasoning\"",
        words: &[
            "reasoning.effort",
            "'reasoning'",
            "`reasoning`",
            "\"reasoning\"",
            "unknown field `reasoning",
        ],
        change: |c| c.reasoning = Ask::None,
    },
    Rule {
        sent: "thinking\"",
        words: &["enable_thinking", "chat_template_kwargs", "'thinking'", "`thinking`", "\"thinking\""],
        change: |c| c.reasoning = Ask::None,
    },
    Rule { sent: "\"tool_calls\"", words: &["thought_signature"], change: |c| c.call_signature = true },
    Rule { sent: "\"image_url\"", words: &["image_url", "image input"], change: |c| c.images = false },
    Rule { sent: "\"cache_control\"", words: &["cache_control"], change: |c| c.cache = Cache::None },
    Rule {
        sent: "\"tool_call_id\"",
        words: &["length of 9", "tool call id was"],
        change: |c| c.tool_ids = IdRule::Alnum9,
    },
    Rule {
        sent: "\"tool_call_id\"",
        words: &["'user' after role 'tool'", "user role after tool"],
        change: |c| c.user_after_tool = false,
    },
];

/// The limit of output tokens that a refusal names: the model's own, or what its window leaves beside the prompt.
fn lower_limit(words: &str) -> Option<u32> {
    #[expect(clippy::unwrap_used, reason = "the patterns are constants, and a test compiles them")]
    static PATTERNS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
        [
            r"max_tokens: \d+ > (?<limit>\d+)",
            r"context limit: (?<used>\d+) \+ \d+ > (?<limit>\d+)",
            r"supports at most (?<limit>\d+) completion tokens",
            r"less than or equal to `?(?<limit>\d+)",
            r"valid range of max_tokens is \[1, (?<limit>\d+)\]",
            r"context length is (?<limit>\d+) tokens.*\((?<used>\d+) in the messages",
            r"context length is (?<limit>\d+) tokens.*prompt contains at least (?<used>\d+) input",
            r"max_new_tokens`? must be <= (?<limit>\d+)\. given: (?<used>\d+)",
        ]
        .iter()
        .map(|pattern| Regex::new(pattern).unwrap())
        .collect()
    });
    /// Less is not worth an answer.
    const LEAST: u32 = 512;
    PATTERNS.iter().find_map(|pattern| {
        let found = pattern.captures(words)?;
        let number = |name| found.name(name)?.as_str().parse::<u32>().ok();
        let limit = number("limit")?.checked_sub(number("used").unwrap_or(0))?;
        (limit >= LEAST).then_some(limit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(words: &str, body: Value, change: fn(&mut Compat)) {
        let mut expected = Compat::UNKNOWN;
        change(&mut expected);
        assert_ne!(expected, Compat::UNKNOWN, "the test changes nothing");
        assert_eq!(Compat::UNKNOWN.learn(words, &body), Some(expected), "{words}");
        assert_eq!(
            Compat::UNKNOWN.learn(words, &json!({})).filter(|_| !words.contains("missing")),
            None,
            "{words}"
        );
    }

    #[test]
    fn refusals_teach_what_to_leave_out() {
        check("Unknown field `stream_options`", json!({"stream_options": {}}), |c| c.stream_options = false);
        check(
            "'max_tokens' is not supported. Use 'max_completion_tokens' instead.",
            json!({"max_tokens": 9}),
            |c| {
                c.max_tokens_field = TokensField::MaxCompletionTokens;
            },
        );
        check("Unsupported parameter: 'reasoning_effort'", json!({"reasoning_effort": "low"}), |c| {
            c.reasoning = Ask::None
        });
        check("Unsupported parameter: 'reasoning.effort'", json!({"reasoning": {}}), |c| {
            c.reasoning = Ask::None
        });
        check("thinking.type: unknown", json!({"thinking": {"budget_tokens": 1}}), |c| {
            c.adaptive_thinking = Some(true)
        });
        check(
            "adaptive thinking is not supported on this model",
            json!({"thinking": {"type": "adaptive"}}),
            |c| {
                c.adaptive_thinking = Some(false);
            },
        );
        check(
            "Encrypted content is not supported with this model.",
            json!({"include": ["reasoning.encrypted_content"]}),
            |c| {
                c.encrypted_reasoning = false;
            },
        );
        check(
            "Your organization must be verified to generate reasoning summaries",
            json!({"reasoning": {"summary": "auto"}}),
            |c| {
                c.reasoning_summary = false;
            },
        );
    }

    #[test]
    fn refusals_teach_what_a_history_may_hold() {
        check(
            "unknown variant `image_url`, expected `text`",
            json!({"messages": [{"content": [{"type": "image_url"}]}]}),
            |c| {
                c.images = false;
            },
        );
        check(
            "Tool call id was x but must be a-z, A-Z, 0-9, with a length of 9.",
            json!({"tool_call_id": "x"}),
            |c| {
                c.tool_ids = IdRule::Alnum9;
            },
        );
        check(
            "Function call `default_api:t` in the 2. content block is missing a `thought_signature`",
            json!({"messages": [{"tool_calls": []}]}),
            |c| c.call_signature = true,
        );
        check("Unexpected role 'user' after role 'tool'", json!({"tool_call_id": "x"}), |c| {
            c.user_after_tool = false
        });
        check(
            "The `reasoning_content` in the thinking mode must be passed back, missing",
            json!({"messages": []}),
            |c| {
                c.reasoning_echo = Echo::EveryMessage;
            },
        );
    }

    #[test]
    fn a_limit_in_the_words_is_the_limit() {
        let limit = |words: &str| {
            Compat::UNKNOWN.learn(words, &json!({"max_tokens": 116_650})).and_then(|c| c.output_limit)
        };
        assert_eq!(limit("max_tokens: 100000 > 8192, which is the maximum allowed number"), Some(8_192));
        assert_eq!(
            limit("input length and `max_tokens` exceed context limit: 90402 + 116650 > 204648"),
            Some(114_246)
        );
        assert_eq!(
            limit("max_tokens is too large: 100000. This model supports at most 16384 completion tokens"),
            Some(16_384)
        );
        assert_eq!(limit("`max_tokens` must be less than or equal to `8192`"), Some(8_192));
        assert_eq!(limit("the valid range of max_tokens is [1, 8192]"), Some(8_192));
        let vllm = "This model's maximum context length is 10000 tokens. However, you requested 102323 tokens (2323 in the messages, 100000 in the completion)";
        assert_eq!(limit(vllm), Some(7_677));
        assert_eq!(limit("max_tokens is too large"), None);
        assert_eq!(limit("context limit: 204600 + 100000 > 204648"), None);
        assert_eq!(
            Compat::UNKNOWN
                .learn("prompt is too long: 214676 tokens > 200000 maximum", &json!({"max_tokens": 9})),
            None
        );
    }

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

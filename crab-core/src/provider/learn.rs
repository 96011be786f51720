//! What a refusal teaches about a service: no table of services is ever whole, but the words of a 400 name what it lacks.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::compat::{Ask, Cache, Compat, Echo, IdRule, TokensField};
use super::failure::Said;

/// What was learnt.
#[derive(Debug, PartialEq)]
pub(super) struct Lesson {
    /// The service as it is known now.
    pub(super) compat: Compat,
    /// What the user loses by it, behind the service's name; `None`: nothing.
    pub(super) told: Option<&'static str>,
}

/// What the refusal of `body` teaches, if anything. The request held `messages` messages.
pub(super) fn learn(compat: &Compat, said: &Said, body: &Value, messages: usize) -> Option<Lesson> {
    let words = format!("{} {}", said.message, said.tags).to_lowercase();
    let status = said.status.unwrap_or(400);
    let refusal = Refusal { words, body, status };
    let mut new = *compat;
    let told = if refusal.is_plain() && refusal.is_about_the_limit(&mut new) {
        (new.output_limit != compat.output_limit)
            .then_some("allows fewer output tokens than it was asked for")
    } else {
        let rule = RULES.iter().find(|rule| (rule.fits)(&refusal))?;
        (rule.change)(&mut new, messages);
        rule.told
    };
    (new != *compat).then_some(Lesson { compat: new, told })
}

/// A refused request.
struct Refusal<'a> {
    /// What the service said, in lower case, with its code.
    words: String,
    /// What it refused.
    body: &'a Value,
    status: u16,
}

impl Refusal<'_> {
    /// The statuses of a request that is wrong in itself. Others mean something else as a rule.
    fn is_plain(&self) -> bool {
        matches!(self.status, 400 | 422)
    }

    /// Whether any of these is in its words.
    fn says(&self, any: &[&str]) -> bool {
        any.iter().any(|words| self.words.contains(words))
    }

    /// Whether this stands anywhere in the body.
    fn held(&self, text: &str) -> bool {
        self.body.to_string().contains(text)
    }

    /// Whether its words name this, as a word of its own.
    fn names(&self, name: &str) -> bool {
        self.words.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
    }

    /// Whether a field of the request is refused.
    fn is_about(&self, field: &str) -> bool {
        self.is_plain() && self.body.get(field).is_some() && self.names(field)
    }

    /// Whether the reasoning is refused that goes back with a message. A field of the same name may stand beside the
    /// messages; then only the place that the words give can tell which is meant.
    fn is_about_an_echo(&self) -> bool {
        const FIELDS: [&str; 4] = ["reasoning_content", "reasoning_details", "reasoning_text", "reasoning"];
        const UNWANTED: [&str; 7] = [
            "extra",
            "unsupported",
            "not supported",
            "not permitted",
            "not allowed",
            "unknown",
            "unexpected",
        ];
        let messages = self.body.get("messages").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        self.is_plain()
            && self.says(&UNWANTED)
            && FIELDS.iter().any(|field| {
                self.names(field)
                    && messages.iter().any(|message| message.get(field).is_some())
                    && (self.body.get(field).is_none() || self.names("messages"))
            })
    }

    /// A limit that is too high, and the right one is in the words; or one that stands under the wrong name.
    fn is_about_the_limit(&self, new: &mut Compat) -> bool {
        const FIELDS: [&str; 3] = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
        let sent = |field: &&str| u32::try_from(self.body.get(*field)?.as_u64()?).ok();
        let Some((field, sent)) = FIELDS.iter().find_map(|field| Some((*field, sent(field)?))) else {
            return false;
        };
        if let Some(limit) = lower_limit(&self.words).filter(|limit| *limit < sent) {
            new.output_limit = Some(limit);
            return true;
        }
        let is_value = self.says(&["too large", "at most", "less than", "exceed"]);
        if !self.names(field) || (is_value && !self.says(&["instead"])) {
            return false;
        }
        new.max_tokens_field = match new.max_tokens_field {
            TokensField::MaxTokens => TokensField::MaxCompletionTokens,
            TokensField::MaxCompletionTokens => TokensField::MaxTokens,
        };
        true
    }
}

/// What teaches what. The first rule that fits counts.
struct Rule {
    fits: fn(&Refusal) -> bool,
    change: fn(&mut Compat, usize),
    told: Option<&'static str>,
}

const UNASKED: Option<&str> =
    Some("does not take the wish how hard to think; the model thinks as it does by itself");
const UNSEEN: Option<&str> = Some("takes no images; what was shown is left out");
const UNTHOUGHT: Option<&str> = Some("does not take earlier reasoning back; it is left out");

const RULES: &[Rule] = &[
    Rule { fits: |it| it.is_about("stream_options"), change: |c, _| c.stream_options = false, told: None },
    Rule { fits: |it| it.is_about("prompt_cache_key"), change: |c, _| c.cache = Cache::None, told: None },
    Rule { fits: is_about_a_signature, change: void, told: UNTHOUGHT },
    Rule {
        fits: |it| {
            it.is_plain()
                && it.held("\"thought_signature\"")
                && it.says(&["thought signature", "thought_signature is"])
                && !it.says(&["missing"])
        },
        change: |c, messages| {
            c.call_signature = true;
            void(c, messages);
        },
        told: UNTHOUGHT,
    },
    Rule {
        fits: |it| it.is_plain() && it.held("\"display\"") && it.names("display"),
        change: |c, _| c.thinking_display = false,
        told: None,
    },
    Rule {
        fits: |it| {
            it.is_plain()
                && it.held("\"budget_tokens\"")
                && it.says(&["budget_tokens", "thinking.type", "`thinking.enabled`"])
        },
        change: |c, _| c.adaptive_thinking = Some(true),
        told: None,
    },
    Rule {
        fits: |it| it.is_plain() && it.held("\"adaptive\"") && it.says(&["adaptive", "output_config"]),
        change: |c, _| c.adaptive_thinking = Some(false),
        told: None,
    },
    Rule {
        fits: |it| {
            it.is_plain()
                && it.held("\"reasoning.encrypted_content\"")
                && it.says(&["encrypted", "'include'", "include[0]"])
        },
        change: |c, _| c.encrypted_reasoning = false,
        told: None,
    },
    Rule {
        fits: |it| it.is_plain() && it.held("\"summary\":\"auto\"") && it.says(&["summar"]),
        change: |c, _| c.reasoning_summary = false,
        told: None,
    },
    Rule { fits: |it| it.is_about_an_echo(), change: |c, _| c.reasoning_echo = Echo::Never, told: None },
    Rule {
        fits: |it| {
            let missing =
                ["must be passed back", "reasoning_content is missing", "missing `reasoning_content`"];
            it.is_plain() && it.names("reasoning_content") && it.says(&missing)
        },
        change: |c, _| c.reasoning_echo = Echo::EveryMessage,
        told: None,
    },
    Rule {
        fits: |it| {
            ["reasoning_effort", "reasoning", "thinking", "enable_thinking", "chat_template_kwargs"]
                .iter()
                .any(|field| it.is_about(field))
                || it.is_plain() && it.held("\"reasoning_effort\"") && it.says(&["reasoning effort"])
        },
        change: |c, _| c.reasoning = Ask::None,
        told: UNASKED,
    },
    Rule {
        fits: |it| it.is_plain() && it.held("\"tool_calls\"") && it.names("thought_signature"),
        change: |c, _| c.call_signature = true,
        told: None,
    },
    Rule { fits: is_about_images, change: |c, _| c.images = false, told: UNSEEN },
    Rule {
        fits: |it| it.is_plain() && it.held("\"cache_control\"") && it.names("cache_control"),
        change: |c, _| c.cache = Cache::None,
        told: None,
    },
    Rule {
        fits: |it| {
            it.is_plain() && it.held("\"tool_call_id\"") && it.says(&["length of 9", "tool call id was"])
        },
        change: |c, _| c.tool_ids = IdRule::Alnum9,
        told: None,
    },
    Rule {
        fits: |it| {
            let words = ["'user' after role 'tool'", "user role after tool"];
            it.is_plain() && it.held("\"tool_call_id\"") && it.says(&words)
        },
        change: |c, _| c.user_after_tool = false,
        told: None,
    },
];

/// What the model thought so far is not sent again; what it thinks from now on is.
fn void(compat: &mut Compat, messages: usize) {
    compat.void_reasoning = messages;
}

/// Signed or encrypted reasoning that the service does not know again: made under another account, by another host of
/// the same model, or changed on the way.
fn is_about_a_signature(it: &Refusal) -> bool {
    const SIGNED: [&str; 4] = ["\"signature\"", "\"redacted_thinking\"", "\"encrypted_content\"", "\"rs_"];
    const WORDS: [&str; 9] = [
        "invalid `signature`",
        "invalid signature",
        "`signature` in `thinking`",
        "cannot be modified",
        "could not be verified",
        "could not be decrypted",
        "invalid_encrypted_content",
        "required following item",
        "items are not persisted",
    ];
    matches!(it.status, 400 | 404 | 422) && SIGNED.iter().any(|sign| it.held(sign)) && it.says(&WORDS)
}

/// Gateways say it with a 404, since none of the hosts behind them fits, and llama.cpp with a 500.
fn is_about_images(it: &Refusal) -> bool {
    const WORDS: [&str; 13] = [
        "image_url",
        "image input",
        "input_image",
        "support image",
        "support the image",
        "support vision",
        "image is not supported",
        "images are not supported",
        "image content is not",
        "not a multimodal model",
        "at most 0 image",
        "mmproj",
        "content must be a string",
    ];
    matches!(it.status, 400 | 404 | 415 | 422 | 500 | 501) && it.held("\"image") && it.says(&WORDS)
}

/// The limit of output tokens that a refusal names: the model's own, or what its window leaves beside the prompt.
fn lower_limit(words: &str) -> Option<u32> {
    #[expect(clippy::unwrap_used, reason = "the patterns are constants, and a test compiles them")]
    static PATTERNS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
        [
            r"max_tokens: \d+ > (?<limit>\d+)",
            r"context limit: (?<used>\d+) \+ \d+ > (?<limit>\d+)",
            r"supports at most (?<limit>\d+) completion tokens",
            r"max_(?:completion_|output_)?tokens\b.*less than or equal to `?(?<limit>\d+)",
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

    fn learnt(status: u16, words: &str, body: &Value) -> Option<Compat> {
        learn(&Compat::UNKNOWN, &Said::text(words, Some(status)), body, 7).map(|lesson| lesson.compat)
    }

    #[track_caller]
    fn check_at(status: u16, words: &str, body: Value, change: fn(&mut Compat)) {
        let mut expected = Compat::UNKNOWN;
        change(&mut expected);
        assert_ne!(expected, Compat::UNKNOWN, "the test changes nothing");
        assert_eq!(learnt(status, words, &body), Some(expected), "{words}");
        let nothing = learnt(status, words, &json!({}));
        assert_eq!(nothing.filter(|_| !words.contains("missing")), None, "{words}");
        assert_eq!(learnt(429, words, &body), None, "{words}");
    }

    #[track_caller]
    fn check(words: &str, body: Value, change: fn(&mut Compat)) {
        check_at(400, words, body, change);
    }

    #[test]
    fn refusals_teach_what_to_leave_out() {
        check("Unknown field `stream_options`", json!({"stream_options": {}}), |c| c.stream_options = false);
        let field = "'max_tokens' is not supported. Use 'max_completion_tokens' instead.";
        check(field, json!({"max_tokens": 9}), |c| c.max_tokens_field = TokensField::MaxCompletionTokens);
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
            "thinking.adaptive.display: Extra inputs are not permitted",
            json!({"thinking": {"type": "adaptive", "display": "summarized"}}),
            |c| c.thinking_display = false,
        );
        check(
            "adaptive thinking is not supported on this model",
            json!({"thinking": {"type": "adaptive"}}),
            |c| c.adaptive_thinking = Some(false),
        );
        check(
            "Encrypted content is not supported with this model.",
            json!({"include": ["reasoning.encrypted_content"]}),
            |c| c.encrypted_reasoning = false,
        );
        check(
            "Your organization must be verified to generate reasoning summaries",
            json!({"reasoning": {"summary": "auto"}}),
            |c| c.reasoning_summary = false,
        );
    }

    #[test]
    fn refusals_teach_what_a_history_may_hold() {
        check(
            "Tool call id was x but must be a-z, A-Z, 0-9, with a length of 9.",
            json!({"tool_call_id": "x"}),
            |c| c.tool_ids = IdRule::Alnum9,
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
            "The `reasoning_content` in the thinking mode must be passed back to the API, missing",
            json!({"messages": []}),
            |c| c.reasoning_echo = Echo::EveryMessage,
        );
    }

    #[test]
    fn images_are_refused_with_many_a_status() {
        let chat = || json!({"messages": [{"content": [{"type": "image_url"}]}]});
        let no_images: fn(&mut Compat) = |c| c.images = false;
        check("unknown variant `image_url`, expected `text`", chat(), no_images);
        check_at(404, "No endpoints found that support image input", chat(), no_images);
        check_at(
            500,
            "image input is not supported - hint: you may need to provide the mmproj",
            chat(),
            no_images,
        );
        check("m is not a multimodal model", chat(), no_images);
        check("messages[1].content must be a string", chat(), no_images);
        let messages = json!({"messages": [{"content": [{"type": "image", "source": {}}]}]});
        check("this model does not support image content", messages, no_images);
        let responses = json!({"input": [{"content": [{"type": "input_image", "image_url": "data:"}]}]});
        check("Invalid content type: image input is not supported", responses, no_images);
        assert_eq!(learnt(500, "the server broke down", &chat()), None);
        assert_eq!(learnt(404, "no endpoints found that support tool use", &chat()), None);
    }

    #[test]
    fn reasoning_that_a_service_does_not_know_again_is_left_out_up_to_here() {
        let encrypted =
            json!({"include": ["reasoning.encrypted_content"], "input": [{"encrypted_content": "E"}]});
        let void: fn(&mut Compat) = |c| c.void_reasoning = 7;
        check("The encrypted content gAAA could not be verified.", encrypted, void);
        let stored = json!({"input": [{"type": "reasoning", "id": "rs_1"}]});
        check_at(
            404,
            "Item with id 'rs_1' not found. Items are not persisted when `store` is false",
            stored,
            void,
        );
        let signed =
            json!({"thinking": {"type": "adaptive"}, "messages": [{"content": [{"signature": "S"}]}]});
        check("messages.1.content.0: Invalid `signature` in `thinking` block", signed, void);
        let call = json!({"messages": [{"tool_calls": [{"extra_content": {"google": {"thought_signature": "x"}}}]}]});
        check("Thought signature is not valid", call, |c| {
            c.void_reasoning = 7;
            c.call_signature = true;
        });
    }

    #[test]
    fn reasoning_in_a_message_is_told_from_the_wish_to_think() {
        let body = |field: &str| json!({"reasoning": {"effort": "low"}, "messages": [{"role": "assistant", field: "x"}]});
        let never: fn(&mut Compat) = |c| c.reasoning_echo = Echo::Never;
        let groq = "'messages.2' : for 'role:assistant' the following must be satisfied[('messages.2' : property \
                    'reasoning_content' is unsupported, did you mean 'reasoning'?)]";
        check(groq, body("reasoning_content"), never);
        let fastapi = r#"[{"type":"extra_forbidden","loc":["body","messages",1,"assistant","reasoning"],"msg":"Extra inputs are not permitted"}]"#;
        check_at(422, fastapi, body("reasoning"), never);
        check("Unsupported parameter: 'reasoning'", body("reasoning"), |c| c.reasoning = Ask::None);
    }

    #[test]
    fn the_user_learns_what_is_lost() {
        let lesson =
            |words: &str, body: Value| learn(&Compat::UNKNOWN, &Said::text(words, Some(400)), &body, 1);
        let told = |words: &str, body: Value| lesson(words, body).unwrap().told.is_some();
        assert!(told("unknown: reasoning_effort", json!({"reasoning_effort": "high"})));
        assert!(told("no image input", json!({"messages": [{"type": "image_url"}]})));
        assert!(told("the valid range of max_tokens is [1, 8192]", json!({"max_tokens": 9_000})));
        assert!(!told("unknown: stream_options", json!({"stream_options": {}})));
    }

    #[test]
    fn a_limit_in_the_words_is_the_limit() {
        let limit =
            |words: &str| learnt(400, words, &json!({"max_tokens": 116_650})).and_then(|c| c.output_limit);
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
        assert_eq!(limit("tools must be less than or equal to 1024"), None);
        assert_eq!(limit("the valid range of max_tokens is [1, 8192]"), Some(8_192));
        let vllm = "This model's maximum context length is 10000 tokens. However, you requested 102323 tokens (2323 in the messages, 100000 in the completion)";
        assert_eq!(limit(vllm), Some(7_677));
        assert_eq!(limit("max_tokens is too large"), None);
        assert_eq!(limit("context limit: 204600 + 100000 > 204648"), None);
        let overflow = "prompt is too long: 214676 tokens > 200000 maximum";
        assert_eq!(learnt(400, overflow, &json!({"max_tokens": 9})), None);
    }
}

//! What services say when they fail, in their many shapes, as one [`Failure`] with what to do next.

use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;
use serde_json::Value;

use super::Error;
use super::retry::LONGEST_WAIT;
use super::wait::{seconds, wait_in_text};
use crate::protocol::{Failure, FailureKind};

/// What a service said about a failure, before it has a class.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Said {
    /// Its words.
    pub(super) message: String,
    /// Type and code, in lower case, for [`classify`].
    pub(super) tags: String,
    /// The HTTP status, from the response or from inside the body.
    pub(super) status: Option<u16>,
    /// The wait that it asks for.
    pub(super) wait: Option<Duration>,
}

impl Said {
    /// Reads an error body. `status` is that of the response; one that says success is looked for inside instead.
    pub(super) fn read(body: &Value, status: Option<u16>) -> Self {
        let status = status.filter(|status| *status >= 400);
        let top = body.get(0).unwrap_or(body);
        let inner = match top.get("error") {
            Some(Value::String(text)) => return Self::new(text, tags(&[top.get("code")]), status, body),
            Some(Value::Array(texts)) => {
                let texts: Vec<_> = texts.iter().map(plain).collect();
                return Self::new(&texts.join("; "), String::new(), status, body);
            }
            Some(inner @ Value::Object(_)) => inner,
            _ => top,
        };
        let words = [inner.get("message"), inner.get("detail"), inner.get("msg"), top.get("detail")];
        let words = words.into_iter().flatten().find(|value| !value.is_null());
        let mut message = words.map_or_else(|| plain(inner), plain);
        if let Some(raw) = inner.pointer("/metadata/raw").and_then(Value::as_str) {
            message = format!("{message} | {raw}");
        }
        let kind =
            ["type", "status", "error_type"].map(|name| inner.get(name).filter(|value| value.is_string()));
        let reason = inner.get("details").and_then(Value::as_array).into_iter().flatten();
        let reason = reason.filter_map(|detail| detail.get("reason")).next();
        let tags = tags(&[kind.into_iter().flatten().next(), inner.get("code"), reason]);
        let hidden = ["status_code", "raw_status_code", "code"].into_iter().find_map(|name| {
            let number = inner.get(name)?.as_u64()?;
            u16::try_from(number).ok().filter(|number| (400..600).contains(number))
        });
        Self::new(&message, tags, status.or(hidden), body)
    }

    fn new(message: &str, tags: String, status: Option<u16>, body: &Value) -> Self {
        let wait = retry_info(body).or_else(|| wait_in_text(message));
        Self { message: message.to_owned(), tags, status, wait }
    }

    /// Whether one of its codes is this.
    fn has_code(&self, codes: &[&str]) -> bool {
        self.tags.split_whitespace().any(|tag| codes.contains(&tag))
    }

    /// Whether the service blames the request, and not itself.
    pub(super) fn is_about_the_request(&self) -> bool {
        self.status.is_some_and(|status| (400..500).contains(&status)) || self.tags.contains("invalid")
    }

    /// Plain words that came with a status, such as a page of a proxy.
    pub(super) fn text(message: impl Into<String>, status: Option<u16>) -> Self {
        Self { message: message.into(), status, ..Self::default() }
    }
}

fn tags(values: &[Option<&Value>]) -> String {
    let texts = values.iter().flatten().filter(|value| !value.is_null()).map(|value| plain(value));
    texts.collect::<Vec<_>>().join(" ").to_lowercase()
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn retry_info(body: &Value) -> Option<Duration> {
    let details = body.get(0).unwrap_or(body).pointer("/error/details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    seconds(delay.strip_suffix('s')?)
}

#[expect(clippy::unwrap_used, reason = "the patterns are constants, and the tests compile all of them")]
pub(super) fn pattern(parts: &[&str]) -> Regex {
    Regex::new(&format!("(?i){}", parts.join("|"))).unwrap()
}

static OVERFLOW: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&[
        r"prompt (is )?too long",
        r"input (is )?too long",
        r"input length and `?max_tokens`? exceed",
        r"exceeds? the context (window|limit)",
        r"maximum (context|prompt) length",
        r"context[_ ]length[_ ]exceeded",
        r"exceeds the available context size",
        r"exceed_context_size",
        r"input token count.*exceeds the maximum",
        r"too[_ ]many[_ ](prompt[_ ])?tokens",
        r"reduce the length of the (messages|input)",
        r"too large for model with",
        r"greater than the context length",
        r"exceeded model token limit",
        r"context window exceeds limit",
        r"total length of all messages is too long",
        r"prompt token count of \d+ exceeds",
        r"model_context_window_exceeded",
        r"longer than the model.?s context",
        r"larger than the context",
        r"context the overflows",
        r"context size has been exceeded",
        r"range of input length should be",
        r"prompt exceeds max length",
        r"prompt tokens limit exceeded",
        r"tokens \+ `?max_new_tokens`? must be",
        r"request_too_large",
        r"maximum allowed input length",
        r"request too large",
    ])
});
static QUOTA: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&[
        r"insufficient (balance|quota|credit|fund)",
        r"credit balance is too low",
        r"no resource package",
        r"余额不足",
        r"usage[ _]limit[ _](has been )?reached",
        r"plan and billing",
        r"billing[ _](hard |soft |hard_|soft_)?(limit|account|details|is not|not[ _]active)",
        r"past due",
        r"exceeded your current quota",
        r"out of credits",
    ])
});
static BAD_KEY: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&[r"(incorrect|invalid) api key", r"api key not valid", r"(no|not provide an?|missing) api key"])
});
static NO_MODEL: LazyLock<Regex> =
    LazyLock::new(|| pattern(&[r"model not found", r"does not exist", r"not a valid model id"]));

/// The class of a failure. The order matters: many services give a general status to a special fault.
pub(super) fn classify(said: &Said) -> FailureKind {
    use FailureKind::*;
    let (message, tags, status) = (said.message.as_str(), said.tags.as_str(), said.status.unwrap_or(0));
    let tagged = |words: &[&str]| words.iter().any(|word| tags.contains(word));
    let limited = status == 429 || tagged(&["rate_limit", "ratelimit", "too_many_requests", "throttling"]);
    let lower = message.to_lowercase();
    let too_long = status == 413 || OVERFLOW.is_match(message) || OVERFLOW.is_match(tags);
    // Too many tokens within a minute are no conversation that is too long.
    let limited = limited || too_long && lower.contains("please wait");
    let busy = (limited || status == 529) && !lower.contains("too large");
    if tagged(&["tool_use_failed"]) {
        return ToolFailed;
    }
    if !busy && (too_long || said.has_code(TOO_LONG)) {
        return Overflow;
    }
    if status == 402 || tagged(&["insufficient_quota", "usage_not_included"]) || said.has_code(USED_UP) {
        return Quota;
    }
    // A server that breaks down may say anything, and what comes back within minutes is no account that is used up.
    let is_soon = said.wait.is_some_and(|wait| wait <= LONGEST_WAIT);
    if status < 500 && !is_soon && (QUOTA.is_match(message) || QUOTA.is_match(tags)) {
        return Quota;
    }
    let unavailable = status == 503 && !tagged(&["server_error"]);
    if status == 529 || unavailable || tagged(&["overloaded", "slow_down"]) {
        return Overloaded;
    }
    if limited {
        return RateLimit;
    }
    classify_rest(message, &tagged, status)
}

/// Z.ai: no balance, and the limit of five hours.
const USED_UP: &[&str] = &["1113", "1308"];
/// Z.ai.
const TOO_LONG: &[&str] = &["1261"];

fn classify_rest(message: &str, tagged: &dyn Fn(&[&str]) -> bool, status: u16) -> FailureKind {
    use FailureKind::*;
    let refused =
        tagged(&["authentication", "invalid_api_key", "api_key_invalid", "invalid_token", "permission"])
            || BAD_KEY.is_match(message);
    if matches!(status, 401 | 403) || refused {
        return Auth;
    }
    if status == 404 || tagged(&["not_found"]) || NO_MODEL.is_match(message) {
        return NotFound;
    }
    if status == 408 {
        return Network;
    }
    let server = tagged(&["server_error", "api_error", "internal"]);
    if matches!(status, 409 | 500..) || server { Server } else { BadRequest }
}

/// Who is spoken to: what every failure message names, and what none may show.
#[derive(Clone, Debug, Default)]
pub(super) struct Service {
    /// The provider's name in the configuration.
    pub(super) name: String,
    /// Host and port of the address.
    pub(super) host: String,
    /// Where the key came from, such as `OPENAI_API_KEY`.
    pub(super) key_source: Option<String>,
    /// Values that must never be shown.
    pub(super) secrets: Vec<String>,
    /// A 400 without a word means that the conversation is too long.
    pub(super) mute_overflow: bool,
}

/// The service's own words are shown up to here.
const WORDS: usize = 2_000;

impl Service {
    /// The failure that a service told of.
    pub(super) fn refused(&self, said: &Said) -> Error {
        let is_mute = self.mute_overflow && said.status == Some(400) && said.message.trim().is_empty();
        self.failed(if is_mute { FailureKind::Overflow } else { classify(said) }, said)
    }

    /// A failure whose class is known.
    pub(super) fn failed(&self, kind: FailureKind, said: &Said) -> Error {
        let words = self.redact(&one_line(&said.message));
        let status = said.status.map(|status| format!(", status {status}")).unwrap_or_default();
        let words = if words.is_empty() { "it gave no reason".to_owned() } else { words };
        let head = format!("{} (`{}`{status})", self.what(kind), self.host);
        let advice = self.advice(kind);
        let words = if advice.is_empty() { words.as_str() } else { words.trim_end_matches('.') };
        let message = format!("{head}: {words}{advice}");
        self.error(kind, message, said)
    }

    /// A failure in crab's own words, which are whole.
    pub(super) fn told(&self, kind: FailureKind, message: &str) -> Error {
        self.error(kind, self.redact(message), &Said::default())
    }

    fn error(&self, kind: FailureKind, message: String, said: &Said) -> Error {
        let failure = Failure { kind, message, status: said.status, provider: Some(self.name.clone()) };
        Error { failure, retry_after: said.wait }
    }

    fn what(&self, kind: FailureKind) -> String {
        let name = &self.name;
        match kind {
            FailureKind::Auth => match &self.key_source {
                Some(source) => format!("`{name}` refused the key from {source}"),
                None => format!("`{name}` refused the request, which carried no key"),
            },
            FailureKind::Quota => format!("the account at `{name}` is used up"),
            FailureKind::RateLimit => format!("`{name}` limits the rate of requests"),
            FailureKind::Overloaded => format!("`{name}` is overloaded"),
            FailureKind::Overflow => format!("the conversation is too long for the model at `{name}`"),
            FailureKind::NotFound => format!("`{name}` does not know the model or the address"),
            FailureKind::ToolFailed => format!("`{name}` could not read a tool call of its own model"),
            FailureKind::Network => format!("`{name}` could not be reached"),
            FailureKind::Cut => format!("the answer of `{name}` was cut off"),
            FailureKind::Refusal => format!("`{name}` refused to answer"),
            FailureKind::BadRequest => format!("`{name}` did not accept the request"),
            _ => format!("`{name}` failed"),
        }
    }

    fn advice(&self, kind: FailureKind) -> String {
        match kind {
            FailureKind::Auth => match &self.key_source {
                Some(source) => format!("; check the key in {source}"),
                None => format!("; set a key for the provider `{}`", self.name),
            },
            FailureKind::Quota => "; check plan and billing there, or choose another provider".into(),
            FailureKind::RateLimit | FailureKind::Overloaded => "; try again later".into(),
            FailureKind::Overflow => {
                "; start a new session, or choose a model with a larger context window".into()
            }
            FailureKind::NotFound => "; check the model's name and the base URL".into(),
            FailureKind::Network => "; check the base URL and the network".into(),
            FailureKind::Server | FailureKind::Cut | FailureKind::ToolFailed => "; try again".into(),
            _ => String::new(),
        }
    }

    /// Takes the secrets out: services like to repeat the key that they refuse.
    pub(super) fn redact(&self, text: &str) -> String {
        let secrets = self.secrets.iter().filter(|secret| secret.len() >= 4);
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "[redacted]"))
    }
}

fn one_line(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    let mut line = words.join(" ");
    if line.len() > WORDS {
        line.truncate(line.floor_char_boundary(WORDS));
        line.push('…');
    }
    line
}

/// What came instead of an answer: how it begins, which tells its kind, and what a person would read in it.
pub(super) fn foreign(body: &[u8]) -> String {
    let words = page(body);
    let text = String::from_utf8_lossy(&body[..body.len().min(400)]);
    let first: String = text.trim_start().lines().next().unwrap_or_default().chars().take(80).collect();
    if words.starts_with(&first) { words } else { format!("{first} … {words}") }
}

/// The readable part of a page, for those that a proxy sends.
pub(super) fn page(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(20_000)]);
    let lower = text.to_ascii_lowercase();
    let title = lower.find("<title").and_then(|at| {
        let from = at + lower[at..].find('>')? + 1;
        let to = from + lower[from..].find('<')?;
        Some(text[from..to].trim().to_owned())
    });
    title.filter(|title| !title.is_empty()).unwrap_or_else(|| without_tags(&text).chars().take(200).collect())
}

fn without_tags(text: &str) -> String {
    let behind =
        |piece: &str| piece.split_once('>').map_or_else(|| piece.to_owned(), |(_, rest)| format!(" {rest}"));
    let mut pieces = text.split('<');
    let head = pieces.next().unwrap_or_default().to_owned();
    let text = pieces.fold(head, |text, piece| text + &behind(piece));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service() -> Service {
        Service {
            name: "openai".into(),
            host: "api.example".into(),
            key_source: Some("OPENAI_API_KEY".into()),
            secrets: vec!["sk-secret".into()],
            mute_overflow: false,
        }
    }

    #[track_caller]
    fn check(body: Value, status: u16, kind: FailureKind, words: &str) {
        let said = Said::read(&body, Some(status));
        let error = service().refused(&said);
        assert_eq!(error.failure.kind, kind, "{body}");
        assert!(error.failure.message.contains(words), "{}", error.failure.message);
    }

    #[test]
    fn the_many_shapes_of_an_error_keep_their_words_and_get_a_class() {
        use FailureKind::*;
        check(json!({"error": {"message": "boom", "type": "server_error"}}), 500, Server, "boom");
        check(json!({"error": "model 'x' not found"}), 404, NotFound, "model 'x' not found");
        check(json!({"code": "c", "error": "Incorrect API key provided: xx"}), 400, Auth, "Incorrect");
        check(json!({"detail": "Unauthorized"}), 401, Auth, "Unauthorized");
        check(json!({"object": "error", "message": "bad", "code": 1}), 422, BadRequest, "bad");
        check(json!([{"error": {"code": 429, "message": "slow"}}]), 429, RateLimit, "slow");
        check(
            json!({"error": {"message": "x", "metadata": {"raw": "real reason"}}}),
            400,
            BadRequest,
            "real reason",
        );
        check(json!({"error": {"message": "x", "code": "insufficient_quota"}}), 429, Quota, "billing");
        check(
            json!({"error": {"message": "prompt is too long: 2 tokens > 1 maximum"}}),
            400,
            Overflow,
            "new session",
        );
        check(json!({"error": {"message": "Request too large"}}), 413, Overflow, "Request too large");
        check(
            json!({"type": "error", "error": {"type": "overloaded_error", "message": "Over"}}),
            200,
            Overloaded,
            "Over",
        );
        check(json!({"error": {"message": "a\n\nb", "code": 502}}), 200, Server, "a b");
        check(json!(null), 500, Server, "status 500");
        check(json!(null), 503, Overloaded, "status 503");
    }

    #[test]
    fn a_code_tells_as_much_as_words() {
        use FailureKind::*;
        let google = json!({"error": {"code": 400, "message": "not found", "status": "INVALID_ARGUMENT",
            "details": [{"reason": "API_KEY_INVALID"}]}});
        check(google, 400, Auth, "not found");
        check(json!({"error": {"code": "1308", "message": "limit of 5 hours"}}), 429, Quota, "5 hours");
        check(json!({"error": {"code": "1261", "message": "too much"}}), 400, Overflow, "too much");
        check(json!({"error": {"type": "usage_limit_reached", "message": "wait"}}), 429, Quota, "wait");
        check(
            json!({"error": {"type": "throttling_error", "message": "Too many tokens"}}),
            400,
            RateLimit,
            "Too",
        );
        check(json!({"message": "Too many tokens, please wait before trying again."}), 400, RateLimit, "Too");
        let mute = Service { mute_overflow: true, ..service() };
        assert_eq!(mute.refused(&Said::text("", Some(400))).failure.kind, Overflow);
        assert_eq!(service().refused(&Said::text("", Some(400))).failure.kind, BadRequest);
    }

    #[test]
    fn a_wait_of_seconds_outweighs_words_about_money() {
        let kind = |message: &str, wait: Option<u64>| {
            let mut said = Said::text(message, Some(429));
            said.wait = wait.map(Duration::from_secs);
            classify(&said)
        };
        let quota = "You exceeded your current quota, please check your plan and billing details";
        assert_eq!(kind(quota, None), FailureKind::Quota);
        assert_eq!(kind(quota, Some(1)), FailureKind::RateLimit);
        assert_eq!(kind("usage limit reached, try again in 3 days", Some(3 * 86_400)), FailureKind::Quota);
        assert_eq!(
            kind("Rate limit reached. Upgrade at https://x/settings/billing", None),
            FailureKind::RateLimit
        );
    }

    #[test]
    fn a_word_in_passing_makes_no_class() {
        let kind = |status, body: Value| classify(&Said::read(&body, Some(status)));
        let message = |text: &str| serde_json::json!({"error": {"message": text}});
        assert_eq!(kind(500, message("the billing-free tier broke down")), FailureKind::Server);
        assert_eq!(kind(429, message("see your plan and billing details")), FailureKind::Quota);
        assert_eq!(kind(400, message("You did not provide an API key")), FailureKind::Auth);
        let tagged = serde_json::json!({"error": {"message": "Invalid token", "code": "invalid_token"}});
        assert_eq!(kind(400, tagged), FailureKind::Auth);
        assert_eq!(kind(400, message("invalid token at line 3 of the body")), FailureKind::BadRequest);
    }

    #[test]
    fn a_refused_key_names_its_source_and_is_never_shown() {
        let said = Said::text("Incorrect API key provided: sk-secret.", Some(401));
        let message = service().refused(&said).failure.message;
        let expected = "`openai` refused the key from OPENAI_API_KEY (`api.example`, status 401): \
                        Incorrect API key provided: [redacted]; check the key in OPENAI_API_KEY";
        assert_eq!(message, expected);
    }

    #[test]
    fn long_words_are_bounded() {
        let said = Said::text("é".repeat(9_000), Some(500));
        assert!(service().refused(&said).failure.message.len() < WORDS + 200);
    }

    #[test]
    fn a_page_is_told_by_its_title() {
        assert_eq!(page(b"<html><TITLE>502 Bad Gateway</title>..."), "502 Bad Gateway");
        assert_eq!(page(b"<!DOCTYPE html>\n<html><body>Sign <b>in</b>"), "Sign in");
        assert_eq!(page(b"upstream connect error"), "upstream connect error");
        assert_eq!(foreign(b"<!DOCTYPE html>\n<html><body>Sign <b>in</b>"), "<!DOCTYPE html> … Sign in");
        assert_eq!(foreign(b"upstream connect error"), "upstream connect error");
    }
}

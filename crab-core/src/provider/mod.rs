//! What a provider is: a request in, a stream of deltas out; and the list of those that crab knows.
//!
//! A provider of one's own is one type with two functions:
//!
//! ```
//! use crab_core::message::Stop;
//! use crab_core::provider::{Delta, Deltas, Provider, Request};
//! use futures_util::stream;
//!
//! /// Says how long the conversation is.
//! struct Counter;
//!
//! impl Provider for Counter {
//!     fn name(&self) -> &str {
//!         "counter"
//!     }
//!
//!     fn stream(&self, request: Request) -> Deltas {
//!         let text = format!("{} messages so far", request.messages.len());
//!         Box::pin(stream::iter([Ok(Delta::Text(text)), Ok(Delta::Stop(Stop::End))]))
//!     }
//! }
//!
//! let provider: Box<dyn Provider> = Box::new(Counter);
//! assert_eq!(provider.name(), "counter");
//! ```

mod address;
mod answer;
mod anthropic;
mod client;
pub mod compat;
mod date;
mod failure;
mod fitted;
pub(crate) mod http;
mod ids;
#[cfg(test)]
mod laws;
mod learn;
mod listing;
mod mock;
pub mod models;
mod openai;
mod reply;
mod responses;
mod retry;
#[cfg(test)]
mod samples;
mod services;
#[cfg(test)]
mod shapes;
pub mod tape;
mod wait;
#[cfg(test)]
mod wire;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::accumulate::Accumulator;
use crate::message::{Assistant, Message, Stop, Usage};
use crate::protocol::{Failure, FailureKind};
use failure::Service;
pub use mock::Mock;
use reqwest::header::{HeaderMap, HeaderValue};
use retry::Policy;

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
    /// The text that follows begins a block of its own.
    NewText {
        /// What the service calls it.
        phase: Option<String>,
    },
    /// Words of a refusal.
    Refusal(String),
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
    /// A whole reasoning item of the Responses API; closes the reasoning whose text came before.
    Item(Value),
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
    /// Something that the user should know; no part of the message.
    Warning(String),
    /// The request is tried again after a pause; what was given out of the failed try, reasoning at most, is void.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
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
    /// Sends the request. Retries are the provider's own affair, as long as it has given out no text.
    fn stream(&self, request: Request) -> Deltas;
    /// Asks for the list of its models. Nothing else but the user's wish leads to this.
    fn models(&self) -> Listing {
        Box::pin(std::future::ready(Ok(vec![])))
    }
}

/// The models that a service lists.
pub type Listing = Pin<Box<dyn Future<Output = Result<Vec<models::Model>, Error>> + Send>>;

/// What a service speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `openai-chat`: chat completions.
    OpenaiChat,
    /// `openai-responses`: Responses.
    OpenaiResponses,
    /// `anthropic-messages`: Messages.
    AnthropicMessages,
    /// Nothing: the mock has no service behind it.
    Mock,
}

impl Api {
    /// Every API by its name in the configuration.
    const NAMES: [(&str, Self); 3] = [
        ("openai-chat", Self::OpenaiChat),
        ("openai-responses", Self::OpenaiResponses),
        ("anthropic-messages", Self::AnthropicMessages),
    ];

    fn dialect(self) -> Option<client::Dialect> {
        match self {
            Self::OpenaiChat => Some(openai::DIALECT),
            Self::OpenaiResponses => Some(responses::DIALECT),
            Self::AnthropicMessages => Some(anthropic::DIALECT),
            Self::Mock => None,
        }
    }
}

impl std::fmt::Display for Api {
    /// The name in the configuration.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = Self::NAMES.iter().find(|(_, api)| api == self).map_or("mock", |(name, _)| name);
        f.write_str(name)
    }
}

impl std::str::FromStr for Api {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::NAMES.into_iter().find(|(own, _)| *own == name);
        let names = Self::NAMES.map(|(name, _)| format!("`{name}`")).join(", ");
        found.map(|(_, api)| api).ok_or_else(|| format!("unknown api `{name}`, expected one of {names}"))
    }
}

/// Which certificates are trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tls {
    /// Those built in, and those of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
    #[default]
    Bundled,
    /// Those of the system.
    System,
}

pub use services::{Known, SERVICES, known};

impl Known {
    /// What the service speaks at this address. Everybody's copy of OpenAI's API knows chat completions, and few know
    /// Responses.
    pub fn api_at(&self, base_url: Option<&str>) -> Api {
        let elsewhere = base_url.is_some_and(|url| address::host(url) != address::host(self.base_url));
        if elsewhere && self.api == Api::OpenaiResponses { Api::OpenaiChat } else { self.api }
    }
}

/// A key, and where it came from.
#[derive(Clone)]
pub struct Key {
    /// The key itself, without white space around it; never shown.
    pub value: String,
    /// Its source, such as `OPENAI_API_KEY` or the path of `auth.json`.
    pub source: String,
}

/// What the configuration says of a provider.
#[derive(Clone)]
pub struct Options {
    /// Its name.
    pub name: String,
    /// What it speaks.
    pub api: Api,
    /// Its address; `None`: that of the known service.
    pub base_url: Option<String>,
    /// Its key.
    pub key: Option<Key>,
    /// Extra request headers; they outweigh crab's own.
    pub headers: Vec<(String, String)>,
    /// At most so many retries; `None`: four.
    pub max_retries: Option<u32>,
    /// The longest silence between two events, three times as long before the first; `None`: 90 seconds.
    pub idle_timeout: Option<Duration>,
    /// Which certificates are trusted.
    pub tls: Tls,
    /// Fields of [`compat::Compat`] that the user set.
    pub compat: serde_json::Map<String, Value>,
    /// What becomes of the wire.
    pub tape: Option<tape::Tape>,
}

impl Options {
    /// Everything as a known service has it.
    pub fn new(name: impl Into<String>, api: Api) -> Self {
        Self {
            name: name.into(),
            api,
            base_url: None,
            key: None,
            headers: vec![],
            max_retries: None,
            idle_timeout: None,
            tls: Tls::default(),
            compat: serde_json::Map::new(),
            tape: None,
        }
    }
}

/// The provider that the options describe. Nothing is sent, and no file but the mock's script is read.
///
/// # Errors
/// Says what is wrong with the configuration.
pub fn by_name(options: Options) -> Result<Arc<dyn Provider>, String> {
    let policy = match options.tape {
        // What was waited for then is not waited for again.
        Some(tape::Tape::Replay(_)) => Policy::new(options.max_retries).without_pauses(),
        _ => Policy::new(options.max_retries),
    };
    let Some(dialect) = options.api.dialect() else {
        return Ok(Arc::new(Mock::from_env()?.with(options.max_retries)));
    };
    let set = options.compat.clone();
    let name = options.name.clone();
    let mut http = connect(options, dialect.endpoint)?;
    let compat = services::compat(&name, &http.service.host)
        .with(&set)
        .map_err(|err| format!("`[providers.{name}.compat]`: {err}"))?;
    http.service.mute_overflow = compat.mute_overflow;
    Ok(Arc::new(client::Client::new(http, policy, dialect, compat)))
}

/// Reads a whole answer that is there already, as a recording has it: the message, and how it is not whole. Any cut of the
/// bytes into pieces gives the same.
pub fn decode<'a>(api: Api, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Assistant, Option<String>) {
    let mut message = Accumulator::new("", "");
    let Some(dialect) = api.dialect() else { return (message.finish(), None) };
    let mut answer = answer::Answer::new((dialect.decoder)(&compat::Compat::UNKNOWN));
    let mut taken = Ok(());
    for piece in pieces {
        taken = answer.feed(piece);
        std::iter::from_fn(|| answer.next()).for_each(|delta| message.push(delta));
        if taken.is_err() || answer.is_done() {
            break;
        }
    }
    let taken = taken.and_then(|()| answer.end());
    std::iter::from_fn(|| answer.next()).for_each(|delta| message.push(delta));
    match taken {
        Ok(()) => (message.finish(), None),
        Err(broken) => (message.cut(Stop::Cut), Some(format!("{broken:?}"))),
    }
}

fn connect(options: Options, endpoint: &str) -> Result<http::Http, String> {
    let known = known(&options.name);
    let base =
        options.base_url.as_deref().or(known.map(|known| known.base_url)).filter(|base| !base.is_empty());
    let base = base.ok_or_else(|| {
        format!(
            "the provider `{name}` has no address; set `base_url` in `[providers.{name}]`",
            name = options.name
        )
    })?;
    let versioned = options.api == Api::AnthropicMessages;
    let base = address::with_path(base, known.map_or("", |known| known.path));
    let url = address::join(&base, endpoint, versioned)?;
    let better = known.and_then(|known| known.models_path).map(|path| address::beside(&url, path));
    let models = better.into_iter().chain([address::join(&base, "/models", versioned)?]).collect();
    let secret =
        |name: &str| ["auth", "key", "token", "cookie"].iter().any(|word| name.to_lowercase().contains(word));
    let secret_headers =
        options.headers.iter().filter(|(name, _)| secret(name)).map(|(_, value)| value.clone());
    let service = Service {
        name: options.name.clone(),
        host: address::host(&url),
        key_source: options.key.as_ref().map(|key| key.source.clone()),
        secrets: options
            .key
            .iter()
            .map(|key| key.value.clone())
            .chain(secret_headers)
            .chain(address::secrets(&url))
            .collect(),
        mute_overflow: false,
    };
    let headers = all_headers(&options, known, &service)?;
    let urls = http::Urls { endpoint: url, models };
    Ok(http::Http::new(urls, service, headers).with(options.idle_timeout, options.tls, options.tape))
}

/// What every request carries, or why none can be sent.
fn all_headers(
    options: &Options,
    known: Option<Known>,
    service: &Service,
) -> Result<Result<HeaderMap, Error>, String> {
    let extra = http::headers(service, &options.headers).map_err(|error| error.failure.message)?;
    let needs_key = known.filter(|known| known.needs_key && address::host(known.base_url) == service.host);
    let headers = match (&options.key, needs_key) {
        (Some(key), _) => key_header(options.api, key, service),
        (None, Some(known)) if !has_own_key(&extra) => Err(service.told(
            FailureKind::Auth,
            &format!("no key for `{}`: set `{}`, or put one into `auth.json`", known.name, known.key_envs[0]),
        )),
        _ => Ok(HeaderMap::new()),
    };
    Ok(headers.map(|mut headers| {
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        headers.insert("accept", HeaderValue::from_static("text/event-stream"));
        if options.api == Api::AnthropicMessages {
            headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
        }
        let own = known.filter(|known| address::host(known.base_url) == service.host);
        for (name, value) in own.map_or(&[][..], |known| known.headers) {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        headers.extend(extra);
        headers
    }))
}

fn has_own_key(headers: &HeaderMap) -> bool {
    headers.contains_key("authorization") || headers.contains_key("x-api-key")
}

fn key_header(api: Api, key: &Key, service: &Service) -> Result<HeaderMap, Error> {
    let (name, value) = match api {
        Api::AnthropicMessages => ("x-api-key", key.value.clone()),
        _ => ("authorization", format!("Bearer {}", key.value)),
    };
    let mut value =
        HeaderValue::from_str(&value).ok().filter(|_| key.value.is_ascii() && !key.value.is_empty());
    let Some(value) = value.as_mut() else {
        let message = format!(
            "the key for `{}` from `{}` can't be sent: it is empty or holds a line break or a character outside ASCII; \
             copy it again",
            service.name, key.source
        );
        return Err(service.told(FailureKind::Auth, &message));
    };
    value.set_sensitive(true);
    Ok(HeaderMap::from_iter([(reqwest::header::HeaderName::from_static(name), value.clone())]))
}

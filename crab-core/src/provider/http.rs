//! The one place that speaks HTTP to services: client, certificates, status, idle limit.

use std::collections::VecDeque;
use std::error::Error as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::stream::unfold;
use reqwest::Client;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use tokio::time::Instant;

use super::answer::{Answer, Broken, Decode};
use super::failure::{Said, Service, page};
use super::reply::{Gap, Reply};
use super::retry::{Attempt, Fault};
use super::tape::{self, Lost, Player, Tape};
use super::wait::{wait_for_limit, wait_in_headers};
use super::{Delta, Error, Tls, address};
use crate::protocol::FailureKind;

/// The longest silence between two events when the configuration does not say.
const IDLE: Duration = Duration::from_secs(90);
/// The first event may take so many times longer: a model that hides its reasoning says nothing until it is done.
const FIRST: u32 = 3;
/// Whoever has sent the end of an answer owes at most its figures.
const AFTER_END: Duration = Duration::from_secs(5);
const CONNECT: Duration = Duration::from_secs(8);
/// No error body worth reading is longer.
const ERROR_BODY: usize = 1 << 20;

/// Where a service is asked for what.
pub(super) struct Urls {
    /// Answers.
    pub(super) endpoint: String,
    /// The list of its models, the best one first.
    pub(super) models: Vec<String>,
}

/// A service at an address, with what every request to it carries.
pub(super) struct Http {
    pub(super) urls: Urls,
    pub(super) service: Service,
    /// Every request carries these, or fails with this.
    pub(super) headers: Result<HeaderMap, Error>,
    idle: Duration,
    tls: Tls,
    tape: Option<Tape>,
    client: OnceLock<Result<Built, String>>,
}

pub(super) struct Built {
    pub(super) client: Client,
    /// Why some certificates of the environment could not be used.
    note: Option<String>,
}

/// A body that is built again when the service names something in it that it does not accept.
pub(super) trait Amend: Send {
    /// What is sent now.
    fn body(&self) -> Vec<u8>;
    /// Leaves out what was refused. False when there is nothing to leave out, so that the refusal stands.
    fn amend(&mut self, said: &Said) -> bool;
    /// The service has taken it. Gives what the user should know of what was left out.
    fn accepted(&mut self) -> Vec<String>;
}

/// One request: its body and what reads the answer.
pub(super) struct Exchange {
    pub(super) decoder: Box<dyn Decode>,
    pub(super) amend: Box<dyn Amend>,
}

impl Http {
    pub(super) fn new(urls: Urls, service: Service, headers: Result<HeaderMap, Error>) -> Self {
        Self { urls, service, headers, idle: IDLE, tls: Tls::default(), tape: None, client: OnceLock::new() }
    }

    /// Sets what the configuration may say, and what becomes of the wire.
    pub(super) fn with(mut self, idle: Option<Duration>, tls: Tls, tape: Option<Tape>) -> Self {
        self.tape = tape;
        self.idle = idle.filter(|idle| !idle.is_zero()).unwrap_or(IDLE);
        self.tls = tls;
        self
    }

    /// Sends the request when first polled; dropping the stream cancels it.
    pub(super) fn attempt(self: &Arc<Self>, exchange: Exchange) -> Attempt {
        let Exchange { decoder, amend } = exchange;
        let reader = Reader {
            http: Arc::clone(self),
            answer: Answer::new(decoder),
            state: State::Unsent(amend),
            fault: None,
            told: VecDeque::new(),
            deadline: Instant::now(),
        };
        Box::pin(unfold(reader, |mut reader| async move { reader.next().await.map(|item| (item, reader)) }))
    }

    pub(super) fn built(&self) -> Result<&Built, Error> {
        let built = self.client.get_or_init(|| build(self.tls));
        built.as_ref().map_err(|problem| self.service.told(FailureKind::Config, problem))
    }

    /// Sends the body, and sends it again amended when the service names what it does not accept.
    async fn open(&self, mut amend: Box<dyn Amend>, told: &mut VecDeque<String>) -> Result<Reply, Fault> {
        loop {
            let mut reply = self.send(amend.body()).await?;
            if (200..300).contains(&reply.status) {
                told.extend(amend.accepted());
                return Ok(reply);
            }
            if (300..400).contains(&reply.status) {
                let error = self.redirected(reply.status, reply.header("location"));
                reply.give_up(false);
                return Err(error.into());
            }
            let mut said = self.error_body(&mut reply).await;
            if amend.amend(&said) {
                reply.give_up(false);
                continue;
            }
            let limit = || wait_for_limit(|name| reply.header(name)).filter(|_| reply.status == 429);
            said.wait = wait_in_headers(|name| reply.header(name)).or(said.wait).or_else(limit);
            let error = self.service.refused(&said);
            let advice = reply.header("x-should-retry");
            reply.give_up(false);
            return Err(match advice.as_deref() {
                Some("false") => Fault::at_most(0, error),
                Some("true") if !error.is_retryable() => Fault::at_most(2, error),
                _ => error.into(),
            });
        }
    }

    async fn send(&self, body: Vec<u8>) -> Result<Reply, Fault> {
        let recorder = match &self.tape {
            Some(Tape::Replay(player)) => return self.replay(player, &body),
            Some(Tape::Record(recorder)) => Some(recorder),
            None => None,
        };
        let headers = self.headers.clone()?;
        let client = &self.built()?.client;
        let track = recorder.map(|recorder| recorder.request(&self.urls.endpoint, &headers, &body));
        let request = client.post(&self.urls.endpoint).headers(headers).body(body).send();
        let fault = match tokio::time::timeout(self.idle * FIRST, request).await {
            Ok(Ok(response)) => return Ok(Reply::from_network(response, track)),
            Ok(Err(err)) => self.unreachable(&err),
            Err(_) => self.silent(self.idle * FIRST).into(),
        };
        if let Some(track) = track {
            track.end(Some(Lost::Unanswered(fault.clone())));
        }
        Err(fault)
    }

    /// The answer that was recorded. What is asked now may differ, for the tools have run again; the user learns where.
    fn replay(&self, player: &Player, body: &[u8]) -> Result<Reply, Fault> {
        let failed = |why: &str| Fault::at_most(0, self.service.told(FailureKind::Internal, why));
        let exchange = player.next().map_err(|why| failed(&why))?;
        if let Some(Some(Lost::Unanswered(fault))) = exchange.end {
            return Err(fault);
        }
        if exchange.status == 0 {
            return Err(failed(tape::STOPPED));
        }
        let now: Value = serde_json::from_slice(body).unwrap_or_default();
        let differs = tape::difference(&exchange.body, &now);
        let warning = differs.map(|place| {
            format!(
                "request {} differs from the recorded one at `{place}`; it gets the recorded answer",
                exchange.n
            )
        });
        Ok(Reply::from_tape(exchange, warning))
    }

    pub(super) async fn error_body(&self, reply: &mut Reply) -> Said {
        let status = Some(reply.status);
        let mut body = vec![];
        let read = async {
            while let Ok(Some(piece)) = reply.chunk().await {
                body.extend_from_slice(&piece);
                if body.len() > ERROR_BODY {
                    break;
                }
            }
        };
        // Whatever came in time is better than nothing, and the status tells the rest.
        let _ = tokio::time::timeout(self.idle.min(Duration::from_secs(10)), read).await;
        match serde_json::from_slice::<Value>(&body) {
            Ok(json) => Said::read(&json, status),
            Err(_) => Said::text(page(&body), status),
        }
    }

    pub(super) fn redirected(&self, status: u16, location: Option<String>) -> Error {
        let to = location.map_or_else(|| "nowhere".to_owned(), |to| address::shown(&to));
        let words =
            format!("it redirects to `{to}`, where the key does not go by itself; set the base URL to that");
        self.service.failed(FailureKind::NotFound, &Said::text(words, Some(status)))
    }

    fn silent(&self, limit: Duration) -> Error {
        let Service { name, host, .. } = &self.service;
        let seconds = limit.as_secs_f64();
        let message = format!(
            "`{name}` (`{host}`) fell silent: no event within the idle limit of {seconds} seconds; try again, or raise \
             `stream_idle_timeout`"
        );
        self.service.told(FailureKind::Network, &message)
    }

    pub(super) fn broken(&self, broken: Broken) -> Error {
        let service = &self.service;
        match broken {
            Broken::Refused(said) => service.refused(&said),
            Broken::Said(said) => {
                // The service had accepted the request, so what has no class of its own is its fault.
                let error = service.refused(&said);
                let unclear = error.failure.kind == FailureKind::BadRequest && !said.is_about_the_request();
                if unclear { service.failed(FailureKind::Server, &said) } else { error }
            }
            Broken::Cut => {
                let words = "the stream ended before the answer was finished";
                service.failed(FailureKind::Cut, &Said::text(words, None))
            }
            Broken::Foreign(words) => {
                let words = format!("it sent something else than an answer (`{words}`); check the base URL");
                service.failed(FailureKind::BadRequest, &Said::text(words, None))
            }
            Broken::Overlong => {
                let words = "one event of the stream is longer than 64 MB";
                service.failed(FailureKind::BadRequest, &Said::text(words, None))
            }
        }
    }

    /// No response came. A refused connection, an unknown name or a bad certificate will hardly change in seconds.
    pub(super) fn unreachable(&self, err: &reqwest::Error) -> Fault {
        if let Some(problem) = certificate(err) {
            return Fault::at_most(0, self.untrusted(problem));
        }
        let cause = cause(err);
        let proxy = address::proxy(&self.urls.endpoint, |name| std::env::var(name).ok());
        let way = proxy.map(|(name, address)| format!(" through the proxy `{address}` of `{name}`"));
        let words = format!("{cause}{}", way.unwrap_or_default());
        let error = self.service.failed(FailureKind::Network, &Said::text(words, None));
        match (err.is_connect(), err.is_timeout()) {
            (true, true) => Fault::at_most(0, error),
            (true, false) => Fault::at_most(1, error),
            _ => error.into(),
        }
    }

    fn untrusted(&self, problem: String) -> Error {
        let Service { name, host, .. } = &self.service;
        let note = self.built().ok().and_then(|built| built.note.as_deref());
        let note = note.map(|note| format!(" ({note})")).unwrap_or_default();
        let message = format!(
            "the certificate of `{name}` (`{host}`) is not trusted: {problem}{note}; if it is your company's own, set \
             `SSL_CERT_FILE` to its authority's file"
        );
        self.service.told(FailureKind::Network, &message)
    }
}

/// One try: a request and its answer.
struct Reader {
    http: Arc<Http>,
    answer: Answer,
    state: State,
    fault: Option<Fault>,
    /// What the user should know before the answer.
    told: VecDeque<String>,
    deadline: Instant,
}

enum State {
    Unsent(Box<dyn Amend>),
    Open(Box<Reply>),
    Ended,
}

impl Reader {
    async fn next(&mut self) -> Option<Result<Delta, Fault>> {
        loop {
            if let Some(delta) = self.answer.next() {
                return Some(Ok(delta));
            }
            if let Some(told) = self.told.pop_front() {
                return Some(Ok(Delta::Warning(told)));
            }
            if let Some(fault) = self.fault.take() {
                return Some(Err(fault));
            }
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Unsent(amend) => match self.http.open(amend, &mut self.told).await {
                    Ok(mut reply) => {
                        self.deadline = Instant::now() + self.http.idle * FIRST;
                        self.told.extend(reply.warning.take());
                        self.state = State::Open(Box::new(reply));
                    }
                    Err(fault) => self.fault = Some(fault),
                },
                State::Open(reply) => self.read(*reply).await,
                State::Ended => return None,
            }
        }
    }

    async fn read(&mut self, mut reply: Reply) {
        let whole = self.answer.is_finished();
        let next = tokio::time::timeout_at(self.deadline, reply.chunk()).await;
        let silent = || {
            let first = if self.answer.events() == 0 { FIRST } else { 1 };
            self.http.silent(self.http.idle * first).into()
        };
        let taken = match next {
            Ok(Ok(Some(bytes))) => match self.take(&bytes) {
                Ok(()) if !self.answer.is_done() => {
                    self.state = State::Open(Box::new(reply));
                    return;
                }
                taken => {
                    reply.give_up(false);
                    taken.and_then(|()| self.answer.end())
                }
            },
            Ok(Ok(None)) => self.answer.end(),
            _ if whole => {
                reply.give_up(false);
                self.answer.end()
            }
            Ok(Err(Gap::Broke(cause))) => {
                let words = format!("the connection broke before the answer was finished: {cause}");
                let error = self.http.service.failed(FailureKind::Cut, &Said::text(words, None));
                self.fault = Some(error.into());
                return;
            }
            Ok(Err(Gap::Stopped)) => {
                let error = self.http.service.told(FailureKind::Internal, tape::STOPPED);
                self.fault = Some(Fault::at_most(0, error));
                return;
            }
            Ok(Err(Gap::Silent)) => {
                self.fault = Some(silent());
                return;
            }
            Err(_) => {
                self.fault = Some(silent());
                reply.give_up(true);
                return;
            }
        };
        self.fault = taken.err().map(|broken| self.http.broken(broken).into());
    }

    /// Only events move the deadline: a proxy can send comments for ever on behalf of a model that has died.
    fn take(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        let before = self.answer.events();
        self.answer.feed(bytes)?;
        if self.answer.events() > before {
            let limit =
                if self.answer.is_finished() { AFTER_END.min(self.http.idle) } else { self.http.idle };
            self.deadline = Instant::now() + limit;
        }
        Ok(())
    }
}

/// Puts headers together; a value that HTTP can't carry is named, never shown.
pub(super) fn headers(service: &Service, list: &[(String, String)]) -> Result<HeaderMap, Error> {
    let mut map = HeaderMap::new();
    for (name, value) in list {
        let bad = |what: &str| {
            let message =
                format!("the {what} of the header `{name}` for `{}` is not valid in HTTP", service.name);
            service.told(FailureKind::Config, &message)
        };
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("name"))?;
        map.insert(header, HeaderValue::from_str(value).map_err(|_| bad("value"))?);
    }
    Ok(map)
}

fn build(tls: Tls) -> Result<Built, String> {
    let (config, note) = tls_config(tls)?;
    let client = Client::builder()
        .tls_backend_preconfigured(config)
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT)
        .user_agent(concat!("crab/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|err| format!("the HTTP client could not be made: {}", cause(&err)))?;
    Ok(Built { client, note })
}

/// Certificates that are trusted: those built in and those of `SSL_CERT_FILE` and `SSL_CERT_DIR`, or the system's.
/// With it comes what could not be read, for the failure that may follow from that.
pub(crate) fn tls_config(tls: Tls) -> Result<(rustls::ClientConfig, Option<String>), String> {
    let mut roots = rustls::RootCertStore::empty();
    let mut problems = vec![];
    let mut add = |found: rustls_native_certs::CertificateResult, source: &str| {
        problems.extend(found.errors.iter().map(|err| format!("{source}: {err}")));
        if found.certs.is_empty() && found.errors.is_empty() {
            problems.push(format!("{source}: no certificate found"));
        }
        found.certs
    };
    let mut found = vec![];
    match tls {
        Tls::System => found = add(rustls_native_certs::load_native_certs(), "the system's certificates"),
        Tls::Bundled => {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
            if let Some(file) = std::env::var_os("SSL_CERT_FILE").filter(|file| !file.is_empty()) {
                let file = std::path::PathBuf::from(file);
                found.extend(add(
                    rustls_native_certs::load_certs_from_paths(Some(&file), None),
                    "`SSL_CERT_FILE`",
                ));
            }
            let folders = std::env::var_os("SSL_CERT_DIR").unwrap_or_default();
            for folder in std::env::split_paths(&folders).filter(|folder| !folder.as_os_str().is_empty()) {
                found.extend(add(
                    rustls_native_certs::load_certs_from_paths(None, Some(&folder)),
                    "`SSL_CERT_DIR`",
                ));
            }
        }
    }
    roots.add_parsable_certificates(found);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|err| format!("TLS could not be set up: {err}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok((config, problems.into_iter().next()))
}

/// The innermost cause, which is the one that tells something.
pub(super) fn cause(err: &reqwest::Error) -> String {
    let mut text = err.to_string();
    let mut next = err.source();
    while let Some(inner) = next {
        text = inner.to_string();
        next = inner.source();
    }
    if err.is_timeout() && err.is_connect() {
        return format!("no connection within {} seconds", CONNECT.as_secs());
    }
    // The operating system's number says nothing to a person.
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

/// What is wrong with the certificate, when that is what it failed on.
fn certificate(err: &reqwest::Error) -> Option<String> {
    use rustls::CertificateError::*;
    let mut next = err.source();
    while let Some(inner) = next {
        let wrapped = inner.downcast_ref::<std::io::Error>().and_then(|io| io.get_ref());
        let tls =
            inner.downcast_ref().or_else(|| wrapped.and_then(|inner| inner.downcast_ref::<rustls::Error>()));
        if let Some(rustls::Error::InvalidCertificate(problem)) = tls {
            let words = match problem {
                UnknownIssuer => "it is signed by an authority that is not known here",
                Expired | ExpiredContext { .. } => "it has expired",
                NotValidYet | NotValidYetContext { .. } => "it is not valid yet",
                NotValidForName | NotValidForNameContext { .. } => "it is made for another name",
                _ => return Some(format!("{problem}")),
            };
            return Some(words.to_owned());
        }
        next = wrapped.map(|inner| inner as &(dyn std::error::Error + 'static)).or_else(|| inner.source());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_can_be_built_with_either_set_of_certificates() {
        for tls in [Tls::Bundled, Tls::System] {
            assert!(build(tls).is_ok(), "{tls:?}");
        }
    }

    #[test]
    fn a_header_that_http_cannot_carry_is_named_and_not_shown() {
        let list = [("x-team".to_owned(), "a\nb".to_owned())];
        let error = headers(&Service::default(), &list).unwrap_err();
        assert!(error.failure.message.contains("`x-team`") && !error.failure.message.contains("a\nb"));
    }
}

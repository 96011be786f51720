//! Writes a recording. No secret reaches it: credentials are left out of the headers, and known keys are replaced
//! wherever they stand, also across pieces of a body.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Instant;

use base64::Engine;
use regex::{Captures, Regex};
use reqwest::header::HeaderMap;
use serde_json::{Map, Value, json};

use super::{Header, Line, Lost, VERSION};
use crate::message::Part;
use crate::redact::{Redacting, Secrets};

/// Names of headers that carry credentials, or tell whose they are, have one of these in them.
const SECRET_HEADERS: [&str; 8] =
    ["auth", "key", "token", "cookie", "secret", "organization", "project", "account"];

/// Whose account it is, as services tell it in errors and answers.
#[expect(clippy::unwrap_used, reason = "the pattern is a constant, and a test compiles it")]
static ACCOUNT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"\borg[-_][A-Za-z0-9]{8,}|("user_id"\s*:\s*")[^"]*"#).unwrap());

/// Writes what happens at the wire.
pub struct Recorder {
    path: PathBuf,
    /// The file, or why it can't be written any more.
    file: Mutex<Result<File, String>>,
    secrets: Arc<Secrets>,
    began: Instant,
    count: AtomicU64,
}

impl Recorder {
    /// Begins a recording. An older recording of this name is replaced, any other file is not.
    ///
    /// # Errors
    /// Names the file and says what to do.
    pub fn create(path: &Path, header: &Header, secrets: Arc<Secrets>) -> Result<Self, String> {
        let shown = path.display();
        let failed = |err: io::Error| format!("cannot record to `{shown}`: {err}");
        let mut options = File::options();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(format!("cannot record to `{shown}`: it is not a regular file"));
        }
        let mut first = String::new();
        // What is no text is no recording either.
        let is_text = BufReader::new(&file).read_line(&mut first).is_ok();
        if !is_text || !(first.is_empty() || first.contains(r#""type":"recording""#)) {
            return Err(format!("`{shown}` exists and is no recording: name another file"));
        }
        file.set_len(0).and_then(|()| file.seek(SeekFrom::Start(0))).map_err(failed)?;
        let recorder = Self {
            path: path.to_owned(),
            file: Mutex::new(Ok(file)),
            secrets,
            began: Instant::now(),
            count: AtomicU64::new(0),
        };
        let crab = env!("CARGO_PKG_VERSION").to_owned();
        recorder.line(&Line::Recording { version: VERSION, crab, header: header.clone() });
        recorder.problem().map_or(Ok(recorder), Err)
    }

    /// Writes down what the user said.
    pub fn prompt(&self, content: &[Part]) {
        let mut content = content.to_vec();
        self.secrets.redact_parts(&mut content);
        self.line(&Line::Prompt { content });
    }

    /// Why the recording is not whole, if it isn't. Said once at the end: the run itself goes on.
    pub fn problem(&self) -> Option<String> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let problem = file.as_ref().err()?;
        Some(format!("the recording `{}` is not whole: {problem}", self.path.display()))
    }

    /// Writes down a request.
    pub(in crate::provider) fn request(
        self: &Arc<Self>,
        url: &str,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Track {
        let n = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let mut body = serde_json::from_slice(body).unwrap_or(Value::Null);
        self.secrets.redact_value(&mut body);
        let (method, url) = ("POST".to_owned(), self.clean(&without_login(url)));
        let headers = self.headers(headers);
        self.line(&Line::Request { n, at_ms: self.now(), method, url, headers, body });
        Track { recorder: Arc::clone(self), n, pending: vec![], text: Redacting::new(self.secrets.clone()) }
    }

    fn headers(&self, headers: &HeaderMap) -> Map<String, Value> {
        let shown = |name: &str, value: &[u8]| {
            let is_secret = SECRET_HEADERS.iter().any(|word| name.contains(word));
            // How many tokens are left is no secret.
            let is_secret = is_secret && !name.contains("ratelimit");
            let value = String::from_utf8_lossy(value);
            if is_secret { "[redacted]".to_owned() } else { self.clean(&value) }
        };
        let headers = headers
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), json!(shown(name.as_str(), value.as_bytes()))));
        headers.collect()
    }

    fn clean(&self, text: &str) -> String {
        let text = self.secrets.redact(text);
        let mark = |found: &Captures<'_>| {
            format!("{}[redacted account]", found.get(1).map(|key| key.as_str()).unwrap_or_default())
        };
        ACCOUNT.replace_all(&text, mark).into_owned()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Writes one line by one call; the first failure is remembered and ends the recording.
    fn line(&self, line: &Line) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(open) = file.as_mut() else { return };
        let written = serde_json::to_string(line).map_err(io::Error::from).and_then(|mut text| {
            text.push('\n');
            open.write_all(text.as_bytes())
        });
        if let Err(err) = written {
            *file = Err(err.to_string());
        }
    }
}

/// One exchange on its way into the recording.
pub(in crate::provider) struct Track {
    recorder: Arc<Recorder>,
    n: u64,
    /// The beginning of a character whose end has not come.
    pending: Vec<u8>,
    text: Redacting,
}

impl Track {
    pub(in crate::provider) fn response(&mut self, status: u16, headers: &HeaderMap) {
        let (n, at_ms, headers) = (self.n, self.recorder.now(), self.recorder.headers(headers));
        self.recorder.line(&Line::Response { n, at_ms, status, headers });
    }

    /// Takes a piece of the body.
    pub(in crate::provider) fn data(&mut self, piece: &[u8]) {
        let mut bytes = std::mem::take(&mut self.pending);
        bytes.extend_from_slice(piece);
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            let clean = self.text.push(chunk.valid());
            self.text_line(clean);
            match chunk.invalid() {
                [] => {}
                // At the very end it may be a character that is not whole yet.
                cut if chunks.peek().is_none() && cut.len() < 4 => self.pending = cut.to_vec(),
                bad => self.bytes_line(bad),
            }
        }
    }

    /// The end of the exchange.
    pub(in crate::provider) fn end(mut self, failure: Option<Lost>) {
        let rest = std::mem::replace(&mut self.text, Redacting::new(Arc::default())).finish();
        self.text_line(rest);
        let pending = std::mem::take(&mut self.pending);
        if !pending.is_empty() {
            self.bytes_line(&pending);
        }
        let at_ms = self.recorder.now();
        self.recorder.line(&Line::End { n: self.n, at_ms, failure });
    }

    fn text_line(&self, text: String) {
        if !text.is_empty() {
            let text = Some(self.recorder.clean(&text));
            self.recorder.line(&Line::Data { n: self.n, at_ms: self.recorder.now(), text, base64: None });
        }
    }

    /// Bytes that are no text must not overtake the text before them.
    fn bytes_line(&mut self, bytes: &[u8]) {
        let secrets = self.recorder.secrets.clone();
        let rest = std::mem::replace(&mut self.text, Redacting::new(secrets)).finish();
        self.text_line(rest);
        let base64 = Some(base64::engine::general_purpose::STANDARD.encode(bytes));
        self.recorder.line(&Line::Data { n: self.n, at_ms: self.recorder.now(), text: None, base64 });
    }
}

fn without_login(url: &str) -> String {
    let Ok(mut url) = reqwest::Url::parse(url) else { return String::new() };
    // Only addresses that cannot have a login refuse to lose it.
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    url.into()
}

//! Writes a recording. No secret reaches it: credentials are left out of the headers, and known keys are replaced
//! wherever they stand, also across pieces of a body.

use std::fs::{File, Permissions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
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

/// The request headers that crab itself sets; any other is the user's, and may be a key under whatever name.
const OWN_HEADERS: [&str; 4] = ["accept", "anthropic-version", "content-type", "user-agent"];
/// Names of response headers that tell whose account it is, or let others in, have one of these in them.
const SECRET_HEADERS: [&str; 9] =
    ["auth", "key", "token", "cookie", "secret", "organization", "project", "account", "location"];

/// Whose account it is, as services tell it when they refuse.
#[expect(clippy::unwrap_used, reason = "the pattern is a constant, and a test compiles it")]
static ACCOUNT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"\borg[-_][A-Za-z0-9]{16,}|("user_id"\s*:\s*")[^"]*"#).unwrap());

/// Writes what happens at the wire.
pub struct Recorder {
    path: PathBuf,
    state: Mutex<State>,
    secrets: Arc<Secrets>,
    began: Instant,
    count: AtomicU64,
}

enum State {
    /// Nothing is written before the first prompt: until then the run may be refused for another reason, and an older
    /// recording must not be lost to that.
    Waiting(File, Header),
    Open(File),
    /// Why no more can be written.
    Broken(String),
}

impl Recorder {
    /// Gets ready to record. An older recording of this name is replaced by the first prompt, any other file is refused.
    ///
    /// # Errors
    /// Names the file and says what to do.
    pub fn create(path: &Path, header: &Header, secrets: Arc<Secrets>) -> Result<Self, String> {
        let shown = path.display();
        let failed = |err: io::Error| format!("cannot record to `{shown}`: {}", plainly(&err));
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        // A pipe would be waited for.
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
        let file = options.open(path).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        if !meta.is_file() {
            return Err(format!("cannot record to `{shown}`: it is not a regular file"));
        }
        if meta.len() > 0 && !is_recording(&file) {
            return Err(format!("`{shown}` exists and is no recording: name another file"));
        }
        let mut header = header.clone();
        for asked in &mut header.models {
            asked.base_url = asked.base_url.take().map(|url| secrets.redact(&bare(&url)).into_owned());
        }
        Ok(Self {
            path: path.to_owned(),
            state: Mutex::new(State::Waiting(file, header)),
            secrets,
            began: Instant::now(),
            count: AtomicU64::new(0),
        })
    }

    /// Writes down what the user said.
    pub fn prompt(&self, content: &[Part]) {
        let mut content = content.to_vec();
        self.secrets.redact_parts(&mut content);
        self.line(&Line::Prompt { content });
    }

    /// Why the recording is not whole, if it isn't. Said once at the end: the run itself goes on.
    pub fn problem(&self) -> Option<String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State::Broken(problem) = &*state else { return None };
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
        let (method, url) = ("POST".to_owned(), self.secrets.redact(&bare(url)).into_owned());
        let headers = self.headers(headers, |name| OWN_HEADERS.contains(&name));
        self.line(&Line::Request { n, at_ms: self.now(), method, url, headers, body });
        let text = Redacting::new(self.secrets.clone());
        Track { recorder: Arc::clone(self), n, pending: vec![], text, refused: None }
    }

    /// Of a header that comes twice the first one counts, as for the client.
    fn headers(&self, headers: &HeaderMap, is_open: impl Fn(&str) -> bool) -> Map<String, Value> {
        let mut shown = Map::new();
        for (name, value) in headers {
            let name = name.as_str();
            let value = String::from_utf8_lossy(value.as_bytes());
            let value = if is_open(name) { self.clean(&value) } else { "[redacted]".to_owned() };
            shown.entry(name).or_insert(json!(value));
        }
        shown
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
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let written = match std::mem::replace(&mut *state, State::Broken(String::new())) {
            State::Waiting(file, header) => begin(file, header).and_then(|file| write(file, line)),
            State::Open(file) => write(file, line),
            State::Broken(why) => Err(io::Error::other(why)),
        };
        *state = written.map_or_else(|err| State::Broken(plainly(&err)), State::Open);
    }
}

/// Empties the file and writes its first line.
fn begin(mut file: File, header: Header) -> io::Result<File> {
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    let crab = env!("CARGO_PKG_VERSION").to_owned();
    write(file, &Line::Recording { version: VERSION, crab, header })
}

/// Writes one line by one call.
fn write(mut file: File, line: &Line) -> io::Result<File> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    file.write_all(text.as_bytes())?;
    Ok(file)
}

fn is_recording(file: &File) -> bool {
    let mut first = vec![];
    // What can't be read is no recording either.
    let _ = BufReader::new(file).take(1 << 20).read_until(b'\n', &mut first);
    matches!(serde_json::from_slice(&first), Ok(Line::Recording { .. }))
}

/// The system's words without the number that Rust puts behind them.
fn plainly(err: &io::Error) -> String {
    let text = err.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

/// One exchange on its way into the recording.
pub(in crate::provider) struct Track {
    recorder: Arc<Recorder>,
    n: u64,
    /// The beginning of a character whose end has not come.
    pending: Vec<u8>,
    text: Redacting,
    /// The body of a refusal, which is short and may tell whose account it is: looked at when all of it is there.
    refused: Option<Vec<u8>>,
}

impl Track {
    pub(in crate::provider) fn response(&mut self, status: u16, headers: &HeaderMap) {
        let is_open = |name: &str| {
            let is_secret = SECRET_HEADERS.iter().any(|word| name.contains(word));
            // How many tokens are left is no secret.
            !is_secret || name.contains("ratelimit")
        };
        let (n, at_ms, headers) = (self.n, self.recorder.now(), self.recorder.headers(headers, is_open));
        self.refused = (status >= 400).then(Vec::new);
        self.recorder.line(&Line::Response { n, at_ms, status, headers });
    }

    /// Takes a piece of the body.
    pub(in crate::provider) fn data(&mut self, piece: &[u8]) {
        if let Some(refused) = &mut self.refused {
            refused.extend_from_slice(piece);
            return;
        }
        self.body(piece);
    }

    fn body(&mut self, piece: &[u8]) {
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
        if let Some(refused) = self.refused.take() {
            let text = self.recorder.clean(&String::from_utf8_lossy(&refused));
            self.body(text.as_bytes());
        }
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
            let at_ms = self.recorder.now();
            self.recorder.line(&Line::Data { n: self.n, at_ms, text: Some(text), base64: None });
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

/// An address without the login and the query, both of which may hold keys. A recording needs neither.
fn bare(url: &str) -> String {
    let Ok(mut url) = reqwest::Url::parse(url) else { return String::new() };
    // Only addresses that cannot have a login refuse to lose it.
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    url.set_query(None);
    url.into()
}

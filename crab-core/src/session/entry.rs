//! The lines of a session file: what an entry is, and how it is written and read.

use std::borrow::Cow;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize};

use crate::changes::Changed;
use crate::message::{Assistant, Part, ToolResult, Usage};
use crate::protocol::{By, Decision};
use crate::redact::Secrets;
use crate::stamp;

/// The version of the file's form that this crab writes, and the newest that it reads.
pub(super) const VERSION: u64 = 1;

/// The first line of a session file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) version: u64,
    pub(super) id: String,
    pub(super) cwd: String,
    pub(super) created: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) forked_from: Option<String>,
}

impl Header {
    pub(super) fn new(cwd: &Path) -> Self {
        Self {
            version: VERSION,
            id: stamp::id(),
            cwd: cwd.to_string_lossy().into_owned(),
            created: stamp::now(),
            forked_from: None,
        }
    }

    /// The line as it is written, its end included.
    pub(super) fn encode(&self) -> Result<String, serde_json::Error> {
        #[derive(Serialize)]
        struct Line<'a> {
            r#type: &'static str,
            #[serde(flatten)]
            header: &'a Header,
        }
        one_line(&Line { r#type: "session", header: self })
    }
}

/// One line of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Unique within the session.
    pub id: String,
    /// The entry that it follows; `None` for the first.
    pub parent_id: Option<String>,
    /// When it was made, RFC 3339.
    pub time: String,
    /// What it says.
    pub body: Body,
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Body {
    /// A prompt.
    User {
        /// What the user said.
        content: Vec<Part>,
    },
    /// A message of the model.
    Assistant(Assistant),
    /// The answer to a call.
    ToolResult(ToolResult),
    /// From here on this model is asked.
    Model {
        /// The provider's name in the configuration.
        provider: String,
        /// The model.
        model: String,
    },
    /// What was decided about a call.
    Permission {
        /// The call.
        tool_call_id: String,
        /// The tool.
        name: String,
        /// The decision.
        decision: Decision,
        /// Who decided.
        by: By,
    },
    /// What the session is about, in a few words.
    Title {
        /// The words.
        text: String,
    },
    /// Something that a later reader should know; not part of the conversation.
    Note {
        /// What it is.
        text: String,
        /// What programs read in it.
        #[serde(flatten)]
        facts: Facts,
    },
    /// An entry that this crab cannot read. It stays in the file; it is never written.
    #[serde(skip)]
    Unknown {
        /// Its type.
        kind: String,
    },
}

/// What a note says to programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The numbers of the lines that were found damaged, and that later readers need not report again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped_lines: Vec<u64>,
    /// At the end of a turn: what the session came to by then, so that a list need not read all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub totals: Option<Box<Totals>>,
    /// Behind the result of a call: the files that it changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<Changed>,
    /// Where the conversation was taken back: the entry behind which it went on before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undone: Option<String>,
}

/// What a session came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Prompts.
    pub turns: u64,
    /// Tokens and money of all requests, as far as the services told.
    pub usage: Usage,
    /// What it is about, when somebody said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

impl Totals {
    /// Counts an entry.
    pub(super) fn add(&mut self, body: &Body) {
        match body {
            Body::User { .. } => self.turns += 1,
            Body::Assistant(message) => self.usage.add(&message.usage),
            Body::Title { text } => self.title = Some(text.clone()),
            _ => {}
        }
    }
}

impl Body {
    /// A note.
    pub fn note(text: impl Into<String>) -> Self {
        Self::noting(text, Facts::default())
    }

    /// A note with something for programs in it.
    pub fn noting(text: impl Into<String>, facts: Facts) -> Self {
        Self::Note { text: text.into(), facts }
    }

    /// The word for it in the file.
    pub fn kind(&self) -> &str {
        match self {
            Self::User { .. } => "user",
            Self::Assistant(_) => "assistant",
            Self::ToolResult(_) => "tool_result",
            Self::Model { .. } => "model",
            Self::Permission { .. } => "permission",
            Self::Title { .. } => "title",
            Self::Note { .. } => "note",
            Self::Unknown { kind } => kind,
        }
    }

    /// Takes the secrets out of what people, models and tools said. The fields that hold the file together stay, even
    /// when somebody's key is the word `assistant`.
    pub(super) fn redact(&mut self, secrets: &Secrets) {
        match self {
            Self::User { content } => secrets.redact_parts(content),
            Self::Assistant(message) => secrets.redact_assistant(message),
            Self::ToolResult(result) => secrets.redact_parts(&mut result.content),
            Self::Title { text } => secrets.redact_string(text),
            Self::Note { text, facts } => {
                secrets.redact_string(text);
                facts
                    .totals
                    .iter_mut()
                    .filter_map(|totals| totals.title.as_mut())
                    .for_each(|title| secrets.redact_string(title));
            }
            Self::Model { .. } | Self::Permission { .. } | Self::Unknown { .. } => {}
        }
    }
}

impl Entry {
    /// The line as it is written, its end included.
    pub(super) fn encode(&self) -> Result<String, serde_json::Error> {
        #[derive(Serialize)]
        struct Line<'a> {
            r#type: &'a str,
            id: &'a str,
            parent_id: Option<&'a str>,
            time: &'a str,
            #[serde(flatten)]
            body: &'a Body,
        }
        one_line(&Line {
            r#type: self.body.kind(),
            id: &self.id,
            parent_id: self.parent_id.as_deref(),
            time: &self.time,
            body: &self.body,
        })
    }
}

/// JSON on one physical line, also for readers that end a line at U+0085, U+2028 or U+2029. In JSON text these stand
/// in strings only, where they can be escaped.
fn one_line(value: &impl Serialize) -> Result<String, serde_json::Error> {
    let mut line = serde_json::to_string(value)?;
    for (raw, escaped) in [('\u{85}', "\\u0085"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")] {
        if line.contains(raw) {
            line = line.replace(raw, escaped);
        }
    }
    line.push('\n');
    Ok(line)
}

/// A line that was read.
pub(super) enum Line {
    Header(Header),
    Entry {
        entry: Entry,
        /// False when the line has no `parent_id` at all.
        placed: bool,
        /// Why the body of a known type could not be read.
        trouble: Option<String>,
    },
    /// JSON, but without an id it has no place in the conversation.
    Placeless {
        kind: String,
    },
}

/// Reads a line. `Err` says why it is none.
pub(super) fn decode(line: &[u8]) -> Result<Line, String> {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
        id: Option<String>,
        #[serde(default, deserialize_with = "present")]
        parent_id: Option<Option<String>>,
        time: Option<String>,
    }
    if let Some(entry) = as_written(line) {
        return Ok(Line::Entry { entry, placed: true, trouble: None });
    }
    let head: Head<'_> = serde_json::from_slice(line).map_err(|err| plain(&err))?;
    if head.r#type == "session" {
        return serde_json::from_slice(line).map(Line::Header).map_err(|err| plain(&err));
    }
    let Some(id) = head.id.filter(|id| !id.is_empty()) else {
        return Ok(Line::Placeless { kind: head.r#type.into_owned() });
    };
    let (body, trouble) = match body(&head.r#type, line) {
        Ok(body) => (body, None),
        Err(err) => (None, Some(plain(&err))),
    };
    let body = body.unwrap_or_else(|| Body::Unknown { kind: head.r#type.into_owned() });
    let placed = head.parent_id.is_some();
    let entry = Entry { id, parent_id: head.parent_id.flatten(), time: head.time.unwrap_or_default(), body };
    Ok(Line::Entry { entry, placed, trouble })
}

/// An entry in the form in which crab itself writes it, whose line is gone through once and not twice. Anything else is
/// read the long way.
fn as_written(line: &[u8]) -> Option<Entry> {
    /// What stands up to the next quote, without escapes, and what follows.
    fn text(line: &[u8]) -> Option<(&str, &[u8])> {
        let end = line.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        let rest = line[end..].strip_prefix(b"\"")?;
        Some((std::str::from_utf8(&line[..end]).ok()?, rest))
    }
    let (kind, rest) = text(line.strip_prefix(b"{\"type\":\"")?)?;
    let (id, rest) = text(rest.strip_prefix(b",\"id\":\"")?)?;
    let rest = rest.strip_prefix(b",\"parent_id\":")?;
    let (parent_id, rest) = match rest.strip_prefix(b"null") {
        Some(rest) => (None, rest),
        None => text(rest.strip_prefix(b"\"")?).map(|(id, rest)| (Some(id.to_owned()), rest))?,
    };
    let (time, _) = text(rest.strip_prefix(b",\"time\":\"")?)?;
    let body = body(kind, line).ok()??;
    (!id.is_empty()).then(|| Entry { id: id.to_owned(), parent_id, time: time.to_owned(), body })
}

/// Tells a field that is null from one that is missing.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// `Ok(None)`: a type that this crab does not know.
fn body(kind: &str, line: &[u8]) -> Result<Option<Body>, serde_json::Error> {
    #[derive(Deserialize)]
    struct User {
        content: Vec<Part>,
    }
    #[derive(Deserialize)]
    struct Model {
        provider: String,
        model: String,
    }
    #[derive(Deserialize)]
    struct Permission {
        tool_call_id: String,
        name: String,
        decision: Decision,
        by: By,
    }
    #[derive(Deserialize)]
    struct Text {
        text: String,
        #[serde(flatten)]
        facts: Facts,
    }
    let read = |user: User| Body::User { content: user.content };
    Ok(Some(match kind {
        "user" => read(serde_json::from_slice(line)?),
        "assistant" => Body::Assistant(serde_json::from_slice(line)?),
        "tool_result" => Body::ToolResult(serde_json::from_slice(line)?),
        "model" => {
            let Model { provider, model } = serde_json::from_slice(line)?;
            Body::Model { provider, model }
        }
        "permission" => {
            let Permission { tool_call_id, name, decision, by } = serde_json::from_slice(line)?;
            Body::Permission { tool_call_id, name, decision, by }
        }
        "title" => Body::Title { text: serde_json::from_slice::<Text>(line)?.text },
        "note" => {
            let Text { text, facts } = serde_json::from_slice(line)?;
            Body::Note { text, facts }
        }
        _ => return Ok(None),
    }))
}

/// The parser's words without its "at line 1", which would name the wrong line of the file.
fn plain(err: &serde_json::Error) -> String {
    let text = err.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    format!("{}, column {}", &text[..end], err.column())
}

//! What a tool is, and the list of those that crab has.

mod bash;
mod edit;
mod glob;
mod grep;
mod read;
mod write;

use std::borrow::Cow;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::changes::Changes;
use crate::gate::Hidden;
pub use crate::gate::Permit;
use crate::message::Part;
use crate::process::Environment;
use crate::redact::{Secrets, occurrences};
use crate::seen::Seen;
use crate::text_file::TextFile;

/// What a call does to the world; decides what the gate does by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Changes nothing: runs unasked, side by side with its like.
    Read,
    /// Changes files: asks.
    Write,
    /// Runs a program: asks.
    Execute,
    /// Reaches the network: asks.
    Network,
}

/// What the gate must know about one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// What it does to the world.
    pub kind: Kind,
    /// What rules match against: each simple command of a shell line, or each spelling of a path (relative to the
    /// working directory where it lies below it, links resolved and not). A deny rule bites when it matches any of
    /// them, an allow rule only when it matches all.
    pub subjects: Vec<String>,
    /// Parts of the call that only read: a deny or ask rule bites on them too, an allow rule need not match them.
    pub reads: Vec<String>,
    /// True when the subjects do not tell everything (substitutions, redirections): no allow rule with a pattern matches.
    pub opaque: bool,
    /// What the answer "a" grants for the session, in words, such as "every write and edit". Calls with an equal
    /// class share the grant.
    pub class: String,
}

/// What a person sees of a call or its result. Renderers look at this and never at a tool's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "view", rename_all = "snake_case")]
pub enum View {
    /// One line, such as "120 lines".
    Line {
        /// The line.
        text: String,
    },
    /// The change of one file.
    Diff {
        /// The file as the user knows it.
        path: String,
        /// The hunks of a unified diff with three lines of context; over 200 KB its middle is left out, and says so.
        diff: String,
        /// Lines added.
        added: usize,
        /// Lines removed.
        removed: usize,
    },
    /// A command that will run or ran.
    Command {
        /// The whole command.
        command: String,
        /// How it ended, such as "exit 0"; empty before it ran.
        outcome: String,
    },
}

/// What a call gives back.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// For the model; never empty.
    pub content: Vec<Part>,
    /// For a person.
    pub view: View,
}

impl Output {
    /// Text for the model and one line for a person.
    pub fn text(text: impl Into<String>, line: impl Into<String>) -> Self {
        Self { content: vec![Part::text(text)], view: View::Line { text: line.into() } }
    }
}

/// Where a call's live output goes. May be called from any thread; never blocks.
pub type Sink = Arc<dyn Fn(&str) + Send + Sync>;

/// What a call may use. Cheap to clone.
#[derive(Clone)]
pub struct Cx {
    /// The session's working directory, absolute.
    pub cwd: PathBuf,
    /// What was read and written in this session.
    pub seen: Arc<Seen>,
    /// What its calls change, with what was there before.
    pub changes: Arc<Changes>,
    /// Cancelled when the turn is aborted: end soon, the caller drops the call after a short grace.
    pub cancel: CancellationToken,
    /// Live output for a person.
    pub output: Sink,
    /// What commands find in their environment, and the guard that ends them with crab.
    pub environment: Arc<Environment>,
    /// A folder for output that is too long for a result; made on first use, may be on a full disk.
    pub spill: PathBuf,
    /// Paths that a search leaves out because a deny rule keeps them from what reads; `None`: nothing.
    pub hidden: Option<Hidden>,
    /// What must be taken out of everything that a call writes down by itself.
    pub secrets: Arc<Secrets>,
}

/// The future of a call.
pub type Running<'a> = Pin<Box<dyn Future<Output = Result<Output, String>> + Send + 'a>>;

/// Something that the model can call.
///
/// `access`, `title` and `preview` get arguments that may not fit the schema, and must not panic or touch anything.
/// `run` checks its arguments itself: what was received, what is expected and how to go on belong into its error,
/// which goes to the model and never ends the turn. A panic in `run` is a failed call.
pub trait Tool: Send + Sync + 'static {
    /// The name that the model uses: `[a-zA-Z0-9_-]{1,64}`.
    fn name(&self) -> &str;
    /// What it does, its limits and what its errors mean, for a model that has never seen it.
    fn description(&self) -> &str;
    /// The JSON schema of its arguments, an object. The same bytes at every call.
    fn schema(&self) -> Value;
    /// What this call does to the world. `cwd` is the session's working directory.
    fn access(&self, arguments: &Value, cx: &Cx) -> Access;
    /// One line that tells a person what this call does.
    fn title(&self, arguments: &Value) -> String;
    /// The whole of what will run or change, for the question. Reads files, so it may block.
    fn preview(&self, arguments: &Value, cx: &Cx) -> View {
        let _ = cx;
        View::Line { text: self.title(arguments) }
    }
    /// The arguments with another command in them, for a tool whose calls are commands that a person can change before
    /// they run; `None`: it is not one.
    fn edited(&self, arguments: &Value, command: &str) -> Option<Value> {
        let _ = (arguments, command);
        None
    }
    /// Runs the call. Heavy work belongs into `spawn_blocking`.
    fn run<'a>(&'a self, arguments: Value, permit: Permit, cx: Cx) -> Running<'a>;
}

/// The tools of crab, in the fixed order in which the model gets them.
pub fn all() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(read::Read),
        Arc::new(write::Write),
        Arc::new(edit::Edit),
        Arc::new(bash::Bash),
        Arc::new(glob::Glob),
        Arc::new(grep::Grep),
    ]
}

/// Parses a call's arguments, or says what was received and what is expected.
pub(crate) fn parse<T: serde::de::DeserializeOwned>(tool: &dyn Tool, arguments: Value) -> Result<T, String> {
    let received = arguments.to_string();
    serde_json::from_value(arguments).map_err(|err| {
        let received = crate::clip::middle(&received, 2_000);
        format!(
            "the arguments of `{}` do not fit: {err}\nreceived: {received}\nexpected, as a JSON schema: {}",
            tool.name(),
            tool.schema()
        )
    })
}

/// Runs what blocks beside the loop. A panic goes on here: the caller makes a failed call of it.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(err) if err.is_panic() => std::panic::resume_unwind(err.into_panic()),
        Err(_) => Err("interrupted: crab is ending".into()),
    }
}

/// Refuses a change that would put a stand-in, which `read` shows for what it cannot show, over what it stands for. To
/// write about a stand-in, or to copy one, destroys nothing.
pub(crate) fn keeps_what_was_hidden(
    old: &[u8],
    new: &[u8],
    shown: &str,
    secrets: &Secrets,
) -> Result<(), String> {
    // UTF-16 has NUL bytes in every other place, and keys that are not seen byte by byte.
    let (old, new) = (text_of_file(old), text_of_file(new));
    if let Some(mark) = secrets.mark_put_into(&old, &new) {
        return Err(format!(
            "nothing was written to `{shown}`: `{mark}` stands for a key that is not shown, and writing it down would \
             destroy the key; use `edit` for the other lines and leave this one alone"
        ));
    }
    let more = |sign: &str| occurrences(&new, sign).cmp(&occurrences(&old, sign));
    if more("\u{2400}").is_gt() && more("\0").is_lt() {
        return Err(format!(
            "nothing was written to `{shown}`: U+2400 stands for NUL bytes that `read` cannot show, and they would be \
             lost; use `edit` for the lines without them"
        ));
    }
    Ok(())
}

fn text_of_file(bytes: &[u8]) -> Cow<'_, [u8]> {
    TextFile::decode(bytes).map_or(Cow::Borrowed(bytes), |file| file.body)
}

/// The path among arguments that may not fit, in the spellings that models use for it.
pub(crate) fn path_argument(arguments: &Value) -> Option<&str> {
    ["path", "file_path"].iter().find_map(|key| arguments[key].as_str())
}

/// The access of a call that touches one path.
pub(crate) fn path_access(kind: Kind, class: &str, arguments: &Value, cx: &Cx) -> Access {
    let subjects = path_argument(arguments).map(|path| crate::paths::subjects(&cx.cwd, path));
    Access {
        kind,
        reads: vec![],
        opaque: subjects.is_none(),
        subjects: subjects.unwrap_or_default(),
        class: class.to_owned(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A folder with files, and what a tool needs to work there.
    pub(crate) struct Folder {
        dir: tempfile::TempDir,
        pub(crate) cx: Cx,
    }

    impl Folder {
        pub(crate) fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let cx = Cx {
                cwd: dir.path().canonicalize().unwrap(),
                seen: Arc::default(),
                changes: Arc::default(),
                cancel: CancellationToken::new(),
                output: Arc::new(|_| {}),
                environment: Arc::default(),
                spill: dir.path().join("spill"),
                hidden: None,
                secrets: Arc::default(),
            };
            Self { dir, cx }
        }

        pub(crate) fn path(&self, name: &str) -> PathBuf {
            self.cx.cwd.join(name)
        }

        pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) {
            let path = self.path(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }

        pub(crate) fn get(&self, name: &str) -> Vec<u8> {
            std::fs::read(self.path(name)).unwrap()
        }

        /// Every name in the folder itself.
        pub(crate) fn names(&self) -> Vec<String> {
            let entries = self.dir.path().read_dir().unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }

        pub(crate) fn run(&self, tool: &dyn Tool, arguments: Value) -> Result<Output, String> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(tool.run(arguments, Permit::for_tests(), self.cx.clone()))
        }
    }

    /// What a tool costs in each request.
    pub(crate) fn description_bytes(tool: &dyn Tool) -> usize {
        tool.name().len() + tool.description().len() + tool.schema().to_string().len()
    }
}

//! Reads a session file as far as it can be read, and says what could not.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, BufRead};
use std::path::Path;
use std::sync::Arc;

use super::Error;
use super::entry::{self, Body, Entry, Facts, Header, Line, Totals, VERSION};

/// The entries of a session and how they hang together.
#[derive(Default)]
pub(super) struct Tree {
    /// In the order of the file.
    pub(super) entries: Vec<Arc<Entry>>,
    /// For each entry the index of the one that it follows; always a smaller one, so there are no rings.
    parents: Vec<Option<usize>>,
    by_id: HashMap<String, usize>,
    leaf: Option<usize>,
    /// What all branches came to.
    pub(super) totals: Totals,
}

impl Tree {
    pub(super) fn push(&mut self, entry: Entry, parent: Option<usize>) -> Arc<Entry> {
        let entry = Arc::new(entry);
        let index = self.entries.len();
        self.totals.add(&entry.body);
        self.by_id.insert(entry.id.clone(), index);
        // What cannot be read is no end of a conversation: a line of another program must not hide what was said.
        if !matches!(entry.body, Body::Unknown { .. }) {
            self.leaf = Some(index);
        }
        self.entries.push(entry.clone());
        self.parents.push(parent);
        entry
    }

    /// The index of the entry that this one follows.
    pub(super) fn parent(&self, index: usize) -> Option<usize> {
        self.parents[index]
    }

    /// The index of an entry.
    pub(super) fn index(&self, id: &str) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    /// The next entry follows this one. False when there is no such entry.
    pub(super) fn go_to(&mut self, id: &str) -> bool {
        let found = self.by_id.get(id).copied();
        self.leaf = found.or(self.leaf);
        found.is_some()
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    /// The entry that the next one follows.
    pub(super) fn leaf(&self) -> Option<usize> {
        self.leaf
    }

    /// From the root to the newest leaf, without what cannot be read.
    pub(super) fn path(&self) -> Vec<Arc<Entry>> {
        let mut path = Vec::new();
        let mut next = self.leaf;
        while let Some(index) = next {
            let entry = &self.entries[index];
            if !matches!(entry.body, Body::Unknown { .. }) {
                path.push(entry.clone());
            }
            next = self.parents[index];
        }
        path.reverse();
        path
    }
}

/// A session file as it was read.
pub(super) struct Loaded {
    pub(super) header: Header,
    pub(super) tree: Tree,
    /// The last line has no end: what is written next must begin with one.
    pub(super) open_end: bool,
    pub(super) warnings: Vec<String>,
    /// The lines that were skipped and not reported in an earlier run.
    pub(super) skipped: Vec<u64>,
}

/// Reads a session; `Ok(None)` when there is nothing but blank lines.
pub(super) fn load(mut reader: impl BufRead, file: &Path) -> Result<Option<Loaded>, Error> {
    let mut state = State::default();
    let mut buffer = Vec::new();
    let mut open_end = false;
    for number in 1.. {
        buffer.clear();
        let length = reader.read_until(b'\n', &mut buffer).map_err(|source| read_error(file, source))?;
        if length == 0 {
            break;
        }
        open_end = buffer.last() != Some(&b'\n');
        state.line(number, &buffer, open_end).map_err(|why| why.into_error(file))?;
    }
    let Some(header) = state.header.take() else { return Ok(None) };
    let (warnings, skipped) = state.report(file);
    Ok(Some(Loaded { header, tree: state.tree, open_end, warnings, skipped }))
}

/// Reads the first line of a session; `Ok(None)` when there is nothing in the file.
pub(super) fn load_header(reader: &mut impl BufRead, file: &Path) -> Result<Option<Header>, Error> {
    let mut state = State::default();
    let mut buffer = Vec::new();
    while state.header.is_none() {
        buffer.clear();
        let length = reader.read_until(b'\n', &mut buffer).map_err(|source| read_error(file, source))?;
        if length == 0 {
            return Ok(None);
        }
        let open_end = buffer.last() != Some(&b'\n');
        match state.line(1, &buffer, open_end) {
            // Crab was killed while it began the session: nothing was said in it.
            Err(Refusal::NotASession(_)) if open_end => return Ok(None),
            done => done.map_err(|why| why.into_error(file))?,
        }
    }
    Ok(state.header)
}

pub(super) fn read_error(file: &Path, source: io::Error) -> Error {
    Error::Read { file: file.to_path_buf(), source }
}

/// Why a file is not read at all.
enum Refusal {
    NotASession(String),
    Newer(u64),
}

impl Refusal {
    fn into_error(self, file: &Path) -> Error {
        let file = file.to_path_buf();
        match self {
            Self::NotASession(why) => Error::NotASession { file, why },
            Self::Newer(found) => Error::Newer { file, found, known: VERSION },
        }
    }
}

#[derive(Default)]
struct State {
    header: Option<Header>,
    tree: Tree,
    /// What is wrong with a line, by its number.
    problems: BTreeMap<u64, String>,
    unknown: BTreeSet<String>,
    /// The lines that a note of an earlier run names.
    reported: BTreeSet<u64>,
}

impl State {
    fn line(&mut self, number: u64, line: &[u8], open_end: bool) -> Result<(), Refusal> {
        // A crash of the machine can leave NUL bytes where a line was to be, in front of what was appended later.
        let text = line.trim_ascii();
        let text =
            text.strip_prefix(b"\xef\xbb\xbf".as_slice()).filter(|_| self.header.is_none()).unwrap_or(text);
        let start = text.iter().position(|byte| *byte != 0).unwrap_or(text.len());
        let nuls = start > 0;
        let text = text[start..].trim_ascii();
        if text.is_empty() && !nuls {
            return Ok(());
        }
        let decoded = if text.is_empty() { Err("only NUL bytes".into()) } else { entry::decode(text) };
        if self.header.is_none() {
            return self.first(decoded);
        }
        match decoded {
            Err(_) if open_end => {
                drop(self.problems.insert(number, "it is torn, the last write did not end".into()))
            }
            Err(why) => drop(self.problems.insert(number, why)),
            Ok(Line::Header(_)) => {
                drop(self.problems.insert(number, "it is the first line of a session".into()))
            }
            Ok(Line::Placeless { kind }) => drop(self.unknown.insert(kind)),
            Ok(Line::Entry { entry, placed, trouble }) => self.entry(number, entry, placed, trouble),
        }
        Ok(())
    }

    fn first(&mut self, decoded: Result<Line, String>) -> Result<(), Refusal> {
        match decoded {
            Ok(Line::Header(header)) if header.version > VERSION => Err(Refusal::Newer(header.version)),
            // The id becomes a folder's name and a variable of commands.
            Ok(Line::Header(header)) if !is_id(&header.id) => Err(Refusal::NotASession(
                "its id has other characters than letters, digits, `-` and `_`".into(),
            )),
            Ok(Line::Header(header)) => {
                self.header = Some(header);
                Ok(())
            }
            Ok(_) => Err(Refusal::NotASession("its first line is not of the type `session`".into())),
            Err(why) => Err(Refusal::NotASession(format!("its first line cannot be read: {why}"))),
        }
    }

    fn entry(&mut self, number: u64, entry: Entry, placed: bool, trouble: Option<String>) {
        if let Body::Note { facts: Facts { skipped_lines, .. }, .. } = &entry.body {
            self.reported.extend(skipped_lines);
        }
        match (&entry.body, trouble) {
            (Body::Unknown { kind }, Some(why)) => {
                self.problems.insert(number, format!("its `{kind}` entry cannot be read: {why}"));
            }
            (Body::Unknown { kind }, None) => drop(self.unknown.insert(kind.clone())),
            _ => {}
        }
        let parent = self.parent(number, &entry, placed);
        self.tree.push(entry, parent);
    }

    /// Where an entry hangs. One without a known parent follows the line before it, so that nothing that was said is lost.
    fn parent(&mut self, number: u64, entry: &Entry, placed: bool) -> Option<usize> {
        let before = self.tree.entries.len().checked_sub(1);
        let known = entry.parent_id.as_ref().map(|id| self.tree.by_id.get(id).copied());
        match known {
            Some(Some(parent)) => Some(parent),
            // The first prompt may be said anew, which makes a second root; anything else without a parent is astray.
            None if placed && (before.is_none() || starts_a_conversation(&entry.body)) => None,
            None if matches!(entry.body, Body::Unknown { .. }) => before,
            _ => {
                let why = "its parent is not in the file: it is taken to follow the line before it";
                self.problems.entry(number).or_insert_with(|| why.into());
                before
            }
        }
    }

    fn report(&self, file: &Path) -> (Vec<String>, Vec<u64>) {
        let file = file.display();
        let fresh: Vec<_> =
            self.problems.iter().filter(|(number, _)| !self.reported.contains(number)).collect();
        let warn = |(number, why): &(&u64, &String)| {
            let done = if why.starts_with("its parent") { "" } else { "was skipped: " };
            format!("line {number} of the session file `{file}` {done}{why}")
        };
        let mut warnings: Vec<String> = fresh.iter().take(5).map(warn).collect();
        if let Some(more) = fresh.len().checked_sub(5).filter(|more| *more > 0) {
            warnings.push(format!("{more} more lines of the session file `{file}` are damaged"));
        }
        if !self.unknown.is_empty() {
            let kinds: Vec<String> = self.unknown.iter().map(|kind| format!("`{kind}`")).collect();
            let kinds = kinds.join(", ");
            warnings.push(format!(
                "the session file `{file}` has entries of a type that this crab does not know ({kinds}): they were skipped and stay in the file"
            ));
        }
        (warnings, fresh.into_iter().map(|(number, _)| *number).collect())
    }
}

fn starts_a_conversation(body: &Body) -> bool {
    matches!(body, Body::User { .. } | Body::Model { .. })
}

fn is_id(id: &str) -> bool {
    (1..=64).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

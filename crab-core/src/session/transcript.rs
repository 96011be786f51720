//! A session that is only read: to show it, to export it, to look for words in it.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::Error;
use super::entry::{Body, Entry, Totals};
use super::list::{Listed, list};
use super::load::{load, load_header, read_error};
use super::turns::{Turn, turns};
use crate::home::Home;
use crate::message::text_of;

/// A session as it stands in its file, which may be in use.
#[derive(Clone, Debug)]
pub struct Transcript {
    /// Its id.
    pub id: String,
    /// The directory in which it was begun.
    pub cwd: String,
    /// When it was begun, RFC 3339.
    pub created: String,
    /// The conversation: from the root to the newest leaf.
    pub entries: Vec<Arc<Entry>>,
    /// Every turn, over all branches.
    pub turns: Vec<Turn>,
    /// What it came to.
    pub totals: Totals,
    /// What could not be read.
    pub warnings: Vec<String>,
}

impl Transcript {
    /// Reads a session.
    ///
    /// # Errors
    /// The file cannot be read, or is no session.
    pub fn read(file: &Path) -> Result<Self, Error> {
        // Opening a pipe would wait for its other end.
        if file.metadata().map_err(|err| read_error(file, err))?.is_file() {
            let handle = File::open(file).map_err(|err| read_error(file, err))?;
            if let Some(loaded) = load(BufReader::with_capacity(1 << 16, handle), file)? {
                let (entries, turns) = (loaded.tree.path(), turns(&loaded.tree));
                let (header, totals, warnings) = (loaded.header, loaded.tree.totals, loaded.warnings);
                return Ok(Self {
                    id: header.id,
                    cwd: header.cwd,
                    created: header.created,
                    entries,
                    turns,
                    totals,
                    warnings,
                });
            }
        }
        Err(Error::NotASession { file: file.to_path_buf(), why: "it is empty, or no regular file".into() })
    }

    /// What somebody called it, or else how it begins.
    pub fn title(&self) -> String {
        let prompt = self.entries.iter().find_map(|entry| match &entry.body {
            Body::User { content } => Some(text_of(content)),
            _ => None,
        });
        self.totals.title.clone().or(prompt).unwrap_or_default()
    }

    /// Each entry as it stands in the file.
    ///
    /// # Errors
    /// None that a value which came out of JSON could cause.
    pub fn to_json(&self) -> Result<Vec<Value>, serde_json::Error> {
        self.entries.iter().map(|entry| serde_json::from_str(&entry.encode()?)).collect()
    }
}

/// Removes a session, with the output of its commands that did not fit into results and the contents that its calls
/// replaced. Gives its id.
///
/// # Errors
/// It is in use, it is no session, or the system does not let it go.
pub fn remove(home: &Home, file: &Path) -> Result<String, Error> {
    let handle = File::options().read(true).append(true).open(file).map_err(|err| read_error(file, err))?;
    // A warning that the file system has no locks is no reason to keep it.
    drop(super::lock::lock(&handle, file)?);
    let id = match load_header(&mut BufReader::new(&handle), file)? {
        Some(header) => header.id,
        None => file.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
    };
    let failed = |source| Error::Write { file: file.to_path_buf(), source };
    std::fs::remove_file(file).map_err(failed)?;
    for folder in [home.outputs_dir(&id), home.undo_dir(&id)] {
        match std::fs::remove_dir_all(folder) {
            Err(err) if err.kind() != std::io::ErrorKind::NotFound => return Err(failed(err)),
            _ => {}
        }
    }
    Ok(id)
}

/// Where a session has the words that were looked for.
#[derive(Clone, Debug)]
pub struct Found {
    /// The session.
    pub session: Listed,
    /// Who said it: `user`, `assistant`, `tool_result` or `title`.
    pub kind: String,
    /// The line of text that has it.
    pub line: String,
}

/// Looks for words in what was said in all sessions, or in those of one directory; upper and lower case are the same. The
/// newest session comes first, and of each so many places at most.
///
/// # Errors
/// The folder cannot be read. The second list tells which files could not.
pub fn search(
    home: &Home,
    cwd: Option<&Path>,
    words: &str,
    most: usize,
) -> Result<(Vec<Found>, Vec<String>), Error> {
    let (sessions, mut warnings) = list(home, cwd)?;
    let wanted = words.to_lowercase();
    let raw = raw(words);
    let may_hold = |bytes: &[u8]| raw.as_ref().is_none_or(|raw| raw.is_match(bytes));
    let mut found = vec![];
    for session in sessions {
        // Most files do not have it, and need not be taken apart.
        let bytes = match std::fs::read(&session.file) {
            Ok(bytes) => bytes,
            Err(err) => {
                warnings.push(read_error(&session.file, err).to_string());
                continue;
            }
        };
        let mut places = vec![];
        if !may_hold(&bytes) {
            continue;
        }
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| may_hold(line)) {
            let Some((kind, text)) = said(line) else { continue };
            let hits = text.lines().filter(|line| line.to_lowercase().contains(&wanted));
            places.extend(hits.map(|line| (kind.clone(), line.to_owned())));
            if places.len() >= most {
                break;
            }
        }
        let places = places.into_iter().take(most);
        found.extend(places.map(|(kind, line)| Found { session: session.clone(), kind, line }));
    }
    Ok((found, warnings))
}

/// What a line has in it that has these words, as far as that can be told without taking the line apart.
fn raw(words: &str) -> Option<regex::bytes::Regex> {
    // Everything else may stand there in another form.
    let is_plain =
        words.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') && !words.contains(['"', '\\']);
    let pattern = regex::escape(words);
    let built = regex::bytes::RegexBuilder::new(&pattern).case_insensitive(true).build();
    built.ok().filter(|_| is_plain)
}

/// Who said what in this line of a file.
fn said(line: &[u8]) -> Option<(String, String)> {
    let super::entry::Line::Entry { entry, .. } = super::entry::decode(line).ok()? else { return None };
    let text = match &entry.body {
        Body::User { content } => text_of(content),
        Body::Assistant(message) => message.text(),
        Body::ToolResult(result) => text_of(&result.content),
        Body::Title { text } => text.clone(),
        _ => return None,
    };
    Some((entry.body.kind().to_owned(), text))
}

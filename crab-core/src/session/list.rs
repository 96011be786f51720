//! Finds sessions: the newest of a directory, one by its id, all of them.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::Error;
use super::entry::{self, Body, Header, Line};
use super::load::{load_header, read_error};
use crate::home::Home;
use crate::message::text_of;
use crate::paths;

/// A session as a list shows it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its id.
    pub id: String,
    /// The directory in which it was begun.
    pub cwd: String,
    /// When it was begun, RFC 3339.
    pub created: String,
    /// When it was last written to.
    pub modified: SystemTime,
    /// Its first prompt; empty when that is not near the beginning of the file.
    pub prompt: String,
    /// The file.
    pub file: PathBuf,
}

/// The newest session of a directory, `None` when it has none. One that cannot be read is given too, so that opening
/// it says why, rather than an older one being taken in its place.
pub fn latest(home: &Home, cwd: &Path) -> Result<Option<PathBuf>, Error> {
    let cwd = paths::canonical(cwd);
    for (_, file) in newest_first(files_in(&home.sessions_dir_for(&cwd))?) {
        match read_head(&file) {
            Ok(Some(head)) if head.header.cwd == cwd.to_string_lossy() => return Ok(Some(file)),
            Ok(_) => {}
            Err(Error::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            Err(_) => return Ok(Some(file)),
        }
    }
    Ok(None)
}

/// The session with this id, or the only one whose id begins like this, from any directory.
pub fn find(home: &Home, id: &str) -> Result<PathBuf, Error> {
    let wanted = id.trim().to_ascii_lowercase();
    let mut found = Vec::new();
    for (modified, file) in newest_first(all_files(home)?) {
        let name = id_in_name(&file);
        if name == wanted && !wanted.is_empty() {
            return Ok(file);
        }
        if name.starts_with(&wanted) && !wanted.is_empty() {
            found.push((modified, file));
        }
    }
    match found.len() {
        0 => Err(Error::Unknown { id: id.to_owned() }),
        1 => Ok(found.remove(0).1),
        _ => Err(Error::Ambiguous { prefix: id.to_owned(), candidates: candidates(&found) }),
    }
}

/// All sessions, newest first; `cwd` narrows them to one directory. The second list tells which files are no sessions.
pub fn list(home: &Home, cwd: Option<&Path>) -> Result<(Vec<Listed>, Vec<String>), Error> {
    let cwd = cwd.map(paths::canonical);
    let files = match &cwd {
        Some(cwd) => files_in(&home.sessions_dir_for(cwd))?,
        None => all_files(home)?,
    };
    let (mut sessions, mut warnings) = (Vec::new(), Vec::new());
    for (modified, file) in newest_first(files) {
        match read_head(&file) {
            Ok(Some(Head { header, prompt })) => {
                let Header { id, cwd, created, .. } = header;
                sessions.push(Listed { id, cwd, created, modified, prompt, file });
            }
            Ok(None) => {}
            Err(err) => warnings.push(err.to_string()),
        }
    }
    Ok((sessions, warnings))
}

fn candidates(found: &[(SystemTime, PathBuf)]) -> Vec<String> {
    let describe = |(_, file): &(SystemTime, PathBuf)| match read_head(file) {
        Ok(Some(Head { header, prompt })) => {
            let start: String = prompt.lines().next().unwrap_or_default().chars().take(50).collect();
            format!("{}  {}  {}  {start}", header.id, header.created, header.cwd)
        }
        _ => format!("{}  {}", id_in_name(file), file.display()),
    };
    found.iter().map(describe).collect()
}

/// The id as it stands in a file's name, behind the time.
fn id_in_name(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    stem.split_once('_').map_or(stem.clone(), |(_, id)| id.to_owned())
}

struct Head {
    header: Header,
    prompt: String,
}

/// The header and the first prompt; `Ok(None)` for a file in which nothing was said.
fn read_head(file: &Path) -> Result<Option<Head>, Error> {
    /// As much of a file as a list may cost.
    const LIMIT: u64 = 256 * 1024;
    let handle = File::open(file).map_err(|source| read_error(file, source))?;
    let mut reader = BufReader::new(handle.take(LIMIT));
    let Some(header) = load_header(&mut reader, file)? else { return Ok(None) };
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).map_err(|source| read_error(file, source))?;
    if rest.trim_ascii().is_empty() {
        return Ok(None);
    }
    let prompt = rest.split(|byte| *byte == b'\n').find_map(prompt_of).unwrap_or_default();
    Ok(Some(Head { header, prompt }))
}

fn prompt_of(line: &[u8]) -> Option<String> {
    match entry::decode(line) {
        Ok(Line::Entry { entry: entry::Entry { body: Body::User { content }, .. }, .. }) => {
            Some(text_of(&content))
        }
        _ => None,
    }
}

fn all_files(home: &Home) -> Result<Vec<(SystemTime, PathBuf)>, Error> {
    let mut files = Vec::new();
    for dir in read_dir(&home.sessions_dir())? {
        if dir.is_dir() {
            files.extend(files_in(&dir)?);
        }
    }
    Ok(files)
}

fn files_in(dir: &Path) -> Result<Vec<(SystemTime, PathBuf)>, Error> {
    let sessions =
        read_dir(dir)?.into_iter().filter(|file| file.extension().is_some_and(|end| end == "jsonl"));
    // A file that vanished since is not there; other faults show when it is read.
    let dated = sessions.filter_map(|file| {
        let meta = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        Some((meta.modified().unwrap_or(SystemTime::UNIX_EPOCH), file))
    });
    Ok(dated.collect())
}

fn newest_first(mut files: Vec<(SystemTime, PathBuf)>) -> Vec<(SystemTime, PathBuf)> {
    files.sort_by(|a, b| b.cmp(a));
    files
}

/// What is in a folder; nothing when it does not exist.
fn read_dir(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match std::fs::read_dir(dir) {
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        entries => entries.map_err(|source| read_error(dir, source))?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    paths.collect::<Result<_, _>>().map_err(|source| read_error(dir, source))
}

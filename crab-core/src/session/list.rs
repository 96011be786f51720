//! Finds sessions: the newest of a directory, one by its id, all of them.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::Error;
use super::entry::{self, Body, Facts, Header, Line, Totals};
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
    /// What it came to.
    pub totals: Totals,
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
            Ok(Some(Head { header, prompt, handle })) => {
                let Header { id, cwd, created, .. } = header;
                let totals = totals(&handle).map_err(|source| read_error(&file, source))?;
                sessions.push(Listed { id, cwd, created, modified, prompt, totals, file });
            }
            Ok(None) => {}
            Err(err) => warnings.push(err.to_string()),
        }
    }
    Ok((sessions, warnings))
}

fn candidates(found: &[(SystemTime, PathBuf)]) -> Vec<String> {
    let describe = |(_, file): &(SystemTime, PathBuf)| match read_head(file) {
        Ok(Some(Head { header, prompt, .. })) => {
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
    handle: File,
}

/// The header and the first prompt; `Ok(None)` for a file in which nothing was said.
fn read_head(file: &Path) -> Result<Option<Head>, Error> {
    /// As much of a file as a list may cost.
    const LIMIT: u64 = 256 * 1024;
    /// Where the first prompt mostly is.
    const NEAR: usize = 4 * 1024;
    let handle = File::open(file).map_err(|source| read_error(file, source))?;
    let mut reader = BufReader::with_capacity(NEAR, (&handle).take(LIMIT));
    let Some(header) = load_header(&mut reader, file)? else { return Ok(None) };
    let (mut line, mut is_empty) = (Vec::new(), true);
    loop {
        line.clear();
        let length = reader.read_until(b'\n', &mut line).map_err(|source| read_error(file, source))?;
        is_empty &= line.trim_ascii().is_empty();
        if length == 0 {
            break;
        }
        if let Some(prompt) = prompt_of(&line) {
            return Ok(Some(Head { header, prompt, handle }));
        }
    }
    Ok((!is_empty).then_some(Head { header, prompt: String::new(), handle }))
}

/// What a session came to: the newest line that says so, which is the last but for what a turn that was killed left, and
/// what stands behind it. Without one the whole file is read.
fn totals(file: &File) -> std::io::Result<Totals> {
    /// Most sessions are not longer, and most turns' last lines neither.
    const FIRST: u64 = 2 * 1024;
    let length = file.metadata()?.len();
    let mut size = FIRST;
    loop {
        let from = length.saturating_sub(size);
        let mut bytes = vec![0; usize::try_from(length - from).unwrap_or(usize::MAX)];
        let read = read_at(file, &mut bytes, from)?;
        // The first line is cut, unless it is that of the file.
        let start = if from == 0 { 0 } else { bytes.iter().position(|byte| *byte == b'\n').unwrap_or(read) };
        if let Some(totals) = totals_in(&bytes[start..read], from == 0) {
            return Ok(totals);
        }
        size = size.saturating_mul(16);
    }
}

fn read_at(file: &File, bytes: &mut [u8], from: u64) -> std::io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], from + read as u64) {
            // It has become shorter meanwhile, which only another program can do.
            Ok(0) => break,
            Ok(more) => read += more,
            Err(err) if err.kind() == std::io::ErrorKind::Interrupted => {}
            Err(err) => return Err(err),
        }
    }
    Ok(read)
}

/// `None` when these lines do not say what was before them.
fn totals_in(lines: &[u8], is_all: bool) -> Option<Totals> {
    let mut behind = vec![];
    let mut totals = None;
    for line in lines.rsplit(|byte| *byte == b'\n') {
        // Results of tools are the most of a session, and count nothing.
        if !COUNTED.iter().any(|kind| line.starts_with(kind)) {
            continue;
        }
        match body_of(line) {
            Some(Body::Note { facts: Facts { totals: Some(found), .. }, .. }) => {
                totals = Some(*found);
                break;
            }
            Some(body) => behind.push(body),
            None => {}
        }
    }
    let mut totals = totals.or_else(|| is_all.then(Totals::default))?;
    behind.iter().rev().for_each(|body| totals.add(body));
    Some(totals)
}

/// How the lines that count begin, as crab writes them.
const COUNTED: [&[u8]; 4] =
    [b"{\"type\":\"user\"", b"{\"type\":\"assistant\"", b"{\"type\":\"title\"", b"{\"type\":\"note\""];

fn body_of(line: &[u8]) -> Option<Body> {
    match entry::decode(line) {
        Ok(Line::Entry { entry, .. }) => Some(entry.body),
        _ => None,
    }
}

fn prompt_of(line: &[u8]) -> Option<String> {
    match body_of(line) {
        Some(Body::User { content }) => Some(text_of(&content)),
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

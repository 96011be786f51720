//! The session: an append-only file of JSON lines, and the conversation in it.

mod durability;
mod entry;
mod list;
mod load;
mod lock;
mod transcript;
mod turns;
mod undo;

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::home::{Home, create_dir_private, create_private};
use crate::redact::Secrets;
use crate::{paths, stamp};
use entry::Header;
use load::{Loaded, Tree, load, read_error};

pub use durability::{Durability, Unsynced};
pub use entry::{Body, Entry, Facts, Totals};
pub use list::{Listed, find, latest, list};
pub use transcript::{Found, Transcript, remove, search};
pub use turns::Turn;
pub use undo::{Obstacles, Plan, redo, undo};

/// Why a session could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system did not let it be read.
    #[error("cannot read `{}`: {source}", file.display())]
    Read {
        /// The file or folder.
        file: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// The system did not let it be written. What was said since the last save is kept and written with the next
    /// entry, when that succeeds.
    #[error("the session is not being saved: cannot write `{}`: {source}", file.display())]
    Write {
        /// The file or folder.
        file: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// It is another kind of file.
    #[error("`{}` is not a session of crab: {why}", file.display())]
    NotASession {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A newer crab wrote it.
    #[error(
        "the session file `{}` has version {found}, and this crab reads no version above {known}: update crab to go on with it",
        file.display()
    )]
    Newer {
        /// The file.
        file: PathBuf,
        /// Its version.
        found: u64,
        /// The newest version that this crab reads.
        known: u64,
    },
    /// Another process writes to it.
    #[error(
        "the session file `{}` is in use by {}: end that one first, or go on in a copy with `--fork`",
        file.display(), process(*holder)
    )]
    Locked {
        /// The file.
        file: PathBuf,
        /// The process, where the system tells.
        holder: Option<u32>,
    },
    /// The session has no such entry.
    #[error("this session has no entry `{id}`")]
    NoEntry {
        /// What was looked for.
        id: String,
    },
    /// No session has this id.
    #[error("no session has an id that begins with `{id}`: `crab sessions` lists them")]
    Unknown {
        /// What was looked for.
        id: String,
    },
    /// Several sessions have ids that begin like this.
    #[error("several sessions have an id that begins with `{prefix}`: give more of it\n{}", candidates.join("\n"))]
    Ambiguous {
        /// What was looked for.
        prefix: String,
        /// One line for each, the newest first.
        candidates: Vec<String>,
    },
}

fn process(holder: Option<u32>) -> String {
    holder.map_or_else(|| "another process".into(), |pid| format!("process {pid}"))
}

/// A conversation and the file in which it is kept.
///
/// The file is made with the first entry, and locked while the session lives.
pub struct Session {
    header: Header,
    /// `None`: the session is kept nowhere.
    file: Option<PathBuf>,
    handle: Option<File>,
    has_header: bool,
    tree: Tree,
    /// How many entries of the tree are in the file.
    saved: usize,
    /// The file ends in the middle of a line.
    open_end: bool,
    unsaved: bool,
    durability: Durability,
    /// Lines were written that may not be on the disk.
    is_unsynced: bool,
    /// The file was made by this session, and its folder may not have it on the disk.
    is_new: bool,
    skipped: Vec<u64>,
    warnings: Vec<String>,
    secrets: Arc<Secrets>,
}

impl Session {
    /// A new session of a directory, in a file of its own below the home.
    pub fn create(home: &Home, cwd: &Path, secrets: Arc<Secrets>) -> Self {
        let mut session = Self::ephemeral(cwd, secrets);
        let name = format!("{}_{}.jsonl", stamp::file_time(SystemTime::now()), session.header.id);
        session.file = Some(home.sessions_dir_for(cwd).join(name));
        session
    }

    /// A session that is written nowhere.
    pub fn ephemeral(cwd: &Path, secrets: Arc<Secrets>) -> Self {
        Self {
            header: Header::new(&paths::canonical(cwd)),
            file: None,
            handle: None,
            has_header: false,
            tree: Tree::default(),
            saved: 0,
            open_end: false,
            unsaved: false,
            durability: Durability::default(),
            is_unsynced: false,
            is_new: false,
            skipped: vec![],
            warnings: vec![],
            secrets,
        }
    }

    /// Goes on with the session in this file, or begins one there when it is missing or empty.
    pub fn open(file: &Path, cwd: &Path, secrets: Arc<Secrets>) -> Result<Self, Error> {
        let mut session = Self::ephemeral(cwd, secrets);
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
        let handle = match open_existing(&file)? {
            Existing::Missing => {
                session.file = Some(file);
                return Ok(session);
            }
            Existing::Writable(handle) => {
                session.warnings.extend(lock::lock(&handle, &file)?);
                session.file = Some(file.clone());
                handle
            }
            Existing::ReadOnly(handle, err) => {
                let shown = file.display();
                session
                    .warnings
                    .push(format!("the session is not being saved: cannot write `{shown}`: {err}"));
                session.unsaved = true;
                handle
            }
        };
        if let Some(loaded) = load(BufReader::with_capacity(1 << 16, &handle), &file)? {
            session.adopt(loaded);
        }
        session.handle = Some(handle);
        Ok(session)
    }

    /// Begins this new session with the history of another one, which is only read: it may be in use.
    pub fn fork_of(mut self, source: &Path) -> Result<Self, Error> {
        let handle = File::open(source).map_err(|err| read_error(source, err))?;
        let Some(loaded) = load(BufReader::with_capacity(1 << 16, handle), source)? else {
            return Err(Error::NotASession { file: source.to_path_buf(), why: "it is empty".into() });
        };
        self.header.forked_from = Some(loaded.header.id);
        self.warnings.extend(loaded.warnings);
        for entry in loaded.tree.path() {
            let parent = self.tree.leaf();
            let parent_id = parent.map(|index| self.tree.entries[index].id.clone());
            // A file that was put together by hand can have an id twice on one path.
            let id = if self.tree.contains(&entry.id) { self.new_id() } else { entry.id.clone() };
            // The numbers of damaged lines are those of the other file.
            let mut body = match &entry.body {
                Body::Note { text, facts } => {
                    let facts = Facts { changed: facts.changed.clone(), ..Facts::default() };
                    Body::noting(text.clone(), facts)
                }
                body => body.clone(),
            };
            body.redact(&self.secrets);
            self.tree.push(Entry { id, parent_id, time: entry.time.clone(), body }, parent);
        }
        Ok(self)
    }

    /// Decides when the lines are forced to the disk.
    #[must_use]
    pub fn with_durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    /// What has to be on the disk before something may happen that cannot be taken back. Nothing when it is there
    /// already, or does not have to be.
    pub fn unsynced(&mut self) -> Option<Unsynced> {
        if self.durability == Durability::None || !self.is_unsynced {
            return None;
        }
        let file = self.handle.as_ref()?.try_clone().ok()?;
        self.is_unsynced = false;
        let folder = self.file.as_ref().and_then(|file| file.parent()).map(Path::to_path_buf);
        Some(Unsynced { file, folder: folder.filter(|_| std::mem::take(&mut self.is_new)) })
    }

    fn adopt(&mut self, loaded: Loaded) {
        self.header = loaded.header;
        self.has_header = true;
        self.saved = loaded.tree.entries.len();
        self.tree = loaded.tree;
        // A key may have become one since: the file stays as it is, but what is sent does not have it.
        for entry in &mut self.tree.entries {
            Arc::make_mut(entry).body.redact(&self.secrets);
        }
        self.open_end = loaded.open_end;
        self.skipped = loaded.skipped;
        self.warnings.extend(loaded.warnings);
    }

    /// Adds an entry behind the newest one and writes it, with known secrets taken out.
    ///
    /// After an error the entry is part of the conversation all the same. It is written, with all that were missed,
    /// when a later append succeeds.
    pub fn append(&mut self, body: Body) -> Result<Arc<Entry>, Error> {
        let skipped = std::mem::take(&mut self.skipped);
        if !skipped.is_empty() {
            let text = "damaged lines were found and reported when the session was resumed";
            self.push(Body::noting(text, Facts { skipped_lines: skipped, ..Facts::default() }));
        }
        let entry = self.push(body);
        self.save()?;
        Ok(entry)
    }

    /// Writes down what the session came to, at the end of a turn.
    ///
    /// # Errors
    /// As [`Session::append`].
    pub fn end_turn(&mut self) -> Result<(), Error> {
        let totals = self.tree.totals.clone();
        let text = format!("end of turn {}", totals.turns);
        let facts = Facts { totals: Some(Box::new(totals)), ..Facts::default() };
        self.append(Body::noting(text, facts)).map(drop)
    }

    /// What is said next follows this entry, and not the newest one. A note says so in the file, where the branch that is
    /// left stays as it is; `undone` is where it was, when this can be put back.
    ///
    /// # Errors
    /// There is no such entry; or as [`Session::append`].
    pub fn go_to(&mut self, id: &str, undone: Option<String>) -> Result<(), Error> {
        if !self.tree.go_to(id) {
            return Err(Error::NoEntry { id: id.to_owned() });
        }
        let facts = Facts { undone, ..Facts::default() };
        self.append(Body::noting("the conversation goes on from here", facts)).map(drop)
    }

    /// What the session came to.
    pub fn totals(&self) -> &Totals {
        &self.tree.totals
    }

    /// The conversation: from the root to the newest leaf.
    pub fn path(&self) -> Vec<Arc<Entry>> {
        self.tree.path()
    }

    /// The session's id.
    pub fn id(&self) -> &str {
        &self.header.id
    }

    /// The directory in which it was begun.
    pub fn cwd(&self) -> &Path {
        Path::new(&self.header.cwd)
    }

    /// The file, which may not be there yet; `None` when the session is written nowhere.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Whether something that was said is in no file although it should be: such a session cannot be resumed whole.
    pub fn unsaved(&self) -> bool {
        self.unsaved
    }

    /// Whether the file holds the conversation, so that it makes sense to tell how to resume it.
    pub fn is_resumable(&self) -> bool {
        !self.unsaved && self.file.is_some() && self.saved > 0
    }

    /// What the user should know about the file, since the last time that this was asked.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    fn push(&mut self, mut body: Body) -> Arc<Entry> {
        body.redact(&self.secrets);
        let parent = self.tree.leaf();
        let parent_id = parent.map(|index| self.tree.entries[index].id.clone());
        self.tree.push(Entry { id: self.new_id(), parent_id, time: stamp::now(), body }, parent)
    }

    fn new_id(&self) -> String {
        loop {
            let id = stamp::id();
            if !self.tree.contains(&id) {
                return id;
            }
        }
    }

    fn save(&mut self) -> Result<(), Error> {
        let Some(file) = self.file.clone() else { return Ok(()) };
        let saved = self.write_missing(&file).map_err(|source| match source {
            Failed::Lock(err) => err,
            Failed::Io(source) => Error::Write { file, source },
        });
        self.unsaved = saved.is_err();
        saved
    }

    fn write_missing(&mut self, file: &Path) -> Result<(), Failed> {
        let handle = match self.handle.take() {
            Some(handle) => handle,
            None => self.make_file(file)?,
        };
        let written = self.write_to(&handle);
        self.handle = Some(handle);
        written.map_err(Failed::Io)?;
        match self.durability {
            Durability::Entry => self.unsynced().map_or(Ok(()), Unsynced::sync).map_err(Failed::Io),
            _ => Ok(()),
        }
    }

    fn make_file(&mut self, file: &Path) -> Result<File, Failed> {
        if let Some(dir) = file.parent() {
            create_dir_private(dir).map_err(Failed::Io)?;
        }
        let handle = create_private(file).map_err(Failed::Io)?;
        self.is_new = true;
        self.warnings.extend(lock::lock(&handle, file).map_err(Failed::Lock)?);
        Ok(handle)
    }

    fn write_to(&mut self, handle: &File) -> io::Result<()> {
        if handle.metadata()?.nlink() == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the file was removed while it was in use"));
        }
        if !self.has_header {
            let header = self.header.encode()?;
            if let Err(err) = write_line(handle, &header) {
                // Nothing was ever said in this file, and a torn first line would make it unreadable for good.
                handle.set_len(0)?;
                return Err(err.source);
            }
            self.has_header = true;
        }
        while let Some(entry) = self.tree.entries.get(self.saved) {
            if !matches!(entry.body, Body::Unknown { .. }) {
                self.write_entry(handle, &entry.clone())?;
            }
            self.saved += 1;
        }
        Ok(())
    }

    fn write_entry(&mut self, handle: &File, entry: &Entry) -> io::Result<()> {
        let mut line = entry.encode()?;
        if self.open_end {
            line.insert(0, '\n');
        }
        match write_line(handle, &line) {
            Ok(()) => {
                self.open_end = false;
                self.is_unsynced = true;
            }
            Err(err) => {
                self.open_end |= err.begun;
                return Err(err.source);
            }
        }
        Ok(())
    }
}

enum Failed {
    Lock(Error),
    Io(io::Error),
}

struct WriteError {
    source: io::Error,
    /// Some bytes of the line are in the file.
    begun: bool,
}

/// Writes a line in one call; a second one follows only when the system took a part.
fn write_line(mut handle: &File, line: &str) -> Result<(), WriteError> {
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        match handle.write(rest) {
            Ok(0) => {
                return Err(WriteError {
                    source: io::ErrorKind::WriteZero.into(),
                    begun: rest.len() < line.len(),
                });
            }
            Ok(taken) => rest = &rest[taken..],
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(WriteError { source, begun: rest.len() < line.len() }),
        }
    }
    Ok(())
}

enum Existing {
    Missing,
    Writable(File),
    ReadOnly(File, io::Error),
}

fn open_existing(file: &Path) -> Result<Existing, Error> {
    match file.metadata() {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Existing::Missing),
        Err(err) => return Err(read_error(file, err)),
        // Opening a pipe would wait for its other end.
        Ok(meta) if !meta.is_file() => {
            return Err(Error::NotASession {
                file: file.to_path_buf(),
                why: "it is not a regular file".into(),
            });
        }
        Ok(_) => {}
    }
    match OpenOptions::new().read(true).append(true).open(file) {
        Ok(handle) => Ok(Existing::Writable(handle)),
        Err(err)
            if matches!(err.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) =>
        {
            let handle = File::open(file).map_err(|source| read_error(file, source))?;
            Ok(Existing::ReadOnly(handle, err))
        }
        Err(err) => Err(read_error(file, err)),
    }
}

#[cfg(test)]
mod tests;

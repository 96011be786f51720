//! What calls changed in files, and the content from before, by which it can be taken back.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::home::create_dir_private;

/// A file that a call changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// Where it is, absolute and free of links.
    pub path: String,
    /// The SHA-256 of what it held; `None`: it was not there.
    pub before: Option<String>,
    /// The SHA-256 of what it holds now; `None`: it is gone.
    pub after: Option<String>,
}

/// Former contents, each in a file that is named by its SHA-256.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// The contents in this folder, which is made when something is kept.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Keeps a content and gives its name. What is there already is not written again.
    ///
    /// # Errors
    /// The system does not let it be written.
    pub fn keep(&self, content: &[u8]) -> io::Result<String> {
        let name = digest(content);
        let file = self.folder.join(&name);
        if !file.exists() {
            create_dir_private(&self.folder)?;
            // A temporary file has mode 0600; one that is cut short never gets the name.
            let mut temp = tempfile::NamedTempFile::new_in(&self.folder)?;
            temp.write_all(content)?;
            temp.persist(&file).map_err(|err| err.error)?;
        }
        Ok(name)
    }

    /// The content of this name, when it was kept and is whole.
    pub fn get(&self, name: &str) -> Option<Vec<u8>> {
        // A name out of a session file must not lead out of the folder.
        let is_name = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let content = std::fs::read(self.folder.join(name)).ok().filter(|_| is_name)?;
        (digest(&content) == name).then_some(content)
    }
}

/// SHA-256 in hexadecimal.
pub fn digest(content: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, content);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Collects what the calls of a session change.
#[derive(Debug, Default)]
pub struct Changes {
    /// `None`: nothing is kept, for the session is not either.
    store: Option<Store>,
    made: Mutex<Made>,
}

/// What the turn has to write down.
#[derive(Debug, Default)]
pub(crate) struct Made {
    pub(crate) changed: Vec<Changed>,
    /// Why something could not be kept.
    pub(crate) problems: Vec<String>,
}

impl Changes {
    /// With a place for former contents.
    pub fn kept_in(store: Option<Store>) -> Self {
        Self { store, made: Mutex::default() }
    }

    /// Keeps what a file holds before it is changed; `None`: it is not there. A disk that is full does not stop the change:
    /// then it cannot be taken back, which the user is told.
    pub(crate) fn before(&self, path: &Path, content: Option<&[u8]>) {
        let (Some(store), Some(content)) = (&self.store, content) else { return };
        if let Err(err) = store.keep(content) {
            let problem = format!("what `{}` held could not be kept for /undo: {err}", path.display());
            self.lock().problems.push(problem);
        }
    }

    /// A file has been changed.
    pub(crate) fn made(&self, path: &Path, before: Option<&[u8]>, after: &[u8]) {
        let Some(path) = path.to_str().filter(|_| self.store.is_some()) else { return };
        let changed =
            Changed { path: path.to_owned(), before: before.map(digest), after: Some(digest(after)) };
        self.lock().changed.push(changed);
    }

    /// What was changed since this was last asked.
    pub(crate) fn take(&self) -> Made {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_kept_once_by_their_digest_and_only_whole() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path().join("undo"));
        let name = store.keep(b"abc").unwrap();
        assert_eq!(name, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!((store.keep(b"abc").unwrap(), store.get(&name)), (name.clone(), Some(b"abc".to_vec())));
        std::fs::write(folder.path().join("undo").join(&name), b"ab").unwrap();
        assert_eq!(store.get(&name), None);
        std::fs::write(folder.path().join("other"), b"x").unwrap();
        assert_eq!(store.get("../other"), None);
    }

    #[test]
    fn changes_are_told_once_and_only_where_they_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let changes = Changes::kept_in(Some(Store::at(folder.path())));
        changes.made(Path::new("/a"), None, b"abc");
        let made = changes.take().changed;
        assert_eq!((made[0].path.as_str(), made[0].before.as_ref()), ("/a", None));
        assert_eq!(changes.take().changed.len(), 0);
        let nowhere = Changes::default();
        nowhere.made(Path::new("/a"), None, b"abc");
        assert_eq!(nowhere.take().changed.len(), 0);
        // A file stands where the folder would be.
        let full = Changes::kept_in(Some(Store::at(folder.path().join("f"))));
        std::fs::write(folder.path().join("f"), b"").unwrap();
        full.before(Path::new("/a"), Some(b"abc"));
        assert_eq!(full.take().problems.len(), 1);
    }
}

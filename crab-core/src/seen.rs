//! What was read or written in this session, by content.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The content hash of each file as this session last saw it. Keyed by canonical path.
#[derive(Default)]
pub struct Seen {
    files: Mutex<HashMap<PathBuf, u64>>,
}

impl Seen {
    /// Remembers that the session knows this content of the file.
    pub fn record(&self, path: &Path, content: &[u8]) {
        self.lock().insert(path.to_path_buf(), hash(content));
    }

    /// `None` when the file was not read in this session, else whether its content is still what was read.
    pub fn is_current(&self, path: &Path, content: &[u8]) -> Option<bool> {
        self.lock().get(path).map(|known| *known == hash(content))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, u64>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A keyless hash: it meets no adversary, it only tells one version of a file from the next.
fn hash(content: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(content);
    hasher.finish()
}

//! What was read or written in this session, by content.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::text_file::{image_type, is_binary};

/// The content of each file as this session last saw it. Keyed by canonical path. A resumed session starts empty.
#[derive(Default)]
pub struct Seen {
    files: Mutex<HashMap<PathBuf, u64>>,
}

impl Seen {
    /// Remembers that the session knows this content of the file.
    pub fn record(&self, path: &Path, content: &[u8]) {
        self.record_digest(path, Digest::of(content));
    }

    /// The same for content that went by in pieces.
    pub(crate) fn record_digest(&self, path: &Path, digest: Digest) {
        self.lock().insert(path.to_path_buf(), digest.value());
    }

    /// `None` when the file was not read in this session, else whether its content is still what was read.
    pub fn is_current(&self, path: &Path, content: &[u8]) -> Option<bool> {
        let known = self.lock().get(path).copied()?;
        Some(known == Digest::of(content).value())
    }

    /// Says why the session may not replace a file with this content, in words for the model that name it `shown`.
    pub(crate) fn check(&self, path: &Path, content: &[u8], shown: &str) -> Result<(), String> {
        match self.is_current(path, content) {
            Some(true) => Ok(()),
            Some(false) => Err(format!(
                "`{shown}` has changed since it was read in this session, so nothing was written: read it again and \
                 make the change to what it holds now"
            )),
            None if is_binary(content) || image_type(content).is_some() => Err(format!(
                "`{shown}` is a binary file, which is neither edited nor replaced: change or remove it with a command in \
                 `bash`"
            )),
            None => Err(format!(
                "`{shown}` was not read in this session, so nothing was written: read it first, then call again (what \
                 was read before a session was resumed does not count)"
            )),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, u64>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A keyless hash of bytes that come in any pieces: it meets no adversary, it only tells one version of a file from
/// the next.
#[derive(Default)]
pub(crate) struct Digest {
    hasher: DefaultHasher,
}

impl Digest {
    /// The digest of the whole.
    pub(crate) fn of(content: &[u8]) -> Self {
        let mut digest = Self::default();
        digest.update(content);
        digest
    }

    /// Takes the next piece.
    pub(crate) fn update(&mut self, piece: &[u8]) {
        self.hasher.write(piece);
    }

    fn value(&self) -> u64 {
        self.hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_digest_does_not_depend_on_the_pieces(content in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
            let cut = cut.min(content.len());
            let mut digest = Digest::default();
            digest.update(&content[..cut]);
            digest.update(&content[cut..]);
            prop_assert_eq!(digest.value(), Digest::of(&content).value());
        }
    }

    #[test]
    fn only_the_content_that_was_recorded_is_current() {
        let seen = Seen::default();
        let path = Path::new("/f");
        assert_eq!(seen.is_current(path, b"a"), None);
        assert!(seen.check(path, b"a", "f").unwrap_err().contains("not read in this session"));
        assert!(seen.check(path, b"\0\x01", "f").unwrap_err().contains("is a binary file"));
        seen.record(path, b"a");
        assert_eq!(seen.is_current(path, b"a"), Some(true));
        assert!(seen.check(path, b"b", "f").unwrap_err().contains("changed since"));
        seen.record(path, b"b");
        assert_eq!(seen.check(path, b"b", "f"), Ok(()));
    }
}

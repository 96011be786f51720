//! When what was written is on the disk itself. A process that is killed loses nothing either way; a machine that stops
//! loses what the system had not written yet.

use std::fs::File;
use std::io;
use std::path::PathBuf;

/// When a session's lines are forced to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the system gets to it.
    None,
    /// At the end of a turn, and before a call that changes something.
    #[default]
    Turn,
    /// Each line at once.
    Entry,
}

impl Durability {
    /// The one that the configuration names.
    pub fn named(word: &str) -> Option<Self> {
        match word {
            "none" => Some(Self::None),
            "turn" => Some(Self::Turn),
            "entry" => Some(Self::Entry),
            _ => None,
        }
    }
}

/// Lines that may not be on the disk yet.
#[derive(Debug)]
pub struct Unsynced {
    pub(super) file: File,
    /// The folder, when the file is new: its name has to last as well.
    pub(super) folder: Option<PathBuf>,
}

impl Unsynced {
    /// Forces them there. Blocks, from under a millisecond to the time that a slow disk takes.
    ///
    /// # Errors
    /// The disk's own. What it could not take then may be lost when the machine stops.
    pub fn sync(self) -> io::Result<()> {
        self.file.sync_data()?;
        match self.folder {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::home::Home;
    use crate::session::{Body, Session};

    #[test]
    fn what_is_not_on_the_disk_yet_is_asked_for_once() {
        let folder = tempfile::tempdir().unwrap();
        let session = |durability| {
            let home = Home::at(folder.path().join("home"));
            Session::create(&home, folder.path(), Arc::default()).with_durability(durability)
        };
        let due =
            |session: &mut Session| session.unsynced().map(|due| (due.folder.is_some(), due.sync().is_ok()));
        let mut turn = session(Durability::Turn);
        assert_eq!(due(&mut turn), None);
        turn.append(Body::note("a")).unwrap();
        // The first time the new name has to last as well.
        assert_eq!((due(&mut turn), due(&mut turn)), (Some((true, true)), None));
        turn.append(Body::note("b")).unwrap();
        assert_eq!(due(&mut turn), Some((false, true)));
        for durability in [Durability::Entry, Durability::None] {
            let mut session = session(durability);
            session.append(Body::note("a")).unwrap();
            assert_eq!(due(&mut session), None, "{durability:?}");
        }
    }
}

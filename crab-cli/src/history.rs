//! Typed lines of earlier runs, in a file that only its owner can read and that holds no key.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use crab_core::home::create_dir_private;
use crab_core::redact::Secrets;
use reedline::{
    FileBackedHistory, History, HistoryItem, HistoryItemId, HistorySessionId, Result, SearchQuery,
};

/// Lines that it keeps.
const LINES: usize = 10_000;

/// The history of a file, without what must not be written down.
pub(crate) struct Kept {
    file: FileBackedHistory,
    secrets: Arc<Secrets>,
}

impl Kept {
    /// Opens the file, 0600 whatever the umask, and makes its folder.
    pub(crate) fn open(path: &Path, secrets: Arc<Secrets>) -> io::Result<Self> {
        let about = |err: io::Error| io::Error::new(err.kind(), format!("`{}`: {err}", path.display()));
        if let Some(folder) = path.parent() {
            create_dir_private(folder).map_err(about)?;
        }
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path).map_err(about)?;
        file.set_permissions(PermissionsExt::from_mode(0o600)).map_err(about)?;
        let file = FileBackedHistory::with_file(LINES, path.to_path_buf());
        Ok(Self { file: file.map_err(|err| about(io::Error::other(err)))?, secrets })
    }

    fn clean(&self, mut item: HistoryItem) -> HistoryItem {
        self.secrets.redact_string(&mut item.command_line);
        item
    }
}

impl History for Kept {
    fn save(&mut self, item: HistoryItem) -> Result<HistoryItem> {
        let item = self.clean(item);
        self.file.save(item)
    }

    fn load(&self, id: HistoryItemId) -> Result<HistoryItem> {
        self.file.load(id)
    }

    fn count(&self, query: SearchQuery) -> Result<i64> {
        self.file.count(query)
    }

    fn search(&self, query: SearchQuery) -> Result<Vec<HistoryItem>> {
        self.file.search(query)
    }

    fn update(&mut self, id: HistoryItemId, updater: &dyn Fn(HistoryItem) -> HistoryItem) -> Result<()> {
        let secrets = self.secrets.clone();
        self.file.update(id, &|item| {
            let mut item = updater(item);
            secrets.redact_string(&mut item.command_line);
            item
        })
    }

    fn clear(&mut self) -> Result<()> {
        self.file.clear()
    }

    fn delete(&mut self, id: HistoryItemId) -> Result<()> {
        self.file.delete(id)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }

    fn session(&self) -> Option<HistorySessionId> {
        self.file.session()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_is_for_its_owner_alone_and_holds_no_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/history");
        let secrets = Arc::new(Secrets::new(vec![("KEY".into(), "sk-canary-12345".into())]));
        let mut kept = Kept::open(&path, secrets.clone()).unwrap();
        kept.save(HistoryItem::from_command_line("my key is sk-canary-12345")).unwrap();
        kept.sync().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "my key is [redacted KEY]\n");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        drop(Kept::open(&path, secrets.clone()).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let err = Kept::open(dir.path(), secrets).map(drop).unwrap_err().to_string();
        assert!(err.contains(dir.path().to_str().unwrap()), "{err}");
    }
}

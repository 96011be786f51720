//! Replacing a file: all of it or nothing, with its mode, owner, attributes and links kept.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use rustix::fs::{Access, XattrFlags};
use tempfile::NamedTempFile;

use crate::text_file::{load, reason};

/// Why a file was not replaced. Its old content is still there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The file is not what the caller has seen.
    #[error("changed just now")]
    Changed,
    /// There is a file where a new one was to be made.
    #[error("exists by now")]
    Exists,
    /// It is protected against writing.
    #[error("is read-only (mode {0:04o}); `chmod u+w` makes it writable, if it is meant to be changed")]
    ReadOnly(u32),
    /// The system refused; its reason.
    #[error("was refused by the system ({0})")]
    Refused(String),
}

impl From<io::Error> for Error {
    fn from(err: io::Error) -> Self {
        Self::Refused(reason(err))
    }
}

/// Makes a new file, with the folders above it. `path` is free of links.
pub(crate) fn create(path: &Path, content: &[u8]) -> Result<(), Error> {
    let folder = folder_of(path);
    fs::create_dir_all(folder)?;
    // The kernel takes the umask off these.
    let mut temp = temp_in(folder, 0o666)?;
    temp.write_all(content)?;
    temp.as_file().sync_all()?;
    match temp.persist_noclobber(path) {
        Ok(_) => {
            sync(folder);
            Ok(())
        }
        Err(err) if err.error.kind() == io::ErrorKind::AlreadyExists => Err(Error::Exists),
        Err(err) => Err(err.error.into()),
    }
}

/// Puts `content` in the place of `old`. `path` is free of links.
pub(crate) fn replace(path: &Path, old: &[u8], content: &[u8]) -> Result<(), Error> {
    let meta = path.metadata()?;
    let mode = meta.mode() & 0o7777;
    // Root may write to a file that nobody may write to; its mode says all the same that it is not to be changed.
    if mode & 0o222 == 0 || rustix::fs::access(path, Access::WRITE_OK).is_err() {
        return Err(Error::ReadOnly(mode));
    }
    if meta.nlink() > 1 {
        return rewrite(path, old, content);
    }
    match prepare(path, &meta, content) {
        Ok(temp) => finish(temp, path, old, content),
        Err(Unprepared::InPlace) => rewrite(path, old, content),
        Err(Unprepared::Failed(err)) => Err(err),
    }
}

enum Unprepared {
    /// A new file could not take over all that belongs to the old one.
    InPlace,
    Failed(Error),
}

impl From<io::Error> for Unprepared {
    fn from(err: io::Error) -> Self {
        Self::Failed(err.into())
    }
}

/// A temporary file beside `path` with everything that the new file has. No byte of the content is written before its
/// mode and owner are right, so nobody can read it there who could not read it at its place.
fn prepare(path: &Path, meta: &Metadata, content: &[u8]) -> Result<NamedTempFile, Unprepared> {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    let mut temp = match temp_in(folder_of(path), meta.mode() & 0o700) {
        // The folder may be closed while the file itself, perhaps a mount of its own, is not.
        Err(err) if matches!(err.kind(), PermissionDenied | ReadOnlyFilesystem) => {
            return Err(Unprepared::InPlace);
        }
        temp => temp?,
    };
    let made = temp.as_file().metadata()?;
    let same_owner = made.uid() == meta.uid() && made.gid() == meta.gid();
    if !same_owner && fchown(temp.as_file(), Some(meta.uid()), Some(meta.gid())).is_err() {
        return Err(Unprepared::InPlace);
    }
    temp.as_file().set_permissions(Permissions::from_mode(meta.mode() & 0o7777))?;
    copy_attributes(path, temp.as_file())?;
    temp.write_all(content)?;
    temp.as_file().sync_all()?;
    Ok(temp)
}

fn finish(temp: NamedTempFile, path: &Path, old: &[u8], content: &[u8]) -> Result<(), Error> {
    unchanged(path, old)?;
    match temp.persist(path) {
        Ok(_) => {
            sync(folder_of(path));
            Ok(())
        }
        // A file that is a mount point cannot be renamed over. The error holds the temporary file, which goes first.
        Err(err) if err.error.kind() == io::ErrorKind::ResourceBusy => {
            drop(err);
            rewrite(path, old, content)
        }
        Err(err) => Err(err.error.into()),
    }
}

/// Writes through the file itself: it keeps its links, but for a moment it is neither old nor new.
fn rewrite(path: &Path, old: &[u8], content: &[u8]) -> Result<(), Error> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    unchanged(path, old)?;
    let Err(err) = overwrite(&mut file, content) else { return Ok(()) };
    match overwrite(&mut file, old) {
        Ok(()) => Err(err.into()),
        Err(worse) => Err(Error::Refused(format!(
            "writing failed ({}), and so did putting back the old content ({}): look at the file",
            reason(err),
            reason(worse)
        ))),
    }
}

fn overwrite(file: &mut File, content: &[u8]) -> io::Result<()> {
    file.rewind()?;
    file.write_all(content)?;
    file.set_len(content.len() as u64)?;
    file.sync_all()
}

/// The last look before the change: somebody may have saved the file since it was compared.
fn unchanged(path: &Path, old: &[u8]) -> Result<(), Error> {
    match load(path) {
        Ok(now) if now == old => Ok(()),
        Ok(_) => Err(Error::Changed),
        Err(reason) => Err(Error::Refused(reason)),
    }
}

fn temp_in(folder: &Path, mode: u32) -> io::Result<NamedTempFile> {
    let permissions = Permissions::from_mode(mode);
    tempfile::Builder::new().prefix(".crab-").suffix(".tmp").permissions(permissions).tempfile_in(folder)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// Makes a rename last. A folder that may not be read cannot be synced, but the new content is in place by then: to call
/// that a failure would be wrong, and a file system that lost its disk says so at the next write.
fn sync(folder: &Path) {
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
}

/// Takes access lists and labels along. What the system does not let us copy is its own to set (security labels), or
/// not known to this file system.
fn copy_attributes(from: &Path, to: &File) -> io::Result<()> {
    let mut names = vec![0; 64 << 10];
    let Ok(length) = rustix::fs::listxattr(from, &mut names[..]) else { return Ok(()) };
    let mut value = vec![0; 64 << 10];
    for name in names[..length].split_inclusive(|byte| *byte == 0) {
        let Ok(name) = std::ffi::CStr::from_bytes_with_nul(name) else { continue };
        let length = rustix::fs::getxattr(from, name, &mut value[..])?;
        let set = rustix::fs::fsetxattr(to, name, &value[..length], XattrFlags::empty());
        let is_user_data =
            name.to_bytes().starts_with(b"user.") || name.to_bytes().starts_with(b"system.posix_acl");
        if is_user_data {
            set?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "old").unwrap();
        (dir, file)
    }

    #[track_caller]
    fn only_f_is_left(dir: &Path) {
        let names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["f"]);
    }

    #[test]
    fn a_replaced_file_keeps_its_mode() {
        for mode in [0o644, 0o755, 0o600, 0o640, 0o2755] {
            let (dir, file) = folder();
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            replace(&file, b"old", b"new").unwrap();
            assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, mode, "{mode:o}");
            assert_eq!(fs::read(&file).unwrap(), b"new");
            only_f_is_left(dir.path());
        }
    }

    #[test]
    fn a_temporary_file_is_never_more_open_than_the_file() {
        let (_dir, file) = folder();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        let temp = temp_in(folder_of(&file), 0o640 & 0o700).unwrap();
        assert_eq!(temp.as_file().metadata().unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn hard_links_still_share_the_file() {
        let (dir, file) = folder();
        let twin = dir.path().join("twin");
        fs::hard_link(&file, &twin).unwrap();
        replace(&file, b"old", b"n").unwrap();
        assert_eq!(fs::read(&twin).unwrap(), b"n");
        assert_eq!(fs::metadata(&file).unwrap().ino(), fs::metadata(&twin).unwrap().ino());
    }

    #[test]
    fn a_file_that_changed_is_left_alone() {
        let (dir, file) = folder();
        assert!(matches!(replace(&file, b"older", b"new"), Err(Error::Changed)));
        assert_eq!(fs::read(&file).unwrap(), b"old");
        only_f_is_left(dir.path());
    }

    #[test]
    fn a_read_only_file_is_refused_even_for_root() {
        let (dir, file) = folder();
        fs::set_permissions(&file, Permissions::from_mode(0o444)).unwrap();
        let err = replace(&file, b"old", b"new").unwrap_err();
        assert!(err.to_string().contains("read-only (mode 0444)"), "{err}");
        only_f_is_left(dir.path());
    }

    #[test]
    fn a_new_file_gets_its_folders_and_does_not_displace_another() {
        let (dir, file) = folder();
        assert!(matches!(create(&file, b"new"), Err(Error::Exists)));
        only_f_is_left(dir.path());
        let deep = dir.path().join("a/b/c");
        create(&deep, b"new").unwrap();
        assert_eq!(fs::read(&deep).unwrap(), b"new");
        assert_eq!(fs::read_dir(deep.parent().unwrap()).unwrap().count(), 1);
        let err = create(&file.join("below"), b"").unwrap_err();
        assert!(!err.to_string().contains("os error"), "{err}");
    }

    #[test]
    fn extended_attributes_are_taken_along() {
        let (_dir, file) = folder();
        // Some file systems have none, and then there is nothing to keep.
        if rustix::fs::setxattr(&file, "user.note", b"kept", XattrFlags::empty()).is_err() {
            return;
        }
        replace(&file, b"old", b"new").unwrap();
        let mut value = [0; 10];
        let length = rustix::fs::getxattr(&file, "user.note", &mut value[..]).unwrap();
        assert_eq!(&value[..length], b"kept");
    }
}

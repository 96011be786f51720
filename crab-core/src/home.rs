//! The home folder: where everything lies, and that nobody else can read what crab makes there.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::paths;

/// `$CRAB_HOME`, or `~/.crab`. Nothing is made before it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    dir: PathBuf,
}

impl Home {
    /// The home that the environment names; `None` when there is neither `CRAB_HOME` nor a home directory.
    pub fn from_env() -> Option<Self> {
        let named = std::env::var_os("CRAB_HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let own =
            || std::env::home_dir().filter(|dir| !dir.as_os_str().is_empty()).map(|dir| dir.join(".crab"));
        named.or_else(own).map(Self::at)
    }

    /// A home in this folder. A relative one is meant from the directory in which crab was started.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        Self { dir: std::path::absolute(&dir).unwrap_or(dir) }
    }

    /// The folder itself.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The user's configuration.
    pub fn config_file(&self) -> PathBuf {
        self.dir.join("config.toml")
    }

    /// The user's keys.
    pub fn auth_file(&self) -> PathBuf {
        self.dir.join("auth.json")
    }

    /// What was typed at the prompt.
    pub fn history_file(&self) -> PathBuf {
        self.dir.join("history")
    }

    /// The directories whose configuration the user trusts, one a line.
    pub fn trust_file(&self) -> PathBuf {
        self.dir.join("trusted")
    }

    /// The folder of all sessions, in one folder for each directory.
    pub fn sessions_dir(&self) -> PathBuf {
        self.dir.join("sessions")
    }

    /// The folder of the sessions of one directory.
    pub fn sessions_dir_for(&self, cwd: &Path) -> PathBuf {
        self.sessions_dir().join(slug(&paths::canonical(cwd)))
    }

    /// Where a session keeps what files held before its calls changed them.
    pub fn undo_dir(&self, session_id: &str) -> PathBuf {
        self.dir.join("undo").join(session_id)
    }

    /// Where a session's command output goes that is too long for a result.
    pub fn outputs_dir(&self, session_id: &str) -> PathBuf {
        self.dir.join("outputs").join(session_id)
    }
}

/// Makes a folder and its missing parents, each 0700 whatever the umask. What is there already is left as it is.
pub fn create_dir_private(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        create_dir_private(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        // The umask can only have taken bits away, but then even the owner's may be gone.
        Ok(()) => std::fs::set_permissions(dir, Permissions::from_mode(0o700)),
        Err(_) if dir.is_dir() => Ok(()),
        Err(err) => Err(err),
    }
}

/// Opens a file for reading and appending, made 0600 whatever the umask if it is missing. The mode of a file that is
/// there already is left as it is. Its folder must exist.
pub fn open_private(file: &Path) -> io::Result<File> {
    match create_private(file) {
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {
            OpenOptions::new().read(true).append(true).open(file)
        }
        made => made,
    }
}

/// Makes a file that must not exist yet, 0600 whatever the umask, open for reading and appending.
pub fn create_private(file: &Path) -> io::Result<File> {
    let made = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(file)?;
    made.set_permissions(Permissions::from_mode(0o600))?;
    Ok(made)
}

/// A directory as the name of a folder: its readable part, and a hash of the whole so that no two directories share one.
fn slug(dir: &Path) -> String {
    const READABLE: usize = 60;
    let bytes = dir.as_os_str().as_bytes();
    let readable = |byte: &u8| match byte {
        b'_' | b'-' => char::from(*byte),
        byte if byte.is_ascii_alphanumeric() => char::from(*byte),
        _ => '-',
    };
    // The end of a path tells more than its beginning.
    let text: String = bytes[bytes.len().saturating_sub(READABLE)..].iter().map(readable).collect();
    let text = text.trim_matches('-');
    let hash = fnv1a(bytes);
    if text.is_empty() { format!("{hash:016x}") } else { format!("{text}-{hash:016x}") }
}

/// FNV-1a with 64 bits. The standard library's hashes may change from release to release; a folder's name must not.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_made_is_private_and_what_is_there_is_left_alone() {
        let temp = tempfile::tempdir().unwrap();
        let open = temp.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
        let deep = open.join("a/b");
        create_dir_private(&deep).unwrap();
        create_dir_private(&deep).unwrap();
        assert_eq!((mode(&open), mode(&open.join("a")), mode(&deep)), (0o755, 0o700, 0o700));

        let file = deep.join("f");
        open_private(&file).unwrap();
        assert_eq!(mode(&file), 0o600);
        std::fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        open_private(&file).unwrap();
        assert_eq!(mode(&file), 0o640);
    }

    #[test]
    fn a_file_in_the_place_of_a_folder_is_an_error() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("a"), "").unwrap();
        assert!(create_dir_private(&temp.path().join("a/b")).is_err());
    }

    #[test]
    fn directories_never_share_a_folder() {
        let slug = |dir: &str| slug(Path::new(dir));
        assert_ne!(slug("/p/a-b/c"), slug("/p/a/b-c"));
        assert_ne!(slug("/项目甲"), slug("/测试乙"));
        assert_ne!(slug("/a b"), slug("/a_b"));
        assert_ne!(slug("/A"), slug("/a"));
        let long = |end: &str| format!("/{}/{end}", "deep/".repeat(80));
        assert_ne!(slug(&long("same")), slug(&format!("/x{}", long("same"))));
        assert!(slug(&long("same")).len() <= 77);
        assert_eq!(slug("/home/me/src/crab"), "home-me-src-crab-320847ab793f0584");
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn a_link_to_a_directory_is_that_directory() {
        let temp = tempfile::tempdir().unwrap();
        let (dir, link) = (temp.path().join("dir"), temp.path().join("link"));
        std::fs::create_dir(&dir).unwrap();
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        let home = Home::at(temp.path());
        assert_eq!(home.sessions_dir_for(&dir), home.sessions_dir_for(&link));
    }
}

//! Paths as a model writes them, as rules match them and as people read them.

use std::path::{Component, Path, PathBuf};

/// The absolute path of `path` below `cwd`, `.` and `..` taken out by their text, a leading `~/` expanded. Reads nothing.
pub(crate) fn resolve(cwd: &Path, path: &str) -> PathBuf {
    let path = match (path.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => cwd.join(path),
    };
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(clean.pop()),
            Component::CurDir => {}
            part => clean.push(part),
        }
    }
    clean
}

/// The path with its links resolved as far as it exists; the missing rest is kept as it is written.
pub(crate) fn canonical(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => canonical(parent).join(name),
        _ => path.to_path_buf(),
    }
}

/// How a person reads it: relative where it lies below `cwd`.
pub(crate) fn display(cwd: &Path, path: &Path) -> String {
    let shown = path.strip_prefix(cwd).unwrap_or(path);
    if shown.as_os_str().is_empty() { ".".into() } else { shown.display().to_string() }
}

/// The spellings that a rule matches: by its text, and with links resolved.
pub(crate) fn subjects(cwd: &Path, path: &str) -> Vec<String> {
    let plain = resolve(cwd, path);
    let real = canonical(&plain);
    let mut subjects = vec![display(cwd, &plain), display(&canonical(cwd), &real)];
    subjects.dedup();
    subjects
}

/// The project of a directory: the nearest folder upwards with a `.git` in it, else the directory itself. Canonical.
pub(crate) fn project(cwd: &Path) -> PathBuf {
    let cwd = canonical(cwd);
    let top = cwd.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok());
    top.unwrap_or(&cwd).to_path_buf()
}

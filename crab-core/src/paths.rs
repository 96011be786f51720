//! Paths as a model writes them, as rules match them and as people read them.

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};

/// As many links in a row as Linux follows.
const MAX_LINKS: usize = 40;
/// Names of a directory that are listed.
const MAX_NAMES: usize = 200;
/// Entries of the tree that are looked at for a file of the same name.
const MAX_WALK: usize = 20_000;
/// Suggestions for a missing path.
const MAX_SUGGESTIONS: usize = 5;

/// The absolute path of `path` below `cwd`, `.` and `..` taken out by their text, a leading `~/` expanded. Reads nothing.
pub(crate) fn resolve(cwd: &Path, path: &str) -> PathBuf {
    let below_home = if path == "~" { Some("") } else { path.strip_prefix("~/") };
    let path = match (below_home, std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => cwd.join(path),
    };
    clean(&path)
}

/// Takes `.` and `..` out by the text.
pub(crate) fn clean(path: &Path) -> PathBuf {
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

/// The path with its links resolved as far as it exists; the missing rest is kept as it is written. A link that leads
/// nowhere yet is followed as well: a file that is made through it appears at its target.
pub(crate) fn canonical(path: &Path) -> PathBuf {
    follow(path, MAX_LINKS)
}

fn follow(path: &Path, links: usize) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return path.to_path_buf() };
    match path.read_link() {
        Ok(target) if links > 0 => follow(&clean(&follow(parent, links - 1).join(target)), links - 1),
        _ => follow(parent, links).join(name),
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

/// The names in a directory, sorted, one a line, folders with a `/`; at most 200, and how many more there are.
/// The second value is the number of entries.
pub(crate) fn listing(dir: &Path) -> io::Result<(String, usize)> {
    let mut names = Vec::new();
    for entry in dir.read_dir()? {
        let entry = entry?;
        let slash = if entry.path().is_dir() { "/" } else { "" };
        names.push(format!("{}{slash}", entry.file_name().display()));
    }
    names.sort();
    let count = names.len();
    if count > MAX_NAMES {
        names.truncate(MAX_NAMES);
        names.push(format!("[... {} more names]", count - MAX_NAMES));
    }
    Ok((names.join("\n"), count))
}

/// Existing paths that may have been meant by one that does not exist: the nearest names where it leaves what
/// exists, and files of the same name below `cwd`.
pub(crate) fn suggestions(cwd: &Path, missing: &Path) -> Vec<String> {
    let mut found = near_names(missing);
    if found.len() < MAX_SUGGESTIONS {
        found.extend(same_name(cwd, missing));
    }
    let mut known = BTreeSet::new();
    found.retain(|path| known.insert(path.clone()));
    found.truncate(MAX_SUGGESTIONS);
    found.iter().map(|path| display(cwd, path)).collect()
}

fn near_names(missing: &Path) -> Vec<PathBuf> {
    let Some((wanted, parent)) = first_missing(missing) else { return Vec::new() };
    // A folder that cannot be listed has no suggestions to give; the error about the file itself is reported anyway.
    let Ok(entries) = parent.read_dir() else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut near: Vec<_> = names.filter_map(|name| Some((distance(&wanted, &name)?, name))).collect();
    near.sort();
    let rest = missing.strip_prefix(parent.join(&wanted)).unwrap_or(Path::new(""));
    let full = near.iter().map(|(_, name)| {
        let base = parent.join(name);
        let whole = base.join(rest);
        if whole.exists() && !rest.as_os_str().is_empty() { whole } else { base }
    });
    full.collect()
}

/// The first name of the path that does not exist, and the folder that lacks it.
fn first_missing(path: &Path) -> Option<(String, &Path)> {
    let mut path = path;
    loop {
        let parent = path.parent()?;
        if parent.is_dir() {
            return Some((path.file_name()?.to_str()?.to_owned(), parent));
        }
        path = parent;
    }
}

fn same_name(cwd: &Path, missing: &Path) -> Vec<PathBuf> {
    let Some(name) = missing.file_name() else { return Vec::new() };
    let walk =
        ignore::WalkBuilder::new(cwd).hidden(false).filter_entry(|entry| entry.file_name() != ".git").build();
    let files = walk.take(MAX_WALK).filter_map(Result::ok).filter(|entry| entry.file_name() == name);
    files.map(ignore::DirEntry::into_path).take(MAX_SUGGESTIONS).collect()
}

/// How far two names are apart; `None` when too far to be a slip of the pen.
fn distance(wanted: &str, name: &str) -> Option<usize> {
    let (wanted, name) = (wanted.to_lowercase(), name.to_lowercase());
    let stem = |text: &str| text.rsplit_once('.').map_or(text, |(stem, _)| stem).to_owned();
    if stem(&wanted) == stem(&name) {
        return Some(usize::from(wanted != name));
    }
    let limit = (wanted.chars().count() / 3).clamp(1, 4);
    let apart = edits_between(&wanted, &name);
    (apart <= limit).then_some(apart)
}

/// The Levenshtein distance.
fn edits_between(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// The project of a directory: the nearest folder upwards with a `.git` in it, else the directory itself. Canonical.
pub(crate) fn project(cwd: &Path) -> PathBuf {
    let cwd = canonical(cwd);
    let top = cwd.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok());
    top.unwrap_or(&cwd).to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_resolved_by_its_text() {
        for (path, expected) in
            [("a/./b", "/w/a/b"), ("../x", "/x"), ("/etc/../a", "/a"), ("", "/w"), ("a//b/", "/w/a/b")]
        {
            assert_eq!(resolve(Path::new("/w"), path), Path::new(expected), "{path}");
        }
    }

    #[test]
    fn a_missing_path_has_near_names() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("src/tools")).unwrap();
        for file in ["src/tools/read.rs", "src/main.rs", "README.md"] {
            std::fs::write(dir.path().join(file), "").unwrap();
        }
        for (missing, expected) in [
            ("src/mian.rs", vec!["src/main.rs"]),
            ("readme.md", vec!["README.md"]),
            ("src/main.ts", vec!["src/main.rs"]),
            ("scr/main.rs", vec!["src/main.rs"]),
            ("read.rs", vec!["src/tools/read.rs"]),
            ("nothing_like_it.c", vec![]),
        ] {
            assert_eq!(suggestions(dir.path(), &dir.path().join(missing)), expected, "{missing}");
        }
    }

    #[test]
    fn a_link_that_leads_nowhere_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("sub/new.txt", real.join("link")).unwrap();
        std::os::unix::fs::symlink("loop", real.join("loop")).unwrap();
        assert_eq!(canonical(&real.join("link")), real.join("sub/new.txt"));
        canonical(&real.join("loop"));
    }

    #[test]
    fn a_listing_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a_dir")).unwrap();
        for n in 0..250 {
            std::fs::write(dir.path().join(format!("f{n:03}")), "").unwrap();
        }
        let (names, count) = listing(dir.path()).unwrap();
        assert_eq!(count, 251);
        assert!(names.starts_with("a_dir/\nf000\n"), "{names}");
        assert!(names.ends_with("\n[... 51 more names]"), "{names}");
    }
}

//! Walking a tree of files as ripgrep does, for the tools that look for files.
//!
//! Hidden files are part of it, `.git` never is. `.gitignore`, `.ignore`, git's exclude file and its global one hold, those
//! of parent folders too, also where there is no git repository. Links are not followed.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use globset::{GlobBuilder, GlobMatcher};
use ignore::{DirEntry, WalkBuilder, WalkState};
use tokio_util::sync::CancellationToken;

use crate::paths;

/// A walk below `root`.
pub(crate) struct Walk<'a> {
    /// Where it begins; itself never ignored.
    pub root: &'a Path,
    /// Whether ignored files are visited too.
    pub with_ignored: bool,
    /// Ends it early.
    pub cancel: &'a CancellationToken,
    /// Ends it early.
    pub deadline: Option<Instant>,
}

/// How a walk went.
pub(crate) struct Walked {
    /// Folders and files that could not be looked at.
    pub unreadable: usize,
    /// Whether it came to its end.
    pub is_whole: bool,
}

impl Walk<'_> {
    /// Calls `visit` for everything but folders, on several threads, in no order.
    pub(crate) fn each(&self, visit: impl Fn(&DirEntry) + Sync) -> Walked {
        let (unreadable, is_whole) = (AtomicUsize::new(0), AtomicBool::new(true));
        let mut builder = WalkBuilder::new(self.root);
        builder.standard_filters(!self.with_ignored).hidden(false).require_git(false);
        builder.filter_entry(|entry| entry.depth() == 0 || entry.file_name() != ".git");
        builder.build_parallel().run(|| {
            Box::new(|entry| {
                let is_late = self.deadline.is_some_and(|deadline| Instant::now() > deadline);
                if is_late || self.cancel.is_cancelled() {
                    is_whole.store(false, Ordering::Relaxed);
                    return WalkState::Quit;
                }
                match entry {
                    Ok(entry) if entry.file_type().is_some_and(|kind| !kind.is_dir()) => visit(&entry),
                    Ok(_) => {}
                    Err(_) => drop(unreadable.fetch_add(1, Ordering::Relaxed)),
                }
                WalkState::Continue
            })
        });
        Walked { unreadable: unreadable.into_inner(), is_whole: is_whole.into_inner() }
    }
}

/// A glob pattern, and the folder below which it holds.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// The deepest folder that the pattern names outright.
    pub base: PathBuf,
    matcher: GlobMatcher,
}

impl Pattern {
    /// `*` and `?` stop at a slash, `**` does not; `[a-z]`, `{a,b}`. Without a slash it matches at any depth below `root`.
    pub(crate) fn new(root: &Path, pattern: &str) -> Result<Self, String> {
        if pattern.is_empty() {
            return Err("`pattern` is empty; expected is a glob such as `*.rs` or `src/**/*.rs`".into());
        }
        let mut rest = pattern;
        while let Some(shorter) = rest.strip_prefix("./") {
            rest = shorter.trim_start_matches('/');
        }
        let (folder, rest) = match rest.contains('/') {
            true => split(rest),
            false => ("", rest),
        };
        let glob = match (pattern.contains('/'), rest) {
            (_, "") => "**".to_owned(),
            (true, rest) if rest.ends_with('/') => format!("{rest}**"),
            (true, rest) => rest.to_owned(),
            (false, rest) => format!("**/{rest}"),
        };
        let base = if folder.is_empty() { root.to_owned() } else { paths::resolve(root, folder) };
        Ok(Self { base, matcher: compile(&glob, pattern)? })
    }

    /// Whether `path`, which lies below the base, matches.
    pub(crate) fn matches(&self, path: &Path) -> bool {
        path.strip_prefix(&self.base).is_ok_and(|path| self.matcher.is_match(path))
    }
}

/// The leading folders without any wildcard, and the rest.
fn split(pattern: &str) -> (&str, &str) {
    let wildcard = pattern.find(['*', '?', '[', '{', '\\']).unwrap_or(pattern.len());
    let slash = pattern[..wildcard].rfind('/').map_or(0, |at| at + 1);
    pattern.split_at(slash)
}

fn compile(glob: &str, pattern: &str) -> Result<GlobMatcher, String> {
    let glob = GlobBuilder::new(glob).literal_separator(true).backslash_escape(true).build();
    let glob = glob.map_err(|err| format!("the glob `{pattern}` is not valid: {}", err.kind()))?;
    Ok(glob.compile_matcher())
}

/// `1 file`, `2 files`.
pub(crate) fn count(number: usize, word: &str) -> String {
    if number == 1 { format!("1 {word}") } else { format!("{number} {word}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, path: &str, expected: bool) {
        let found = Pattern::new(Path::new("/w"), pattern).unwrap();
        assert_eq!(found.matches(Path::new(path)), expected, "{pattern} {path} {found:?}");
    }

    #[test]
    fn patterns_match_as_written() {
        check("*.rs", "/w/a.rs", true);
        check("*.rs", "/w/a/b/c.rs", true);
        check("./*.rs", "/w/c.rs", true);
        check("./*.rs", "/w/a/c.rs", false);
        check("src/*.rs", "/w/src/c.rs", true);
        check("src/*.rs", "/w/src/a/c.rs", false);
        check("src/**/*.rs", "/w/src/c.rs", true);
        check("**/*.rs", "/w/c.rs", true);
        check("**/src/*.rs", "/w/a/src/c.rs", true);
        check("src/", "/w/src/a/c.rs", true);
        check("s*/", "/w/src/a/c.rs", true);
        check("/w/src/*.{rs,toml}", "/w/src/c.toml", true);
        check("/x/*.rs", "/x/c.rs", true);
        check("../x/*.rs", "/x/c.rs", true);
        check("dist/app.js", "/w/dist/app.js", true);
        check("a[0-9].txt", "/w/a7.txt", true);
        check("Makefile", "/w/sub/Makefile", true);
        check("\\*.rs", "/w/*.rs", true);
        check("\\*.rs", "/w/a.rs", false);
    }

    #[test]
    fn a_bad_pattern_is_an_error_with_the_reason() {
        let err = Pattern::new(Path::new("/w"), "a[b").unwrap_err();
        assert!(err.contains("`a[b`") && err.contains("unclosed"), "{err}");
        assert!(Pattern::new(Path::new("/w"), "").is_err());
        assert!(Pattern::new(Path::new("/w"), "{a").is_err());
    }
}

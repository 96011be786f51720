//! Walks a folder for the tools that search: by the ignore files, on several threads, never through a link.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ignore::{DirEntry, WalkBuilder, WalkState};
use tokio_util::sync::CancellationToken;

use crate::gate::Hidden;
use crate::paths;

/// More threads than this do not make a disk faster.
const MAX_THREADS: usize = 4;

/// What is to be walked.
#[derive(Clone)]
pub(crate) struct Walk {
    /// The folder as it was named.
    root: PathBuf,
    /// Where it is; a link that was named outright is followed.
    real: PathBuf,
    /// The topmost folder whose ignore files count.
    base: PathBuf,
    /// Whether it was named, and is not the working directory or a folder above it.
    named: bool,
    cancel: CancellationToken,
    hidden: Option<Hidden>,
}

/// An entry below the root.
pub(crate) struct Found<'a> {
    /// As the root was named.
    pub(crate) path: PathBuf,
    /// Below the root.
    pub(crate) relative: &'a Path,
    /// What it is, links not followed.
    pub(crate) kind: std::fs::FileType,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Walked<T> {
    /// In no order.
    pub(crate) found: Vec<T>,
    /// Everything that is no folder.
    pub(crate) files: usize,
    /// Folders that could not be read.
    pub(crate) unreadable: usize,
    /// Files and folders that a permission rule hides.
    pub(crate) hidden: usize,
    /// Whether the ignore files had a say.
    pub(crate) ruled: bool,
    /// False when the limit ended the walk.
    pub(crate) complete: bool,
}

impl Walk {
    /// Ignore files count from the top of the git repository on, without one from the working directory on: those of
    /// a home folder around it were made for something else.
    pub(crate) fn new(cwd: &Path, root: PathBuf, cancel: CancellationToken) -> Self {
        let (real, cwd) = (paths::canonical(&root), paths::canonical(cwd));
        let top = real.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok());
        let without_git = if real.starts_with(&cwd) { &cwd } else { &real };
        let base = top.unwrap_or(without_git).to_path_buf();
        let named = !cwd.starts_with(&real);
        Self { root, real, base, named, cancel, hidden: None }
    }

    /// Leaves these paths out.
    pub(crate) fn hiding(mut self, hidden: Option<Hidden>) -> Self {
        self.hidden = hidden;
        self
    }

    /// By the ignore files. A named folder of which they leave nothing is walked without them: whoever names it means it.
    pub(crate) fn by_rules<T: Send>(
        &self,
        look: impl Fn(&Found<'_>) -> Option<T> + Sync,
    ) -> Result<Walked<T>, String> {
        let walked = self.run(true, usize::MAX, &look)?;
        if walked.files > 0 || !self.named {
            return Ok(walked);
        }
        let all = self.run(false, usize::MAX, &look)?;
        // It was not the ignore files that left nothing.
        Ok(if all.files == 0 { Walked { hidden: all.hidden, ..walked } } else { all })
    }

    /// Whether a permission rule hides the root itself.
    pub(crate) fn is_hidden(&self) -> bool {
        self.hidden.as_ref().is_some_and(|hidden| hidden(&self.root) || hidden(&self.real))
    }

    /// Without the ignore files, up to about `limit` files.
    pub(crate) fn without_rules<T: Send>(
        &self,
        limit: usize,
        look: impl Fn(&Found<'_>) -> Option<T> + Sync,
    ) -> Result<Walked<T>, String> {
        self.run(false, limit, &look)
    }

    fn run<T: Send>(
        &self,
        ruled: bool,
        limit: usize,
        look: &(impl Fn(&Found<'_>) -> Option<T> + Sync),
    ) -> Result<Walked<T>, String> {
        let (found, files, unreadable) = (Mutex::new(Vec::new()), AtomicUsize::new(0), AtomicUsize::new(0));
        let (complete, hidden) = (AtomicBool::new(true), Arc::new(AtomicUsize::new(0)));
        self.builder(ruled, &hidden).build_parallel().run(|| {
            Box::new(|entry| {
                if self.cancel.is_cancelled() {
                    return WalkState::Quit;
                }
                let entry = match entry {
                    Ok(entry) => entry,
                    Err(err) => {
                        let vanished =
                            err.io_error().is_some_and(|err| err.kind() == std::io::ErrorKind::NotFound);
                        unreadable.fetch_add(usize::from(!vanished), Ordering::Relaxed);
                        return WalkState::Continue;
                    }
                };
                let Some(entry) = self.below_root(&entry) else { return WalkState::Continue };
                if !entry.kind.is_dir() && files.fetch_add(1, Ordering::Relaxed) >= limit {
                    complete.store(false, Ordering::Relaxed);
                    return WalkState::Quit;
                }
                if let Some(item) = look(&entry) {
                    // A panic of another thread leaves a list that is still sound.
                    found.lock().unwrap_or_else(PoisonError::into_inner).push(item);
                }
                WalkState::Continue
            })
        });
        if self.cancel.is_cancelled() {
            return Err("interrupted".into());
        }
        Ok(Walked {
            found: found.into_inner().unwrap_or_else(PoisonError::into_inner),
            files: files.into_inner().min(limit),
            unreadable: unreadable.into_inner(),
            hidden: hidden.load(Ordering::Relaxed),
            ruled,
            complete: complete.into_inner(),
        })
    }

    /// A walk that counts what a permission rule hides.
    fn builder(&self, ruled: bool, count: &Arc<AtomicUsize>) -> WalkBuilder {
        let base = if ruled { &self.base } else { &self.real };
        let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(MAX_THREADS));
        let mut builder = WalkBuilder::new(base);
        builder.standard_filters(ruled).parents(false).hidden(false).require_git(false);
        builder.follow_links(false).threads(threads).current_dir(base);
        // Only the way down to the root is of interest outside of it. A `.git` that was named is such a way.
        let (root, real, hidden) = (self.root.clone(), self.real.clone(), self.hidden.clone());
        let count = count.clone();
        builder.filter_entry(move |entry| {
            let path = entry.path();
            let Ok(below) = path.strip_prefix(&real) else { return real.starts_with(path) };
            if below.as_os_str().is_empty() {
                return true;
            }
            if entry.file_name() == ".git" {
                return false;
            }
            // A rule may name the way that was walked, or where it leads.
            let is_hidden = hidden.as_ref().is_some_and(|hidden| hidden(path) || hidden(&root.join(below)));
            count.fetch_add(usize::from(is_hidden), Ordering::Relaxed);
            !is_hidden
        });
        builder
    }

    fn below_root<'a>(&self, entry: &'a DirEntry) -> Option<Found<'a>> {
        let relative = entry.path().strip_prefix(&self.real).ok()?;
        if relative.as_os_str().is_empty() {
            return None;
        }
        Some(Found { path: self.root.join(relative), relative, kind: entry.file_type()? })
    }
}

/// A number with its noun.
pub(crate) fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Up to five of them, sorted, and how many more there are.
pub(crate) fn some_names(cwd: &Path, paths: &mut [PathBuf]) -> String {
    paths.sort();
    let mut names: Vec<_> = paths.iter().take(5).map(|path| paths::display(cwd, path)).collect();
    if paths.len() > 5 {
        names.push(format!("{} more", paths.len() - 5));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let (name, content) = file.split_once('=').unwrap_or((file, ""));
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        dir
    }

    fn walk(cwd: &Path, root: &str) -> Walked<String> {
        let walk = Walk::new(cwd, paths::resolve(cwd, root), CancellationToken::new());
        let mut walked =
            walk.by_rules(|entry| (!entry.kind.is_dir()).then(|| paths::display(cwd, &entry.path))).unwrap();
        walked.found.sort();
        walked
    }

    #[track_caller]
    fn check(dir: &Path, root: &str, expected: &[&str]) {
        assert_eq!(walk(dir, root).found, expected, "{root}");
    }

    #[test]
    fn ignore_files_count_with_git_and_without() {
        let files = [".gitignore=x.log", ".ignore=y.log", "x.log", "y.log", "z.log", "sub/x.log", "sub/a"];
        let dir = folder(&files);
        check(dir.path(), ".", &[".gitignore", ".ignore", "sub/a", "z.log"]);
        check(dir.path(), "sub", &["sub/a"]);
        for file in [".git/info/exclude=z.*", ".git/HEAD"] {
            let (name, content) = file.split_once('=').unwrap_or((file, ""));
            fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
            fs::write(dir.path().join(name), content).unwrap();
        }
        check(dir.path(), ".", &[".gitignore", ".ignore", "sub/a"]);
        check(&dir.path().join("sub"), ".", &["a"]);
    }

    #[test]
    fn ignore_files_above_the_project_do_not_count() {
        let dir = folder(&[".gitignore=*", "plain/a", "repo/.git/HEAD", "repo/sub/b"]);
        check(&dir.path().join("plain"), ".", &["a"]);
        check(&dir.path().join("repo/sub"), ".", &["b"]);
    }

    #[test]
    fn an_ignored_folder_is_walked_when_it_is_named() {
        let dir = folder(&[
            ".gitignore=dist/\nout/**\nscripts/*",
            "dist/a",
            "out/x/b",
            "scripts/c",
            "venv/.gitignore=*",
            "venv/d",
        ]);
        check(dir.path(), ".", &[".gitignore"]);
        for (root, expected) in [("dist", "dist/a"), ("out/x", "out/x/b"), ("scripts", "scripts/c")] {
            check(dir.path(), root, &[expected]);
            assert!(!walk(dir.path(), root).ruled);
        }
        check(dir.path(), "venv", &["venv/.gitignore", "venv/d"]);
    }

    #[test]
    fn git_itself_is_left_out_unless_it_is_named() {
        let dir = folder(&[".git/HEAD", ".git/hooks/pre-push", "sub/.git/HEAD", "sub/a", ".hidden/b"]);
        check(dir.path(), ".", &[".hidden/b", "sub/a"]);
        check(dir.path(), ".git/hooks", &[".git/hooks/pre-push"]);
    }

    #[test]
    fn links_are_not_followed_but_a_named_one_is() {
        let dir = folder(&[".gitignore=*.log", "real/a", "real/b.log"]);
        symlink("..", dir.path().join("real/loop")).unwrap();
        symlink("real", dir.path().join("link")).unwrap();
        check(dir.path(), ".", &[".gitignore", "link", "real/a", "real/loop"]);
        check(dir.path(), "link", &["link/a", "link/loop"]);
    }

    #[test]
    fn a_walk_ends_at_its_limit_and_when_it_is_cancelled() {
        let names: Vec<_> = (0..50).map(|n| format!("f{n}")).collect();
        let dir = folder(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let cancel = CancellationToken::new();
        let walk = Walk::new(dir.path(), dir.path().to_path_buf(), cancel.clone());
        let walked = walk.without_rules(10, |_| Some(())).unwrap();
        assert!(!walked.complete && walked.files == 10 && walked.found.len() == 10, "{walked:?}");
        assert!(walk.without_rules(50, |_| Some(())).unwrap().complete);
        cancel.cancel();
        assert_eq!(walk.by_rules(|_| Some(())).unwrap_err(), "interrupted");
    }

    #[test]
    fn a_folder_that_cannot_be_read_is_counted() {
        use std::os::unix::fs::PermissionsExt;
        let dir = folder(&["a", "closed/b"]);
        let closed = dir.path().join("closed");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        // The superuser reads everything.
        if closed.read_dir().is_err() {
            let walked = walk(dir.path(), ".");
            assert_eq!((walked.found, walked.unreadable), (vec!["a".to_owned()], 1));
        }
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    }
}

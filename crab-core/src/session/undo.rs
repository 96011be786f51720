//! Taking back what turns said and changed, and putting it there again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use super::Error;
use super::entry::{Body, Facts};
use super::load::{Loaded, Tree, load, read_error};
use crate::changes::{Store, digest};
use crate::home::Home;
use crate::message::text_of;
use crate::replace;
use crate::walk::Walk;
use crate::{paths, stamp};

/// What stands in the way, one line for each file or reason.
pub type Obstacles = Vec<String>;

/// Files and a conversation on their way to another state. Nothing has been touched yet.
#[derive(Debug)]
pub struct Plan {
    /// What was asked in the turns, the oldest first.
    pub prompts: Vec<String>,
    /// The entry behind which the conversation goes on.
    pub go_to: String,
    /// Where it was, for the way back; `None` when this is the way back.
    pub undone: Option<String>,
    /// Files that were written to while the turns ran, and by none of the tools that can be taken back.
    pub others: Vec<PathBuf>,
    files: Vec<Step>,
    stores: Vec<Store>,
}

/// A file on its way from one content to another; `None`: it is not there.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    path: PathBuf,
    from: Option<String>,
    to: Option<String>,
}

/// How to take back the last turns of the session in this file.
///
/// # Errors
/// What stands in the way.
pub fn undo(home: &Home, file: &Path, turns: usize) -> Result<Plan, Obstacles> {
    let loaded = read(file)?;
    let tree = &loaded.tree;
    let here = tree.leaf().ok_or_else(|| vec!["there is nothing to take back".to_owned()])?;
    let path = indices(tree, here);
    let asked: Vec<usize> =
        path.iter().copied().filter(|index| matches!(tree.entries[*index].body, Body::User { .. })).collect();
    let first = asked.len().checked_sub(turns.max(1)).and_then(|at| asked.get(at).copied());
    let first = first
        .ok_or_else(|| vec![format!("there are no {turns} turns to take back, only {}", asked.len())])?;
    let before = tree.parent(first).ok_or_else(|| vec!["nothing stands before this turn".to_owned()])?;
    let undone: Vec<usize> = path.into_iter().filter(|index| *index >= first).collect();
    let files = steps(tree, &undone).into_iter();
    let files = files.map(|Step { path, from, to }| Step { path, from: to, to: from }).collect();
    let (id, forked) = (&loaded.header.id, loaded.header.forked_from.as_ref());
    Ok(Plan {
        prompts: prompts(tree, &undone),
        go_to: tree.entries[before].id.clone(),
        undone: Some(tree.entries[here].id.clone()),
        others: others(Path::new(&loaded.header.cwd), tree, &undone),
        files,
        stores: stores(home, id, forked),
    })
}

/// How to put back what was taken back last.
///
/// # Errors
/// What stands in the way.
pub fn redo(home: &Home, file: &Path) -> Result<Plan, Obstacles> {
    let loaded = read(file)?;
    let tree = &loaded.tree;
    let nothing = || vec!["there is nothing to put back".to_owned()];
    let here = indices(tree, tree.leaf().ok_or_else(nothing)?);
    // What was said since counts more.
    let since =
        here.iter().rev().take_while(|index| !matches!(tree.entries[**index].body, Body::User { .. }));
    let target = since.clone().find_map(|index| match &tree.entries[*index].body {
        Body::Note { facts: Facts { undone: Some(id), .. }, .. } => Some((*index, id.clone())),
        _ => None,
    });
    let (note, target) = target.ok_or_else(nothing)?;
    let there = tree.index(&target).ok_or_else(nothing)?;
    let before = tree.parent(note);
    let again: Vec<usize> = indices(tree, there)
        .into_iter()
        .filter(|index| before.is_none_or(|before| *index > before))
        .collect();
    let (id, forked) = (&loaded.header.id, loaded.header.forked_from.as_ref());
    Ok(Plan {
        prompts: prompts(tree, &again),
        go_to: target,
        undone: None,
        others: vec![],
        files: steps(tree, &again),
        stores: stores(home, id, forked),
    })
}

impl Plan {
    /// Changes the files, all of them or, when something stands in the way, none. Gives a line for each.
    ///
    /// # Errors
    /// What stands in the way; or what the system refused in the middle, with what was done by then.
    pub fn apply(&self) -> Result<Vec<String>, Obstacles> {
        let mut todo = vec![];
        let mut obstacles = vec![];
        for step in &self.files {
            match self.prepare(step) {
                Ok(Some(change)) => todo.push(change),
                Ok(None) => {}
                Err(why) => obstacles.push(format!("`{}` {why}", step.path.display())),
            }
        }
        if !obstacles.is_empty() {
            return Err(obstacles);
        }
        let mut done = vec![];
        for Change { path, now, then } in todo {
            let shown = path.display();
            let result = match (&now, &then) {
                (Some(now), Some(then)) => replace::replace(path, now, then),
                (None, Some(then)) => replace::create(path, then),
                (_, None) => std::fs::remove_file(path).map_err(replace::Error::from),
            };
            if let Err(err) = result {
                let mut lines = vec![format!("`{shown}` {err}")];
                lines.extend(done.into_iter().map(|line| format!("done already: {line}")));
                return Err(lines);
            }
            done.push(match (now, then) {
                (_, None) => format!("removed `{shown}`"),
                (None, Some(_)) => format!("made `{shown}`"),
                (Some(_), Some(_)) => format!("put back `{shown}`"),
            });
        }
        Ok(done)
    }

    /// What has to be done to a file; nothing when it is as it should be.
    fn prepare<'a>(&self, step: &'a Step) -> Result<Option<Change<'a>>, String> {
        let now = match std::fs::read(&step.path) {
            Ok(content) => Some(content),
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => None,
            Err(err) => return Err(format!("cannot be read: {err}")),
        };
        let is = now.as_deref().map(digest);
        if is == step.to {
            return Ok(None);
        }
        if is != step.from {
            return Err("has changed since".into());
        }
        if let Some(content) = &now {
            // For the way back.
            let kept = self.stores.first().map_or(Ok(String::new()), |store| store.keep(content));
            kept.map_err(|err| format!("could not be kept: {err}"))?;
        }
        let then = match &step.to {
            None => None,
            Some(name) => {
                let found = self.stores.iter().find_map(|store| store.get(name));
                Some(found.ok_or("was not kept as it was")?)
            }
        };
        Ok(Some(Change { path: &step.path, now, then }))
    }
}

/// A change of a file that nothing stands in the way of.
struct Change<'a> {
    path: &'a Path,
    now: Option<Vec<u8>>,
    then: Option<Vec<u8>>,
}

fn read(file: &Path) -> Result<Loaded, Obstacles> {
    let told = |err: Error| vec![err.to_string()];
    let handle = File::open(file).map_err(|err| told(read_error(file, err)))?;
    let loaded = load(BufReader::with_capacity(1 << 16, handle), file).map_err(told)?;
    loaded.ok_or_else(|| vec!["nothing was said yet".to_owned()])
}

fn stores(home: &Home, id: &str, forked_from: Option<&String>) -> Vec<Store> {
    std::iter::once(id)
        .chain(forked_from.map(String::as_str))
        .map(|id| Store::at(home.undo_dir(id)))
        .collect()
}

/// From the root to this entry.
fn indices(tree: &Tree, leaf: usize) -> Vec<usize> {
    let mut path: Vec<usize> = std::iter::successors(Some(leaf), |index| tree.parent(*index)).collect();
    path.reverse();
    path
}

fn prompts(tree: &Tree, entries: &[usize]) -> Vec<String> {
    let text = |index: &usize| match &tree.entries[*index].body {
        Body::User { content } => Some(text_of(content)),
        _ => None,
    };
    entries.iter().filter_map(text).collect()
}

/// What the entries did to each file, from the first content to the last.
fn steps(tree: &Tree, entries: &[usize]) -> Vec<Step> {
    let mut files: BTreeMap<PathBuf, (Option<String>, Option<String>)> = BTreeMap::new();
    for index in entries {
        let Body::Note { facts, .. } = &tree.entries[*index].body else { continue };
        for changed in &facts.changed {
            let file = files.entry(changed.path.clone().into());
            file.and_modify(|(_, after)| after.clone_from(&changed.after))
                .or_insert_with(|| (changed.before.clone(), changed.after.clone()));
        }
    }
    let step = |(path, (from, to))| Step { path, from, to };
    files.into_iter().map(step).filter(|step| step.from != step.to).collect()
}

/// Files of the directory that were written to while these entries were made and that are not in their record: commands
/// did it, or somebody else. What was removed leaves no time.
fn others(cwd: &Path, tree: &Tree, entries: &[usize]) -> Vec<PathBuf> {
    // Times as a session has them sort as texts.
    let times = entries.iter().map(|index| tree.entries[*index].time.as_str());
    let (Some(from), Some(to)) = (times.clone().min(), times.max()) else { return vec![] };
    let known: Vec<PathBuf> = steps(tree, entries).into_iter().map(|step| step.path).collect();
    let walk = Walk::new(cwd, paths::canonical(cwd), CancellationToken::new());
    let walked = walk.by_rules(|found| {
        let modified = found.path.symlink_metadata().and_then(|meta| meta.modified()).ok()?;
        let time = stamp::rfc3339(modified);
        let is_within = found.kind.is_file() && (from..=to).contains(&time.as_str());
        (is_within && !known.contains(&found.path)).then(|| found.path.clone())
    });
    let mut found = walked.map(|walked| walked.found).unwrap_or_default();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::changes::Changed;
    use crate::message::Part;
    use crate::session::Session;

    struct Place {
        folder: tempfile::TempDir,
        home: Home,
        session: Session,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let home = Home::at(folder.path().join("home"));
            let work = folder.path().join("work");
            std::fs::create_dir(&work).unwrap();
            let mut session = Session::create(&home, &work, Arc::default());
            session.append(Body::note("begun")).unwrap();
            Self { home, session, folder }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().canonicalize().unwrap().join("work").join(name)
        }

        fn get(&self, name: &str) -> Option<String> {
            std::fs::read_to_string(self.path(name)).ok()
        }

        /// A turn in which a call puts these contents into files.
        fn turn(&mut self, prompt: &str, files: &[(&str, &str)]) {
            self.session.append(Body::User { content: vec![Part::text(prompt)] }).unwrap();
            let store = Store::at(self.home.undo_dir(self.session.id()));
            for (name, content) in files {
                let path = self.path(name);
                let before = std::fs::read(&path).ok().map(|content| store.keep(&content).unwrap());
                std::fs::write(&path, content).unwrap();
                let path = path.to_str().unwrap().to_owned();
                let changed = vec![Changed { path, before, after: Some(digest(content.as_bytes())) }];
                self.session.append(Body::noting("changed", Facts { changed, ..Facts::default() })).unwrap();
            }
        }

        /// Carries out what is planned; the turns and what was done.
        fn take(&mut self, plan: Result<Plan, Obstacles>) -> Result<(Vec<String>, usize), Obstacles> {
            let plan = plan?;
            let lines = plan.apply()?;
            self.session.go_to(&plan.go_to, plan.undone).unwrap();
            Ok((plan.prompts, lines.len()))
        }

        fn undo(&mut self, turns: usize) -> Result<(Vec<String>, usize), Obstacles> {
            let plan = undo(&self.home, self.session.file().unwrap(), turns);
            self.take(plan)
        }

        fn redo(&mut self) -> Result<(Vec<String>, usize), Obstacles> {
            let plan = redo(&self.home, self.session.file().unwrap());
            self.take(plan)
        }
    }

    fn took(prompts: &[&str], files: usize) -> Result<(Vec<String>, usize), Obstacles> {
        Ok((prompts.iter().map(|prompt| (*prompt).to_owned()).collect(), files))
    }

    #[test]
    fn turns_are_taken_back_with_their_files_and_put_there_again() {
        let mut place = Place::new();
        std::fs::write(place.path("a"), "0").unwrap();
        place.turn("one", &[("a", "1"), ("b", "new")]);
        place.turn("two", &[("a", "2"), ("a", "3")]);
        assert_eq!(place.undo(1), took(&["two"], 1));
        assert_eq!((place.get("a").as_deref(), place.get("b").as_deref()), (Some("1"), Some("new")));
        assert_eq!(place.undo(1), took(&["one"], 2));
        assert_eq!((place.get("a").as_deref(), place.get("b")), (Some("0"), None));
        assert!(place.undo(1).unwrap_err()[0].contains("only 0"));
        assert_eq!(place.redo(), took(&["one"], 2));
        assert_eq!(place.redo(), took(&["two"], 1));
        assert_eq!((place.get("a").as_deref(), place.get("b").as_deref()), (Some("3"), Some("new")));
        assert!(place.redo().is_err());
        assert_eq!(place.undo(2), took(&["one", "two"], 2));
        assert_eq!(place.get("a").as_deref(), Some("0"));
        // What is said now counts more than what could be put back.
        place.turn("three", &[]);
        assert!(place.redo().is_err());
    }

    #[test]
    fn nothing_is_taken_back_when_a_file_has_changed_since_or_was_not_kept() {
        let mut place = Place::new();
        std::fs::write(place.path("a"), "0").unwrap();
        std::fs::write(place.path("b"), "0").unwrap();
        place.turn("one", &[("a", "1"), ("b", "one")]);
        std::fs::write(place.path("b"), "by hand").unwrap();
        let obstacles = place.undo(1).unwrap_err();
        assert!(obstacles.len() == 1 && obstacles[0].contains("/b` has changed since"), "{obstacles:?}");
        assert_eq!(place.get("a").as_deref(), Some("1"));
        // Who has put it back already by other means is in nobody's way.
        std::fs::write(place.path("b"), "0").unwrap();
        assert_eq!(place.undo(1), took(&["one"], 1));
        assert_eq!(place.redo().unwrap_err().len(), 1, "`b` was not taken back by us");
        std::fs::remove_dir_all(place.home.undo_dir(place.session.id())).unwrap();
        place.turn("two", &[("a", "2")]);
        std::fs::remove_dir_all(place.home.undo_dir(place.session.id())).unwrap();
        assert!(place.undo(1).unwrap_err()[0].contains("was not kept"));
    }

    #[test]
    fn what_commands_wrote_meanwhile_is_named() {
        let mut place = Place::new();
        std::fs::write(place.path("before"), "").unwrap();
        let old = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
        File::options().append(true).open(place.path("before")).unwrap().set_modified(old).unwrap();
        place.turn("one", &[("a", "1")]);
        std::fs::write(place.path("by-command"), "").unwrap();
        // The end of the turn is not before what was done in it.
        let now = stamp::now();
        while stamp::now() == now {}
        place.session.end_turn().unwrap();
        let plan = undo(&place.home, place.session.file().unwrap(), 1).unwrap();
        assert_eq!(plan.others, [place.path("by-command")]);
    }
}

//! `glob`: finds files by name.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Access, Cx, Kind, Output, Permit, Running, Tool};
use crate::paths;
use crate::walk::{Pattern, Walk, Walked, count};

/// Finds files by name.
pub(super) struct Glob;

/// Paths in one result.
const LIMIT: usize = 1_000;
/// How long ignored files are looked through when nothing else matched.
const SECOND_LOOK: Duration = Duration::from_secs(1);
/// Ignored files that are named then.
const NAMED: usize = 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    pattern: String,
    path: Option<String>,
}

impl Tool for Glob {
    fn name(&self) -> &str {
        "glob"
    }

    fn description(&self) -> &str {
        "Lists files whose path matches a glob (* ? [a-z] {a,b} **), newest first, at most 1000. A pattern without / \
         matches at any depth. Hidden files are included; .git and what .gitignore or .ignore exclude are not, unless their \
         folder is named. Links are not followed."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {"pattern": {"type": "string"}, "path": {"type": "string"}},
            "required": ["pattern"],
            "additionalProperties": false,
        })
    }

    fn access(&self, arguments: &Value, cx: &Cx) -> Access {
        let root = paths::resolve(&cx.cwd, arguments["path"].as_str().unwrap_or("."));
        let base = Pattern::new(&root, arguments["pattern"].as_str().unwrap_or("*"))
            .map_or(root, |pattern| pattern.base);
        Access {
            kind: Kind::Read,
            subjects: paths::subjects(&cx.cwd, &base.to_string_lossy()),
            opaque: false,
            class: "every search for files".into(),
        }
    }

    fn title(&self, arguments: &Value) -> String {
        let pattern = arguments["pattern"].as_str().unwrap_or_default();
        arguments["path"].as_str().map_or(pattern.to_owned(), |path| format!("{pattern} in {path}"))
    }

    fn run<'a>(&'a self, arguments: Value, _permit: Permit, cx: Cx) -> Running<'a> {
        Box::pin(async move {
            let arguments: Arguments = super::parse(self, arguments)?;
            let search = tokio::task::spawn_blocking(move || search(&arguments, &cx));
            search.await.map_err(|err| format!("the search failed: {err}"))?
        })
    }
}

type Found = Vec<(SystemTime, PathBuf)>;

fn search(arguments: &Arguments, cx: &Cx) -> Result<Output, String> {
    let root = paths::resolve(&cx.cwd, arguments.path.as_deref().unwrap_or("."));
    if arguments.path.is_some() && !root.is_dir() {
        let what = if root.exists() { "is no folder" } else { "does not exist" };
        return Err(format!("`path` {what}: `{}`; expected is a folder to look in", root.display()));
    }
    let pattern = Pattern::new(&root, &arguments.pattern)?;
    let (mut found, walked) = find(&pattern, false, cx, None);
    let mut notes = Vec::new();
    if cx.cancel.is_cancelled() {
        notes.push("interrupted: not everything was searched".to_owned());
    }
    if walked.unreadable > 0 {
        notes.push(format!("{} could not be looked into", count(walked.unreadable, "place")));
    }
    if found.is_empty() {
        return Ok(nothing(&arguments.pattern, &pattern, cx, &notes));
    }
    let total = found.len();
    found.truncate(LIMIT);
    if total > LIMIT {
        notes.push(format!("{} more files match; narrow `pattern` or `path`", total - LIMIT));
    }
    let mut text: String = found.iter().map(|(_, path)| paths::display(&cx.cwd, path) + "\n").collect();
    notes.iter().for_each(|note| text.push_str(&format!("[{note}]\n")));
    text.pop();
    Ok(Output::text(text, count(total, "file")))
}

fn find(pattern: &Pattern, with_ignored: bool, cx: &Cx, deadline: Option<Instant>) -> (Found, Walked) {
    if !pattern.base.is_dir() {
        return (vec![], Walked { unreadable: 0, is_whole: true });
    }
    let found = Mutex::new(Found::new());
    let walk = Walk { root: &pattern.base, with_ignored, cancel: &cx.cancel, deadline };
    let walked = walk.each(|entry| {
        if pattern.matches(entry.path()) {
            let time = entry.metadata().ok().and_then(|metadata| metadata.modified().ok());
            let file = (time.unwrap_or(SystemTime::UNIX_EPOCH), entry.path().to_owned());
            found.lock().unwrap_or_else(PoisonError::into_inner).push(file);
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_unstable_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    (found, walked)
}

/// A bare "no files" would be wrong when there are some that ignore rules leave out.
fn nothing(written: &str, pattern: &Pattern, cx: &Cx, notes: &[String]) -> Output {
    let base = paths::display(&cx.cwd, &pattern.base);
    let mut text = format!("no files match `{written}` in `{base}`");
    if !pattern.base.is_dir() {
        text.push_str(", which is no folder");
    } else if is_folder(pattern, written) {
        text.push_str(&format!(
            ": it is a folder, `{}/**` lists what is in it",
            written.trim_end_matches('/')
        ));
    }
    let (ignored, walked) = find(pattern, true, cx, Some(Instant::now() + SECOND_LOOK));
    if !ignored.is_empty() {
        let least = if walked.is_whole { "" } else { "at least " };
        let names = ignored.iter().take(NAMED).map(|(_, path)| paths::display(&cx.cwd, path));
        let names = names.collect::<Vec<_>>().join("\n");
        let some = if ignored.len() > NAMED { ", such as" } else { "" };
        let amount = count(ignored.len(), "file");
        text.push_str(&format!(
            "\nleft out by ignore rules: {least}{amount} that would match{some}:\n{names}"
        ));
    } else if !walked.is_whole {
        text.push_str("\nignored files were not all looked at");
    }
    notes.iter().for_each(|note| text.push_str(&format!("\n[{note}]")));
    Output::text(text, "no files")
}

fn is_folder(pattern: &Pattern, written: &str) -> bool {
    let name = Path::new(written).file_name();
    name.is_some_and(|name| pattern.base.join(name).is_dir())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::message::text_of;

    fn place(files: &[(&str, &str)]) -> (tempfile::TempDir, Cx) {
        let folder = tempfile::tempdir().unwrap();
        let cwd = folder.path().canonicalize().unwrap();
        for (path, content) in files {
            let path = cwd.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let cx = Cx {
            spill: cwd.join("spill"),
            cwd,
            seen: Arc::default(),
            cancel: Default::default(),
            output: Arc::new(|_: &str| {}),
            environment: Arc::default(),
            secrets: Arc::default(),
        };
        (folder, cx)
    }

    async fn glob(cx: &Cx, arguments: Value) -> String {
        match Glob.run(arguments, Permit::for_tests(), cx.clone()).await {
            Ok(output) => text_of(&output.content),
            Err(err) => format!("error: {err}"),
        }
    }

    #[tokio::test]
    async fn ignored_trees_are_left_out_and_hidden_files_are_not() {
        let (_folder, cx) = place(&[
            (".gitignore", "node_modules/\nx.log\n"),
            (".ignore", "y.log\n"),
            (".git/config.md", ""),
            ("node_modules/p/a.md", ""),
            ("doc/a.md", ""),
            (".github/b.md", ""),
            ("x.log", ""),
            ("y.log", ""),
            ("z.log", ""),
        ]);
        let text = glob(&cx, json!({"pattern": "**/*.md"})).await;
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, [".github/b.md", "doc/a.md"]);
        assert_eq!(glob(&cx, json!({"pattern": "*.log"})).await, "z.log");
    }

    #[tokio::test]
    async fn what_ignore_rules_leave_out_is_told_when_nothing_else_matches() {
        let (_folder, cx) =
            place(&[(".gitignore", "dist/\nlog/*\n"), ("dist/app.js", ""), ("log/a.txt", "")]);
        assert_eq!(glob(&cx, json!({"pattern": "dist/app.js"})).await, "dist/app.js");
        let text = glob(&cx, json!({"pattern": "app.js"})).await;
        assert_eq!(
            text,
            "no files match `app.js` in `.`\nleft out by ignore rules: 1 file that would match:\ndist/app.js"
        );
        assert!(
            glob(&cx, json!({"pattern": "*.txt", "path": "log"}))
                .await
                .contains("that would match:\nlog/a.txt")
        );
        assert_eq!(glob(&cx, json!({"pattern": "*.c"})).await, "no files match `*.c` in `.`");
        assert!(glob(&cx, json!({"pattern": "dist"})).await.contains("`dist/**` lists"));
        assert!(glob(&cx, json!({"pattern": "gone/*.c"})).await.contains("`gone`, which is no folder"));
    }

    #[tokio::test]
    async fn the_newest_come_first_and_at_most_a_thousand() {
        let (_folder, cx) = place(&[("old.rs", ""), ("new.rs", ""), ("sub/mid.rs", "")]);
        for (name, seconds) in [("old.rs", 1), ("sub/mid.rs", 2), ("new.rs", 3)] {
            let file = std::fs::File::options().append(true).open(cx.cwd.join(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        }
        std::os::unix::fs::symlink("..", cx.cwd.join("sub/loop")).unwrap();
        assert_eq!(glob(&cx, json!({"pattern": "*.rs"})).await, "new.rs\nsub/mid.rs\nold.rs");
        for number in 0..LIMIT + 5 {
            std::fs::write(cx.cwd.join(format!("{number}.txt")), "").unwrap();
        }
        let text = glob(&cx, json!({"pattern": "*.txt"})).await;
        assert_eq!(text.lines().count(), LIMIT + 1);
        assert!(text.ends_with("[5 more files match; narrow `pattern` or `path`]"));
    }

    #[tokio::test]
    async fn wrong_arguments_say_why() {
        let (_folder, cx) = place(&[("f", "")]);
        assert!(glob(&cx, json!({"pattern": "a[b"})).await.starts_with("error: the glob `a[b` is not valid"));
        assert!(glob(&cx, json!({"pattern": "*", "path": "gone"})).await.contains("does not exist"));
        assert!(glob(&cx, json!({"pattern": "*", "path": "f"})).await.contains("is no folder"));
        assert!(glob(&cx, json!({})).await.contains("missing field `pattern`"));
    }

    #[test]
    fn what_the_model_reads_about_it_keeps_its_budget() {
        let bytes = Glob.name().len() + Glob.description().len() + Glob.schema().to_string().len();
        assert!(bytes <= 460, "{bytes}");
    }
}

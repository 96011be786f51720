//! `glob`: files by a pattern, the newest first.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use globset::{GlobBuilder, GlobMatcher};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Access, Cx, Kind, Output, Permit, Running, Tool, blocking, parse};
use crate::walk::{Found, Walk, Walked, count, some_names};
use crate::{clip, paths};

/// Files of one call.
const MAX_FILES: usize = 1_000;
/// Bytes of their names.
const MAX_BYTES: usize = 40_000;
/// Files that are looked at for matches among ignored ones.
const MAX_IGNORED: usize = 200_000;
/// What makes a name a pattern.
const META: [char; 5] = ['*', '?', '[', '{', '\\'];

/// Finds files by their names.
pub(crate) struct Glob;

#[derive(Deserialize)]
struct Arguments {
    pattern: String,
    #[serde(default, alias = "file_path")]
    path: Option<String>,
}

impl Tool for Glob {
    fn name(&self) -> &str {
        "glob"
    }

    fn description(&self) -> &str {
        "Lists files, newest first, at most 1,000. `*`, `?`, `**`, `[ab]`, `{a,b}`; a pattern without a slash matches \
         in any folder below `path` (default: working directory). What .gitignore and .ignore exclude is left out (in \
         git or not) unless its folder is named; so is `.git`. Hidden files are in; links are not followed."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {"pattern": {"type": "string"}, "path": {"type": "string"}},
            "required": ["pattern"]
        })
    }

    fn access(&self, arguments: &Value, cx: &Cx) -> Access {
        let path = folder_argument(arguments);
        let mut subjects = paths::subjects(&cx.cwd, path);
        // The pattern can lead elsewhere than `path`.
        let (folder, _) = split(arguments["pattern"].as_str().unwrap_or_default(), |_| false);
        if !folder.is_empty() {
            let root = below(&cx.cwd, path, folder);
            subjects.extend(paths::subjects(&cx.cwd, &root.to_string_lossy()));
        }
        Access { kind: Kind::Read, subjects, reads: vec![], opaque: false, class: "every glob".into() }
    }

    fn title(&self, arguments: &Value) -> String {
        let pattern = clip::line(arguments["pattern"].as_str().unwrap_or("?"), 200).replace('\n', "\\n");
        match folder_argument(arguments) {
            "." => format!("glob {pattern}"),
            path => format!("glob {pattern} in {path}"),
        }
    }

    fn run<'a>(&'a self, arguments: Value, _: Permit, cx: Cx) -> Running<'a> {
        Box::pin(async move {
            let arguments: Arguments = parse(self, arguments)?;
            blocking(move || glob(&arguments, &cx)).await
        })
    }
}

/// The folder among arguments that may not fit; the working directory when there is none.
pub(super) fn folder_argument(arguments: &Value) -> &str {
    super::path_argument(arguments).filter(|path| !path.trim().is_empty()).unwrap_or(".")
}

/// A file name's pattern, which has no slash, holds in any folder.
#[derive(Debug)]
pub(super) struct Pattern(GlobMatcher);

impl Pattern {
    /// The error is the reason alone.
    pub(super) fn new(pattern: &str, any_folder: bool) -> Result<Self, String> {
        let text = if any_folder { format!("**/{pattern}") } else { pattern.to_owned() };
        let glob = GlobBuilder::new(&text).literal_separator(true).backslash_escape(true).build();
        glob.map(|glob| Self(glob.compile_matcher())).map_err(|err| err.kind().to_string())
    }

    pub(super) fn matches(&self, relative: &Path) -> bool {
        self.0.is_match(relative)
    }
}

/// The folder that a pattern starts with, and the rest of it. `exists` tells whether a folder is really called so:
/// `[id]` is a name in some projects.
fn split(pattern: &str, exists: impl Fn(&str) -> bool) -> (&str, &str) {
    let mut cut = 0;
    for (at, _) in pattern.match_indices('/') {
        if pattern[cut..at].contains(META) && !exists(&pattern[..at]) {
            break;
        }
        cut = at + 1;
    }
    pattern.split_at(cut)
}

fn below(cwd: &Path, path: &str, folder: &str) -> PathBuf {
    paths::resolve(&paths::resolve(cwd, path), if folder.is_empty() { "." } else { folder })
}

struct Hit {
    path: PathBuf,
    modified: SystemTime,
    is_dir: bool,
}

fn glob(arguments: &Arguments, cx: &Cx) -> Result<Output, String> {
    let path = arguments.path.as_deref().filter(|path| !path.trim().is_empty()).unwrap_or(".");
    let asked = arguments.pattern.as_str();
    if asked.is_empty() {
        return Err("`pattern` is empty: give one such as `**/*.rs`".into());
    }
    let top = paths::resolve(&cx.cwd, path);
    if !top.is_dir() {
        return Err(no_folder(&top, cx));
    }
    let (folder, rest) = split(asked, |folder| below(&cx.cwd, path, folder).is_dir());
    let root = below(&cx.cwd, path, folder);
    let literal = || rest.contains(META) && root.join(rest).is_file();
    let pattern = match rest {
        "" => Pattern::new("**", false),
        _ if literal() => Pattern::new(&globset::escape(rest), false),
        _ => Pattern::new(rest, folder.is_empty() && !rest.contains('/')),
    };
    let pattern = pattern.map_err(|reason| {
        format!("`{asked}` is not a valid pattern: {reason}; a `\\` before a sign takes its meaning away")
    })?;
    if !root.is_dir() {
        let why = no_folder(&root, cx);
        return Ok(Output::text(format!("no files match `{asked}`: {why}"), "0 files"));
    }
    let walk = Walk::new(&cx.cwd, root.clone(), cx.cancel.clone()).hiding(cx.hidden.clone());
    if walk.is_hidden() {
        return Err(kept(&root, cx));
    }
    let walked = walk.by_rules(|entry| hit(entry, &pattern))?;
    if walked.found.iter().any(|hit| !hit.is_dir) {
        return Ok(list(walked, cx));
    }
    nothing(asked, &walk, walked, &pattern, cx)
}

/// What to say of a folder that cannot be searched.
pub(super) fn no_folder(path: &Path, cx: &Cx) -> String {
    let shown = paths::display(&cx.cwd, path);
    if path.symlink_metadata().is_ok() {
        return format!("`{shown}` is not a folder, or cannot be opened");
    }
    let near = paths::suggestions(&cx.cwd, path);
    let hint =
        if near.is_empty() { String::new() } else { format!("; did you mean `{}`?", near.join("` or `")) };
    format!("`{shown}` does not exist (working directory: `{}`){hint}", cx.cwd.display())
}

/// What to say of a place that a rule keeps from searches.
pub(super) fn kept(path: &Path, cx: &Cx) -> String {
    format!(
        "cannot search `{}`: a deny rule of the user hides it; go on without it, or tell the user what you need and why",
        paths::display(&cx.cwd, path)
    )
}

fn hit(entry: &Found<'_>, pattern: &Pattern) -> Option<Hit> {
    if !pattern.matches(entry.relative) {
        return None;
    }
    let path = entry.path.clone();
    let is_dir = entry.kind.is_dir();
    // A link to a file is listed, one to a folder is neither listed nor followed.
    let meta = if entry.kind.is_symlink() { path.metadata() } else { path.symlink_metadata() };
    let meta = meta.ok().filter(|meta| is_dir || meta.is_file())?;
    Some(Hit { path, modified: meta.modified().unwrap_or(SystemTime::UNIX_EPOCH), is_dir })
}

fn list(walked: Walked<Hit>, cx: &Cx) -> Output {
    let mut hits: Vec<_> = walked.found.into_iter().filter(|hit| !hit.is_dir).collect();
    hits.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| a.path.cmp(&b.path)));
    let mut text = String::new();
    let mut shown = 0;
    for hit in hits.iter().take(MAX_FILES) {
        let name = paths::display(&cx.cwd, &hit.path);
        if text.len() + name.len() > MAX_BYTES {
            break;
        }
        text.push_str(&name);
        text.push('\n');
        shown += 1;
    }
    if shown < hits.len() {
        let more = count(hits.len() - shown, "older file", "older files");
        text.push_str(&format!("[... {more} left out; narrow `pattern` or `path` to see them]\n"));
    }
    if !walked.ruled {
        text.push_str("[these are in a folder that is ignored; it was searched because it was named]\n");
    }
    text.push_str(&left_out(walked.hidden, walked.unreadable));
    text.truncate(text.trim_end().len());
    Output::text(text, count(hits.len(), "file", "files"))
}

/// Lines about what the user's rules hide and what could not be read, when there is any.
pub(super) fn left_out(hidden: usize, unreadable: usize) -> String {
    let mut lines = String::new();
    if hidden > 0 {
        let hides = if hidden == 1 { "place here is" } else { "places here are" };
        lines.push_str(&format!("[{hidden} {hides} hidden by a deny rule of the user]\n"));
    }
    if unreadable > 0 {
        lines.push_str(&format!("[{} could not be read]\n", count(unreadable, "folder", "folders")));
    }
    lines
}

fn nothing(
    asked: &str,
    walk: &Walk,
    walked: Walked<Hit>,
    pattern: &Pattern,
    cx: &Cx,
) -> Result<Output, String> {
    let mut text = format!("no files match `{asked}`");
    let mut dirs: Vec<_> = walked.found.into_iter().map(|hit| hit.path).collect();
    if !dirs.is_empty() {
        let number = count(dirs.len(), "folder does", "folders do");
        text.push_str(&format!("; {number}: {}", some_names(&cx.cwd, &mut dirs)));
    }
    if walked.ruled {
        let ignored =
            walk.without_rules(MAX_IGNORED, |entry| hit(entry, pattern).filter(|hit| !hit.is_dir))?;
        text.push_str(&about_ignored(
            ignored.found.into_iter().map(|hit| hit.path).collect(),
            ignored.complete,
            cx,
        ));
    }
    if asked.contains('[') {
        text.push_str("\n[`[` starts a set of characters; `\\[` is the sign itself]");
    }
    text.push('\n');
    text.push_str(&left_out(walked.hidden, walked.unreadable));
    text.truncate(text.trim_end().len());
    Ok(Output::text(text, "0 files"))
}

/// What the ignore rules hide, and how to get at it.
pub(super) fn about_ignored(mut files: Vec<PathBuf>, complete: bool, cx: &Cx) -> String {
    let least = if complete { "" } else { "at least " };
    match files.len() {
        0 if complete => "; ignored files do not match either".to_owned(),
        0 => "; ignored files were left out, and are too many to search them all".to_owned(),
        number => {
            let number = count(number, "ignored file matches", "ignored files match");
            format!(
                "; ignore rules were applied, and {least}{number}: {}\n[to search there, name the file or its folder in \
                 `path`; `read` opens it as well]",
                some_names(&cx.cwd, &mut files)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use super::*;
    use crate::message::text_of;
    use crate::tools::tests::{Folder, description_bytes};

    fn run(folder: &Folder, arguments: Value) -> String {
        folder
            .run(&Glob, arguments)
            .map_or_else(|err| format!("error: {err}"), |output| text_of(&output.content))
    }

    /// Gives files the same age, so that they are listed by their paths.
    fn put_all(folder: &Folder, files: &[&str]) {
        for file in files {
            let (name, content) = file.split_once('=').unwrap_or((file, ""));
            folder.put(name, content);
            let file = fs::File::options().write(true).open(folder.path(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
    }

    #[track_caller]
    fn check(folder: &Folder, pattern: &str, expected: &[&str]) {
        assert_eq!(
            run(folder, json!({"pattern": pattern})).lines().collect::<Vec<_>>(),
            expected,
            "{pattern}"
        );
    }

    #[test]
    fn a_pattern_without_a_slash_matches_in_any_folder() {
        let folder = Folder::new();
        put_all(
            &folder,
            &["a.rs", "src/b.rs", "src/deep/c.rs", ".github/ci.yml", ".git/config.yml", "src/d.txt"],
        );
        check(&folder, "*.rs", &["a.rs", "src/b.rs", "src/deep/c.rs"]);
        check(&folder, "./*.rs", &["a.rs"]);
        check(&folder, "src/*.rs", &["src/b.rs"]);
        check(&folder, "src/**/*.{rs,txt}", &["src/b.rs", "src/d.txt", "src/deep/c.rs"]);
        check(&folder, "src/deep/", &["src/deep/c.rs"]);
        check(&folder, "*/*.rs", &["src/b.rs"]);
        check(&folder, "**/*.yml", &[".github/ci.yml"]);
        check(&folder, "src/../a.rs", &["a.rs"]);
        check(&folder, &folder.path("src/*.rs").display().to_string(), &["src/b.rs"]);
        let text = run(&folder, json!({"pattern": "*.rs", "path": "src/deep"}));
        assert_eq!(text, "src/deep/c.rs");
    }

    #[test]
    fn a_name_that_looks_like_a_pattern_is_found() {
        let folder = Folder::new();
        put_all(&folder, &["app/[id]/page.tsx", "app/i/[x].tsx"]);
        check(&folder, "app/[id]/*.tsx", &["app/[id]/page.tsx"]);
        check(&folder, "app/i/[x].tsx", &["app/i/[x].tsx"]);
        assert!(run(&folder, json!({"pattern": "[x].tsx"})).contains("starts a set of characters"));
    }

    #[test]
    fn the_newest_comes_first_and_the_rest_is_counted() {
        let folder = Folder::new();
        for n in 0..1_010_u64 {
            let name = format!("f{n:04}");
            folder.put(&name, "");
            let file = fs::File::options().write(true).open(folder.path(&name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(n)).unwrap();
        }
        let output = folder.run(&Glob, json!({"pattern": "*"})).unwrap();
        let text = text_of(&output.content);
        assert!(text.starts_with("f1009\nf1008\n"), "{}", &text[..40]);
        assert!(
            text.ends_with("f0010\n[... 10 older files left out; narrow `pattern` or `path` to see them]")
        );
        assert_eq!(output.view, crate::tools::View::Line { text: "1010 files".into() });
    }

    #[test]
    fn ignored_files_are_found_when_named_and_counted_otherwise() {
        let folder = Folder::new();
        put_all(
            &folder,
            &[".gitignore=dist/\n*.env\nlib/x*", "dist/app.js", "my.env", "a.js", "lib/xy", "lib/z"],
        );
        check(&folder, "*.js", &["a.js"]);
        let note = "[these are in a folder that is ignored; it was searched because it was named]";
        check(&folder, "dist/app.js", &["dist/app.js", note]);
        for (pattern, expected) in
            [("my.env", "1 ignored file matches: my.env"), ("lib/xy", "lib/xy"), ("app.js", "dist/app.js")]
        {
            let text = run(&folder, json!({"pattern": pattern}));
            assert!(text.starts_with("no files match") && text.contains(expected), "{text}");
        }
        assert_eq!(
            run(&folder, json!({"pattern": "*.zig"})),
            "no files match `*.zig`; ignored files do not match either"
        );
    }

    #[test]
    fn what_cannot_be_found_says_why() {
        let folder = Folder::new();
        put_all(&folder, &["src/main.rs"]);
        for (arguments, expected) in [
            (json!({"pattern": "a[b"}), "error: `a[b` is not a valid pattern: unclosed character class"),
            (json!({"pattern": ""}), "error: `pattern` is empty"),
            (json!({"pattern": "*", "path": "scr"}), "error: `scr` does not exist"),
            (json!({"pattern": "*", "path": "src/main.rs"}), "error: `src/main.rs` is not a folder"),
            (json!({"pattern": "scr/*.rs"}), "no files match `scr/*.rs`: `scr` does not exist"),
            (json!({"pattern": "src"}), "no files match `src`; 1 folder does: src"),
        ] {
            let text = run(&folder, arguments);
            assert!(text.starts_with(expected), "{text}");
        }
        assert!(run(&folder, json!({"pattern": "*", "path": "sr"})).contains("did you mean `src`?"));
    }

    #[test]
    fn links_to_folders_are_not_followed_and_links_to_files_are_listed() {
        let folder = Folder::new();
        put_all(&folder, &["sub/a.rs"]);
        symlink("..", folder.path("sub/loop")).unwrap();
        symlink("a.rs", folder.path("sub/b.rs")).unwrap();
        symlink("nowhere", folder.path("sub/c.rs")).unwrap();
        check(&folder, "**/*", &["sub/a.rs", "sub/b.rs"]);
    }

    #[test]
    fn rules_see_where_a_pattern_leads() {
        let folder = Folder::new();
        let access = Glob.access(&json!({"pattern": "/etc/ssl/*", "path": "src"}), &folder.cx);
        assert_eq!(access.subjects[..2], ["src", "/etc/ssl"]);
        assert_eq!(Glob.access(&json!("broken"), &folder.cx).subjects, ["."]);
        assert_eq!(Glob.title(&json!({"pattern": "**/*.rs"})), "glob **/*.rs");
        assert_eq!(Glob.title(&json!({"pattern": "*", "path": "src"})), "glob * in src");
        assert_eq!(Glob.title(&json!(1)), "glob ?");
    }

    #[test]
    fn the_description_keeps_its_budget() {
        assert!(description_bytes(&Glob) <= 460, "{}", description_bytes(&Glob));
    }
}

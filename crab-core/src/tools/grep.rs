//! `grep`: lines of files that match a pattern.

mod page;

use std::borrow::Cow;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use page::Page;

use super::glob::{Pattern, about_ignored, folder_argument, kept, left_out, no_folder};
use super::{Access, Cx, Kind, Output, Permit, Running, Tool, blocking, parse};
use crate::search::Search;
use crate::text_file::{self, TextFile};
use crate::walk::{Found, Walk, Walked, count};
use crate::{clip, paths};

/// Bytes of what is shown.
const MAX_BYTES: usize = 30_000;
/// Files of one call that are only named.
const MAX_FILES: usize = 1_000;
/// Larger files are skipped.
const MAX_SIZE: u64 = 200 << 20;
/// What is looked at for matches among ignored files: so many files, up to this size.
const MAX_IGNORED: usize = 20_000;
const MAX_IGNORED_SIZE: u64 = 1 << 20;
/// Binary files that are named.
const MAX_BINARY: usize = 10;

/// Searches in files.
pub(crate) struct Grep;

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Shape {
    #[default]
    Content,
    #[serde(alias = "files_with_matches")]
    Files,
    Count,
}

#[derive(Deserialize)]
struct Arguments {
    pattern: String,
    #[serde(default, alias = "file_path")]
    path: Option<String>,
    #[serde(default)]
    glob: Option<String>,
    #[serde(default)]
    ignore_case: Option<bool>,
    #[serde(default, deserialize_with = "lines")]
    context: usize,
    #[serde(default)]
    output: Option<Shape>,
}

impl Tool for Grep {
    fn name(&self) -> &str {
        "grep"
    }

    fn description(&self) -> &str {
        "Searches files line by line for a regex (Rust `regex` syntax: no lookaround, no backreferences). `path`: file \
         or folder, default working directory; `glob` picks files, such as `*.rs`; `context`: lines around a match. Gives \
         PATH:LINE:TEXT in path order, at most 200 matches or 30 KB, and counts the rest; lines are cut to 500 bytes. Files \
         are chosen as in `glob`: ignored ones only when named. Binary ones are only named."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "pattern": {"type": "string"},
                "path": {"type": "string"},
                "glob": {"type": "string"},
                "ignore_case": {"type": "boolean"},
                "context": {"type": "integer"},
                "output": {"enum": ["content", "files", "count"]}
            },
            "required": ["pattern"]
        })
    }

    fn access(&self, arguments: &Value, cx: &Cx) -> Access {
        let subjects = paths::subjects(&cx.cwd, folder_argument(arguments));
        Access { kind: Kind::Read, subjects, reads: vec![], opaque: false, class: "every grep".into() }
    }

    fn title(&self, arguments: &Value) -> String {
        let pattern = clip::line(arguments["pattern"].as_str().unwrap_or("?"), 200).replace('\n', "\\n");
        let mut title = format!("grep \"{pattern}\"");
        let path = folder_argument(arguments);
        if path != "." {
            title.push_str(&format!(" in {path}"));
        }
        if let Some(glob) = arguments["glob"].as_str() {
            title.push_str(&format!(" ({glob})"));
        }
        title
    }

    fn run<'a>(&'a self, arguments: Value, _: Permit, cx: Cx) -> Running<'a> {
        Box::pin(async move {
            let arguments: Arguments = parse(self, arguments)?;
            blocking(move || grep(&arguments, &cx)).await
        })
    }
}

/// A number of lines as models write it: `3`, `3.0`, `"3"`.
fn lines<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    let written = match Value::deserialize(from)? {
        Value::Null => return Ok(0),
        Value::String(text) => text.trim().to_owned(),
        value => value.to_string(),
    };
    let whole = written.strip_suffix(".0").unwrap_or(&written);
    whole.parse().map_err(|_| serde::de::Error::custom("`context` is a whole number of lines"))
}

/// Which files are searched, by the `glob` argument; it may be meant from the named folder or the working directory.
struct Filter {
    pattern: Pattern,
    excludes: bool,
}

impl Filter {
    fn new(glob: &str) -> Result<Self, String> {
        let (excludes, text) = glob.strip_prefix('!').map_or((false, glob), |rest| (true, rest));
        let any_folder = !text.contains('/');
        let text = text.strip_prefix("./").unwrap_or(text);
        let text = if text.ends_with('/') { format!("{text}**") } else { text.to_owned() };
        let pattern = Pattern::new(&text, any_folder);
        let pattern =
            pattern.map_err(|reason| format!("`glob` `{glob}` is not a valid pattern: {reason}"))?;
        Ok(Self { pattern, excludes })
    }

    fn takes(&self, entry: &Found<'_>, cwd: &Path) -> bool {
        let from_cwd = entry.path.strip_prefix(cwd).unwrap_or(&entry.path);
        let fits = [entry.relative, from_cwd, &entry.path].iter().any(|path| self.pattern.matches(path));
        fits != self.excludes
    }
}

enum Outcome {
    Lines(usize),
    Binary,
    TooLarge,
    Failed,
}

struct Looked {
    path: PathBuf,
    outcome: Outcome,
}

struct Job<'a> {
    search: Search,
    filter: Option<Filter>,
    arguments: &'a Arguments,
    cx: &'a Cx,
    searched: AtomicUsize,
}

fn grep(arguments: &Arguments, cx: &Cx) -> Result<Output, String> {
    if arguments.pattern.is_empty() {
        return Err("`pattern` is empty: give a regex, such as `fn main`".into());
    }
    let search = Search::new(&arguments.pattern, arguments.ignore_case.unwrap_or(false))?;
    let filter = arguments.glob.as_deref().filter(|glob| !glob.is_empty()).map(Filter::new).transpose()?;
    let job = Job { search, filter, arguments, cx, searched: AtomicUsize::new(0) };
    let path = arguments.path.as_deref().filter(|path| !path.trim().is_empty()).unwrap_or(".");
    let root = paths::resolve(&cx.cwd, path);
    if !root.is_dir() {
        return job.one_file(root);
    }
    let walk = Walk::new(&cx.cwd, root.clone(), cx.cancel.clone()).hiding(cx.hidden.clone());
    if walk.is_hidden() {
        return Err(kept(&root, cx));
    }
    let mut walked = walk.by_rules(|entry| job.look(entry, MAX_SIZE))?;
    walked.found.sort_by(|a, b| a.path.cmp(&b.path));
    let notes = notes(&walked);
    let ruled = walked.ruled;
    let (files, binary) = matching(walked.found);
    if files.is_empty() && binary.is_empty() {
        let hidden = if ruled { job.ignored(&walk)? } else { String::new() };
        return Ok(job.nothing(&paths::display(&cx.cwd, &paths::resolve(&cx.cwd, path)), &hidden, &notes));
    }
    job.report(&files, &binary, &notes)
}

/// What the report says about files and folders that were not searched, or searched against the rules.
fn notes(walked: &Walked<Looked>) -> String {
    let number = |is: fn(&Outcome) -> bool| walked.found.iter().filter(|looked| is(&looked.outcome)).count();
    let mut notes = left_out(walked.hidden, walked.unreadable);
    let failed = number(|outcome| matches!(outcome, Outcome::Failed));
    if failed > 0 {
        notes.push_str(&format!("[{} could not be read]\n", count(failed, "file", "files")));
    }
    let large = number(|outcome| matches!(outcome, Outcome::TooLarge));
    if large > 0 {
        notes.push_str(&format!("[{} over 200 MB skipped]\n", count(large, "file", "files")));
    }
    if !walked.ruled {
        notes.push_str("[this folder is ignored; it was searched because it was named]\n");
    }
    notes
}

/// Files with the number of their matching lines, and binary files.
fn matching(found: Vec<Looked>) -> (Vec<(PathBuf, usize)>, Vec<PathBuf>) {
    let (mut files, mut binary) = (Vec::new(), Vec::new());
    for looked in found {
        match looked.outcome {
            Outcome::Lines(number) => files.push((looked.path, number)),
            Outcome::Binary => binary.push(looked.path),
            Outcome::TooLarge | Outcome::Failed => {}
        }
    }
    (files, binary)
}

impl Job<'_> {
    fn look(&self, entry: &Found<'_>, max_size: u64) -> Option<Looked> {
        if !entry.kind.is_file()
            || self.filter.as_ref().is_some_and(|filter| !filter.takes(entry, &self.cx.cwd))
        {
            return None;
        }
        let outcome = match load(&entry.path, max_size) {
            Ok(Some(bytes)) => {
                self.searched.fetch_add(1, Ordering::Relaxed);
                self.outcome(&bytes)?
            }
            Ok(None) => Outcome::TooLarge,
            Err(_) => Outcome::Failed,
        };
        Some(Looked { path: entry.path.clone(), outcome })
    }

    fn outcome(&self, bytes: &[u8]) -> Option<Outcome> {
        if text_file::is_binary(bytes) {
            return self.search.is_in(bytes).then_some(Outcome::Binary);
        }
        let goes_on = |_: &_| !self.cx.cancel.is_cancelled();
        match self.search.lines(&decode(bytes)).take_while(goes_on).count() {
            0 => None,
            number => Some(Outcome::Lines(number)),
        }
    }

    /// A file that was named is searched, whatever `glob` and the ignore files say.
    fn one_file(&self, path: PathBuf) -> Result<Output, String> {
        let shown = paths::display(&self.cx.cwd, &path);
        if path.symlink_metadata().is_err() {
            return Err(no_folder(&path, self.cx));
        }
        if self.cx.hidden.as_ref().is_some_and(|hidden| hidden(&paths::canonical(&path)) || hidden(&path)) {
            return Err(kept(&path, self.cx));
        }
        let loaded = load(&path, MAX_SIZE).map_err(|reason| format!("cannot search `{shown}`: {reason}"))?;
        let Some(bytes) = loaded else {
            return Err(format!("`{shown}` is larger than 200 MB: search it with a command in `bash`"));
        };
        self.searched.fetch_add(1, Ordering::Relaxed);
        match self.outcome(&bytes) {
            Some(Outcome::Lines(number)) => self.report(&[(path, number)], &[], ""),
            Some(_) => self.report(&[], &[path], ""),
            None => Ok(self.nothing(&shown, "", "")),
        }
    }

    fn ignored(&self, walk: &Walk) -> Result<String, String> {
        let searched = self.searched.load(Ordering::Relaxed);
        let hidden = walk.without_rules(MAX_IGNORED, |entry| self.look(entry, MAX_IGNORED_SIZE))?;
        self.searched.store(searched, Ordering::Relaxed);
        let complete =
            hidden.complete && !hidden.found.iter().any(|looked| matches!(looked.outcome, Outcome::TooLarge));
        let (files, binary) = matching(hidden.found);
        let all = files.into_iter().map(|(path, _)| path).chain(binary).collect();
        Ok(about_ignored(all, complete, self.cx))
    }

    fn nothing(&self, shown: &str, hidden: &str, notes: &str) -> Output {
        let searched = count(self.searched.load(Ordering::Relaxed), "file", "files");
        let glob = self.arguments.glob.as_deref().filter(|glob| !glob.is_empty());
        let glob = glob.map(|glob| format!(" that `glob` `{glob}` allows")).unwrap_or_default();
        let text = format!(
            "no matches for `{}` in `{shown}` ({searched}{glob}){hidden}\n{notes}",
            self.arguments.pattern
        );
        Output::text(text.trim_end(), "no matches")
    }

    fn report(&self, files: &[(PathBuf, usize)], binary: &[PathBuf], notes: &str) -> Result<Output, String> {
        let total: usize = files.iter().map(|(_, number)| number).sum();
        let mut text = match self.arguments.output.unwrap_or_default() {
            Shape::Content => self.content(files, total)?,
            Shape::Files => self.names(files, |name, _| name),
            Shape::Count => self.names(files, |name, number| format!("{name}:{number}")),
        };
        for path in binary.iter().take(MAX_BINARY) {
            text.push_str(&format!("{}: binary file matches\n", paths::display(&self.cx.cwd, path)));
        }
        if binary.len() > MAX_BINARY {
            let more =
                count(binary.len() - MAX_BINARY, "more binary file matches", "more binary files match");
            text.push_str(&format!("[... {more}]\n"));
        }
        text.push_str(notes);
        let mut line =
            format!("{} in {}", count(total, "match", "matches"), count(files.len(), "file", "files"));
        if !binary.is_empty() {
            line.push_str(&format!(", {}", count(binary.len(), "binary file", "binary files")));
        }
        Ok(Output::text(text.trim_end(), line))
    }

    fn names(&self, files: &[(PathBuf, usize)], show: impl Fn(String, usize) -> String) -> String {
        let mut text = String::new();
        for (shown, (path, number)) in files.iter().enumerate() {
            let line = show(paths::display(&self.cx.cwd, path), *number);
            if shown == MAX_FILES || text.len() + line.len() > MAX_BYTES {
                let left = &files[shown..];
                let matches = count(left.iter().map(|(_, number)| number).sum(), "match", "matches");
                let more = count(left.len(), "more file", "more files");
                text.push_str(&format!("[... {more} with {matches} left out; narrow `path` or `glob`]\n"));
                break;
            }
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    /// Files are read again for what is shown of them: to keep the lines of all would take memory without bound.
    fn content(&self, files: &[(PathBuf, usize)], total: usize) -> Result<String, String> {
        let secrets = self.cx.secrets.clone();
        let mut page = Page { context: self.arguments.context, secrets, ..Page::default() };
        for (path, _) in files {
            if page.full || self.cx.cancel.is_cancelled() {
                break;
            }
            page.path = paths::display(&self.cx.cwd, path);
            match load(path, MAX_SIZE) {
                Ok(Some(bytes)) => page.file(&self.search, &decode(&bytes)),
                // It was there a moment ago.
                _ => page.text.push_str(&format!("[`{}` changed during the search]\n", page.path)),
            }
        }
        if self.cx.cancel.is_cancelled() {
            return Err("interrupted".into());
        }
        let left = total.saturating_sub(page.matches);
        if left > 0 {
            page.text.push_str(&format!(
                "[... {} left out, of {total} in {}; narrow `pattern`, `path` or `glob`, or take `output` `count`]\n",
                count(left, "more match", "more matches"),
                count(files.len(), "file", "files")
            ));
        }
        Ok(page.text)
    }
}

/// The bytes of a regular file; none when it is larger than `max_size`.
fn load(path: &Path, max_size: u64) -> Result<Option<Vec<u8>>, String> {
    let (file, meta) = text_file::open(path)?;
    if meta.len() > max_size {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or_default() + 1);
    file.take(max_size + 1).read_to_end(&mut bytes).map_err(text_file::reason)?;
    Ok((bytes.len() as u64 <= max_size).then_some(bytes))
}

/// The text in UTF-8 where its BOM says what it is in, else as it is.
fn decode(bytes: &[u8]) -> Cow<'_, [u8]> {
    match bytes {
        [0xEF, 0xBB, 0xBF, ..] | [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] => {
            TextFile::decode(bytes).map_or(Cow::Borrowed(bytes), |file| file.body)
        }
        _ => Cow::Borrowed(bytes),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::message::text_of;
    use crate::tools::tests::{Folder, description_bytes};

    fn run(folder: &Folder, arguments: Value) -> String {
        folder
            .run(&Grep, arguments)
            .map_or_else(|err| format!("error: {err}"), |output| text_of(&output.content))
    }

    fn put_all(folder: &Folder, files: &[(&str, &str)]) {
        files.iter().for_each(|(name, content)| folder.put(name, content));
    }

    #[test]
    fn matches_come_in_path_order_with_their_lines() {
        let folder = Folder::new();
        put_all(
            &folder,
            &[("b.txt", "x\nNeedle\n"), ("a/c.rs", "needle\r\n\r\nneedle --no-verify"), (".h/d", "a needle")],
        );
        let output = folder.run(&Grep, json!({"pattern": "needle"})).unwrap();
        assert_eq!(text_of(&output.content), ".h/d:1:a needle\na/c.rs:1:needle\na/c.rs:3:needle --no-verify");
        assert_eq!(output.view, crate::tools::View::Line { text: "3 matches in 2 files".into() });
        for (arguments, expected) in [
            (
                json!({"pattern": "needle$", "ignore_case": true, "glob": "*.{rs,txt}"}),
                "a/c.rs:1:needle\nb.txt:2:Needle",
            ),
            (json!({"pattern": "needle", "output": "files"}), ".h/d\na/c.rs"),
            (json!({"pattern": "needle", "output": "count", "path": "a"}), "a/c.rs:2"),
            (json!({"pattern": "--no-verify", "path": "a/c.rs"}), "a/c.rs:3:needle --no-verify"),
            (json!({"pattern": "needle", "glob": "!*.rs"}), ".h/d:1:a needle"),
            (json!({"pattern": "needle", "glob": "a/**", "path": "a", "output": "files"}), "a/c.rs"),
        ] {
            assert_eq!(run(&folder, arguments), expected);
        }
    }

    #[test]
    fn context_is_shown_once_and_groups_are_parted() {
        let folder = Folder::new();
        folder.put("f", "1\n2\nx3\n4\nx5\n6\n7\n8\n9\nx10\n");
        folder.put("g", "x\n");
        let expected = "f-2-2\nf:3:x3\nf-4-4\nf:5:x5\nf-6-6\n--\nf-9-9\nf:10:x10\n--\ng:1:x";
        assert_eq!(run(&folder, json!({"pattern": "x", "context": "1"})), expected);
        let all = run(&folder, json!({"pattern": "x", "context": 90, "path": "f"}));
        assert_eq!(all.lines().count(), 10, "{all}");
        assert!(run(&folder, json!({"pattern": "x", "context": -1})).contains("`context` is a whole number"));
    }

    #[test]
    fn a_flood_is_cut_and_counted() {
        let folder = Folder::new();
        folder.put("one.txt", "a needle here\n".repeat(100_000));
        for n in 0..300 {
            folder.put(&format!("many/f{n:03}"), "a needle here\n".repeat(50));
        }
        let text = run(&folder, json!({"pattern": "needle", "path": "one.txt"}));
        assert!(
            text.contains(
                "one.txt:200:a needle here\n[... 99800 more matches left out, of 100000 in 1 file;"
            ),
            "{text}"
        );
        let text = run(&folder, json!({"pattern": "needle"}));
        assert!(text.contains(
            "many/f003:50:a needle here\n[... 114800 more matches left out, of 115000 in 301 files;"
        ));
        folder.put("wide", format!("{}\n", "w".repeat(400)).repeat(150));
        let text = run(&folder, json!({"pattern": "w", "path": "wide"}));
        assert!(text.len() < 31_000 && text.contains(" more matches left out, of 150 in 1 file"), "{text}");
    }

    #[test]
    fn a_long_line_is_cut_around_its_match() {
        let folder = Folder::new();
        folder.put("f", format!("{}needle{}\n", "é".repeat(1_000), "漢".repeat(1_000)));
        let text = run(&folder, json!({"pattern": "needle"}));
        assert!(
            text.starts_with("f:1:[... 1880 bytes] éé") && text.ends_with("漢漢 [... 2628 more bytes]"),
            "{text}"
        );
        assert!(text.contains("éneedle漢") && !text.contains('\u{FFFD}'), "{text}");
    }

    #[test]
    fn odd_bytes_do_not_hide_a_match() {
        let folder = Folder::new();
        folder.put("latin", b"needle \xE9 one\nx\nneedle\xFF\n");
        let source = "const a_line = 'of source';\n".repeat(20);
        folder.put("nul.mjs", format!("const s = '\0';\n{source}const needle = 2;\n"));
        folder.put("utf16", b"\xFF\xFEn\0e\0e\0d\0l\0e\0\n\0");
        folder.put("bom", "\u{FEFF}needle");
        folder.put("bin", [&(0..=255).collect::<Vec<u8>>()[..], b"needle"].concat());
        folder.put("other", "nothing");
        assert_eq!(
            run(&folder, json!({"pattern": "needle"})),
            "bom:1:needle\nlatin:1:needle \u{FFFD} one\nlatin:3:needle\u{FFFD}\nnul.mjs:22:const needle = 2;\nutf16:1:needle\n\
             bin: binary file matches"
        );
        assert_eq!(run(&folder, json!({"pattern": "needle", "path": "bin"})), "bin: binary file matches");
    }

    #[test]
    fn ignored_files_are_searched_when_named_and_counted_otherwise() {
        let folder = Folder::new();
        put_all(
            &folder,
            &[
                (".gitignore", "scripts/*\n*.env\n"),
                ("scripts/w.py", "needle"),
                ("my.env", "secret_env"),
                ("a", "z"),
            ],
        );
        let text = run(&folder, json!({"pattern": "needle", "path": "scripts"}));
        assert_eq!(
            text,
            "scripts/w.py:1:needle\n[this folder is ignored; it was searched because it was named]"
        );
        assert_eq!(run(&folder, json!({"pattern": "secret", "path": "my.env"})), "my.env:1:secret_env");
        let text = run(&folder, json!({"pattern": "secret"}));
        let expected = "no matches for `secret` in `.` (2 files); ignore rules were applied, and 1 ignored file matches: my.env\n";
        assert!(text.starts_with(expected), "{text}");
        let text = run(&folder, json!({"pattern": "nowhere", "glob": "*.go"}));
        assert_eq!(
            text,
            "no matches for `nowhere` in `.` (0 files that `glob` `*.go` allows); ignored files do not match either"
        );
    }

    #[test]
    fn what_cannot_be_searched_says_why() {
        let folder = Folder::new();
        folder.put("src/main.rs", "foo(1)\n");
        let fifo = folder.path("src/fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        symlink("..", folder.path("src/loop")).unwrap();
        assert_eq!(run(&folder, json!({"pattern": "foo"})), "src/main.rs:1:foo(1)");
        for (arguments, expected) in [
            (json!({"pattern": "foo("}), "as literal text it is `foo\\(`"),
            (json!({"pattern": "a\\nb"}), "error: `a\\nb` asks for a line feed"),
            (json!({"pattern": ""}), "error: `pattern` is empty"),
            (json!({"pattern": "x", "path": "src/fifo"}), "is a FIFO"),
            (json!({"pattern": "x", "path": "src/mian.rs"}), "did you mean `src/main.rs`?"),
            (json!({"pattern": "x", "glob": "{a"}), "error: `glob` `{a` is not a valid pattern"),
            (json!({"pattern": "x", "output": "all"}), "unknown variant `all`"),
        ] {
            let text = run(&folder, arguments);
            assert!(text.starts_with("error: ") && text.contains(expected), "{text}");
        }
    }

    /// Hides what a deny rule for `read` is about.
    fn deny(folder: &mut Folder, pattern: &str) {
        let rule = crate::gate::Rule::parse(&format!("read({pattern})")).unwrap();
        let mut gate = crate::gate::Gate::default();
        (gate.deny, gate.roots) = (vec![rule], vec![folder.cx.cwd.clone()]);
        folder.cx.hidden = gate.hidden(&["read"], &["read"]);
    }

    #[test]
    fn what_a_rule_hides_is_not_searched_by_any_way_and_is_said() {
        let (mut folder, elsewhere) = (Folder::new(), Folder::new());
        elsewhere.put("sub/a", "needle\n");
        symlink(&elsewhere.cx.cwd, folder.path("out")).unwrap();
        put_all(&folder, &[("secrets/k", "needle\n"), ("open/k", "needle\n"), (".gitignore", "dist\n")]);
        folder.put("dist/k", "needle\n");
        let glob = |folder: &Folder, pattern: &str| match folder
            .run(&super::super::glob::Glob, json!({"pattern": pattern}))
        {
            Ok(output) => text_of(&output.content),
            Err(err) => err,
        };
        for pattern in ["out/**", "out", "./out/**", "out/sub/**"] {
            deny(&mut folder, pattern);
            for path in ["out", "out/sub", &elsewhere.path("sub").display().to_string()] {
                let text = run(&folder, json!({"pattern": "needle", "path": path}));
                assert!(!text.contains(":1:") && text.contains("deny rule of the user"), "{pattern}: {text}");
                let text = glob(&folder, &format!("{path}/**"));
                assert!(
                    !text.contains("sub/a") && text.contains("deny rule of the user"),
                    "{pattern}: {text}"
                );
            }
            let text = run(&folder, json!({"pattern": "needle", "path": "out/sub/a"}));
            assert!(text.contains("a deny rule of the user hides it"), "{text}");
        }
        deny(&mut folder, "secrets/**");
        let note = "[1 place here is hidden by a deny rule of the user]";
        assert_eq!(run(&folder, json!({"pattern": "needle"})), format!("open/k:1:needle\n{note}"));
        assert_eq!(glob(&folder, "*k"), format!("open/k\n{note}"));
        // Not "this folder is ignored": it is not.
        deny(&mut folder, "dist/k");
        let text = run(&folder, json!({"pattern": "needle", "path": "dist"}));
        assert!(text.contains("[1 place here is hidden") && !text.contains("folder is ignored"), "{text}");
        deny(&mut folder, "**/*");
        let text = run(&folder, json!({"pattern": "needle", "path": elsewhere.path("sub")}));
        assert!(!text.contains(":1:") && text.contains("hides it"), "{text}");
    }

    #[test]
    fn a_title_names_the_pattern_and_the_place() {
        for (arguments, title) in [
            (json!({"pattern": "needle", "path": "src"}), "grep \"needle\" in src"),
            (json!({"pattern": "a\nb", "glob": "*.rs"}), "grep \"a\\nb\" (*.rs)"),
            (json!([]), "grep \"?\""),
        ] {
            assert_eq!(Grep.title(&arguments), title);
        }
    }

    #[test]
    fn the_description_keeps_its_budget() {
        assert!(description_bytes(&Grep) <= 720, "{}", description_bytes(&Grep));
    }
}

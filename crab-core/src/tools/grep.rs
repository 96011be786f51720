//! `grep`: finds lines by a regular expression.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Access, Cx, Kind, Output, Permit, Running, Tool};
use crate::lines::{Matches, decode, is_binary};
use crate::paths;
use crate::walk::{Pattern, Walk, Walked, count};

/// Finds lines in files.
pub(super) struct Grep;

/// Matching lines in one result.
const MATCHES: usize = 200;
/// Files in one result that names only files.
const FILES: usize = 1_000;
/// Bytes in one result.
const BYTES: usize = 30_000;
/// Bytes of one line.
const LINE: usize = 500;
/// Lines of context, at most.
const CONTEXT: usize = 50;
/// Larger files are left out.
const FILE_SIZE: u64 = 100 << 20;
/// How long ignored files are searched when nothing else matched.
const SECOND_LOOK: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Content,
    Files,
    Count,
}

impl Mode {
    /// Lines of a result that count.
    fn limit(self) -> usize {
        if self == Self::Content { MATCHES } else { FILES }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    context: usize,
    #[serde(default)]
    output: Mode,
}

impl Tool for Grep {
    fn name(&self) -> &str {
        "grep"
    }

    fn description(&self) -> &str {
        "Finds lines by a regex (Rust syntax: no look-around, no backreferences; one line at a time). Prints path:line:text in \
         path order, at most 200 matches or 30000 bytes, and how many were left out. `output`: content (default), files, count. \
         `glob` picks files (*.rs, !*.min.js). Hidden files are included; .git, binary files, files over 100 MB and what \
         .gitignore or .ignore exclude are not, unless named by `path`."
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
                "output": {"enum": ["content", "files", "count"]},
            },
            "required": ["pattern"],
        })
    }

    fn access(&self, arguments: &Value, cx: &Cx) -> Access {
        Access {
            kind: Kind::Read,
            subjects: paths::subjects(&cx.cwd, arguments["path"].as_str().unwrap_or(".")),
            opaque: false,
            class: "every search in files".into(),
        }
    }

    fn title(&self, arguments: &Value) -> String {
        let pattern = arguments["pattern"].as_str().unwrap_or_default();
        arguments["path"].as_str().map_or(pattern.to_owned(), |path| format!("{pattern} in {path}"))
    }

    fn run<'a>(&'a self, arguments: Value, _permit: Permit, cx: Cx) -> Running<'a> {
        Box::pin(async move {
            let arguments: Arguments = super::parse(self, arguments)?;
            let search = tokio::task::spawn_blocking(move || {
                Search::new(&arguments, &cx)?.run(arguments.path.is_some())
            });
            search.await.map_err(|err| format!("the search failed: {err}"))?
        })
    }
}

struct Search<'a> {
    root: PathBuf,
    regex: Regex,
    glob: Option<(Pattern, bool)>,
    arguments: &'a Arguments,
    cx: &'a Cx,
}

/// What a search found.
#[derive(Default)]
struct Found {
    /// The first files in path order, as many as a result can show.
    files: BTreeMap<PathBuf, Hits>,
    /// Lines in `files` that a result can show.
    stored: usize,
    lines: usize,
    file_count: usize,
    large: usize,
    unreadable: usize,
}

/// What matches in one file.
struct Hits {
    lines: Vec<Line>,
    count: usize,
}

/// A line to show.
struct Line {
    text: String,
    is_match: bool,
}

impl<'a> Search<'a> {
    fn new(arguments: &'a Arguments, cx: &'a Cx) -> Result<Self, String> {
        let root = paths::resolve(&cx.cwd, arguments.path.as_deref().unwrap_or("."));
        let metadata = std::fs::metadata(&root);
        let metadata =
            metadata.map_err(|err| format!("`path` cannot be searched: `{}`: {err}", root.display()))?;
        if !metadata.is_file() && !metadata.is_dir() {
            return Err(format!("`path` is neither a file nor a folder: `{}`", root.display()));
        }
        let glob = arguments.glob.as_deref().map(|glob| {
            let (glob, is_wanted) = glob.strip_prefix('!').map_or((glob, true), |glob| (glob, false));
            Pattern::new(&root, glob).map(|pattern| (pattern, is_wanted))
        });
        Ok(Self { regex: compile(arguments)?, root, glob: glob.transpose()?, arguments, cx })
    }

    fn run(&self, is_named: bool) -> Result<Output, String> {
        let (found, walked) = self.search(false, None)?;
        if found.file_count > 0 {
            return Ok(self.report(&found, &walked, &[]));
        }
        let (ignored, second) = self.search(true, Some(Instant::now() + SECOND_LOOK))?;
        let least = if second.is_whole { "" } else { "at least " };
        let amount = format!(
            "{least}{} in {}",
            count(ignored.lines, "matching line"),
            count(ignored.file_count, "file")
        );
        if is_named && ignored.file_count > 0 && self.root != self.cx.cwd {
            return Ok(self.report(
                &ignored,
                &second,
                &[format!("{amount}, which ignore rules leave out elsewhere")],
            ));
        }
        let mut text = format!(
            "no matches for `{}` in `{}`; ignore rules were applied",
            self.arguments.pattern,
            paths::display(&self.cx.cwd, &self.root)
        );
        if let Some(path) = ignored.files.keys().next() {
            let path = paths::display(&self.cx.cwd, path);
            text.push_str(&format!(
                " and left out {amount}, such as `{path}`: name a file or folder as `path` to search it"
            ));
        }
        self.notes(&found, &walked).iter().for_each(|note| text.push_str(&format!("\n[{note}]")));
        Ok(Output::text(text, "no matches"))
    }

    fn search(&self, with_ignored: bool, deadline: Option<Instant>) -> Result<(Found, Walked), String> {
        let found = Mutex::new(Found::default());
        if self.root.is_file() {
            self.visit(&self.root, &found);
            let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
            if found.unreadable > 0 {
                return Err(format!("`path` cannot be read: `{}`; is it yours?", self.root.display()));
            }
            return Ok((found, Walked { unreadable: 0, is_whole: true }));
        }
        let walk = Walk { root: &self.root, with_ignored, cancel: &self.cx.cancel, deadline };
        let walked = walk.each(|entry| {
            let is_wanted =
                self.glob.as_ref().is_none_or(|(glob, is_wanted)| glob.matches(entry.path()) == *is_wanted);
            if is_wanted && entry.file_type().is_some_and(|kind| kind.is_file()) {
                self.visit(entry.path(), &found);
            }
        });
        Ok((found.into_inner().unwrap_or_else(PoisonError::into_inner), walked))
    }

    fn visit(&self, path: &Path, found: &Mutex<Found>) {
        let size = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        if size > FILE_SIZE {
            lock(found).large += 1;
            return;
        }
        let Ok(content) = std::fs::read(path) else {
            lock(found).unreadable += 1;
            return;
        };
        let content = decode(content);
        if is_binary(&content) {
            return;
        }
        let hits = self.hits(path, &content);
        if hits.count > 0 {
            lock(found).add(path, hits, self.arguments.output.limit());
        }
    }

    fn hits(&self, path: &Path, content: &[u8]) -> Hits {
        let mut matches = Matches::new(&self.regex, content);
        let mode = self.arguments.output;
        if mode == Mode::Files {
            return Hits { count: usize::from(matches.next().is_some()), lines: vec![] };
        }
        if mode == Mode::Count {
            return Hits { count: matches.count(), lines: vec![] };
        }
        let mut numbered = Vec::new();
        let (mut number, mut counted) = (1, 0);
        for (line, found) in matches.by_ref().take(MATCHES) {
            number += newlines(&content[counted..line.start]);
            counted = line.start;
            numbered.push((number, line, found));
        }
        let count = numbered.len() + matches.count();
        let path = paths::display(&self.cx.cwd, path);
        let lines = match self.arguments.context.min(CONTEXT) {
            0 => numbered
                .iter()
                .map(|(number, line, found)| Line {
                    text: format!("{path}:{number}:{}", clip(&content[line.clone()], found)),
                    is_match: true,
                })
                .collect(),
            context => with_context(&path, content, &numbered, context),
        };
        Hits { lines, count }
    }

    fn report(&self, found: &Found, walked: &Walked, first: &[String]) -> Output {
        let mut text = String::new();
        let (mut shown, mut shown_files) = (0, 0);
        let mode = self.arguments.output;
        let (total, what) = match mode {
            Mode::Content => (found.lines, "matching lines"),
            Mode::Files | Mode::Count => (found.file_count, "files"),
        };
        'files: for (path, hits) in &found.files {
            let path = paths::display(&self.cx.cwd, path);
            let lines = match mode {
                Mode::Files => &[Line { text: path, is_match: true }][..],
                Mode::Count => &[Line { text: format!("{path}:{}", hits.count), is_match: true }],
                Mode::Content => &hits.lines,
            };
            shown_files += 1;
            if self.arguments.context > 0 && !text.is_empty() && mode == Mode::Content {
                text.push_str("--\n");
            }
            for line in lines {
                if text.len() + line.text.len() > BYTES || (line.is_match && shown == mode.limit()) {
                    break 'files;
                }
                text.push_str(&line.text);
                text.push('\n');
                shown += usize::from(line.is_match);
            }
        }
        let mut notes = first.to_vec();
        if shown < total {
            notes.push(format!(
                "{shown} of {total} {what} shown, {shown_files} of {} begun; {} left out: narrow `pattern`, `path` or `glob`",
                count(found.file_count, "file"),
                total - shown,
            ));
        }
        notes.extend(self.notes(found, walked));
        notes.iter().for_each(|note| text.push_str(&format!("[{note}]\n")));
        text.pop();
        let line = match mode {
            Mode::Files => count(total, "file"),
            _ => format!("{} in {}", count(found.lines, "matching line"), count(found.file_count, "file")),
        };
        Output::text(text, line)
    }

    fn notes(&self, found: &Found, walked: &Walked) -> Vec<String> {
        let mut notes = Vec::new();
        if self.cx.cancel.is_cancelled() {
            notes.push("interrupted: not everything was searched".to_owned());
        }
        if found.large > 0 {
            notes.push(format!("{} over 100 MB left out; use bash for such", count(found.large, "file")));
        }
        let unreadable = found.unreadable + walked.unreadable;
        if unreadable > 0 {
            notes.push(format!("{} could not be read", count(unreadable, "place")));
        }
        notes
    }
}

impl Found {
    /// Keeps no more than a result can show: the search ends in any order, the result is in path order.
    fn add(&mut self, path: &Path, hits: Hits, limit: usize) {
        let weight = |hits: &Hits| hits.lines.iter().filter(|line| line.is_match).count().max(1);
        self.lines += hits.count;
        self.file_count += 1;
        self.stored += weight(&hits);
        self.files.insert(path.to_owned(), hits);
        while let Some(last) = self.files.last_entry()
            && self.stored - weight(last.get()) >= limit
        {
            self.stored -= weight(&last.remove());
        }
    }
}

fn lock(found: &Mutex<Found>) -> MutexGuard<'_, Found> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

fn compile(arguments: &Arguments) -> Result<Regex, String> {
    let pattern = &arguments.pattern;
    if names_line_break(pattern) {
        return Err(format!(
            "the pattern `{}` holds a line break, but lines are matched one at a time: search for one of the lines and ask for `context`",
            pattern.escape_debug()
        ));
    }
    let mut builder = RegexBuilder::new(pattern);
    builder.multi_line(true).crlf(true).case_insensitive(arguments.ignore_case);
    let hint = "to find it as plain text, escape ( ) [ ] { } . * + ? ^ $ | \\ with a backslash";
    builder.build().map_err(|err| format!("the pattern `{pattern}` is not valid: {err}\n{hint}"))
}

/// `[^\n]` is fine, so brackets don't count.
fn names_line_break(pattern: &str) -> bool {
    let (mut in_brackets, mut chars) = (false, pattern.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') if !in_brackets => return true,
                _ => {}
            },
            '\n' => return true,
            '[' => in_brackets = true,
            ']' => in_brackets = false,
            _ => {}
        }
    }
    false
}

fn newlines(content: &[u8]) -> usize {
    content.iter().filter(|byte| **byte == b'\n').count()
}

/// The lines with those around them; `--` stands for a gap.
fn with_context(
    path: &str,
    content: &[u8],
    numbered: &[(usize, Range<usize>, Range<usize>)],
    context: usize,
) -> Vec<Line> {
    let matching: BTreeMap<usize, &Range<usize>> =
        numbered.iter().map(|(number, _, found)| (*number, found)).collect();
    let mut all = content.split(|byte| *byte == b'\n').zip(1..).peekable();
    let last = if content.ends_with(b"\n") { newlines(content) } else { newlines(content) + 1 };
    let mut lines = Vec::new();
    let mut shown = 0;
    for number in matching.keys() {
        let from = number.saturating_sub(context).max(shown + 1);
        let to = (number + context).min(last);
        if shown > 0 && from > shown + 1 {
            lines.push(Line { text: "--".into(), is_match: false });
        }
        while let Some((line, at)) = all.next_if(|(_, at)| *at <= to) {
            if at < from {
                continue;
            }
            let found = matching.get(&at);
            let sign = if found.is_some() { ':' } else { '-' };
            let text = format!("{path}{sign}{at}{sign}{}", clip(line, found.map_or(&(0..0), |found| found)));
            lines.push(Line { text, is_match: found.is_some() });
        }
        shown = to;
    }
    lines
}

/// The line as text; of a long one, what is around the match.
fn clip(line: &[u8], found: &Range<usize>) -> String {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() <= LINE {
        return String::from_utf8_lossy(line).into_owned();
    }
    let from = found.start.saturating_sub(LINE / 4).min(line.len() - LINE);
    let to = from + LINE;
    let is_inside = |at: usize| line.get(at).is_some_and(|byte| (0x80..0xc0).contains(byte));
    let from = (from..from + 4).find(|at| !is_inside(*at)).unwrap_or(from);
    let to = (to..to + 4).find(|at| !is_inside(*at)).unwrap_or(to).min(line.len());
    let shown = String::from_utf8_lossy(&line[from..to]);
    format!("[... {from} bytes]{shown}[{} bytes more ...]", line.len() - to)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::message::text_of;

    fn place(files: &[(&str, &[u8])]) -> (tempfile::TempDir, Cx) {
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

    async fn grep(cx: &Cx, arguments: Value) -> String {
        match Grep.run(arguments, Permit::for_tests(), cx.clone()).await {
            Ok(output) => text_of(&output.content),
            Err(err) => format!("error: {err}"),
        }
    }

    /// What `pattern` finds in one file.
    async fn finds(content: &[u8], pattern: &str) -> String {
        let (_folder, cx) = place(&[("f", content)]);
        grep(&cx, json!({"pattern": pattern})).await
    }

    #[tokio::test]
    async fn lines_are_matched_one_at_a_time() {
        for (content, pattern, expected) in [
            (&b"one\ntwo\n"[..], "^t.o$", "f:2:two"),
            (b"a\r\nb\r\n", "a$", "f:1:a"),
            (b"a\nb\n", "a\\s+b|b", "f:2:b"),
            (b"ab\nc", "b[^x]|a", "f:1:ab"),
            (b"x\n\ny\n", "^$", "f:2:"),
            (b"x\ny", "[^\\n]*", "f:1:x\nf:2:y"),
            (b"git commit --no-verify\nrm -f x\n", "--no-verify", "f:1:git commit --no-verify"),
            (b"git commit --no-verify\nrm -f x\n", "-f", "f:2:rm -f x"),
            (
                b"1 needle one\n\xff\xfe needle two\nneedle three \xc3",
                "needle",
                "f:1:1 needle one\nf:2:\u{fffd}\u{fffd} needle two\nf:3:needle three \u{fffd}",
            ),
            (b"a;\n// stray \x00 byte\nneedle = 2;\n", "needle", "f:3:needle = 2;"),
            (b"\xef\xbb\xbffirst\n", "^first", "f:1:first"),
            (b"\xff\xfea\x00\n\x00b\x00", "b", "f:2:b"),
            ("Ünï\n".as_bytes(), "(?i)üN", "f:1:Ünï"),
        ] {
            assert_eq!(finds(content, pattern).await, expected, "{pattern}");
        }
        let endless = finds(&b"a needle here\n".repeat(100_000), "needle[^x]*").await;
        assert!(endless.contains("200 of 100000"));
        assert!(finds(&[0; 100], "\\x00").await.starts_with("no matches"));
    }

    #[tokio::test]
    async fn a_bad_pattern_is_an_error_with_the_reason() {
        for (pattern, expected) in [
            ("foo(", "unclosed group"),
            ("(?<=a)b", "look-around"),
            ("a\\nb", "line break"),
            ("a\nb", "line break"),
            ("(a)\\1", "backreferences"),
        ] {
            let text = finds(b"foo(1)\nab\n", pattern).await;
            assert!(text.starts_with("error: ") && text.contains(expected), "{text}");
        }
        let (_folder, cx) = place(&[]);
        assert!(grep(&cx, json!({"pattern": "x", "path": "gone"})).await.contains("cannot be searched"));
        assert!(grep(&cx, json!({"pattern": "x", "output": "all"})).await.contains("unknown variant `all`"));
        assert!(grep(&cx, json!({"pattern": "x", "glob": "[a"})).await.contains("not valid"));
    }

    #[tokio::test]
    async fn files_are_searched_in_path_order_by_the_rules_of_glob() {
        let (_folder, cx) = place(&[
            (".gitignore", b"x.log\nscripts/*\nnode_modules/\n"),
            (".ignore", b"y.log\n"),
            (".git/config", b"needle"),
            (".github/ci.yml", b"needle: 1\n"),
            ("a/b.rs", b"needle\n"),
            ("a-c.rs", b"hay\nNEEDLE\n"),
            ("node_modules/m.js", b"needle\n"),
            ("scripts/w.py", b"deep needle\n"),
            ("x.log", b"needle"),
            ("y.log", b"needle"),
            ("z.log", b"needle"),
        ]);
        std::os::unix::fs::symlink("..", cx.cwd.join("a/loop")).unwrap();
        let check = async |arguments: Value, expected: &str| assert_eq!(grep(&cx, arguments).await, expected);
        check(json!({"pattern": "needle"}), ".github/ci.yml:1:needle: 1\na/b.rs:1:needle\nz.log:1:needle")
            .await;
        check(
            json!({"pattern": "needle", "glob": "*.rs", "ignore_case": true}),
            "a/b.rs:1:needle\na-c.rs:2:NEEDLE",
        )
        .await;
        check(json!({"pattern": "needle", "glob": "!*.{yml,log}"}), "a/b.rs:1:needle").await;
        check(json!({"pattern": "needle", "output": "files", "path": "a"}), "a/b.rs").await;
        check(json!({"pattern": "n", "output": "count", "glob": "*.yml"}), ".github/ci.yml:1").await;
        check(json!({"pattern": "needle", "path": "x.log"}), "x.log:1:needle").await;
        check(json!({"pattern": "needle", "path": "node_modules"}), "node_modules/m.js:1:needle").await;
        let named =
            "scripts/w.py:1:deep needle\n[1 matching line in 1 file, which ignore rules leave out elsewhere]";
        check(json!({"pattern": "needle", "path": "scripts"}), named).await;
        let hidden = "no matches for `deep` in `.`; ignore rules were applied and left out 1 matching line in 1 file, \
                      such as `scripts/w.py`: name a file or folder as `path` to search it";
        check(json!({"pattern": "deep"}), hidden).await;
        check(json!({"pattern": "absent"}), "no matches for `absent` in `.`; ignore rules were applied")
            .await;
    }

    #[tokio::test]
    async fn context_is_shown_once_and_gaps_are_marked() {
        let (_folder, cx) = place(&[("f", b"1\nx2\n3\nx4\n5\n6\n7\nx8\n"), ("g", b"x\n")]);
        let text = grep(&cx, json!({"pattern": "x", "context": 1})).await;
        assert_eq!(text, "f-1-1\nf:2:x2\nf-3-3\nf:4:x4\nf-5-5\n--\nf-7-7\nf:8:x8\n--\ng:1:x");
    }

    #[tokio::test]
    async fn many_matches_are_bounded_and_counted() {
        let (_folder, cx) = place(&[("one.txt", &b"a needle here\n".repeat(100_000))]);
        let text = grep(&cx, json!({"pattern": "needle"})).await;
        assert!(text.len() < BYTES + 300 && text.starts_with("one.txt:1:"));
        assert!(
            text.contains("[200 of 100000 matching lines shown, 1 of 1 file begun; 99800 left out"),
            "{text}"
        );
        for number in 0..300 {
            std::fs::write(cx.cwd.join(format!("f{number:04}.txt")), "needle\n".repeat(3)).unwrap();
        }
        let text = grep(&cx, json!({"pattern": "needle"})).await;
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["f0000.txt:1:needle", "f0000.txt:2:needle"]);
        assert_eq!(lines[199], "f0066.txt:2:needle");
        assert!(
            lines[200].starts_with("[200 of 100900 matching lines shown, 67 of 301 files begun"),
            "{}",
            lines[200]
        );
        let text = grep(&cx, json!({"pattern": "needle", "output": "files"})).await;
        assert_eq!(text.lines().count(), 301);
    }

    #[tokio::test]
    async fn a_long_line_is_clipped_around_the_match() {
        let line = format!("{}needle{}", "é".repeat(5_000), "b".repeat(10_000));
        let text = finds(line.as_bytes(), "needle").await;
        assert!(text.len() < LINE + 100 && text.contains("éneedleb") && !text.contains('\u{fffd}'), "{text}");
        assert!(text.contains("bytes]") && text.ends_with("bytes more ...]"));
    }

    #[test]
    fn what_the_model_reads_about_it_keeps_its_budget() {
        let bytes = Grep.name().len() + Grep.description().len() + Grep.schema().to_string().len();
        assert!(bytes <= 720, "{bytes}");
    }
}

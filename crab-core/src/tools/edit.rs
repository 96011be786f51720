//! `edit`: exact replacements in a file, all or none.

use std::ops::Range;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::write::{counts, failed};
use super::{Access, Cx, Kind, Output, Permit, Running, Tool, View, blocking, parse};
use crate::message::Part;
use crate::text_file::{self, Encoding, LineEnds, TextFile, break_at, find_all, line_number};
use crate::{diff, nearest, paths, replace};

/// Edits files.
pub(crate) struct Edit;

#[derive(Deserialize)]
struct Arguments {
    path: String,
    edits: Vec<Replacement>,
}

#[derive(Deserialize)]
struct Replacement {
    old: String,
    new: String,
}

impl Tool for Edit {
    fn name(&self) -> &str {
        "edit"
    }

    fn description(&self) -> &str {
        "Replaces text in a file read in this session and unchanged since. Each `old` is literal and must occur exactly \
         once in the file as it is before the call: add lines around it until it does. Edits must not overlap; all are \
         made or none. A line break in `old` also matches CRLF, and those in `new` become the file's own; no other byte \
         changes. An error says for each edit what is wrong: not found (with the nearest place and how it differs), \
         found N times (with lines), or changed since read (read again)."
    }

    fn schema(&self) -> Value {
        let text = json!({"type": "string"});
        json!({
            "type": "object",
            "properties": {
                "path": text,
                "edits": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"old": text, "new": text}, "required": ["old", "new"]}
                }
            },
            "required": ["path", "edits"]
        })
    }

    fn access(&self, arguments: &Value, cx: &Cx) -> Access {
        super::path_access(Kind::Write, "every write and edit", arguments, cx)
    }

    fn title(&self, arguments: &Value) -> String {
        format!("edit {}", super::path_argument(arguments).unwrap_or("?"))
    }

    fn preview(&self, arguments: &Value, cx: &Cx) -> View {
        let plan = parse(self, canonical(arguments.clone())).and_then(|arguments| plan(&arguments, cx));
        match plan {
            Ok(plan) => diff::view(&plan.shown, &plan.old, &plan.new),
            Err(reason) => View::Line { text: reason },
        }
    }

    fn run<'a>(&'a self, arguments: Value, _: Permit, cx: Cx) -> Running<'a> {
        Box::pin(async move {
            let arguments: Arguments = parse(self, canonical(arguments))?;
            blocking(move || edit(&arguments, &cx)).await
        })
    }
}

const OLD: [&str; 4] = ["old_string", "old_text", "oldText", "old_str"];
const NEW: [&str; 4] = ["new_string", "new_text", "newText", "new_str"];

/// The one shape for the shapes that models send and that can mean only one thing. Whatever else comes stays as it
/// is, for the error to show.
fn canonical(arguments: Value) -> Value {
    let Value::Object(mut fields) = arguments else { return arguments };
    rename(&mut fields, &["file_path"], "path");
    rename(&mut fields, &OLD, "old");
    rename(&mut fields, &NEW, "new");
    if !fields.contains_key("edits") && fields.contains_key("old") && fields.contains_key("new") {
        let pair: Map<_, _> = ["old", "new"].iter().filter_map(|key| fields.remove_entry(*key)).collect();
        fields.insert("edits".into(), Value::Object(pair));
    }
    if let Some(edits) = fields.get_mut("edits") {
        let list = match unquoted(edits.take()) {
            object @ Value::Object(_) => Value::Array(vec![object]),
            other => other,
        };
        *edits = match list {
            Value::Array(items) => items.into_iter().map(one_edit).collect(),
            other => other,
        };
    }
    Value::Object(fields)
}

fn one_edit(value: Value) -> Value {
    let mut value = unquoted(value);
    if let Value::Object(fields) = &mut value {
        rename(fields, &OLD, "old");
        rename(fields, &NEW, "new");
    }
    value
}

fn rename(fields: &mut Map<String, Value>, spellings: &[&str], name: &str) {
    let Some(spelling) = spellings.iter().find(|spelling| fields.contains_key(**spelling)) else { return };
    if !fields.contains_key(name)
        && let Some(value) = fields.remove(*spelling)
    {
        fields.insert(name.into(), value);
    }
}

/// The list or object that a string holds as JSON, also when its strings have raw line breaks and tabs.
fn unquoted(value: Value) -> Value {
    let Value::String(text) = &value else { return value };
    let parsed = serde_json::from_str(text).or_else(|_| serde_json::from_str(&escaped(text)));
    match parsed {
        Ok(inner @ (Value::Array(_) | Value::Object(_))) => inner,
        _ => value,
    }
}

fn escaped(json: &str) -> String {
    let (mut out, mut in_string, mut after_backslash) = (String::new(), false, false);
    for c in json.chars() {
        in_string ^= c == '"' && !after_backslash;
        after_backslash = c == '\\' && !after_backslash;
        match c {
            '\n' if in_string => out.push_str("\\n"),
            '\r' if in_string => out.push_str("\\r"),
            '\t' if in_string => out.push_str("\\t"),
            c => out.push(c),
        }
    }
    out
}

/// What a call will do, when it can.
struct Plan {
    real: PathBuf,
    shown: String,
    old: Vec<u8>,
    new: Vec<u8>,
    lines: String,
}

fn plan(arguments: &Arguments, cx: &Cx) -> Result<Plan, String> {
    let path = paths::resolve(&cx.cwd, &arguments.path);
    let shown = paths::display(&cx.cwd, &path);
    let real = paths::canonical(&path);
    let old = text_file::load(&real).map_err(|reason| missing(&shown, &reason, &real, cx))?;
    cx.seen.check(&real, &old, &shown)?;
    let file = TextFile::decode(&old).map_err(|reason| format!("cannot edit `{shown}`: it {reason}"))?;
    let changes = changes(&file, &arguments.edits, &shown)?;
    let lines = lines(&file, &changes);
    let new = file.encode(&apply(&file.body, &changes));
    drop(file);
    super::keeps_what_was_hidden(&old, &new, &shown, &cx.secrets)?;
    Ok(Plan { real, shown, old, new, lines })
}

fn missing(shown: &str, reason: &str, path: &std::path::Path, cx: &Cx) -> String {
    let near = if path.exists() { Vec::new() } else { paths::suggestions(&cx.cwd, path) };
    let hint =
        if near.is_empty() { String::new() } else { format!("; did you mean `{}`?", near.join("` or `")) };
    format!("cannot edit `{shown}`: it {reason}{hint}")
}

fn edit(arguments: &Arguments, cx: &Cx) -> Result<Output, String> {
    let plan = plan(arguments, cx)?;
    cx.changes.before(&plan.real, Some(&plan.old));
    replace::replace(&plan.real, &plan.old, &plan.new).map_err(|err| failed(&plan.shown, &err))?;
    cx.seen.record(&plan.real, &plan.new);
    cx.changes.made(&plan.real, Some(&plan.old), &plan.new);
    let view = diff::view(&plan.shown, &plan.old, &plan.new);
    let edits =
        if arguments.edits.len() == 1 { "1 edit".into() } else { format!("{} edits", arguments.edits.len()) };
    let text = format!("edited `{}`: {edits}, now at {}{}", plan.shown, plan.lines, counts(&view));
    Ok(Output { content: vec![Part::text(text)], view })
}

/// One place and what comes there.
struct Change {
    span: Range<usize>,
    text: Vec<u8>,
    /// The number of its edit, from 1.
    edit: usize,
}

/// The changes in the order of their places, or all that is wrong with the edits.
fn changes(file: &TextFile<'_>, edits: &[Replacement], shown: &str) -> Result<Vec<Change>, String> {
    if edits.is_empty() {
        return Err("`edits` is empty: give at least one {\"old\": …, \"new\": …}".into());
    }
    let body = Body { bytes: &file.body, encoding: file.encoding, cr_style: LineEnds::of(&file.body).cr > 0 };
    let (mut changes, mut wrong) = (Vec::new(), Vec::new());
    for (index, edit) in edits.iter().enumerate() {
        let named = |reason: String| match edits.len() {
            1 => reason,
            count => format!("edit {} of {count}: {reason}", index + 1),
        };
        match body.locate(edit) {
            Ok(span) => changes.push(Change { text: body.text(edit, &span), span, edit: index + 1 }),
            Err(reason) => wrong.push(named(reason)),
        }
    }
    changes.sort_by_key(|change| (change.span.start, change.span.end));
    let overlaps = changes.windows(2).filter(|pair| pair[0].span.end > pair[1].span.start).map(|pair| {
        let (a, b) = (pair[0].edit.min(pair[1].edit), pair[0].edit.max(pair[1].edit));
        format!("edits {a} and {b} overlap at line {}: make one edit of them", body.line(pair[1].span.start))
    });
    wrong.extend(overlaps);
    if wrong.is_empty() {
        return Ok(changes);
    }
    Err(format!("nothing was changed in `{shown}`\n{}", wrong.join("\n")))
}

/// The text that edits are matched against.
struct Body<'a> {
    bytes: &'a [u8],
    encoding: Encoding,
    cr_style: bool,
}

impl Body<'_> {
    fn line(&self, at: usize) -> usize {
        line_number(self.bytes, at, self.cr_style)
    }

    /// The one place of `old`.
    fn locate(&self, edit: &Replacement) -> Result<Range<usize>, String> {
        if edit.old.is_empty() {
            return Err("`old` is empty: give the text to replace; to insert, give a line as `old` and that line with \
                        the insertion as `new`; to fill an empty file, use `write`"
                .into());
        }
        if edit.old == edit.new {
            return Err("`old` and `new` are the same: there is nothing to change".into());
        }
        // With a carriage return in it, `old` says itself which line ends it means.
        let any_break = !edit.old.contains('\r');
        let found = find_all(self.bytes, edit.old.as_bytes(), any_break, self.cr_style);
        match &found.spans[..] {
            [] => Err(nearest::explain(self.bytes, &edit.old, self.cr_style)),
            [span] => self.fits(edit, span).map(|()| span.clone()),
            spans => {
                let lines: Vec<_> = spans.iter().map(|span| self.line(span.start).to_string()).collect();
                let more = if found.count > spans.len() { ", …" } else { "" };
                Err(format!(
                    "`old` occurs {} times, at lines {}{more}: add lines around the one that you mean",
                    found.count,
                    lines.join(", ")
                ))
            }
        }
    }

    /// Whether the new text can be stored where the old one is, in a file whose encoding is not known.
    fn fits(&self, edit: &Replacement, span: &Range<usize>) -> Result<(), String> {
        if self.encoding != Encoding::Unknown {
            return Ok(());
        }
        // Characters that were matched at this place are proven to be UTF-8 there.
        let foreign = edit.new.chars().find(|c| !c.is_ascii() && !edit.old.contains(*c));
        if let Some(c) = foreign {
            return Err(format!(
                "the file is not valid UTF-8 and its encoding is not known, so `{c}` in `new` cannot be stored: use ASCII, \
                 or convert the file first, such as with `iconv -f SHIFT_JIS -t UTF-8`"
            ));
        }
        // In Shift-JIS, GBK and Big5 such a byte can be the second half of a character.
        let first = edit.old.as_bytes().first().copied().unwrap_or_default();
        let in_character =
            span.start > 0 && self.bytes[span.start - 1] >= 0x80 && (0x40..0x7F).contains(&first);
        if in_character {
            return Err(format!(
                "the file is not valid UTF-8, and `old` begins at line {} right behind a byte of an unknown encoding, where \
                 it may be half of a character: begin `old` elsewhere, such as at the next space or at the line's start",
                self.line(span.start)
            ));
        }
        Ok(())
    }

    /// `new` with the line ends of its place.
    fn text(&self, edit: &Replacement, span: &Range<usize>) -> Vec<u8> {
        if edit.old.contains('\r') || edit.new.contains('\r') || !edit.new.contains('\n') {
            return edit.new.clone().into_bytes();
        }
        let inside = self.breaks(span.clone());
        let otherwise = inside.last().copied().unwrap_or_else(|| self.break_near(span));
        let mut text = String::new();
        for (index, line) in edit.new.split('\n').enumerate() {
            if index > 0 {
                text.push_str(inside.get(index - 1).copied().unwrap_or(otherwise));
            }
            text.push_str(line);
        }
        text.into_bytes()
    }

    fn breaks(&self, span: Range<usize>) -> Vec<&'static str> {
        let (mut breaks, mut at) = (Vec::new(), span.start);
        while at < span.end {
            let found = break_at(self.bytes, at, self.cr_style);
            at += found.map_or(1, str::len);
            breaks.extend(found);
        }
        breaks
    }

    /// The break that ends the line, else the one before it.
    fn break_near(&self, span: &Range<usize>) -> &'static str {
        let after = (span.end..self.bytes.len()).find_map(|at| break_at(self.bytes, at, self.cr_style));
        let before = || {
            let at = self.bytes[..span.start].iter().rposition(|byte| matches!(byte, b'\n' | b'\r'))?;
            let crlf = at > 0 && self.bytes[at - 1..=at] == *b"\r\n";
            break_at(self.bytes, at - usize::from(crlf), self.cr_style)
        };
        after.or_else(before).unwrap_or("\n")
    }
}

fn apply(body: &[u8], changes: &[Change]) -> Vec<u8> {
    let (mut new, mut at) = (Vec::with_capacity(body.len()), 0);
    for change in changes {
        new.extend_from_slice(&body[at..change.span.start]);
        new.extend_from_slice(&change.text);
        at = change.span.end;
    }
    new.extend_from_slice(&body[at..]);
    new
}

/// Where the changes are in the new text, for the model to find them again.
fn lines(file: &TextFile<'_>, changes: &[Change]) -> String {
    let count = |bytes: &[u8]| {
        let ends = LineEnds::of(bytes);
        ends.lf + ends.crlf + ends.cr
    };
    let (mut places, mut line, mut at) = (Vec::new(), 1, 0);
    for change in changes {
        line += count(&file.body[at..change.span.start]);
        let last = line + count(change.text.strip_suffix(b"\n").unwrap_or(&change.text));
        places.push(if last == line { line.to_string() } else { format!("{line}-{last}") });
        line += count(&change.text);
        at = change.span.end;
    }
    places.dedup();
    let places = places.join(", ");
    let word = if places.contains([',', '-']) { "lines" } else { "line" };
    format!("{word} {places}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::text_of;
    use crate::tools::read::Read;
    use crate::tools::tests::{Folder, description_bytes};

    fn run(content: &[u8], arguments: Value) -> (Vec<u8>, Result<String, String>) {
        let folder = Folder::new();
        folder.put("f", content);
        folder.run(&Read, json!({"path": "f"})).unwrap();
        let mut all = json!({"path": "f"});
        all.as_object_mut().unwrap().extend(arguments.as_object().unwrap().clone());
        let result = folder.run(&Edit, all).map(|output| text_of(&output.content));
        assert_eq!(folder.names(), ["f"]);
        (folder.get("f"), result)
    }

    fn pairs(edits: &[(&str, &str)]) -> Value {
        json!({"edits": edits.iter().map(|(old, new)| json!({"old": old, "new": new})).collect::<Vec<_>>()})
    }

    #[track_caller]
    fn changes(content: impl AsRef<[u8]>, edits: &[(&str, &str)], expected: impl AsRef<[u8]>) {
        let (after, result) = run(content.as_ref(), pairs(edits));
        assert_eq!(String::from_utf8_lossy(&after), String::from_utf8_lossy(expected.as_ref()), "{result:?}");
        assert_eq!(after, expected.as_ref());
        assert!(result.is_ok(), "{result:?}");
    }

    #[track_caller]
    fn refuses(content: impl AsRef<[u8]>, edits: &[(&str, &str)], reasons: &[&str]) {
        let (after, result) = run(content.as_ref(), pairs(edits));
        let err = result.unwrap_err();
        assert_eq!(after, content.as_ref());
        for reason in reasons {
            assert!(err.contains(reason), "no {reason:?} in\n{err}");
        }
    }

    #[test]
    fn a_stand_in_never_takes_the_place_of_what_it_stands_for() {
        let mut folder = Folder::new();
        folder.cx.secrets =
            std::sync::Arc::new(crate::redact::Secrets::new(vec![("K".into(), "sk-canary-1".into())]));
        let wide = |text: &str| {
            [&b"\xFF\xFE"[..], &text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>()].concat()
        };
        for (before, bad) in [
            (b"K=sk-canary-1\nx=1\n".to_vec(), "K=[redacted K]\nx=2\n"),
            (
                b"# [redacted K] is a sign\nK=sk-canary-1\n".to_vec(),
                "# [redacted K] is a sign\nK=[redacted K]\n",
            ),
            (wide("K=sk-canary-1\n"), "K=[redacted K]\n"),
            (b"a\0b\nx=1\n".to_vec(), "a\u{2400}b\nx=2\n"),
            ("\u{2400}\na\0b\n".into(), "\u{2400}\na\u{2400}b\n"),
            (wide("a\0b\n"), "a\u{2400}b\n"),
        ] {
            folder.put("f", &before);
            folder.cx.seen.record(&folder.path("f"), &before);
            let written = folder.run(&crate::tools::write::Write, json!({"path": "f", "content": bad}));
            assert!(written.unwrap_err().contains("nothing was written"), "{before:?}");
            assert_eq!(folder.get("f"), before);
        }
        folder.put("f", "K=sk-canary-1\nx=1\n");
        folder.cx.seen.record(&folder.path("f"), b"K=sk-canary-1\nx=1\n");
        folder.run(&Edit, json!({"path": "f", "old": "x=1", "new": "x=2"})).unwrap();
        assert_eq!(folder.get("f"), b"K=sk-canary-1\nx=2\n");
    }

    #[test]
    fn to_write_about_a_stand_in_is_no_harm() {
        let mut folder = Folder::new();
        folder.cx.secrets =
            std::sync::Arc::new(crate::redact::Secrets::new(vec![("K".into(), "sk-canary-1".into())]));
        folder.put("doc", "Keys are shown as X.\n");
        folder.cx.seen.record(&folder.path("doc"), b"Keys are shown as X.\n");
        folder.run(&Edit, json!({"path": "doc", "old": "X", "new": "`[redacted K]` or \u{2400}"})).unwrap();
        folder.put("wide", b"\xFF\xFEa\0\n\0");
        folder.cx.seen.record(&folder.path("wide"), b"\xFF\xFEa\0\n\0");
        let write = |path: &str, content: &str| {
            folder.run(&crate::tools::write::Write, json!({"path": path, "content": content})).unwrap()
        };
        write("wide", "\u{2400}\n");
        assert_eq!(folder.get("wide"), b"\xFF\xFE\0\x24\n\0");
        let text = crate::message::text_of(&write("new", "K=[redacted K]\n").content);
        assert!(text.contains("it holds `[redacted K]` as it stands here"), "{text}");
    }

    #[test]
    fn a_replacement_is_literal() {
        let new = r#"log("$& $1 $$ $` $' ${x} \\1 \0");"#;
        changes("log(\"done\");\n", &[("log(\"done\");", new)], format!("{new}\n"));
        changes("a.c abc\n", &[("a.c", "x")], "x abc\n");
        changes("first\nlast", &[("first", "1st")], "1st\nlast");
        changes("keep\ngone\n", &[("gone\n", "")], "keep\n");
    }

    #[test]
    fn line_ends_stay_what_they_are() {
        changes("a\r\nb\r\nc\r\n", &[("a\nb", "x\ny\nz")], "x\r\ny\r\nz\r\nc\r\n");
        changes("a\r\nb\r\n", &[("b", "b\nc")], "a\r\nb\r\nc\r\n");
        changes("a\nb\r\nc\nd\r\n", &[("c", "C")], "a\nb\r\nC\nd\r\n");
        changes("a\nb\r\nc\nd\r\n", &[("a\nb\nc", "1\n2\n3")], "1\n2\r\n3\nd\r\n");
        changes("a\nb\r\nc", &[("c", "c\nd")], "a\nb\r\nc\r\nd");
        changes("a\rb\rc", &[("a\nb", "a\nx\nb")], "a\rx\rb\rc");
        changes("a\r\nb\r\n", &[("a\r\n", "a\n")], "a\nb\r\n");
        changes("a\nb\n", &[("a\n", "a\r\n")], "a\r\nb\n");
        changes("one", &[("one", "one\ntwo\n")], "one\ntwo\n");
    }

    #[test]
    fn an_encoding_stays_what_it_is() {
        changes(b"\xEF\xBB\xBFusing A;\r\n", &[("using A;", "using B;")], b"\xEF\xBB\xBFusing B;\r\n");
        changes(b"// \xF3\xF1 \xA9\nint x = 1;\n", &[("x = 1", "x = 2")], b"// \xF3\xF1 \xA9\nint x = 2;\n");
        changes(
            b"\xFF\xFEm\0=\0f\0\r\0\n\0",
            &[("m=f", "m=\u{E9}\n")],
            b"\xFF\xFEm\0=\0\xE9\0\r\0\n\0\r\0\n\0",
        );
        refuses(b"t=\x90\xDD\nsize=10\n", &[("size=10", "size=10\n名前")], &["not valid UTF-8", "iconv"]);
        changes(b"\xE9\n\xC3\xA9t\xC3\xA9\n", &[("été", "été é")], b"\xE9\n\xC3\xA9t\xC3\xA9 \xC3\xA9\n");
        // The second byte of 表 in Shift-JIS is a backslash.
        refuses(b"\x95\x5C x\n", &[("\\ x", "y")], &["half of a character"]);
    }

    #[test]
    fn edits_are_matched_against_the_original() {
        changes("a\nb\nc\n", &[("a", "b"), ("b", "c")], "b\nc\nc\n");
        changes("a\nb\nc\n", &[("c", "3"), ("a", "1\n1")], "1\n1\nb\n3\n");
        changes("ab\n", &[("a", "x"), ("b", "y")], "xy\n");
        refuses("a\nb\nc\n", &[("a\nb", "x"), ("b\nc", "y")], &["edits 1 and 2 overlap at line 2"]);
        refuses(
            "a\nb\nc\n",
            &[("a", "z"), ("nowhere", "q")],
            &["nothing was changed in `f`", "edit 2 of 2: `old` was not found"],
        );
    }

    #[test]
    fn all_that_is_wrong_is_said_at_once() {
        refuses(
            "a\nb\na\nc\na\n",
            &[("", "x"), ("b", "b"), ("a", "z"), ("zzz", "y")],
            &[
                "edit 1 of 4: `old` is empty",
                "edit 2 of 4: `old` and `new` are the same",
                "edit 3 of 4: `old` occurs 3 times, at lines 1, 3, 5",
                "edit 4 of 4: `old` was not found",
            ],
        );
        refuses("aaa\n", &[("aa", "b")], &["occurs 2 times, at lines 1, 1"]);
        refuses("a\n", &[], &["`edits` is empty"]);
        refuses("in\u{A0}week\n", &[("in week", "X")], &["line 1", "U+00A0"]);
        refuses("", &[("a", "b")], &["the file is empty"]);
    }

    #[test]
    fn shapes_with_one_meaning_are_understood() {
        for arguments in [
            json!({"edits": "[{\"old\": \"a\\nb\", \"new\": \"z\"}]"}),
            json!({"edits": "[{\"old\": \"a\nb\", \"new\": \"z\"}]"}),
            json!({"edits": "{\"old\": \"a\nb\", \"new\": \"z\"}"}),
            json!({"edits": ["{\"old\": \"a\nb\", \"new\": \"z\"}"]}),
            json!({"edits": {"old": "a\nb", "new": "z"}}),
            json!({"edits": [{"old_string": "a\nb", "new_string": "z"}]}),
            json!({"edits": [{"old_text": "a\nb", "new_text": "z"}]}),
            json!({"edits": [{"oldText": "a\nb", "newText": "z"}]}),
            json!({"old_string": "a\nb", "new_string": "z"}),
            json!({"old": "a\nb", "new": "z"}),
            json!({"file_path": "f", "path": "f", "old_str": "a\nb", "new_str": "z"}),
        ] {
            let (after, result) = run(b"a\nb\n", arguments.clone());
            assert_eq!(after, b"z\n", "{arguments} {result:?}");
        }
        for arguments in [
            json!({"edits": "replace a by z"}),
            json!({"edits": [{"old": "a"}]}),
            json!({"old": "a"}),
            json!({}),
        ] {
            let (after, result) = run(b"a\nb\n", arguments);
            let err = result.unwrap_err();
            assert!(err.contains("received: ") && err.contains("\"old\""), "{err}");
            assert_eq!(after, b"a\nb\n");
        }
    }

    #[test]
    fn only_a_file_that_is_known_and_unchanged_is_edited() {
        let folder = Folder::new();
        folder.put("f", "one\ntwo\n");
        let edit = |old: &str, new: &str| {
            folder.run(&Edit, json!({"path": "f", "edits": [{"old": old, "new": new}]}))
        };
        assert!(edit("one", "1").unwrap_err().contains("was not read in this session"));
        folder.run(&Read, json!({"path": "f"})).unwrap();
        assert_eq!(
            text_of(&edit("one", "1\n1").unwrap().content),
            "edited `f`: 1 edit, now at lines 1-2, lines +2 -1"
        );
        edit("two", "2").unwrap();
        folder.put("f", "1\n1\n3\n");
        assert!(edit("3", "x").unwrap_err().contains("has changed since it was read"));
        assert_eq!(folder.get("f"), b"1\n1\n3\n");
        let err = folder.run(&Edit, json!({"path": "g", "old": "a", "new": "b"})).unwrap_err();
        assert!(err.contains("does not exist"), "{err}");
    }

    #[test]
    fn the_preview_is_the_change_or_the_reason() {
        let folder = Folder::new();
        folder.put("f", "a\nb\n");
        folder.run(&Read, json!({"path": "f"})).unwrap();
        let view = Edit.preview(&json!({"path": "f", "old": "b", "new": "c"}), &folder.cx);
        assert_eq!(
            view,
            View::Diff {
                path: "f".into(),
                diff: "@@ -1,2 +1,2 @@\n a\n-b\n+c\n".into(),
                added: 1,
                removed: 1
            }
        );
        let view = Edit.preview(&json!({"path": "f", "old": "x", "new": "c"}), &folder.cx);
        assert!(matches!(view, View::Line { text } if text.contains("not found")));
        assert_eq!(folder.get("f"), b"a\nb\n");
    }

    #[test]
    fn a_large_file_with_a_large_line_is_edited() {
        let line = "x".repeat(5_000_000);
        let old = format!("{line} end\n{}", "some line of text\n".repeat(100_000));
        changes(&old, &[("x end", "x stop")], old.replacen("x end", "x stop", 1));
    }

    #[test]
    fn the_description_keeps_its_budget() {
        assert!(description_bytes(&Edit) <= 800, "{}", description_bytes(&Edit));
    }

    proptest::proptest! {
        #[test]
        fn bytes_outside_an_edit_never_change(
            before in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..30),
            after in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..30),
        ) {
            let content = [&before[..], b" <<mark>> ", &after[..]].concat();
            let Ok(file) = TextFile::decode(&content) else { return Ok(()) };
            let edit = Replacement { old: "<<mark>>".into(), new: "<<other>>".into() };
            if let Ok(changes) = super::changes(&file, &[edit], "f") {
                let new = file.encode(&apply(&file.body, &changes));
                if !file.bom || content.starts_with(b"\xEF") {
                    proptest::prop_assert_eq!(new, [&before[..], b" <<other>> ", &after[..]].concat());
                }
            }
        }
    }
}

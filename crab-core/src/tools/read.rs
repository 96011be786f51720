//! `read`: a file as numbered lines, a picture, or the names in a directory.

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::{Access, Cx, Kind, Output, Permit, Running, Tool, blocking, parse};
use std::sync::Arc;

use crate::message::Part;
use crate::redact::Secrets;
use crate::seen::Digest;
use crate::text_file::{self, Encoding, HEAD, LineEnds, MAX_SIZE, TextFile, reason};
use crate::{clip, paths};

/// Lines of one call.
const MAX_LINES: usize = 2_000;
/// Bytes of the lines of one call; with what is said about them it stays below 50 KB.
const MAX_BYTES: usize = 50_000;
/// Characters of one line.
const MAX_CHARS: usize = 2_000;
/// In base64 it is the 5 MB that services take.
const MAX_IMAGE: u64 = 3_932_160;
const NUL_SIGN: &str = "\u{2400}";

/// Reads files.
pub(crate) struct Read;

#[derive(Deserialize)]
struct Arguments {
    #[serde(alias = "file_path")]
    path: String,
    #[serde(default, deserialize_with = "number")]
    offset: Option<usize>,
    #[serde(default, deserialize_with = "number")]
    limit: Option<usize>,
}

impl Tool for Read {
    fn name(&self) -> &str {
        "read"
    }

    fn description(&self) -> &str {
        "Reads a file. Text comes as lines `NUMBER<tab>TEXT`, from line `offset` (default 1) on: at most `limit` and \
         2,000 lines or 50 KB a call; the last line says which lines of how many these are and the next `offset`. \
         Lines over 2,000 characters are cut and say by how much. PNG, JPEG, GIF and WebP (up to 3.75 MB) come as images; \
         other binary files are only named. A directory gives its names. `write` and `edit` of an existing file need \
         a `read` of it first."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "offset": {"type": "integer"},
                "limit": {"type": "integer"}
            },
            "required": ["path"]
        })
    }

    fn access(&self, arguments: &Value, cx: &Cx) -> Access {
        super::path_access(Kind::Read, "every read", arguments, cx)
    }

    fn title(&self, arguments: &Value) -> String {
        let get = |key| number(&arguments[key]).ok().flatten();
        let range = match (get("offset"), get("limit")) {
            (None, None) => String::new(),
            (from, None) => format!(":{}-", from.unwrap_or(1)),
            (from, Some(limit)) => {
                let from = from.unwrap_or(1).max(1);
                format!(":{from}-{}", from.saturating_add(limit).saturating_sub(1))
            }
        };
        format!("read {}{range}", super::path_argument(arguments).unwrap_or("?"))
    }

    fn run<'a>(&'a self, arguments: Value, _: Permit, cx: Cx) -> Running<'a> {
        Box::pin(async move {
            let arguments: Arguments = parse(self, arguments)?;
            blocking(move || read(&arguments, &cx)).await
        })
    }
}

/// Numbers as models write them: `10`, `10.0`, `"10"`.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Integer(usize),
        Float(f64),
        Text(String),
    }
    let wrong = || serde::de::Error::custom("`offset` and `limit` are whole numbers from 1");
    match Option::<Written>::deserialize(from).map_err(|_| wrong())? {
        None => Ok(None),
        Some(Written::Integer(number)) => Ok(Some(number)),
        Some(Written::Float(number)) => format!("{number}").parse().map(Some).map_err(|_| wrong()),
        Some(Written::Text(text)) if text.trim().is_empty() => Ok(None),
        Some(Written::Text(text)) => text.trim().parse().map(Some).map_err(|_| wrong()),
    }
}

fn read(arguments: &Arguments, cx: &Cx) -> Result<Output, String> {
    let path = paths::resolve(&cx.cwd, &arguments.path);
    let shown = paths::display(&cx.cwd, &path);
    if path.is_dir() {
        return directory(&path, &shown);
    }
    if arguments.limit == Some(0) {
        return Err("`limit` is 0, so there is nothing to read: give 1 or more, or leave it out".into());
    }
    let opened = text_file::open(&path).map_err(|reason| refused(&path, &shown, &reason, cx));
    let (mut file, meta) = opened?;
    let mut head = Vec::new();
    file.by_ref()
        .take(HEAD as u64)
        .read_to_end(&mut head)
        .map_err(|err| format!("`{shown}`: {}", reason(err)))?;
    if let Some(media_type) = text_file::image_type(&head) {
        return image(media_type, head, file, &shown);
    }
    if text_file::is_binary(&head) {
        return Ok(binary(&shown, &head, &meta));
    }
    let key = paths::canonical(&path);
    text(Source { file, head, key, shown, arguments }, cx)
}

fn directory(path: &Path, shown: &str) -> Result<Output, String> {
    let (names, count) =
        paths::listing(path).map_err(|err| format!("cannot list `{shown}`: {}", reason(err)))?;
    let text = if count == 0 {
        format!("`{shown}` is an empty directory")
    } else {
        format!("`{shown}` is a directory with {count} entries:\n{names}")
    };
    Ok(Output::text(text, format!("directory, {count} entries")))
}

fn refused(path: &Path, shown: &str, reason: &str, cx: &Cx) -> String {
    if path.symlink_metadata().is_ok() {
        return format!("cannot read `{shown}`: {reason}");
    }
    let near = paths::suggestions(&cx.cwd, path);
    let next = if near.is_empty() {
        "no file of a like name was found; `glob` finds files by pattern".to_owned()
    } else {
        format!("did you mean `{}`?", near.join("` or `"))
    };
    format!("cannot read `{shown}`: {reason} (working directory: `{}`); {next}", cx.cwd.display())
}

fn image(media_type: &str, head: Vec<u8>, file: File, shown: &str) -> Result<Output, String> {
    let mut bytes = head;
    let rest = (MAX_IMAGE + 1).saturating_sub(bytes.len() as u64);
    file.take(rest).read_to_end(&mut bytes).map_err(|err| format!("`{shown}`: {}", reason(err)))?;
    if bytes.len() as u64 > MAX_IMAGE {
        return Err(format!(
            "`{shown}` is an image ({media_type}) of more than 3.75 MB, which is too large to show: make a smaller copy \
             with a command and read that"
        ));
    }
    let line = format!("{media_type}, {} bytes", bytes.len());
    let data = base64::engine::general_purpose::STANDARD.encode(&bytes);
    let mut output = Output::text(format!("`{shown}`: {line}"), line);
    output.content.push(Part::Image { media_type: media_type.to_owned(), data });
    Ok(output)
}

fn binary(shown: &str, head: &[u8], meta: &Metadata) -> Output {
    let start: Vec<_> = head.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let text = format!(
        "`{shown}` is a binary file of {} bytes, starting {}; it is not shown (a command such as `xxd` or `file` can \
         look into it)",
        meta.len(),
        start.join(" ")
    );
    Output::text(text, format!("binary, {} bytes", meta.len()))
}

struct Source<'a> {
    file: File,
    head: Vec<u8>,
    key: PathBuf,
    shown: String,
    arguments: &'a Arguments,
}

fn text(source: Source<'_>, cx: &Cx) -> Result<Output, String> {
    let mut page = Page::new(source.arguments, &source.head, cx.secrets.clone());
    let encoding = if matches!(source.head[..], [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..]) {
        utf16(&source, &mut page, cx)?
    } else {
        stream(&source, &mut page, cx)?
    };
    page.finish();
    if page.size == 0 {
        return Ok(Output::text(format!("`{}` is an empty file", source.shown), "empty file"));
    }
    if page.shown == 0 {
        return Err(format!(
            "`offset` {} is past the end: `{}` has {} {}",
            page.first,
            source.shown,
            page.line,
            if page.line == 1 { "line" } else { "lines" }
        ));
    }
    let lines = if page.shown == 1 { "1 line".to_owned() } else { format!("{} lines", page.shown) };
    let footer = page.footer(encoding, &source.shown);
    Ok(Output::text(format!("{}[{footer}]", page.text), lines))
}

/// UTF-16 is decoded whole: it is rare, and small where it occurs.
fn utf16(source: &Source<'_>, page: &mut Page, cx: &Cx) -> Result<&'static str, String> {
    let wrong = |reason| format!("cannot read `{}`: {reason}", source.shown);
    let bytes = text_file::load(&source.key).map_err(wrong)?;
    let file = TextFile::decode(&bytes).map_err(wrong)?;
    page.end = if LineEnds::of(&file.body).cr > 0 { b'\r' } else { b'\n' };
    page.feed(&file.body);
    cx.seen.record(&source.key, &bytes);
    Ok(if file.encoding == Encoding::Utf16Be { "UTF-16BE" } else { "UTF-16LE" })
}

/// Reads on to the end, to know how many lines there are and what the content is; a file that is too large to be
/// edited only as far as it is shown.
fn stream(source: &Source<'_>, page: &mut Page, cx: &Cx) -> Result<&'static str, String> {
    let mut digest = Digest::default();
    digest.update(&source.head);
    let body = source.head.strip_prefix(b"\xEF\xBB\xBF");
    page.feed(body.unwrap_or(&source.head));
    let mut size = source.head.len() as u64;
    let mut file = &source.file;
    let mut piece = vec![0; HEAD];
    loop {
        if cx.cancel.is_cancelled() {
            return Err("interrupted".into());
        }
        let length = file.read(&mut piece).map_err(|err| format!("`{}`: {}", source.shown, reason(err)))?;
        if length == 0 {
            break;
        }
        size += length as u64;
        digest.update(&piece[..length]);
        page.feed(&piece[..length]);
        if size > MAX_SIZE && page.full {
            page.open_end = true;
            return Ok("");
        }
    }
    if size <= MAX_SIZE && (size == 0 || page.line >= page.first) {
        cx.seen.record_digest(&source.key, digest);
    }
    Ok(if body.is_some() { "UTF-8 with BOM" } else { "" })
}

/// The lines of one call, put together from pieces of any size.
struct Page {
    first: usize,
    limit: usize,
    end: u8,
    /// The number of the line that is being read; at the end, of the last.
    line: usize,
    /// The start of that line.
    start: Vec<u8>,
    /// Its characters.
    chars: usize,
    /// Its bytes, and those of the whole.
    line_bytes: usize,
    size: usize,
    breaks: usize,
    crlf: usize,
    before: u8,
    text: String,
    shown: usize,
    full: bool,
    open_end: bool,
    cut: bool,
    lossy: bool,
    nul: bool,
    /// Taken out before a line is cut: half a key would not be known as one any more.
    secrets: Arc<Secrets>,
}

impl Page {
    fn new(arguments: &Arguments, head: &[u8], secrets: Arc<Secrets>) -> Self {
        let cr_style = LineEnds::of(head).cr > 0;
        Self {
            first: arguments.offset.unwrap_or(1).max(1),
            limit: arguments.limit.unwrap_or(MAX_LINES).min(MAX_LINES),
            end: if cr_style { b'\r' } else { b'\n' },
            line: 1,
            start: Vec::new(),
            chars: 0,
            line_bytes: 0,
            size: 0,
            breaks: 0,
            crlf: 0,
            before: 0,
            text: String::new(),
            shown: 0,
            full: false,
            open_end: false,
            cut: false,
            lossy: false,
            nul: false,
            secrets,
        }
    }

    fn feed(&mut self, piece: &[u8]) {
        self.size += piece.len();
        let end = self.end;
        for part in piece.split_inclusive(|byte| *byte == end) {
            match part.split_last() {
                Some((last, body)) if *last == end => {
                    self.extend(body);
                    self.crlf += usize::from(end == b'\n' && self.before == b'\r');
                    self.line_done();
                    self.line += 1;
                    self.breaks += 1;
                }
                _ => self.extend(part),
            }
        }
    }

    fn extend(&mut self, part: &[u8]) {
        let Some(last) = part.last() else { return };
        self.before = *last;
        self.line_bytes += part.len();
        if self.full || self.line < self.first {
            return;
        }
        // A character has at most four bytes.
        let room = (MAX_CHARS * 4 + 4).saturating_sub(self.start.len());
        self.start.extend_from_slice(&part[..part.len().min(room)]);
        self.chars += part.iter().filter(|byte| **byte & 0xC0 != 0x80).count();
    }

    fn line_done(&mut self) {
        if !self.full && self.line >= self.first {
            self.show();
        }
        self.start.clear();
        (self.chars, self.line_bytes, self.before) = (0, 0, 0);
    }

    fn show(&mut self) {
        let whole = self.start.len() == self.line_bytes;
        let line = if whole { self.start.strip_suffix(b"\r").unwrap_or(&self.start) } else { &self.start };
        let mut text = String::from_utf8_lossy(line);
        // The start of a long line may end within a character.
        self.lossy |= std::str::from_utf8(line).is_err_and(|err| whole || err.error_len().is_some());
        if text.contains('\0') {
            self.nul = true;
            text = text.replace('\0', NUL_SIGN).into();
        }
        if self.secrets.found_in(&text) {
            text = self.secrets.redact(&text).into_owned().into();
        }
        let text = match text.char_indices().nth(MAX_CHARS) {
            None => text,
            Some((at, _)) => {
                self.cut = true;
                format!("{}{}", &text[..at], clip::more(self.chars.saturating_sub(MAX_CHARS))).into()
            }
        };
        let line = format!("{}\t{text}\n", self.line);
        if self.text.len() + line.len() > MAX_BYTES {
            self.full = true;
            return;
        }
        self.text.push_str(&line);
        self.shown += 1;
        self.full = self.shown == self.limit;
    }

    /// The last line, which may lack its end.
    fn finish(&mut self) {
        if self.line_bytes > 0 {
            self.line_done();
        } else {
            self.line -= 1;
        }
    }

    fn footer(&self, encoding: &str, path: &str) -> String {
        let last = self.first + self.shown - 1;
        let total = if self.open_end { "more than can be counted".to_owned() } else { self.line.to_string() };
        let mut notes = vec![format!("lines {}-{last} of {total}", self.first)];
        if self.open_end || last < self.line {
            notes.push(format!("next offset: {}", last + 1));
        }
        if self.open_end {
            notes.push("larger than 256 MB, so it cannot be edited".to_owned());
        }
        if self.cut {
            let more = format!("`sed -n {}p {path} | cut -c 2001-4000`", self.first);
            notes.push(format!("long lines are cut at 2,000 characters; `bash` shows more, such as {more}"));
        }
        if !encoding.is_empty() {
            notes.push(encoding.to_owned());
        }
        match () {
            () if self.end == b'\r' => notes.push("CR line ends".to_owned()),
            () if self.crlf > 0 && self.crlf == self.breaks => notes.push("CRLF line ends".to_owned()),
            () if self.crlf > 0 => notes.push("mixed LF and CRLF line ends".to_owned()),
            () => {}
        }
        if self.lossy {
            notes.push(
                "not valid UTF-8: such bytes are shown as \u{FFFD}, and `edit` cannot match them".to_owned(),
            );
        }
        if self.nul {
            notes.push(format!("NUL bytes are shown as {NUL_SIGN}"));
        }
        notes.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::message::text_of;
    use crate::tools::tests::{Folder, description_bytes};

    #[track_caller]
    fn check(content: impl AsRef<[u8]>, arguments: Value, expected: &str) {
        let folder = Folder::new();
        folder.put("f", content);
        let mut all = json!({"path": "f"});
        all.as_object_mut().unwrap().extend(arguments.as_object().unwrap().clone());
        let text = folder
            .run(&Read, all)
            .map_or_else(|err| format!("error: {err}"), |output| text_of(&output.content));
        assert_eq!(text, expected);
    }

    #[test]
    fn a_key_across_the_cut_of_a_long_line_does_not_show_its_half() {
        let mut folder = Folder::new();
        folder.cx.secrets = Arc::new(Secrets::new(vec![("K".into(), "sk-canary-123456".into())]));
        folder.put("f", format!("{} sk-canary-123456 {}", "x".repeat(1_990), "y".repeat(100)));
        let output = folder.run(&Read, json!({"path": "f"})).unwrap();
        let text = crate::message::text_of(&output.content);
        assert!(!text.contains("sk-can"), "{text}");
    }

    #[test]
    fn lines_come_with_numbers_and_their_count() {
        check("a\nb\n", json!({}), "1\ta\n2\tb\n[lines 1-2 of 2]");
        check("a\nb", json!({}), "1\ta\n2\tb\n[lines 1-2 of 2]");
        check("a\n\nc\n", json!({"offset": 2, "limit": 1}), "2\t\n[lines 2-2 of 3; next offset: 3]");
        check("a\nb\n", json!({"offset": "2", "limit": 5.0}), "2\tb\n[lines 2-2 of 2]");
        check("a\nb\n", json!({"offset": 0, "limit": null}), "1\ta\n2\tb\n[lines 1-2 of 2]");
        check("a\r\nb\r\n", json!({}), "1\ta\n2\tb\n[lines 1-2 of 2; CRLF line ends]");
        check("a\r\nb\n", json!({}), "1\ta\n2\tb\n[lines 1-2 of 2; mixed LF and CRLF line ends]");
        check("a\rb\r", json!({}), "1\ta\n2\tb\n[lines 1-2 of 2; CR line ends]");
    }

    #[test]
    fn odd_contents_have_clear_messages() {
        check("", json!({}), "`f` is an empty file");
        check("1\n2\n3\n", json!({"offset": 50}), "error: `offset` 50 is past the end: `f` has 3 lines");
        check(
            "x\n",
            json!({"limit": 0}),
            "error: `limit` is 0, so there is nothing to read: give 1 or more, or leave it out",
        );
        check("\u{FEFF}a\n", json!({}), "1\ta\n[lines 1-1 of 1; UTF-8 with BOM]");
        check(b"\xFF\xFEa\0\n\0\xE9\0", json!({}), "1\ta\n2\té\n[lines 1-2 of 2; UTF-16LE]");
        let note = "not valid UTF-8: such bytes are shown as \u{FFFD}, and `edit` cannot match them";
        check(b"a\xE9b\n", json!({}), &format!("1\ta\u{FFFD}b\n[lines 1-1 of 1; {note}]"));
        let text = "a line of source with a stray ";
        check(
            format!("{text}\0\n{text}\n"),
            json!({"limit": 1}),
            &format!("1\t{text}\u{2400}\n[lines 1-1 of 2; next offset: 2; NUL bytes are shown as \u{2400}]"),
        );
    }

    #[test]
    fn a_result_is_bounded_in_lines_bytes_and_characters() {
        let folder = Folder::new();
        folder.put("many", "x\n".repeat(5_000));
        let text = text_of(&folder.run(&Read, json!({"path": "many", "limit": 9_999})).unwrap().content);
        assert!(
            text.ends_with("2000\tx\n[lines 1-2000 of 5000; next offset: 2001]"),
            "{}",
            &text[text.len() - 80..]
        );
        folder.put("wide", format!("{}\n", "漢".repeat(66_000)).repeat(20));
        let text = text_of(&folder.run(&Read, json!({"path": "wide"})).unwrap().content);
        assert!(text.len() < 50 << 10, "{}", text.len());
        assert!(text.contains("漢 [... 64000 more characters]\n"), "{}", &text[text.len() - 300..]);
        assert!(text.contains("[lines 1-8 of 20; next offset: 9; long lines are cut at 2,000 characters"));
        folder.put("one", "y".repeat(45_000));
        let text = text_of(&folder.run(&Read, json!({"path": "one"})).unwrap().content);
        assert!(
            text.starts_with("1\tyyy") && text.contains(" [... 43000 more characters]\n[lines 1-1 of 1;")
        );
    }

    #[test]
    fn a_picture_is_image_content_up_to_its_limit() {
        let folder = Folder::new();
        folder.put("p", b"\x89PNG\r\n\x1a\n....");
        let output = folder.run(&Read, json!({"path": "p"})).unwrap();
        assert!(
            matches!(&output.content[1], Part::Image { media_type, data } if media_type == "image/png" && data == "iVBORw0KGgouLi4u")
        );
        folder.put("big.gif", [&b"GIF89a"[..], &vec![0; 4_000_000]].concat());
        let err = folder.run(&Read, json!({"path": "big.gif"})).unwrap_err();
        assert!(err.contains("3.75 MB"), "{err}");
    }

    #[test]
    fn what_is_no_text_file_is_named_at_once() {
        let folder = Folder::new();
        folder.put("bin", (0..=255).cycle().take(100_000).collect::<Vec<u8>>());
        let text = text_of(&folder.run(&Read, json!({"path": "bin"})).unwrap().content);
        assert!(text.contains("binary file of 100000 bytes") && text.len() < 300, "{text}");
        assert_eq!(folder.cx.seen.is_current(&folder.path("bin"), b""), None);
        let fifo = folder.path("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        fs::create_dir(folder.path("d")).unwrap();
        for (path, expected) in [
            ("fifo", "is a FIFO"),
            ("/dev/zero", "is a device"),
            ("d", "`d` is an empty directory"),
            ("d/../bin/x", "is a file, not a folder"),
        ] {
            let text = folder
                .run(&Read, json!({"path": path}))
                .map_or_else(|err| err, |output| text_of(&output.content));
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn a_missing_file_suggests_near_names() {
        let folder = Folder::new();
        folder.put("src/main.rs", "");
        for path in ["src/mian.rs", "main.rs", "scr/main.rs"] {
            let err = folder.run(&Read, json!({"path": path})).unwrap_err();
            assert!(err.contains("does not exist") && err.contains("did you mean `src/main.rs`?"), "{err}");
        }
        let err = folder.run(&Read, json!({"path": "zzzzzz"})).unwrap_err();
        assert!(err.contains("no file of a like name"), "{err}");
        let err = folder.run(&Read, json!({"offset": 1})).unwrap_err();
        assert!(err.contains("missing field `path`") && err.contains("received: {\"offset\":1}"), "{err}");
    }

    #[test]
    fn a_title_names_the_lines() {
        for (arguments, title) in [
            (json!({"path": "a.rs"}), "read a.rs"),
            (json!({"path": "a.rs", "offset": 10, "limit": 41}), "read a.rs:10-50"),
            (json!({"path": "a.rs", "limit": 5}), "read a.rs:1-5"),
            (json!({"path": "a.rs", "offset": 7}), "read a.rs:7-"),
            (json!("{broken"), "read ?"),
        ] {
            assert_eq!(Read.title(&arguments), title);
        }
    }

    #[test]
    fn the_description_keeps_its_budget() {
        assert!(description_bytes(&Read) <= 620, "{}", description_bytes(&Read));
    }

    proptest::proptest! {
        #[test]
        fn pieces_of_any_size_give_the_same_page(text in "[aé\n\r]{0,60}", cut in 0usize..60) {
            let arguments = Arguments { path: String::new(), offset: None, limit: None };
            let page = |pieces: &[&[u8]]| {
                let mut page = Page::new(&arguments, text.as_bytes(), Arc::default());
                pieces.iter().for_each(|piece| page.feed(piece));
                page.finish();
                (page.text, page.line, page.crlf)
            };
            let (start, rest) = text.as_bytes().split_at(cut.min(text.len()));
            proptest::prop_assert_eq!(page(&[start, rest]), page(&[text.as_bytes()]));
        }
    }
}

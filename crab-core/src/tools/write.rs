//! `write`: the whole content of a file.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Access, Cx, Kind, Output, Permit, Running, Tool, View, blocking, parse};
use crate::message::Part;
use crate::text_file::{self, Encoding, LineEnds, TextFile};
use crate::{diff, paths, replace};

/// Writes files.
pub(crate) struct Write;

#[derive(Deserialize)]
struct Arguments {
    #[serde(alias = "file_path")]
    path: String,
    content: String,
}

impl Tool for Write {
    fn name(&self) -> &str {
        "write"
    }

    fn description(&self) -> &str {
        "Makes `content` the whole of a file and makes missing folders. A file that exists is replaced only when it was \
         read or written in this session and has not changed since; otherwise nothing is written and the error says to \
         read it. Its mode, owner, links, BOM and UTF-16 are kept; line ends are as in `content`. To change a part of \
         a file, `edit` is shorter."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
            "required": ["path", "content"]
        })
    }

    fn access(&self, arguments: &Value, cx: &Cx) -> Access {
        super::path_access(Kind::Write, "every write and edit", arguments, cx)
    }

    fn title(&self, arguments: &Value) -> String {
        format!("write {}", super::path_argument(arguments).unwrap_or("?"))
    }

    fn preview(&self, arguments: &Value, cx: &Cx) -> View {
        let plan = parse(self, arguments.clone()).and_then(|arguments| plan(&arguments, cx));
        match plan {
            Ok(plan) => diff::view(&plan.shown, plan.old.as_deref().unwrap_or_default(), &plan.new),
            Err(reason) => View::Line { text: reason },
        }
    }

    fn run<'a>(&'a self, arguments: Value, _: Permit, cx: Cx) -> Running<'a> {
        Box::pin(async move {
            let arguments: Arguments = parse(self, arguments)?;
            blocking(move || write(&arguments, &cx)).await
        })
    }
}

/// What a call will do, when it can.
struct Plan {
    real: PathBuf,
    shown: String,
    old: Option<Vec<u8>>,
    new: Vec<u8>,
    /// What else changes, in words.
    notes: Vec<String>,
}

fn plan(arguments: &Arguments, cx: &Cx) -> Result<Plan, String> {
    let path = paths::resolve(&cx.cwd, &arguments.path);
    let shown = paths::display(&cx.cwd, &path);
    if path.is_dir() || arguments.path.ends_with('/') {
        return Err(format!(
            "cannot write `{}`: it names a directory; `path` must name a file",
            arguments.path
        ));
    }
    let real = paths::canonical(&path);
    let content = arguments.content.as_bytes();
    if real.symlink_metadata().is_err_and(|err| err.kind() == std::io::ErrorKind::NotFound) {
        let copied = cx.secrets.mark_in(content);
        let notes = copied
            .map(|mark| format!("it holds `{mark}` as it stands here, not the key that this stands for"));
        let notes = notes.into_iter().collect();
        return Ok(Plan { real, shown, old: None, new: content.to_vec(), notes });
    }
    let old = text_file::load(&real).map_err(|reason| format!("cannot write `{shown}`: {reason}"))?;
    cx.seen.check(&real, &old, &shown)?;
    super::keeps_what_was_hidden(&old, content, &shown, &cx.secrets)?;
    let (new, notes) = encoded(&old, content, &shown)?;
    Ok(Plan { real, shown, old: Some(old), new, notes })
}

/// The content as the old file would store it.
fn encoded(old: &[u8], content: &[u8], shown: &str) -> Result<(Vec<u8>, Vec<String>), String> {
    let mut notes = Vec::new();
    let Ok(file) = TextFile::decode(old) else { return Ok((content.to_vec(), notes)) };
    let text = content.strip_prefix("\u{FEFF}".as_bytes()).unwrap_or(content);
    if file.encoding == Encoding::Unknown && !content.is_ascii() {
        if content.windows(3).any(|bytes| bytes == "\u{FFFD}".as_bytes()) {
            return Err(format!(
                "cannot write `{shown}`: it is not UTF-8, and the U+FFFD in `content` stands for bytes that `read` could \
                 not show and that would be lost; change parts of it with `edit`, or convert it first with `iconv`"
            ));
        }
        notes.push("it was not valid UTF-8, now it is UTF-8".to_owned());
    }
    let (was, is) = (LineEnds::of(&file.body), LineEnds::of(text));
    if was.words() != is.words() && was != LineEnds::default() && is != LineEnds::default() {
        let words = |ends: LineEnds| ends.words().unwrap_or("LF line ends");
        notes.push(format!("it had {}, now it has {}", words(was), words(is)));
    }
    // A BOM that the old file did not have is what the caller asks for.
    let new = if file.bom { file.encode(text) } else { content.to_vec() };
    Ok((new, notes))
}

fn write(arguments: &Arguments, cx: &Cx) -> Result<Output, String> {
    let plan = plan(arguments, cx)?;
    let Plan { real, shown, old, new, notes } = &plan;
    cx.changes.before(real, old.as_deref());
    let done = match old {
        None => replace::create(real, new),
        Some(old) if old == new => Ok(()),
        Some(old) => replace::replace(real, old, new),
    };
    done.map_err(|err| failed(shown, &err))?;
    cx.seen.record(real, new);
    if old.as_ref() != Some(new) {
        cx.changes.made(real, old.as_deref(), new);
    }
    let view = diff::view(shown, old.as_deref().unwrap_or_default(), new);
    let what = match old {
        None => format!("made `{shown}`: {} bytes", new.len()),
        Some(old) if old == new => format!("`{shown}` already had this content; nothing was changed"),
        Some(_) => format!("replaced `{shown}`: {} bytes{}", new.len(), counts(&view)),
    };
    let notes: String = notes.iter().map(|note| format!("; {note}")).collect();
    Ok(Output { content: vec![Part::text(format!("{what}{notes}"))], view })
}

/// The error of a replacement, with what to do next.
pub(super) fn failed(shown: &str, err: &replace::Error) -> String {
    let next = match err {
        replace::Error::Changed | replace::Error::Exists => {
            ", so nothing was written: read it again and make the change to what it holds now"
        }
        _ => "; nothing was written",
    };
    format!("cannot write `{shown}`: it {err}{next}")
}

/// The size of a change, for the model.
pub(super) fn counts(view: &View) -> String {
    match view {
        View::Diff { added, removed, .. } => format!(", lines +{added} -{removed}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;
    use crate::message::text_of;
    use crate::tools::read::Read;
    use crate::tools::tests::{Folder, description_bytes};

    fn write(folder: &Folder, path: &str, content: &str) -> Result<String, String> {
        let output = folder.run(&Write, json!({"path": path, "content": content}))?;
        Ok(text_of(&output.content))
    }

    fn read(folder: &Folder, path: &str) {
        folder.run(&Read, json!({"path": path})).unwrap();
    }

    #[test]
    fn a_new_file_is_made_with_its_folders_and_can_be_written_again() {
        let folder = Folder::new();
        assert_eq!(write(&folder, "a/b/f", "one\n").unwrap(), "made `a/b/f`: 4 bytes");
        assert_eq!(write(&folder, "a/b/f", "two\n").unwrap(), "replaced `a/b/f`: 4 bytes, lines +1 -1");
        assert_eq!(folder.get("a/b/f"), b"two\n");
        assert_eq!(folder.names(), ["a"]);
    }

    #[test]
    fn only_a_file_that_is_known_and_unchanged_is_replaced() {
        let folder = Folder::new();
        folder.put("f", "one\n");
        assert!(write(&folder, "f", "x").unwrap_err().contains("was not read in this session"));
        read(&folder, "f");
        folder.put("f", "two\n");
        assert!(write(&folder, "f", "x").unwrap_err().contains("has changed since it was read"));
        assert_eq!(folder.get("f"), b"two\n");
        read(&folder, "f");
        write(&folder, "f", "x").unwrap();
        assert_eq!(folder.get("f"), b"x");
    }

    #[test]
    fn mode_and_links_are_kept() {
        let folder = Folder::new();
        folder.put("real", "one\n");
        fs::set_permissions(folder.path("real"), fs::Permissions::from_mode(0o750)).unwrap();
        symlink("real", folder.path("link")).unwrap();
        symlink("later", folder.path("dangling")).unwrap();
        read(&folder, "link");
        write(&folder, "link", "two\n").unwrap();
        write(&folder, "dangling", "new\n").unwrap();
        assert!(folder.path("link").is_symlink() && folder.path("dangling").is_symlink());
        assert_eq!(folder.get("real"), b"two\n");
        assert_eq!(folder.get("later"), b"new\n");
        assert_eq!(fs::metadata(folder.path("real")).unwrap().mode() & 0o7777, 0o750);
        assert_eq!(folder.names(), ["dangling", "later", "link", "real"]);
    }

    #[test]
    fn the_encoding_of_the_old_file_is_kept() {
        let check = |old: &[u8], content: &str, expected: Result<&[u8], &str>| {
            let folder = Folder::new();
            folder.put("f", old);
            read(&folder, "f");
            let result = write(&folder, "f", content);
            match expected {
                Ok(bytes) => assert_eq!(folder.get("f"), bytes, "{result:?}"),
                Err(reason) => {
                    assert!(result.as_ref().unwrap_err().contains(reason), "{result:?}");
                    assert_eq!(folder.get("f"), old);
                }
            }
        };
        check(b"\xEF\xBB\xBFa", "b", Ok(b"\xEF\xBB\xBFb"));
        check(b"\xEF\xBB\xBFa", "\u{FEFF}b", Ok(b"\xEF\xBB\xBFb"));
        check(b"\xFF\xFEa\0", "é\r\n", Ok(b"\xFF\xFE\xE9\0\r\0\n\0"));
        check(b"\xFE\xFF\0a", "b", Ok(b"\xFE\xFF\0b"));
        check(b"a\xE9", "plain", Ok(b"plain"));
        check(b"a\xE9", "a\u{FFFD}", Err("is not UTF-8"));
        check(b"a\n", "\u{FEFF}b", Ok(b"\xEF\xBB\xBFb"));
    }

    #[test]
    fn a_change_of_line_ends_is_said() {
        let folder = Folder::new();
        folder.put("f", "a\r\nb\r\n");
        read(&folder, "f");
        let text = write(&folder, "f", "a\nb\n").unwrap();
        assert!(text.ends_with("; it had CRLF line ends, now it has LF line ends"), "{text}");
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let folder = Folder::new();
        folder.put("d/f", "");
        folder.put("locked", "x");
        fs::set_permissions(folder.path("locked"), fs::Permissions::from_mode(0o444)).unwrap();
        read(&folder, "locked");
        for (path, expected) in [
            ("d", "names a directory"),
            ("new/", "names a directory"),
            ("", "names a directory"),
            ("/dev/null", "is a device"),
            ("d/f/below", "is a file, not a folder"),
            ("locked", "is read-only (mode 0444)"),
        ] {
            let err = write(&folder, path, "y").unwrap_err();
            assert!(err.contains(expected), "{err}");
        }
        assert_eq!(folder.names(), ["d", "locked"]);
    }

    #[test]
    fn the_preview_is_the_change_or_the_reason() {
        let folder = Folder::new();
        let view = Write.preview(&json!({"path": "f", "content": "a\nb\n"}), &folder.cx);
        assert_eq!(
            view,
            View::Diff { path: "f".into(), diff: "@@ -0,0 +1,2 @@\n+a\n+b\n".into(), added: 2, removed: 0 }
        );
        folder.put("g", "x");
        let view = Write.preview(&json!({"path": "g", "content": "y"}), &folder.cx);
        assert!(matches!(view, View::Line { text } if text.contains("not read")));
        assert_eq!(folder.names(), ["g"]);
        Write.preview(&json!("{broken"), &folder.cx);
    }

    #[test]
    fn arguments_that_do_not_fit_match_no_allow_rule() {
        let folder = Folder::new();
        assert!(Write.access(&json!([]), &folder.cx).opaque);
        let access = Write.access(&json!({"path": "a/../f"}), &folder.cx);
        assert_eq!((access.opaque, access.subjects), (false, vec!["f".to_owned()]));
    }

    #[test]
    fn the_description_keeps_its_budget() {
        assert!(description_bytes(&Write) <= 520, "{}", description_bytes(&Write));
    }
}

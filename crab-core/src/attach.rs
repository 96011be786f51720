//! `@path` in a prompt: the file's text or picture goes along.

use std::collections::BTreeSet;
use std::path::Path;

use base64::Engine as _;

use crate::message::Part;
use crate::paths;
use crate::text_file::{self, Encoding, TextFile};

/// Bytes of one file of text.
const MAX_TEXT: usize = 256 << 10;
/// Bytes of one picture; in base64 they are the 5 MB that services take.
const MAX_IMAGE: usize = 3_932_160;

/// The prompt, and behind it what its `@path` words name: a file's text in a block that tells its path and size, a
/// picture, or the names in a directory. A word that names nothing that exists stays a word; `\@` is a plain `@`. The
/// error says which file cannot be attached, and why.
pub fn expand(prompt: &str, cwd: &Path) -> Result<Vec<Part>, String> {
    let (text, names) = split(prompt, |name| exists(cwd, name));
    let mut parts = vec![Part::text(text)];
    let mut known = BTreeSet::new();
    for name in names {
        if known.insert(paths::resolve(cwd, &name)) {
            parts.extend(attach(cwd, &name)?);
        }
    }
    Ok(parts)
}

fn exists(cwd: &Path, name: &str) -> bool {
    name.chars().any(char::is_alphanumeric) && paths::resolve(cwd, name).exists()
}

/// The prompt without its escapes, and the names in it, in order.
fn split(prompt: &str, exists: impl Fn(&str) -> bool) -> (String, Vec<String>) {
    let (mut text, mut names, mut rest) = (String::new(), Vec::new(), prompt);
    while let Some(at) = rest.find('@') {
        let (before, word) = (&rest[..at], &rest[at + 1..]);
        rest = word;
        if let Some(plain) = before.strip_suffix('\\') {
            text.push_str(plain);
            text.push('@');
            continue;
        }
        text.push_str(before);
        let is_start = text.chars().next_back().is_none_or(char::is_whitespace);
        text.push('@');
        if is_start && let Some(name) = name(word, &exists) {
            names.push(name.to_owned());
        }
    }
    text.push_str(rest);
    (text, names)
}

/// The longest name at the start of `word` that exists: punctuation behind it may belong to the sentence.
fn name(word: &str, exists: impl Fn(&str) -> bool) -> Option<&str> {
    if let Some(quoted) = word.strip_prefix('"') {
        let (name, _) = quoted.split_once('"')?;
        return exists(name).then_some(name);
    }
    let mut name = word.split(char::is_whitespace).next()?;
    loop {
        if exists(name) {
            return Some(name);
        }
        name = name.strip_suffix(|c: char| ",.;:!?)]}'\"`>".contains(c))?;
    }
}

fn attach(cwd: &Path, name: &str) -> Result<Vec<Part>, String> {
    let path = paths::resolve(cwd, name);
    let wrong = |reason: &str| format!("cannot attach `{name}`: {reason}; write `\\@` for a plain @");
    if path.is_dir() {
        let (names, count) = paths::listing(&path).map_err(|err| wrong(&text_file::reason(err)))?;
        return Ok(vec![Part::text(format!(
            "<directory path=\"{name}\" entries=\"{count}\">\n{names}\n</directory>"
        ))]);
    }
    let (_, meta) = text_file::open(&path).map_err(|reason| wrong(&reason))?;
    if meta.len() > MAX_IMAGE as u64 {
        return Err(wrong(&too_large(meta.len())));
    }
    let bytes = text_file::load(&path).map_err(|reason| wrong(&reason))?;
    if let Some(media_type) = text_file::image_type(&bytes) {
        let data = base64::engine::general_purpose::STANDARD.encode(&bytes);
        let label = Part::text(format!("`{name}` ({media_type}, {} bytes):", bytes.len()));
        return Ok(vec![label, Part::Image { media_type: media_type.to_owned(), data }]);
    }
    if text_file::is_binary(&bytes) {
        return Err(wrong(&format!("it is a binary file of {} bytes", bytes.len())));
    }
    if bytes.len() > MAX_TEXT {
        return Err(wrong(&too_large(bytes.len() as u64)));
    }
    block(name, &bytes).map(|block| vec![Part::text(block)]).map_err(|reason| wrong(&reason))
}

fn too_large(size: u64) -> String {
    format!(
        "it has {size} bytes, and a file of text may have 262,144 and a picture 3,932,160 (name it without the @, and it \
         is read in parts)"
    )
}

fn block(name: &str, bytes: &[u8]) -> Result<String, String> {
    let file = TextFile::decode(bytes)?;
    let text = file.lossy();
    let note = if file.encoding == Encoding::Unknown {
        " note=\"not valid UTF-8, such bytes are shown as U+FFFD\""
    } else {
        ""
    };
    let end = if text.ends_with('\n') { "" } else { "\n" };
    Ok(format!("<file path=\"{name}\" bytes=\"{}\"{note}>\n{text}{end}</file>", text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::text_of;

    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("src")).unwrap();
        for (name, content) in [
            ("src/a.rs", &b"fn a() {}\n"[..]),
            ("with space.txt", b"spaced"),
            ("pic.png", b"\x89PNG\r\n\x1a\n...."),
        ] {
            std::fs::write(dir.path().join(name), content).unwrap();
        }
        dir
    }

    #[track_caller]
    fn check(prompt: &str, expected: &str) {
        assert_eq!(text_of(&expand(prompt, folder().path()).unwrap()), expected);
    }

    #[test]
    fn a_file_is_attached_with_its_size() {
        let block = "<file path=\"src/a.rs\" bytes=\"10\">\nfn a() {}\n</file>";
        check("@src/a.rs", &format!("@src/a.rs\n{block}"));
        check("look at @src/a.rs, please", &format!("look at @src/a.rs, please\n{block}"));
        check("(twice)\n@src/a.rs @./src/a.rs.", &format!("(twice)\n@src/a.rs @./src/a.rs.\n{block}"));
        check(
            "see @\"with space.txt\"!",
            "see @\"with space.txt\"!\n<file path=\"with space.txt\" bytes=\"6\">\nspaced\n</file>",
        );
        check("@src", "@src\n<directory path=\"src\" entries=\"1\">\na.rs\n</directory>");
    }

    #[test]
    fn other_words_with_an_at_stay_as_they_are() {
        for prompt in
            ["mail me@src", "@types/node", "@override @ @. @..", "a@src/a.rs", "@\"open", "größe @ä"]
        {
            check(prompt, prompt);
        }
        check("\\@src/a.rs and \\@x", "@src/a.rs and @x");
    }

    #[test]
    fn a_picture_goes_along_as_one() {
        let parts = expand("what is on @pic.png?", folder().path()).unwrap();
        assert!(
            matches!(&parts[2], Part::Image { media_type, .. } if media_type == "image/png"),
            "{parts:?}"
        );
    }

    #[test]
    fn what_cannot_be_attached_is_an_error() {
        let dir = folder();
        std::fs::write(dir.path().join("big.txt"), "x".repeat(300_000)).unwrap();
        std::fs::write(dir.path().join("bin"), [0, 1, 2, 3]).unwrap();
        for (prompt, expected) in
            [("@big.txt", "300000 bytes"), ("@bin", "binary file of 4 bytes"), ("@/dev/zero", "is a device")]
        {
            let err = expand(prompt, dir.path()).unwrap_err();
            assert!(err.contains(expected) && err.contains(&prompt[1..]), "{err}");
        }
    }
}

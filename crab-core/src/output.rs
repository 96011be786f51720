//! What a command prints, made readable on the way in and kept in bounded memory: its head, its tail, and a file with
//! all of it once it is too long for a result.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::home::create_dir_private;
use crate::redact::Redacting;
use crate::tools::{Cx, Sink};

/// A result shows at most this much, in bytes.
pub(crate) const LIMIT: usize = 30_000;
/// The file of a long output grows to this size, in bytes.
const FILE_LIMIT: u64 = 64 << 20;
/// Live output for a person ends here, in bytes: nobody reads more, and a flood must not fill the event queue.
const LIVE_LIMIT: usize = 1 << 20;
/// A line is kept back for overwriting up to this length, in bytes.
const LINE_LIMIT: usize = 64 << 10;

/// Takes bytes as they come and gives text: escape sequences taken out, lines that a carriage return overwrote left
/// out, other control characters dropped, what is no UTF-8 replaced.
#[derive(Default)]
struct Cleaner {
    line: Vec<u8>,
    /// A carriage return was seen: the next visible character begins the line anew.
    returned: bool,
    escape: Escape,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Escape {
    #[default]
    None,
    /// Behind ESC.
    Start,
    /// ESC and an intermediate byte: one more follows.
    Short,
    /// Within `ESC [ …`.
    Csi,
    /// Within `ESC ] …` and its like, which end in BEL or `ESC \`.
    Text,
    /// ESC within such a text.
    TextEnd,
}

impl Cleaner {
    fn push(&mut self, bytes: &[u8], text: &mut String) {
        let mut rest = bytes;
        while let Some((&byte, after)) = rest.split_first() {
            if self.escape != Escape::None {
                self.escape = self.escape.after(byte);
                rest = after;
                continue;
            }
            // Runs of plain bytes are by far the most and go in one piece.
            let run = rest
                .iter()
                .position(|byte| *byte < b' ' && *byte != b'\t' || *byte == 0x7f)
                .unwrap_or(rest.len());
            if run > 0 {
                self.visible(&rest[..run], text);
                rest = &rest[run..];
                continue;
            }
            match byte {
                b'\n' => self.end_line(text),
                b'\r' => self.returned = true,
                0x1b => self.escape = Escape::Start,
                0x08 => drop(self.line.pop()),
                _ => {}
            }
            rest = after;
        }
    }

    fn visible(&mut self, bytes: &[u8], text: &mut String) {
        if std::mem::take(&mut self.returned) {
            self.line.clear();
        }
        self.line.extend_from_slice(bytes);
        if self.line.len() > LINE_LIMIT {
            let whole = whole_characters(&self.line);
            text.push_str(&String::from_utf8_lossy(&self.line[..whole]));
            self.line.drain(..whole);
        }
    }

    fn end_line(&mut self, text: &mut String) {
        self.returned = false;
        text.push_str(&String::from_utf8_lossy(&self.line));
        text.push('\n');
        self.line.clear();
    }

    fn finish(&mut self, text: &mut String) {
        text.push_str(&String::from_utf8_lossy(&self.line));
        self.line.clear();
    }
}

/// How many bytes do not end within a character.
fn whole_characters(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(3);
    match (tail..bytes.len()).rev().find(|at| bytes[*at] >= 0xc0) {
        Some(at) if std::str::from_utf8(&bytes[at..]).is_err() => at,
        _ => bytes.len(),
    }
}

impl Escape {
    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Start, b'[') => Self::Csi,
            (Self::Start, b']' | b'P' | b'X' | b'^' | b'_') => Self::Text,
            (Self::Start, 0x20..=0x2f) => Self::Short,
            (Self::Csi, 0x20..=0x3f) => Self::Csi,
            (Self::Short, 0x20..=0x2f) => Self::Short,
            (Self::Text | Self::TextEnd, 0x07) => Self::None,
            (Self::TextEnd, b'\\') => Self::None,
            (Self::Text | Self::TextEnd, 0x1b) => Self::TextEnd,
            (Self::Text | Self::TextEnd, _) => Self::Text,
            _ => Self::None,
        }
    }
}

/// What a command printed so far.
pub(crate) struct Collected {
    cleaner: Cleaner,
    redacting: Option<Redacting>,
    head: String,
    tail: VecDeque<u8>,
    /// Bytes of text in all.
    total: usize,
    live: Sink,
    shown: usize,
    folder: PathBuf,
    file: Option<Spill>,
}

struct Spill {
    path: PathBuf,
    file: File,
    written: u64,
    /// Why it does not hold everything.
    fault: Option<String>,
}

impl Collected {
    pub(crate) fn new(cx: &Cx) -> Self {
        Self {
            cleaner: Cleaner::default(),
            redacting: Some(Redacting::new(cx.secrets.clone())),
            head: String::new(),
            tail: VecDeque::new(),
            total: 0,
            live: cx.output.clone(),
            shown: 0,
            folder: cx.spill.clone(),
            file: None,
        }
    }

    /// Takes what was read from the command.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let mut text = String::new();
        self.cleaner.push(bytes, &mut text);
        let text = self.redacting.as_mut().map(|redacting| redacting.push(&text)).unwrap_or_default();
        self.keep(&text);
    }

    fn keep(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.shown < LIVE_LIMIT {
            self.shown += text.len();
            (self.live)(text);
        }
        let half = LIMIT / 2;
        let to_head = text.floor_char_boundary(half.saturating_sub(self.head.len()).min(text.len()));
        let (first, rest) = if self.tail.is_empty() { text.split_at(to_head) } else { ("", text) };
        self.head.push_str(first);
        self.tail.extend(&rest.as_bytes()[rest.len().saturating_sub(half)..]);
        if self.total + text.len() > LIMIT && self.file.is_none() && self.total <= LIMIT {
            // All that came before is still in memory, some of this text perhaps not any more.
            let before: String = self.everything_before(rest);
            self.open_file(&before, text);
        } else if let Some(file) = &mut self.file {
            file.write(text);
        }
        self.total += text.len();
        let excess = self.tail.len().saturating_sub(half);
        self.tail.drain(..excess);
    }

    /// The text before the last piece, of which `rest` went to the tail. Only right while nothing was dropped.
    fn everything_before(&self, rest: &str) -> String {
        let kept = self.tail.len().saturating_sub(rest.len().min(LIMIT / 2));
        let tail: Vec<u8> = self.tail.iter().take(kept).copied().collect();
        let before = format!("{}{}", self.head, String::from_utf8_lossy(&tail));
        before[..before.floor_char_boundary(self.total)].to_owned()
    }

    fn open_file(&mut self, before: &str, text: &str) {
        self.file = Some(match Spill::new(&self.folder) {
            Ok(mut spill) => {
                spill.write(before);
                spill.write(text);
                spill
            }
            Err(_) => return,
        });
    }

    /// Makes the file now, so that what is printed after the result has a place.
    pub(crate) fn keep_file(&mut self) -> Option<PathBuf> {
        if self.file.is_none() && self.total <= LIMIT {
            let before = self.everything_before("");
            self.open_file(&before, "");
        }
        self.file.as_ref().map(|spill| spill.path.clone())
    }

    /// The end of the output.
    pub(crate) fn finish(&mut self) {
        let mut text = String::new();
        self.cleaner.finish(&mut text);
        let Some(mut redacting) = self.redacting.take() else { return };
        let text = redacting.push(&text) + &redacting.finish();
        self.keep(&text);
    }

    /// What a result shows.
    pub(crate) fn text(&self) -> String {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if self.total <= LIMIT {
            let whole = [self.head.as_bytes(), &tail].concat();
            return String::from_utf8_lossy(&whole).into_owned();
        }
        let head = self
            .head
            .rfind('\n')
            .filter(|at| *at > LIMIT / 4)
            .map_or(self.head.as_str(), |at| &self.head[..=at]);
        // The tail may begin within a character; it begins with a whole line where one is near.
        let start = tail.iter().position(|byte| byte & 0xc0 != 0x80).unwrap_or(0);
        let line = tail
            .iter()
            .position(|byte| *byte == b'\n')
            .filter(|at| *at < LIMIT / 4)
            .map_or(start, |at| at + 1);
        let tail = String::from_utf8_lossy(&tail[line..]);
        let left = self.total - head.len() - tail.len();
        let whole = match &self.file {
            Some(Spill { path, fault: None, .. }) => format!("all of it is in {}", path.display()),
            Some(Spill { path, fault: Some(why), .. }) => {
                format!("its beginning is in {} ({why})", path.display())
            }
            None => "the rest could not be kept in a file".into(),
        };
        let gap = if head.ends_with('\n') { "" } else { "\n" };
        format!("{head}{gap}[... {left} bytes left out; {whole} ...]\n{tail}")
    }
}

impl Spill {
    fn new(folder: &Path) -> io::Result<Self> {
        create_dir_private(folder)?;
        let named = tempfile::Builder::new()
            .prefix("output-")
            .suffix(".txt")
            .permissions(std::fs::Permissions::from_mode(0o600))
            .tempfile_in(folder)?;
        let (file, path) = named.keep().map_err(|err| err.error)?;
        Ok(Self { path, file, written: 0, fault: None })
    }

    fn write(&mut self, text: &str) {
        if self.fault.is_some() {
            return;
        }
        let room = usize::try_from(FILE_LIMIT - self.written).unwrap_or(usize::MAX);
        let part = &text[..text.floor_char_boundary(room)];
        match self.file.write_all(part.as_bytes()) {
            Ok(()) => self.written += part.len() as u64,
            Err(err) => self.fault = Some(format!("writing failed: {err}")),
        }
        if part.len() < text.len() && self.fault.is_none() {
            self.fault = Some(format!("the file ends after {} MiB", FILE_LIMIT >> 20));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::tests::Folder;
    use proptest::prelude::*;

    fn clean(pieces: &[&[u8]]) -> String {
        let (mut cleaner, mut text) = (Cleaner::default(), String::new());
        pieces.iter().for_each(|piece| cleaner.push(piece, &mut text));
        cleaner.finish(&mut text);
        text
    }

    #[test]
    fn what_a_terminal_would_show_is_kept() {
        for (bytes, expected) in [
            (&b"plain\ntext"[..], "plain\ntext"),
            (b"\x1b]0;title\x07\x1b[31mred\x1b[0m\x1b[2J done\n", "red done\n"),
            (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
            (b"\x1b(Bx\x1b=y", "xy"),
            (b"\r1%\r2%\r100%\nend\n", "100%\nend\n"),
            (b"dos\r\nlines\r\n", "dos\nlines\n"),
            (b"a\x08b\x00\x07c", "bc"),
            (b"tab\there", "tab\there"),
            (b"\xf0\xff ok\n", "\u{fffd}\u{fffd} ok\n"),
            (b"", ""),
        ] {
            assert_eq!(clean(&[bytes]), expected, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    proptest! {
        #[test]
        fn any_cut_cleans_alike(bytes in proptest::collection::vec(prop_oneof![
            Just(0x1bu8), Just(b'['), Just(b']'), Just(b'\r'), Just(b'\n'), Just(7u8), Just(0xc3u8), Just(0xa9u8), any::<u8>()
        ], 0..200), cut in 0usize..200) {
            let cut = cut.min(bytes.len());
            prop_assert_eq!(clean(&[&bytes]), clean(&[&bytes[..cut], &bytes[cut..]]));
        }

        #[test]
        fn a_long_output_is_whole_in_its_file_however_it_comes(sizes in proptest::collection::vec(1usize..20_000, 1..12)) {
            let folder = Folder::new();
            let mut collected = Collected::new(&folder.cx);
            let mut all = String::new();
            for (n, size) in sizes.iter().enumerate() {
                let piece = format!("{n}é{}\n", "x".repeat(*size));
                all.push_str(&piece);
                collected.push(piece.as_bytes());
            }
            collected.finish();
            let text = collected.text();
            prop_assert!(text.len() < LIMIT + 300);
            if all.len() <= LIMIT {
                prop_assert_eq!(text, all);
                prop_assert!(collected.file.is_none());
            } else {
                let file = std::fs::read_to_string(&collected.file.as_ref().unwrap().path).unwrap();
                prop_assert_eq!(file, all);
                prop_assert!(text.contains("bytes left out; all of it is in "));
            }
        }
    }

    #[test]
    fn a_line_without_an_end_stays_within_bounds() {
        let folder = Folder::new();
        let mut collected = Collected::new(&folder.cx);
        for _ in 0..200 {
            collected.push(&[b'x'; 100_000]);
        }
        collected.finish();
        assert!(collected.text().len() < LIMIT + 300);
        assert!(collected.cleaner.line.capacity() < 1 << 20);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_said() {
        let folder = Folder::new();
        folder.put("taken", "");
        let mut cx = folder.cx.clone();
        cx.spill = folder.path("taken/below");
        let mut collected = Collected::new(&cx);
        collected.push(&vec![b'\n'; LIMIT * 2]);
        assert!(collected.text().contains("could not be kept"));
    }
}

//! A command's output: cleaned for reading, bounded in memory, whole in a file when it is long.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::redact::{Redacting, Secrets};
use crate::tools::Sink;

/// The longest text that goes into a result, in bytes, without the notes about it.
pub(crate) const LIMIT: usize = 30_000;
/// The longest file that is kept of one command.
pub(crate) const FILE_LIMIT: usize = 64 << 20;
/// A line longer than this is passed on in pieces.
const PIECE: usize = 64 << 10;
/// So much of one command is shown while it runs.
const LIVE_LIMIT: usize = 1 << 20;
/// Live output is gathered for so long.
pub(crate) const LIVE_PAUSE: Duration = Duration::from_millis(50);
/// How far a cut moves to fall between two lines.
const NEAR: usize = 2_000;

/// Turns bytes into text that can be read: no escape sequences, no control characters but tab and line break, invalid
/// UTF-8 replaced, a line that overwrites itself (`\r`) in its last state. Any cut of the input gives the same text.
#[derive(Debug, Default)]
struct Cleaner {
    state: State,
    line: Vec<u8>,
    /// The cursor went back to the line's start: what comes next replaces the line.
    is_at_start: bool,
    overwritten: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    Escape,
    /// An escape sequence with intermediate bytes, such as a choice of character set.
    EscapeMore,
    /// A control sequence, with the last byte of its parameters.
    Control(u8),
    /// A string for the terminal, such as a window title.
    String,
    StringEscape,
}

impl Cleaner {
    fn push(&mut self, mut bytes: &[u8], out: &mut String) {
        while let Some(&byte) = bytes.first() {
            if self.state == State::Text {
                let plain =
                    bytes.iter().position(|byte| *byte < b' ' || *byte == 0x7f).unwrap_or(bytes.len());
                if plain > 0 {
                    self.put(&bytes[..plain], out);
                    bytes = &bytes[plain..];
                    continue;
                }
            }
            self.step(byte, out);
            bytes = &bytes[1..];
        }
    }

    fn step(&mut self, byte: u8, out: &mut String) {
        // A line break ends any sequence: an unfinished one must not swallow the rest of the output.
        if byte == b'\n' {
            self.state = State::Text;
            self.is_at_start = false;
            self.line.push(byte);
            self.commit(out);
            return;
        }
        self.state = match (self.state, byte) {
            (State::Text, _) => return self.control(byte, out),
            (State::Escape | State::EscapeMore | State::Control(_), 0x1b) => State::Escape,
            (State::Escape, b'[') => State::Control(0),
            (State::Escape, b']' | b'P' | b'X' | b'^' | b'_') => State::String,
            (State::Escape | State::EscapeMore, b' '..=b'/') => State::EscapeMore,
            (State::Control(_), b' '..=b'?') => State::Control(byte),
            (State::Control(parameter), _) => {
                self.cursor(parameter, byte);
                State::Text
            }
            (State::String | State::StringEscape, 0x07) | (State::StringEscape, b'\\') => State::Text,
            (State::String | State::StringEscape, 0x1b) => State::StringEscape,
            (State::String | State::StringEscape, _) => State::String,
            (State::Escape | State::EscapeMore, _) => State::Text,
        };
    }

    fn control(&mut self, byte: u8, out: &mut String) {
        match byte {
            0x1b => self.state = State::Escape,
            b'\r' => self.is_at_start = true,
            b'\t' => self.put(b"\t", out),
            0x08 => while self.line.pop().is_some_and(|byte| (0x80..0xc0).contains(&byte)) {},
            _ => {}
        }
    }

    /// Programs redraw a line also by moving to its first column and by erasing it.
    fn cursor(&mut self, parameter: u8, action: u8) {
        match action {
            b'G' if matches!(parameter, 0 | b'1') => self.is_at_start = true,
            b'K' if self.is_at_start || parameter == b'2' => self.overwrite(),
            _ => {}
        }
    }

    fn overwrite(&mut self) {
        self.overwritten += usize::from(!self.line.is_empty());
        self.line.clear();
    }

    fn put(&mut self, mut bytes: &[u8], out: &mut String) {
        if std::mem::take(&mut self.is_at_start) {
            self.overwrite();
        }
        while self.line.len() + bytes.len() > PIECE {
            let (now, later) = bytes.split_at(PIECE.saturating_sub(self.line.len()));
            self.line.extend_from_slice(now);
            bytes = later;
            self.commit_characters(out);
        }
        self.line.extend_from_slice(bytes);
    }

    /// Passes on what there is of the line, but for a character that still waits for its other half.
    fn commit_characters(&mut self, out: &mut String) {
        let half = self.line.utf8_chunks().last().map_or(0, |chunk| chunk.invalid().len());
        let rest = self.line.split_off(self.line.len() - half);
        self.commit(out);
        self.line = rest;
    }

    fn commit(&mut self, out: &mut String) {
        let text = String::from_utf8_lossy(&self.line);
        if self.line.is_ascii() {
            out.push_str(&text);
        } else {
            out.extend(text.chars().filter(|c| !('\u{80}'..='\u{9f}').contains(c)));
        }
        self.line.clear();
    }
}

/// The file with all of a command's output.
#[derive(Debug)]
enum Spill {
    Unneeded,
    Open { file: File, path: PathBuf, written: usize, is_full: bool },
    Failed(String),
}

/// What a command has written so far.
pub(crate) struct Capture {
    cleaner: Cleaner,
    /// The file outlives the result, so what must not be written down is taken out here.
    redacting: Redacting,
    secrets: Arc<Secrets>,
    /// All of it up to [`LIMIT`] bytes, then its first half.
    head: String,
    /// The newest part, once there is more than [`LIMIT`].
    tail: String,
    bytes: usize,
    lines: usize,
    folder: PathBuf,
    spill: Spill,
    is_background: bool,
    live: Live,
}

struct Live {
    sink: Sink,
    waiting: String,
    shown: usize,
    last: Instant,
}

impl Capture {
    /// `folder` takes the file, when one is needed; `sink` gets the text while it comes.
    pub(crate) fn new(folder: &Path, sink: Sink, secrets: Arc<Secrets>) -> Self {
        Self {
            cleaner: Cleaner::default(),
            redacting: Redacting::new(secrets.clone()),
            secrets,
            head: String::new(),
            tail: String::new(),
            bytes: 0,
            lines: 0,
            folder: folder.to_owned(),
            spill: Spill::Unneeded,
            is_background: false,
            live: Live { sink, waiting: String::new(), shown: 0, last: Instant::now() },
        }
    }

    /// Takes what the command wrote.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let mut text = String::new();
        self.cleaner.push(bytes, &mut text);
        if self.is_background {
            // Nobody waits for the end of this line: a server's last words are the interesting ones.
            self.cleaner.commit_characters(&mut text);
            self.spill.write(&self.redacting.push(&text));
            return;
        }
        let text = self.redacting.push(&text);
        self.keep(&text);
        self.live.push(&text);
    }

    /// Shows what waits to be shown.
    pub(crate) fn show(&mut self) {
        self.live.show();
    }

    /// The command is over: its last line may have no end.
    pub(crate) fn finish(&mut self) {
        let mut text = String::new();
        self.cleaner.commit(&mut text);
        let mut redacting = std::mem::replace(&mut self.redacting, Redacting::new(self.secrets.clone()));
        let text = redacting.push(&text) + &redacting.finish();
        self.keep(&text);
        self.live.push(&text);
        self.live.show();
    }

    /// From now on, output only goes to a file. Returns its path, or why there is none.
    pub(crate) fn go_on_in_file(&mut self) -> Result<PathBuf, String> {
        if matches!(self.spill, Spill::Unneeded) {
            self.spill = Spill::open(&self.folder);
            self.spill.write(&self.head);
        }
        self.is_background = true;
        match &self.spill {
            Spill::Open { path, .. } => Ok(path.clone()),
            Spill::Failed(reason) => Err(reason.clone()),
            Spill::Unneeded => Err("it was not needed".into()),
        }
    }

    /// The output for a result: whole, or its head and tail and where the whole is.
    pub(crate) fn text(&self) -> String {
        if self.bytes <= LIMIT {
            return self.head.clone();
        }
        let head = &self.head[..line_end_before(&self.head)];
        let tail = &self.tail[line_start_after(&self.tail, self.tail.len().saturating_sub(LIMIT / 2))..];
        let left_out = self.bytes - head.len() - tail.len();
        let head = head.strip_suffix('\n').unwrap_or(head);
        format!(
            "{head}\n[... {left_out} of {} bytes ({} lines) left out; {} ...]\n{tail}",
            self.bytes, self.lines, self.spill
        )
    }

    /// How often a line replaced itself.
    pub(crate) fn overwritten(&self) -> usize {
        self.cleaner.overwritten
    }

    fn keep(&mut self, text: &str) {
        self.bytes += text.len();
        self.lines += text.bytes().filter(|byte| *byte == b'\n').count();
        if self.bytes <= LIMIT {
            self.head.push_str(text);
            return;
        }
        if matches!(self.spill, Spill::Unneeded) {
            self.spill = Spill::open(&self.folder);
            self.spill.write(&self.head);
            let half = self.head.floor_char_boundary(LIMIT / 2);
            self.tail = self.head.split_off(half);
            // The first piece may be long itself: the head is always full.
            if self.head.len() < LIMIT / 2 && self.tail.is_empty() {
                let more = text.floor_char_boundary(LIMIT / 2 - self.head.len());
                self.head.push_str(&text[..more]);
                self.tail.push_str(&text[more..]);
            } else {
                self.tail.push_str(text);
            }
        } else {
            self.tail.push_str(text);
        }
        self.spill.write(text);
        if self.tail.len() > 2 * LIMIT {
            let old = self.tail.ceil_char_boundary(self.tail.len() - LIMIT);
            self.tail.drain(..old);
        }
    }
}

/// Where to cut so that the text ends with a line, if one ends near.
fn line_end_before(text: &str) -> usize {
    let newline = text.rfind('\n').map(|at| at + 1);
    newline.filter(|at| text.len() - at < NEAR).unwrap_or(text.len())
}

/// Where to cut at `from` or later so that the text begins with a line, if one begins near.
fn line_start_after(text: &str, from: usize) -> usize {
    let from = text.ceil_char_boundary(from);
    let newline = text[from..].find('\n').map(|at| from + at + 1);
    newline.filter(|at| at - from < NEAR && *at < text.len()).unwrap_or(from)
}

impl Spill {
    fn open(folder: &Path) -> Self {
        let open = || -> io::Result<(File, PathBuf)> {
            use std::os::unix::fs::DirBuilderExt as _;
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            let file = tempfile::Builder::new().prefix("command-").suffix(".txt").tempfile_in(folder)?;
            file.keep().map_err(|err| err.error)
        };
        match open() {
            Ok((file, path)) => Self::Open { file, path, written: 0, is_full: false },
            Err(err) => {
                Self::Failed(format!("a file for it could not be made in `{}`: {err}", folder.display()))
            }
        }
    }

    fn write(&mut self, text: &str) {
        let Self::Open { file, path, written, is_full } = self else { return };
        let room = text.floor_char_boundary(FILE_LIMIT - *written);
        *is_full |= room < text.len();
        if let Err(err) = file.write_all(&text.as_bytes()[..room]) {
            *self = Self::Failed(format!("the rest could not be kept in `{}`: {err}", path.display()));
            return;
        }
        *written += room;
    }
}

impl std::fmt::Display for Spill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unneeded => f.write_str("nothing more was kept"),
            Self::Failed(reason) => f.write_str(reason),
            Self::Open { path, is_full: false, .. } => {
                write!(f, "the whole output is in `{}`", path.display())
            }
            Self::Open { path, .. } => {
                write!(
                    f,
                    "its first {} MiB, the most that is kept, are in `{}`",
                    FILE_LIMIT >> 20,
                    path.display()
                )
            }
        }
    }
}

impl Live {
    fn push(&mut self, text: &str) {
        let room = LIVE_LIMIT - self.shown;
        if room == 0 || text.is_empty() {
            return;
        }
        let shown = if text.len() > room { &text[..text.floor_char_boundary(room)] } else { text };
        self.waiting.push_str(shown);
        self.shown += shown.len();
        if shown.len() < text.len() {
            self.shown = LIVE_LIMIT;
            self.waiting.push_str("\n[... more output is not shown while it runs ...]\n");
        }
        if self.last.elapsed() >= LIVE_PAUSE {
            self.show();
        }
    }

    fn show(&mut self) {
        if !self.waiting.is_empty() {
            (self.sink)(&std::mem::take(&mut self.waiting));
        }
        self.last = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use proptest::prelude::*;

    use super::*;

    fn clean(bytes: &[u8]) -> String {
        let (mut cleaner, mut text) = (Cleaner::default(), String::new());
        cleaner.push(bytes, &mut text);
        cleaner.commit(&mut text);
        text
    }

    fn silent() -> Sink {
        Arc::new(|_: &str| {})
    }

    #[track_caller]
    fn check(input: &[u8], expected: &str) {
        assert_eq!(clean(input), expected, "{:?}", String::from_utf8_lossy(input));
    }

    #[test]
    fn text_is_cleaned_of_what_only_a_terminal_understands() {
        check(b"\x1b]0;x\x07\x1b[31mred\x1b[0m\x1b[2J done\n", "red done\n");
        check(b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", "link\n");
        check(b"\x1b(Bx\x1b=y\x1bPq...\x1b\\z", "xyz");
        check(b"\x1b]0;never ended\nnext\n", "\nnext\n");
        check(b"\x1b[3\x1b[31mred\n", "red\n");
        check(b"a\x00b\x07c\x7f\td\n", "abc\td\n");
        check("c1 \u{9b}31m ü\n".as_bytes(), "c1 31m ü\n");
        check(b"\xf0\xff ok\n", "\u{fffd}\u{fffd} ok\n");
    }

    #[test]
    fn a_line_that_overwrites_itself_is_kept_in_its_last_state() {
        check(b"\r1%\r2%\r100%\nend\n", "100%\nend\n");
        check(b"1%\r2%\r", "2%");
        check(b"dos\r\nlines\r\n", "dos\nlines\n");
        check(b"gone\r\x1b[Know\n", "now\n");
        check(b"gone\x1b[1G\x1b[0Know\n", "now\n");
        check("wait |\u{8}/\u{8}-\u{8}é\u{8}.\n".as_bytes(), "wait .\n");
    }

    proptest! {
        #[test]
        fn any_cut_of_the_input_gives_the_same_text(bytes in proptest::collection::vec(prop_oneof![
            any::<u8>(), Just(0x1b), Just(b'['), Just(b'\r'), Just(b'\n'), Just(b']'), Just(0xc3)], 0..200), cut in 0usize..200) {
            let (mut cleaner, mut text) = (Cleaner::default(), String::new());
            let cut = cut.min(bytes.len());
            cleaner.push(&bytes[..cut], &mut text);
            cleaner.push(&bytes[cut..], &mut text);
            cleaner.commit(&mut text);
            prop_assert!(!text.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
            prop_assert_eq!(text, clean(&bytes));
        }
    }

    #[test]
    fn a_character_on_the_border_of_two_pieces_of_a_long_line_stays_whole() {
        let line = format!("x{}", "é".repeat(100_000));
        assert_eq!(clean(line.as_bytes()), line);
        assert_eq!(clean(&vec![0xff; 200_000]).chars().count(), 200_000);
    }

    #[test]
    fn short_output_is_whole_and_makes_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut capture = Capture::new(&folder.path().join("spill"), silent(), Arc::default());
        capture.push(b"one\ntwo");
        capture.finish();
        assert_eq!(capture.text(), "one\ntwo");
        assert!(!folder.path().join("spill").exists());
    }

    #[test]
    fn long_output_is_cut_between_lines_and_whole_in_a_private_file() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let mut capture = Capture::new(&folder.path().join("a/spill"), silent(), Arc::default());
        let whole: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
        whole.as_bytes().chunks(777).for_each(|chunk| capture.push(chunk));
        capture.finish();
        let text = capture.text();
        assert!(text.len() < LIMIT + 500);
        assert!(text.starts_with("line 0\n") && text.ends_with("line 19999\n"));
        let note = text.lines().find(|line| line.starts_with("[...")).unwrap();
        assert!(text.lines().all(|line| line == note || whole.contains(&format!("{line}\n"))));
        let left_out: usize = note.split(' ').nth(1).unwrap().parse().unwrap();
        assert_eq!(left_out + text.len() - note.len() - 1, whole.len());
        let path = note.split('`').nth(1).unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), whole);
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        let mode = std::fs::metadata(folder.path().join("a/spill")).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }

    #[test]
    fn one_enormous_line_is_bounded_at_both_ends() {
        let folder = tempfile::tempdir().unwrap();
        let mut capture = Capture::new(folder.path(), silent(), Arc::default());
        for _ in 0..50 {
            capture.push(&[b'x'; 50_000]);
        }
        capture.push(b"end");
        capture.finish();
        let text = capture.text();
        assert!((LIMIT - 10..LIMIT + 500).contains(&text.len()), "{}", text.len());
        assert!(text.starts_with("xxx") && text.ends_with("xend"));
    }

    #[test]
    fn a_file_that_cannot_be_made_is_a_note_and_no_failure() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let mut capture = Capture::new(&file.join("spill"), silent(), Arc::default());
        capture.push(&b"y\n".repeat(LIMIT));
        capture.finish();
        assert!(capture.text().contains("could not be made"));
        assert!(capture.go_on_in_file().is_err());
    }

    #[test]
    fn live_output_comes_gathered_and_ends_at_its_limit() {
        let shown = Arc::new(Mutex::new(Vec::new()));
        let sink: Sink = {
            let shown = Arc::clone(&shown);
            Arc::new(move |text: &str| shown.lock().unwrap().push(text.to_owned()))
        };
        let folder = tempfile::tempdir().unwrap();
        let mut capture = Capture::new(folder.path(), sink, Arc::default());
        for _ in 0..100 {
            capture.push(b"half ");
            capture.push(&b"y\n".repeat(50_000));
        }
        capture.finish();
        let shown = shown.lock().unwrap();
        let all = shown.concat();
        assert!(all.len() < LIVE_LIMIT + 100);
        assert!(all.ends_with("not shown while it runs ...]\n"));
        assert!(shown.iter().all(|chunk| chunk.ends_with('\n')));
    }

    #[test]
    fn output_in_the_background_goes_to_the_file_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut capture = Capture::new(folder.path(), silent(), Arc::default());
        capture.push(b"started\n");
        capture.finish();
        let path = capture.go_on_in_file().unwrap();
        capture.push(b"no line end");
        assert_eq!(std::fs::read_to_string(path).unwrap(), "started\nno line end");
        assert_eq!(capture.text(), "started\n");
    }
}

//! Bytes of a file and text: opening without a hang, encoding, BOM, newline style, and the search that knows them.

use std::borrow::Cow;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Files over this size are neither edited nor replaced.
pub(crate) const MAX_SIZE: u64 = 256 << 20;
/// As many bytes of a file decide what it is.
pub(crate) const HEAD: usize = 64 << 10;
/// Matches whose places are kept.
const MAX_SPANS: usize = 20;
const UTF8_BOM: &[u8] = &[0xEF, 0xBB, 0xBF];
const UTF16_LE_BOM: &[u8] = &[0xFF, 0xFE];
const UTF16_BE_BOM: &[u8] = &[0xFE, 0xFF];

/// Opens a regular file for reading. The error is the reason alone, without the path.
pub(crate) fn open(path: &Path) -> Result<(File, Metadata), String> {
    let regular = |meta: Metadata| match other_kind(&meta) {
        None => Ok(meta),
        Some(kind) => Err(format!("is {kind}, not a regular file")),
    };
    // Opening a device can act on it, so its kind is looked at before; and once more after, without a race.
    regular(path.metadata().map_err(reason)?)?;
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(reason)?;
    let meta = regular(file.metadata().map_err(reason)?)?;
    Ok((file, meta))
}

/// The whole of a regular file up to [`MAX_SIZE`]. The error is the reason alone, without the path.
pub(crate) fn load(path: &Path) -> Result<Vec<u8>, String> {
    let (file, _) = open(path)?;
    let mut bytes = Vec::new();
    file.take(MAX_SIZE + 1).read_to_end(&mut bytes).map_err(reason)?;
    if bytes.len() as u64 > MAX_SIZE {
        return Err(format!("is larger than {} MB; change it with a command in `bash`", MAX_SIZE >> 20));
    }
    Ok(bytes)
}

/// The error in words, without the number of the system.
#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
pub(crate) fn reason(err: io::Error) -> String {
    match err.kind() {
        io::ErrorKind::NotFound => "does not exist".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        io::ErrorKind::NotADirectory => "a part of the path is a file, not a folder".into(),
        _ => {
            let text = err.to_string();
            text.split(" (os error").next().unwrap_or(&text).to_lowercase()
        }
    }
}

fn other_kind(meta: &Metadata) -> Option<&'static str> {
    let kind = meta.file_type();
    match () {
        () if kind.is_file() => None,
        () if kind.is_dir() => Some("a directory"),
        () if kind.is_fifo() => Some("a FIFO"),
        () if kind.is_socket() => Some("a socket"),
        () => Some("a device"),
    }
}

/// The MIME type of a picture that models take, by its first bytes.
pub(crate) fn image_type(head: &[u8]) -> Option<&'static str> {
    match head {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => Some("image/png"),
        [0xFF, 0xD8, 0xFF, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// Whether a file that starts like this is no text. A single stray NUL in an otherwise sound source file does not
/// make it binary; UTF-16 with its BOM is text.
pub(crate) fn is_binary(head: &[u8]) -> bool {
    let head = &head[..head.len().min(HEAD)];
    if head.starts_with(UTF16_LE_BOM) || head.starts_with(UTF16_BE_BOM) {
        return false;
    }
    let odd = |byte: &&u8| matches!(byte, 0..=7 | 0x0B | 0x0E..=0x1A | 0x1C..=0x1F | 0x7F);
    let control = head.iter().filter(odd).count();
    // A character may be cut in two at the end of the head.
    let sound = std::str::from_utf8(head).map_or_else(|err| err.error_len().is_none(), |_| true);
    control * 32 > head.len() || (head.contains(&0) && !sound)
}

/// How a file's bytes stand for text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// UTF-8, with or without a BOM.
    Utf8,
    /// UTF-16 with a BOM, little-endian.
    Utf16Le,
    /// UTF-16 with a BOM, big-endian.
    Utf16Be,
    /// Something that extends ASCII, such as Latin-1 or Shift-JIS.
    Unknown,
}

/// A file's text, without its BOM.
#[derive(Debug)]
pub(crate) struct TextFile<'a> {
    /// How it is stored.
    pub(crate) encoding: Encoding,
    /// Whether a BOM stands before it.
    pub(crate) bom: bool,
    /// UTF-8; the file's own bytes when the encoding is unknown.
    pub(crate) body: Cow<'a, [u8]>,
}

impl<'a> TextFile<'a> {
    /// Takes bytes apart. The error is the reason alone: UTF-16 that would not come back the same.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, String> {
        if let Some(rest) = bytes.strip_prefix(UTF8_BOM) {
            return Ok(Self { encoding: encoding_of(rest), bom: true, body: Cow::Borrowed(rest) });
        }
        let encoding = match bytes {
            [0xFF, 0xFE, ..] => Encoding::Utf16Le,
            [0xFE, 0xFF, ..] => Encoding::Utf16Be,
            _ => return Ok(Self { encoding: encoding_of(bytes), bom: false, body: Cow::Borrowed(bytes) }),
        };
        let broken = || "starts as UTF-16 but is not valid UTF-16".to_owned();
        let text = from_utf16(&bytes[2..], encoding).ok_or_else(broken)?;
        Ok(Self { encoding, bom: true, body: Cow::Owned(text.into_bytes()) })
    }

    /// The file's bytes with another text in place of its own.
    pub(crate) fn encode(&self, body: &[u8]) -> Vec<u8> {
        let bom = if self.bom { self.encoding.bom() } else { &[] };
        let mut bytes = bom.to_vec();
        match self.encoding {
            Encoding::Utf8 | Encoding::Unknown => bytes.extend_from_slice(body),
            Encoding::Utf16Le => bytes.extend(utf16(body).flat_map(u16::to_le_bytes)),
            Encoding::Utf16Be => bytes.extend(utf16(body).flat_map(u16::to_be_bytes)),
        }
        bytes
    }

    /// The text for eyes: what is no UTF-8 becomes U+FFFD.
    pub(crate) fn lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }
}

impl Encoding {
    fn bom(self) -> &'static [u8] {
        match self {
            Self::Utf8 | Self::Unknown => UTF8_BOM,
            Self::Utf16Le => UTF16_LE_BOM,
            Self::Utf16Be => UTF16_BE_BOM,
        }
    }
}

fn encoding_of(bytes: &[u8]) -> Encoding {
    if std::str::from_utf8(bytes).is_ok() { Encoding::Utf8 } else { Encoding::Unknown }
}

fn from_utf16(bytes: &[u8], encoding: Encoding) -> Option<String> {
    let (pairs, []) = bytes.as_chunks::<2>() else { return None };
    let unit = |pair: &[u8; 2]| match encoding {
        Encoding::Utf16Be => u16::from_be_bytes(*pair),
        _ => u16::from_le_bytes(*pair),
    };
    char::decode_utf16(pairs.iter().map(unit)).collect::<Result<_, _>>().ok()
}

fn utf16(body: &[u8]) -> impl Iterator<Item = u16> {
    String::from_utf8_lossy(body).encode_utf16().collect::<Vec<_>>().into_iter()
}

/// How the lines of a text end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LineEnds {
    /// Line feeds alone.
    pub(crate) lf: usize,
    /// Carriage returns before a line feed.
    pub(crate) crlf: usize,
    /// Carriage returns alone, in a text that has no line feed at all.
    pub(crate) cr: usize,
}

impl LineEnds {
    /// Counts them.
    pub(crate) fn of(body: &[u8]) -> Self {
        let mut ends = Self::default();
        let mut before = 0;
        for byte in body {
            match (before, byte) {
                (b'\r', b'\n') => ends.crlf += 1,
                (_, b'\n') => ends.lf += 1,
                (_, b'\r') => ends.cr += 1,
                _ => {}
            }
            before = *byte;
        }
        if ends.lf + ends.crlf > 0 {
            ends.cr = 0;
        }
        ends
    }

    /// In words, when there is something to say.
    pub(crate) fn words(self) -> Option<&'static str> {
        match self {
            Self { crlf: 0, cr: 0, .. } => None,
            Self { lf: 0, crlf: 0, .. } => Some("CR line ends"),
            Self { lf: 0, .. } => Some("CRLF line ends"),
            _ => Some("mixed LF and CRLF line ends"),
        }
    }
}

/// The line break at this place, when there is one: `\n`, `\r\n`, or `\r` where that is the text's own style.
pub(crate) fn break_at(body: &[u8], at: usize, cr_style: bool) -> Option<&'static str> {
    match body.get(at..)? {
        [b'\n', ..] => Some("\n"),
        [b'\r', b'\n', ..] => Some("\r\n"),
        [b'\r', ..] if cr_style => Some("\r"),
        _ => None,
    }
}

/// Where a text occurs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Matches {
    /// How often, overlapping ones included.
    pub(crate) count: usize,
    /// The first twenty.
    pub(crate) spans: Vec<Range<usize>>,
}

/// Finds every occurrence of `needle`, overlapping ones as well, in time linear in both. With `any_break`, a line feed
/// in `needle` stands for whatever line break the body has at that place.
pub(crate) fn find_all(body: &[u8], needle: &[u8], any_break: bool, cr_style: bool) -> Matches {
    let mut found = Matches::default();
    if needle.is_empty() {
        return found;
    }
    let table = failures(needle);
    let (mut at, mut matched) = (0, 0);
    while at < body.len() {
        let (byte, len) = match break_at(body, at, cr_style) {
            Some(ends) if any_break => (b'\n', ends.len()),
            _ => (body[at], 1),
        };
        at += len;
        while matched > 0 && (matched == needle.len() || needle[matched] != byte) {
            matched = table[matched - 1];
        }
        matched += usize::from(needle[matched] == byte);
        if matched == needle.len() {
            found.count += 1;
            if found.spans.len() < MAX_SPANS {
                found.spans.push(start_of(body, at, needle, any_break)..at);
            }
        }
    }
    found
}

/// Where the match that ends at `end` begins: breaks of the body can be longer than those of the needle.
fn start_of(body: &[u8], end: usize, needle: &[u8], any_break: bool) -> usize {
    if !any_break {
        return end - needle.len();
    }
    let step = |at: usize, byte: &u8| {
        let is_crlf = *byte == b'\n' && at >= 2 && body[at - 2..at] == *b"\r\n";
        at - if is_crlf { 2 } else { 1 }
    };
    needle.iter().rev().fold(end, step)
}

/// Knuth, Morris and Pratt: how much of the needle still matches after each failed place.
fn failures(needle: &[u8]) -> Vec<usize> {
    let mut table = vec![0; needle.len()];
    let mut length = 0;
    for at in 1..needle.len() {
        while length > 0 && needle[at] != needle[length] {
            length = table[length - 1];
        }
        length += usize::from(needle[at] == needle[length]);
        table[at] = length;
    }
    table
}

/// The number of the line that this place lies in, from 1.
pub(crate) fn line_number(body: &[u8], at: usize, cr_style: bool) -> usize {
    let end = if cr_style { b'\r' } else { b'\n' };
    1 + body[..at].iter().filter(|byte| **byte == end).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_encoding_is_told_by_bom_and_validity() {
        for (bytes, encoding, bom, body) in [
            (&b"abc"[..], Encoding::Utf8, false, "abc"),
            (b"\xEF\xBB\xBFabc", Encoding::Utf8, true, "abc"),
            (b"\xFF\xFEa\0\xE9\0", Encoding::Utf16Le, true, "aé"),
            (b"\xFE\xFF\0a\0\xE9", Encoding::Utf16Be, true, "aé"),
            (b"a\xE9b", Encoding::Unknown, false, "a\u{FFFD}b"),
        ] {
            let file = TextFile::decode(bytes).unwrap();
            assert_eq!((file.encoding, file.bom, &*file.lossy()), (encoding, bom, body));
            assert_eq!(file.encode(&file.body), bytes);
        }
        assert!(TextFile::decode(b"\xFF\xFEa").is_err());
        assert!(TextFile::decode(b"\xFF\xFE\x00\xD8").is_err());
    }

    #[test]
    fn binary_is_told_from_text() {
        let all: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        for (head, expected) in [
            (&b"fn main() {}\n"[..], false),
            (b"", false),
            (b"abc\0def", true),
            (b"a line of source with one stray \0 in it, as it happens now and then\n", false),
            ("größe 漢字\n".as_bytes(), false),
            (b"acci\xF3n ma\xF1ana\n", false),
            (b"\x1b[31mred\x1b[0m\n", false),
            (b"\xFF\xFEa\0b\0", false),
            (b"\x7FELF\x02\x01\x01\0\0\0", true),
            (&all, true),
        ] {
            assert_eq!(is_binary(head), expected, "{:?}", &head[..head.len().min(20)]);
        }
    }

    #[test]
    fn a_line_feed_stands_for_the_break_that_is_there() {
        let check = |body: &str, needle: &str, expected: &[(usize, usize)]| {
            let cr = LineEnds::of(body.as_bytes()).cr > 0;
            let found = find_all(body.as_bytes(), needle.as_bytes(), true, cr);
            let spans: Vec<_> = found.spans.iter().map(|span| (span.start, span.end)).collect();
            assert_eq!((found.count, &spans[..]), (expected.len(), expected), "{body:?} {needle:?}");
        };
        check("a\r\nb\r\n", "a\nb", &[(0, 4)]);
        check("a\r\nb\r\n", "\n", &[(1, 3), (4, 6)]);
        check("a\nb\r\nc", "\nc", &[(3, 6)]);
        check("a\nb a\r\nb", "a\nb", &[(0, 3), (4, 8)]);
        check("a\rb", "a\nb", &[(0, 3)]);
        check("a\rb\n", "a\nb", &[]);
        check("aaa", "aa", &[(0, 2), (1, 3)]);
    }

    #[test]
    fn line_ends_have_words() {
        for (text, words) in [
            ("a\nb\n", None),
            ("a\r\nb\r\n", Some("CRLF line ends")),
            ("a\rb\r", Some("CR line ends")),
            ("a\r\nb\n", Some("mixed LF and CRLF line ends")),
            ("a\nb\rc\n", None),
        ] {
            assert_eq!(LineEnds::of(text.as_bytes()).words(), words, "{text:?}");
        }
    }

    #[test]
    fn a_fifo_and_a_device_are_not_opened() {
        assert_eq!(open(Path::new("/dev/zero")).unwrap_err(), "is a device, not a regular file");
        assert_eq!(open(Path::new("/")).unwrap_err(), "is a directory, not a regular file");
    }

    proptest! {
        #[test]
        fn the_search_finds_what_a_naive_one_finds(body in "[ab\n]{0,60}", needle in "[ab\n]{1,4}") {
            let naive: Vec<_> = (0..body.len()).filter(|at| body[*at..].starts_with(&needle)).collect();
            let found = find_all(body.as_bytes(), needle.as_bytes(), false, false);
            prop_assert_eq!(found.count, naive.len());
            for (span, at) in found.spans.iter().zip(&naive) {
                prop_assert_eq!(span.clone(), *at..at + needle.len());
            }
            let crlf = body.replace('\n', "\r\n");
            let found = find_all(crlf.as_bytes(), needle.as_bytes(), true, false);
            prop_assert_eq!(found.count, naive.len());
            for span in found.spans {
                prop_assert_eq!(crlf[span].replace("\r\n", "\n"), needle.clone());
            }
        }

        #[test]
        fn any_bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(file) = TextFile::decode(&bytes) {
                prop_assert_eq!(file.encode(&file.body), bytes);
            }
        }
    }
}

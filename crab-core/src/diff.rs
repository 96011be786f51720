//! The change of one file as a person sees it.

use std::time::Duration;

use similar::{Algorithm, ChangeTag, TextDiff};

use crate::clip;
use crate::text_file::{LineEnds, TextFile};
use crate::tools::View;

/// A larger diff loses its middle.
const MAX_DIFF: usize = 200_000;
/// After so long the shortest diff is given up for a quick one.
const PATIENCE: Duration = Duration::from_millis(300);

/// The change from `old` to `new`, both as stored. `path` is what the user calls the file.
pub(crate) fn view(path: &str, old: &[u8], new: &[u8]) -> View {
    let (old, new) = (shown(old), shown(new));
    let same_crlf = all_crlf(&old) && all_crlf(&new);
    let (old, new) =
        if same_crlf { (old.replace("\r\n", "\n"), new.replace("\r\n", "\n")) } else { (old, new) };
    let old: Vec<&str> = old.split_inclusive('\n').collect();
    let new: Vec<&str> = new.split_inclusive('\n').collect();
    let mut config = TextDiff::configure();
    let diff =
        config.algorithm(Algorithm::Myers).timeout(PATIENCE).newline_terminated(true).diff_slices(&old, &new);
    let count = |tag| diff.iter_all_changes().filter(|change| change.tag() == tag).count();
    let text = diff.unified_diff().context_radius(3).to_string();
    View::Diff {
        path: path.to_owned(),
        diff: clip::middle(&text, MAX_DIFF),
        added: count(ChangeTag::Insert),
        removed: count(ChangeTag::Delete),
    }
}

fn shown(bytes: &[u8]) -> String {
    match TextFile::decode(bytes) {
        Ok(file) => file.lossy().into_owned(),
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// A carriage return on every line says nothing; on some lines it is part of the change.
fn all_crlf(text: &str) -> bool {
    let ends = LineEnds::of(text.as_bytes());
    ends.lf == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(old: &[u8], new: &[u8], expected: (&str, usize, usize)) {
        let View::Diff { diff, added, removed, .. } = view("f", old, new) else { panic!("no diff") };
        assert_eq!((&*diff, added, removed), expected);
    }

    #[test]
    fn a_change_is_shown_with_its_context() {
        check(b"1\n2\n3\n4\n5\n", b"1\n2\n3\n4\nV\n", ("@@ -2,4 +2,4 @@\n 2\n 3\n 4\n-5\n+V\n", 1, 1));
        check(b"", b"a\nb\n", ("@@ -0,0 +1,2 @@\n+a\n+b\n", 2, 0));
        check(
            b"a",
            b"b",
            ("@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n", 1, 1),
        );
    }

    #[test]
    fn line_ends_show_where_they_change() {
        check(b"a\r\nb\r\n", b"a\r\nc\r\n", ("@@ -1,2 +1,2 @@\n a\n-b\n+c\n", 1, 1));
        check(b"a\r\n", b"a\n", ("@@ -1 +1 @@\n-a\r\n+a\n", 1, 1));
        check(b"a\rb\n", b"a\rc\n", ("@@ -1 +1 @@\n-a\rb\n+a\rc\n", 1, 1));
    }

    #[test]
    fn utf_16_is_shown_as_text() {
        check(
            b"\xFF\xFEa\0",
            b"\xFF\xFEb\0",
            ("@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n", 1, 1),
        );
    }
}

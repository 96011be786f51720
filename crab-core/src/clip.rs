//! The one way to shorten output.

use std::borrow::Cow;

/// At most `limit` bytes of `text`: its head and its tail, with a line between them that says how much was left out.
/// Cuts between characters, and between lines where one is near.
pub fn middle(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let half = limit / 2;
    let head = head(text, half);
    let tail = tail(text, half);
    let left_out = text.len() - head.len() - tail.len();
    let seam = if head.is_empty() || head.ends_with('\n') { "" } else { "\n" };
    format!("{head}{seam}[... {left_out} bytes left out ...]\n{tail}")
}

/// At most `limit` characters of one line, then how many more it has.
pub fn line(text: &str, limit: usize) -> Cow<'_, str> {
    match text.char_indices().nth(limit) {
        None => Cow::Borrowed(text),
        Some((at, _)) => Cow::Owned(format!("{}{}", &text[..at], more(text[at..].chars().count()))),
    }
}

/// The mark behind the start of a line that was cut.
pub(crate) fn more(characters: usize) -> String {
    format!(" [... {characters} more characters]")
}

/// The start of `text`: up to `limit` bytes, less when a line ends in the last quarter of them.
fn head(text: &str, limit: usize) -> &str {
    let head = &text[..text.floor_char_boundary(limit)];
    let near = head.len() - head.len() / 4;
    match head.rfind('\n') {
        Some(at) if at + 1 >= near => &head[..=at],
        _ => head,
    }
}

/// The end of `text`, likewise.
fn tail(text: &str, limit: usize) -> &str {
    let tail = &text[text.ceil_char_boundary(text.len() - limit)..];
    match tail.find('\n') {
        Some(at) if at < tail.len() / 4 => &tail[at + 1..],
        _ => tail,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_short_text_stays_as_it_is() {
        assert_eq!(middle("one\ntwo\n", 8), "one\ntwo\n");
        assert_eq!(line("größe", 5), "größe");
    }

    #[test]
    fn a_long_text_is_cut_between_lines() {
        let text = (0..100).map(|n| format!("line {n:02}\n")).collect::<String>();
        let cut = middle(&text, 100);
        assert!(cut.starts_with("line 00\n"), "{cut}");
        assert!(cut.ends_with("line 99\n"), "{cut}");
        assert!(cut.contains("\n[... 704 bytes left out ...]\nline 94\n"), "{cut}");
    }

    #[test]
    fn a_long_line_says_how_many_characters_are_missing() {
        assert_eq!(line("日本語です", 2), "日本 [... 3 more characters]");
    }

    proptest! {
        #[test]
        fn what_is_kept_and_what_is_left_out_add_up(text in "[a-zé日\n]{0,400}", limit in 0usize..300) {
            let cut = middle(&text, limit);
            if text.len() <= limit {
                prop_assert_eq!(cut, text);
            } else {
                let (head, rest) = cut.split_once("[... ").unwrap();
                let (count, tail) = rest.split_once(" bytes left out ...]\n").unwrap();
                let head = if text.starts_with(head) { head } else { head.strip_suffix('\n').unwrap() };
                prop_assert!(text.starts_with(head) && text.ends_with(tail));
                let left_out: usize = count.parse().unwrap();
                let kept = text.len() - left_out;
                prop_assert!(kept <= limit);
                prop_assert!(head.len() + tail.len() == kept || head.len() + tail.len() == kept + 1);
            }
        }
    }
}

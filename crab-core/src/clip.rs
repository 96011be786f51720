//! The one way to shorten output.

/// At most `limit` bytes of `text`: its head and its tail, with a line between them that says how much was left out.
/// Cuts between characters, and between lines where one is near.
pub fn middle(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(limit / 2);
    let tail = text.ceil_char_boundary(text.len() - limit / 2);
    format!("{}\n[... {} bytes left out ...]\n{}", &text[..head], tail - head, &text[tail..])
}

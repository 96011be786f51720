//! Text of models and tools made safe for a terminal: control characters in caret form.

/// For the answer: control characters are shown, everything else is left as it is, joiners inside emoji included.
pub(crate) fn answer(text: &str) -> String {
    map(text, |c| c.is_control() && c != '\n' && c != '\t')
}

/// For questions and tool lines: invisible and direction-changing characters are shown as well.
pub(crate) fn strict(text: &str) -> String {
    map(text, |c| (c.is_control() && c != '\n' && c != '\t') || is_invisible(c))
}

/// As [`strict`], on one line.
pub(crate) fn line(text: &str) -> String {
    map(text, |c| c.is_control() || is_invisible(c))
}

/// Works character by character, so that a text cut into pieces anywhere gives the same bytes.
fn map(text: &str, is_shown: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if !is_shown(c) => out.push(c),
            '\x7f' => out.push_str("^?"),
            c if c < ' ' => out.extend(['^', char::from(c as u8 + 0x40)]),
            c => out.push_str(&format!("<U+{:04X}>", u32::from(c))),
        }
    }
    out
}

/// Characters that take no room, or turn the direction of what follows: a command can hide behind them.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &str, in_answer: &str, in_question: &str, on_line: &str) {
        assert_eq!(answer(input), in_answer);
        assert_eq!(strict(input), in_question);
        assert_eq!(line(input), on_line);
    }

    #[test]
    fn control_characters_are_shown_and_never_sent() {
        check("a\tb\n", "a\tb\n", "a\tb\n", "a^Ib^J");
        check("\x1b]0;x\x07", "^[]0;x^G", "^[]0;x^G", "^[]0;x^G");
        check("x\r\x1b[2Ky", "x^M^[[2Ky", "x^M^[[2Ky", "x^M^[[2Ky");
        check("\x7f\0\u{9b}31m", "^?^@<U+009B>31m", "^?^@<U+009B>31m", "^?^@<U+009B>31m");
    }

    #[test]
    fn invisible_characters_are_shown_in_questions_only() {
        let hidden = "a\u{200b}\u{202e}b";
        check(hidden, hidden, "a<U+200B><U+202E>b", "a<U+200B><U+202E>b");
        check("👩\u{200d}🚀 é 日本", "👩\u{200d}🚀 é 日本", "👩<U+200D>🚀 é 日本", "👩<U+200D>🚀 é 日本");
    }
}

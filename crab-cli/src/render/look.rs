//! The look of an answer: two accents and the terminal's own weights, readable on light and on dark.

use super::markdown::Theme;

/// With 24 bit: two tones of middle brightness, which stand out from both grounds.
const FULL: Theme = Theme {
    heading: "\x1b[1;38;2;207;92;54m",
    marker: "\x1b[38;2;207;92;54m",
    keyword: "\x1b[38;2;207;92;54m",
    code: "\x1b[38;2;32;136;140m",
    link: "\x1b[4;38;2;32;136;140m",
    number: "\x1b[38;2;32;136;140m",
    ..BASIC
};

/// With 16 colours, as the user has set them.
const BASIC: Theme = Theme {
    heading: "\x1b[1;35m",
    strong: "\x1b[1m",
    emphasis: "\x1b[3m",
    strike: "\x1b[9m",
    code: "\x1b[36m",
    marker: "\x1b[35m",
    quote: "\x1b[3m",
    faint: "\x1b[2m",
    link: "\x1b[4;36m",
    keyword: "\x1b[35m",
    string: "\x1b[32m",
    comment: "\x1b[2;3m",
    number: "\x1b[36m",
    inserted: "\x1b[32m",
    deleted: "\x1b[31m",
};

/// The theme for a terminal that says this of its colours (`COLORTERM`).
pub(super) fn theme(colorterm: Option<&str>) -> Theme {
    if matches!(colorterm, Some("truecolor" | "24bit")) { FULL } else { BASIC }
}

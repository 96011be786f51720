//! Style: the SGR sequences that a terminal gets on top of the plain bytes, and when it gets them.

use std::ffi::OsStr;

/// `--color`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Color {
    /// Where it is a terminal that can, and nobody said otherwise.
    #[default]
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

/// A way to make text stand out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Of lesser weight.
    Dim,
    /// Of more weight.
    Bold,
    /// A failure, or a line that goes.
    Red,
    /// A line that comes.
    Green,
    /// A warning.
    Yellow,
    /// A place.
    Cyan,
}

/// Adds style to one stream, or leaves the text as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Paint {
    /// Whether it adds anything.
    pub(crate) is_on: bool,
}

impl Paint {
    /// Decides for one stream, by itself.
    pub(crate) fn for_stream(color: Color, is_terminal: bool) -> Self {
        Self { is_on: decide(color, is_terminal, |name| std::env::var_os(name)) }
    }

    /// The text in this style. The sequence is closed on each line, so that a cut never leaves a colour on.
    pub(crate) fn paint(self, style: Style, text: &str) -> String {
        if !self.is_on || text.is_empty() {
            return text.to_owned();
        }
        let code = match style {
            Style::Dim => 2,
            Style::Bold => 1,
            Style::Red => 31,
            Style::Green => 32,
            Style::Yellow => 33,
            Style::Cyan => 36,
        };
        let lines = text.split('\n').map(|line| match line {
            "" => String::new(),
            line => format!("\x1b[{code}m{line}\x1b[0m"),
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

fn decide<V: AsRef<OsStr>>(color: Color, is_terminal: bool, env: impl Fn(&str) -> Option<V>) -> bool {
    let set = |name| env(name).is_some_and(|value| !value.as_ref().is_empty());
    let forced =
        || env("CLICOLOR_FORCE").is_some_and(|value| !value.as_ref().is_empty() && value.as_ref() != "0");
    let dumb = || env("TERM").is_none_or(|term| term.as_ref().is_empty() || term.as_ref() == "dumb");
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto if set("NO_COLOR") => false,
        Color::Auto if forced() => true,
        Color::Auto => is_terminal && !dumb(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(color: Color, is_terminal: bool, env: &[(&str, &str)], expected: bool) {
        let look = |name: &str| env.iter().find(|(it, _)| *it == name).map(|(_, value)| *value);
        assert_eq!(decide(color, is_terminal, look), expected, "{color:?} {is_terminal} {env:?}");
    }

    #[test]
    fn each_stream_is_decided_by_option_then_environment_then_terminal() {
        let xterm = ("TERM", "xterm");
        check(Color::Auto, true, &[xterm], true);
        check(Color::Auto, false, &[xterm], false);
        check(Color::Auto, true, &[("TERM", "dumb")], false);
        check(Color::Auto, true, &[], false);
        check(Color::Auto, true, &[xterm, ("NO_COLOR", "1")], false);
        check(Color::Auto, true, &[xterm, ("NO_COLOR", "")], true);
        check(Color::Auto, false, &[xterm, ("CLICOLOR_FORCE", "1")], true);
        check(Color::Auto, false, &[xterm, ("CLICOLOR_FORCE", "0")], false);
        check(Color::Auto, false, &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")], false);
        check(Color::Always, false, &[("NO_COLOR", "1")], true);
        check(Color::Never, true, &[xterm, ("CLICOLOR_FORCE", "1")], false);
    }

    #[test]
    fn style_is_closed_on_each_line() {
        let paint = Paint { is_on: true };
        assert_eq!(paint.paint(Style::Red, "a\n\nb\n"), "\x1b[31ma\x1b[0m\n\n\x1b[31mb\x1b[0m\n");
        assert_eq!(Paint::default().paint(Style::Red, "a\n"), "a\n");
    }
}

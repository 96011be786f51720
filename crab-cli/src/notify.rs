//! The notice that crab waits for the user, for a terminal that is not in front.

/// How the notice is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum How {
    #[default]
    Off,
    Bell,
    /// The escape sequence that desktops show a message for.
    Osc9,
}

/// Who is told, and what is known about where the user is.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    how: How,
    /// The terminal has told once whether it is in front, so its silence means that nothing changed.
    tells: bool,
}

impl Notices {
    /// As the key `notify` of the configuration says.
    pub(crate) fn configured(word: Option<&str>) -> Self {
        let how = match word {
            Some("bell") => How::Bell,
            Some("osc9") => How::Osc9,
            _ => How::Off,
        };
        Self { how, tells: false }
    }

    /// Whether the terminal should report its focus.
    pub(crate) fn is_on(&self) -> bool {
        self.how != How::Off
    }

    /// What to write to the terminal. `focus` is what it told since the user last pressed a key; a terminal that never
    /// tells counts as not in front.
    pub(crate) fn notice(&mut self, focus: Option<bool>, what: &'static str) -> String {
        self.tells |= focus.is_some();
        let is_in_front = focus.unwrap_or(self.tells);
        match self.how {
            _ if is_in_front => String::new(),
            How::Off => String::new(),
            How::Bell => "\x07".to_owned(),
            How::Osc9 => format!("\x1b]9;crab {what}\x07"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_in_front_is_left_in_peace() {
        let mut notices = Notices::configured(Some("bell"));
        assert_eq!(notices.notice(None, "is done"), "\x07");
        assert_eq!(notices.notice(Some(false), "is done"), "\x07");
        assert_eq!(notices.notice(Some(true), "is done"), "");
        // It has told before, so now it would have told of a change.
        assert_eq!(notices.notice(None, "is done"), "");
    }

    #[test]
    fn nothing_is_written_unless_asked_for() {
        assert_eq!(Notices::configured(None).notice(None, "is done"), "");
        assert_eq!(Notices::configured(Some("off")).notice(Some(false), "is done"), "");
        assert_eq!(Notices::configured(Some("osc9")).notice(None, "is done"), "\x1b]9;crab is done\x07");
    }
}

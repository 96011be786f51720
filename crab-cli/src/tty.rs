//! The terminal: what is one, who may read it, and its state, restored on every way out.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// Standard output and standard error as crab was given them.
pub(crate) struct Streams {
    /// A handle of its own on standard output.
    pub(crate) out: File,
    /// A handle of its own on standard error.
    pub(crate) err: File,
    /// Whether standard output is a terminal.
    pub(crate) out_is_terminal: bool,
    /// Whether standard error is a terminal.
    pub(crate) err_is_terminal: bool,
}

impl Streams {
    /// Takes handles that keep their meaning when the editor gets descriptors 1 and 2.
    pub(crate) fn take() -> io::Result<Self> {
        let out = io::stdout().as_fd().try_clone_to_owned()?;
        let err = io::stderr().as_fd().try_clone_to_owned()?;
        Ok(Self::of(out, err))
    }

    /// These two files.
    pub(crate) fn of(out: impl Into<OwnedFd>, err: impl Into<OwnedFd>) -> Self {
        let (out, err) = (File::from(out.into()), File::from(err.into()));
        let (out_is_terminal, err_is_terminal) = (out.is_terminal(), err.is_terminal());
        Self { out, err, out_is_terminal, err_is_terminal }
    }

    /// Puts the terminal on descriptors 1 and 2 where they are something else: the line editor paints on one and
    /// asks for the cursor on the other, and neither belongs into a pipe.
    pub(crate) fn lend_terminal(&self) -> io::Result<()> {
        if self.out_is_terminal && self.err_is_terminal {
            return Ok(());
        }
        let tty = File::options().read(true).write(true).open("/dev/tty")?;
        if !self.out_is_terminal {
            rustix::stdio::dup2_stdout(&tty)?;
        }
        if !self.err_is_terminal {
            rustix::stdio::dup2_stderr(&tty)?;
        }
        Ok(())
    }
}

/// Whether escape sequences mean nothing to the terminal.
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}

/// The controlling terminal, if there is one and crab may read it. A process in the background would be stopped by
/// the attempt, which is the same as nobody being there.
pub(crate) fn controlling() -> Option<File> {
    let tty = File::options().read(true).write(true).open("/dev/tty").ok()?;
    let foreground = rustix::termios::tcgetpgrp(&tty).ok()?;
    (foreground == rustix::process::getpgrp()).then_some(tty)
}

struct Remembered {
    tty: File,
    termios: Termios,
}

static REMEMBERED: Mutex<Option<Remembered>> = Mutex::new(None);
static IS_TOUCHED: AtomicBool = AtomicBool::new(false);

fn remembered() -> MutexGuard<'static, Option<Remembered>> {
    REMEMBERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers the terminal's state for [`restore`], and makes a panic restore it and say one line. Call it first.
pub(crate) fn remember() {
    if let Ok(tty) = File::options().read(true).write(true).open("/dev/tty")
        && let Ok(termios) = tcgetattr(&tty)
    {
        *remembered() = Some(Remembered { tty, termios });
    }
    std::panic::set_hook(Box::new(|panic| {
        restore();
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text =
            text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        let place = panic.location().map(|at| format!(" at {}:{}", at.file(), at.line())).unwrap_or_default();
        let text = crate::caret::line(text);
        // Standard error may be gone; there is no other place to say it.
        let _ = writeln!(io::stderr(), "crab: internal error{place}: {text}\nplease report it as a bug");
    }));
}

/// Says that the state of the terminal is about to be changed.
pub(crate) fn touch() {
    IS_TOUCHED.store(true, Ordering::Relaxed);
}

/// Gives the terminal back as crab found it. May be called at any time, from any thread, more than once.
pub(crate) fn restore() {
    if !IS_TOUCHED.swap(false, Ordering::Relaxed) {
        return;
    }
    // The terminal may be gone, which is no concern of anyone who is leaving.
    let _ = crossterm::terminal::disable_raw_mode();
    if let Some(Remembered { tty, termios }) = &mut *remembered() {
        let _ = tcsetattr(&*tty, OptionalActions::Now, termios);
        if !is_dumb() {
            let _ = tty.write_all(b"\x1b[?1004l\x1b[?2004l\x1b[?25h");
        }
    }
}

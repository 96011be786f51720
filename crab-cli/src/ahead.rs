//! What is typed while a turn runs: whole lines to be sent later, the rest for the next prompt, Esc to stop. Nothing is
//! echoed, so that it cannot mix with the answer.

use std::fs::File;
use std::io::{self, PipeWriter, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

use crate::tty;

/// What a key led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// Enter, behind this text.
    Line(String),
    /// Esc alone.
    Escape,
    /// Ctrl-Z.
    Suspend,
    /// Ctrl-D where nothing is typed.
    End,
    /// Up: the last line that waits is taken back.
    Recall,
    /// The draft is another one.
    Changed,
}

/// The reader of keys. Dropping it gives the terminal back as it was.
pub(crate) struct Ahead {
    keys: mpsc::UnboundedReceiver<Key>,
    draft: Arc<Mutex<Typing>>,
    wake: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Ahead {
    /// Reads on the controlling terminal, where there is one that can; the draft goes on from here. With `asks_focus` the
    /// terminal is asked to tell when it comes to the front and when it leaves it.
    pub(crate) fn start(draft: String, asks_focus: bool) -> io::Result<Option<Self>> {
        let Some(terminal) = tty::controlling().filter(|_| !tty::is_dumb()) else { return Ok(None) };
        let (woken, wake) = io::pipe()?;
        let (send, keys) = mpsc::unbounded_channel();
        let typing = Arc::new(Mutex::new(Typing { draft, ..Typing::default() }));
        let own = typing.clone();
        let thread = thread::Builder::new().name("ahead".into()).spawn(move || {
            // A terminal that fails is one at which nobody types.
            let _ = Quiet::enter(terminal, asks_focus).and_then(|quiet| read(&quiet, &woken, &own, &send));
        })?;
        Ok(Some(Self { keys, draft: typing, wake: Some(wake), thread: Some(thread) }))
    }

    /// The next key that matters. Cancel safe.
    pub(crate) async fn next(&mut self) -> Key {
        match self.keys.recv().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }

    /// What stands there by now.
    pub(crate) fn draft(&self) -> String {
        lock(&self.draft).draft.clone()
    }

    /// Whether the terminal is in front, as it last told.
    pub(crate) fn focus(&self) -> Option<bool> {
        lock(&self.draft).focus
    }

    /// The text is the draft from now on.
    pub(crate) fn set_draft(&self, text: String) {
        lock(&self.draft).draft = text;
    }

    /// Ends the reading. Gives what stands there, which is for the next prompt, and the keys that nobody has taken yet.
    pub(crate) fn stop(mut self) -> (String, Vec<Key>) {
        self.end();
        let keys = std::iter::from_fn(|| self.keys.try_recv().ok()).collect();
        (self.draft(), keys)
    }

    fn end(&mut self) {
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so; the terminal is restored on every way out.
            let _ = thread.join();
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.end();
    }
}

fn lock(typing: &Mutex<Typing>) -> MutexGuard<'_, Typing> {
    typing.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The code that no key has.
const NO_KEY: u8 = if cfg!(target_os = "linux") { 0 } else { 0xff };

/// The terminal without echo, each key at once, until it is dropped. Ctrl-C is a signal as ever; Ctrl-Z is a key, so that
/// the terminal is as it was before crab stops.
struct Quiet {
    terminal: File,
    before: Termios,
}

impl Quiet {
    fn enter(terminal: File, asks_focus: bool) -> io::Result<Self> {
        tty::touch();
        let before = tcgetattr(&terminal)?;
        let mut quiet = before.clone();
        quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON;
        quiet.special_codes[SpecialCodeIndex::VSUSP] = NO_KEY;
        quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
        quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&terminal, OptionalActions::Now, &quiet)?;
        let mut own = Self { terminal, before };
        // In one sequence with the visible cursor: who drives crab by a script takes `CSI ? 2004 h` alone for the prompt.
        own.terminal.write_all(if asks_focus { b"\x1b[?25;2004;1004h" } else { b"\x1b[?25;2004h" })?;
        Ok(own)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // The terminal may be gone, which is no concern of anyone who is leaving.
        let _ = self.terminal.write_all(b"\x1b[?1004l\x1b[?2004l");
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}

fn read(
    quiet: &Quiet,
    woken: &io::PipeReader,
    typing: &Mutex<Typing>,
    send: &mpsc::UnboundedSender<Key>,
) -> io::Result<()> {
    /// An Esc that is the beginning of a longer sequence is followed by it at once.
    const ALONE: Timespec = Timespec { tv_sec: 0, tv_nsec: 40_000_000 };
    let mut terminal = &quiet.terminal;
    loop {
        let mut fds = [PollFd::new(terminal, PollFlags::IN), PollFd::new(woken, PollFlags::IN)];
        let limit = lock(typing).is_open().then_some(&ALONE);
        let ready = match poll(&mut fds, limit) {
            Err(rustix::io::Errno::INTR) => continue,
            ready => ready?,
        };
        let is_woken = !fds[1].revents().is_empty();
        let is_gone = fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR);
        let mut keys = vec![];
        if ready == 0 {
            lock(typing).rest(&mut keys);
        } else if fds[0].revents().contains(PollFlags::IN) {
            let mut piece = [0; 1024];
            let count = terminal.read(&mut piece)?;
            lock(typing).take(&piece[..count], &mut keys);
            if count == 0 {
                return Ok(());
            }
        }
        for key in keys {
            if send.send(key).is_err() {
                return Ok(());
            }
        }
        if is_woken || is_gone {
            return Ok(());
        }
    }
}

/// Bytes of a terminal to keys.
#[derive(Debug, Default)]
struct Typing {
    draft: String,
    /// A sequence or a character that is not whole yet.
    open: Vec<u8>,
    is_paste: bool,
    focus: Option<bool>,
}

impl Typing {
    fn is_open(&self) -> bool {
        self.open == b"\x1b"
    }

    /// Nothing follows: an Esc was one.
    fn rest(&mut self, keys: &mut Vec<Key>) {
        if self.is_open() {
            self.open.clear();
            keys.push(Key::Escape);
        }
    }

    fn take(&mut self, bytes: &[u8], keys: &mut Vec<Key>) {
        let before = self.draft.clone();
        for byte in bytes {
            self.open.push(*byte);
            self.step(keys);
        }
        if self.draft != before {
            keys.push(Key::Changed);
        }
    }

    fn step(&mut self, keys: &mut Vec<Key>) {
        match self.open[..] {
            [0x1b] | [0x1b, b'[' | b'O'] => {}
            [0x1b, b'[' | b'O', .., last] if !(0x40..=0x7e).contains(&last) => {}
            [0x1b, b'[' | b'O', ref rest @ ..] => {
                match rest {
                    b"200~" => self.is_paste = true,
                    b"201~" => self.is_paste = false,
                    b"I" => self.focus = Some(true),
                    b"O" => self.focus = Some(false),
                    b"A" => keys.push(Key::Recall),
                    _ => {}
                }
                self.open.clear();
            }
            [0x1b, b'\r' | b'\n'] => self.push("\n"),
            [0x1b, ..] => self.open.clear(),
            _ => self.plain(keys),
        }
    }

    fn push(&mut self, text: &str) {
        self.draft.push_str(text);
        self.open.clear();
    }

    fn plain(&mut self, keys: &mut Vec<Key>) {
        match std::str::from_utf8(&self.open) {
            Ok("\r" | "\n") if self.is_paste => self.push("\n"),
            Ok("\r" | "\n") => {
                self.open.clear();
                self.enter(keys);
            }
            Ok("\x7f" | "\x08") => {
                self.draft.pop();
                self.open.clear();
            }
            Ok("\x1a") if !self.is_paste => {
                self.open.clear();
                keys.push(Key::Suspend);
            }
            Ok("\x04") if !self.is_paste && self.draft.is_empty() => {
                self.open.clear();
                keys.push(Key::End);
            }
            Ok("\x15") => {
                self.draft.clear();
                self.open.clear();
            }
            Ok("\x17") => {
                let kept = self.draft.trim_end().rfind(char::is_whitespace).map_or(0, |at| at + 1);
                self.draft.truncate(kept);
                self.open.clear();
            }
            Ok(text) if text.chars().all(|c| c == '\t' || !c.is_control()) => {
                let text = text.to_owned();
                self.push(&text);
            }
            Ok(_) => self.open.clear(),
            // A character has four bytes at most.
            Err(_) if self.open.len() < 4 => {}
            Err(_) => self.open.clear(),
        }
    }

    /// A backslash at the end of a line begins another one, as at the prompt.
    fn enter(&mut self, keys: &mut Vec<Key>) {
        if self.draft.ends_with('\\') {
            self.draft.pop();
            self.draft.push('\n');
            return;
        }
        let line = std::mem::take(&mut self.draft);
        if !line.trim().is_empty() {
            keys.push(Key::Line(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(typed: &str, expected: &[Key], draft: &str) {
        for size in [1, 3, typed.len().max(1)] {
            let mut typing = Typing::default();
            let mut keys = vec![];
            typed.as_bytes().chunks(size).for_each(|piece| typing.take(piece, &mut keys));
            typing.rest(&mut keys);
            keys.retain(|key| *key != Key::Changed);
            assert_eq!(
                (&keys[..], typing.draft.as_str()),
                (expected, draft),
                "{typed:?} in pieces of {size}"
            );
        }
    }

    fn line(text: &str) -> Key {
        Key::Line(text.to_owned())
    }

    #[test]
    fn lines_wait_and_the_rest_is_a_draft() {
        check("fix it\rand th", &[line("fix it")], "and th");
        check("日本語\r", &[line("日本語")], "");
        check("\r \r", &[], "");
        check("a\\\rb\r", &[line("a\nb")], "");
        check("a\x1b\rb\r", &[line("a\nb")], "");
    }

    #[test]
    fn a_paste_is_one_text_whatever_is_in_it() {
        check("\x1b[200~one\rtwo\n\x1b[201~ three", &[], "one\ntwo\n three");
    }

    #[test]
    fn keys_that_edit_do_so_and_others_do_no_harm() {
        check("abc\x7f\x7f", &[], "a");
        check("one two\x17", &[], "one ");
        check("one\x15two", &[], "two");
        check("a\x1b[C\x1b[1;5D\x1bOP\x1bxb\x01\x02", &[], "ab");
        check("\x1b[A", &[Key::Recall], "");
        check("a\x04\r\x04", &[line("a"), Key::End], "");
        check("a\x1ab", &[Key::Suspend], "ab");
        check("\x1b[200~a\x1ab\x1b[201~", &[], "ab");
    }

    #[test]
    fn the_terminal_tells_whether_it_is_in_front() {
        let mut typing = Typing::default();
        let mut focus = |bytes: &[u8]| {
            typing.take(bytes, &mut vec![]);
            (typing.focus, typing.draft.clone())
        };
        assert_eq!(focus(b"a"), (None, "a".into()));
        assert_eq!(focus(b"\x1b[O"), (Some(false), "a".into()));
        assert_eq!(focus(b"b\x1b[I"), (Some(true), "ab".into()));
    }

    #[test]
    fn keys_that_nobody_has_taken_yet_come_with_the_end() {
        let (send, keys) = mpsc::unbounded_channel();
        let draft = Arc::new(Mutex::new(Typing { draft: "half".into(), ..Typing::default() }));
        let ahead = Ahead { keys, draft, wake: None, thread: None };
        send.send(line("whole")).unwrap();
        assert_eq!(ahead.stop(), ("half".to_owned(), vec![line("whole")]));
    }

    #[test]
    fn an_escape_alone_stops() {
        check("a\x1b", &[Key::Escape], "a");
    }
}

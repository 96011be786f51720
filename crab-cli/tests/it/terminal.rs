//! crab on a pseudo-terminal, and the screen that a person would see.

use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use crate::crab::{Crab, PATIENCE};

pub(crate) struct Terminal {
    pub(crate) child: Box<dyn Child + Send + Sync>,
    keys: Box<dyn Write + Send>,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    /// Every byte so far.
    pub(crate) raw: Vec<u8>,
    master: Box<dyn MasterPty + Send>,
}

impl Terminal {
    /// crab with the mock, on a terminal of the usual size.
    pub(crate) fn start(crab: &Crab, args: &[&str]) -> Self {
        Self::sized(crab, (24, 80), args)
    }

    /// On one of so many rows and columns.
    pub(crate) fn sized(crab: &Crab, size: (u16, u16), args: &[&str]) -> Self {
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_crab"));
        command.args(["--provider", "mock"]);
        command.args(args);
        Self::run(crab, size, &[], command)
    }

    /// Any program, with more in its environment.
    pub(crate) fn run(
        crab: &Crab,
        (rows, cols): (u16, u16),
        environment: &[(&str, &str)],
        mut command: CommandBuilder,
    ) -> Self {
        let size = PtySize { rows, cols, ..PtySize::default() };
        let pair = native_pty_system().openpty(size).unwrap();
        command.env_clear();
        crab.environment().into_iter().for_each(|(name, value)| command.env(name, value));
        environment.iter().for_each(|(name, value)| command.env(name, value));
        command.cwd(crab.dir());
        let child = pair.slave.spawn_command(command).unwrap();
        let (send, output) = channel();
        let mut reader = pair.master.try_clone_reader().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count) = reader.read(&mut buffer)
                && count > 0
                && send.send(buffer[..count].to_vec()).is_ok()
            {}
        });
        let keys = pair.master.take_writer().unwrap();
        let screen = vt100::Parser::new(rows, cols, 1000);
        Self { child, keys, output, screen, raw: vec![], master: pair.master }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Makes the terminal another size. What stands there stays in its rows, as on those that do not wrap anew; this
    /// emulator cuts what gets no room, so that rows may only grow, and columns stay wider than what must be seen.
    pub(crate) fn resize(&mut self, rows: u16, cols: u16) {
        self.screen.screen_mut().set_size(rows, cols);
        self.master.resize(PtySize { rows, cols, ..PtySize::default() }).unwrap();
    }

    /// Reads until the screen fits.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, wanted: impl Fn(&vt100::Screen) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !wanted(self.screen.screen()) {
            let left = end.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.take(&bytes),
                Err(_) => panic!("{what} did not come; the screen is\n{}", self.screen.screen().contents()),
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.raw.extend_from_slice(bytes);
        let before = self.raw.len().saturating_sub(bytes.len() + 3);
        // The editor asks where the cursor is; a terminal answers.
        let asked = self.raw[before..].windows(4).filter(|window| *window == b"\x1b[6n").count();
        self.screen.process(bytes);
        for _ in 0..asked {
            let (row, column) = self.screen.screen().cursor_position();
            self.press(&format!("\x1b[{};{}R", row + 1, column + 1));
        }
    }

    /// Waits for an empty prompt.
    #[track_caller]
    pub(crate) fn prompt(&mut self) {
        self.until("the prompt", |screen| {
            let (row, column) = screen.cursor_position();
            let width = screen.size().1;
            column == 2 && screen.rows(0, width).nth(row.into()).is_some_and(|line| line.starts_with('>'))
        });
    }

    #[track_caller]
    pub(crate) fn text(&mut self, text: &str) {
        self.until(text, |screen| screen.contents().contains(text));
    }

    /// What stands there now.
    pub(crate) fn screen(&self) -> vt100::Screen {
        self.screen.screen().clone()
    }

    /// Everything that a person can scroll back to, each row as it stands, without white space at its end.
    pub(crate) fn everything(&mut self) -> String {
        let screen = self.screen.screen_mut();
        let (rows, width) = screen.size();
        screen.set_scrollback(usize::MAX);
        let above = screen.scrollback();
        let mut lines = vec![];
        // A page at a time, from the oldest on; the last pages overlap.
        for top in 0..above {
            screen.set_scrollback(above - top);
            lines.extend(screen.rows(0, width).next());
        }
        screen.set_scrollback(0);
        lines.extend(screen.rows(0, width).take(rows.into()));
        let text: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
        text.join("\n").trim_end().to_owned()
    }

    /// Ctrl-D, and how crab ended.
    pub(crate) fn leave(&mut self) -> u32 {
        self.press("\x04");
        let status = self.child.wait().unwrap();
        status.exit_code()
    }
}

//! A person at a terminal: prompt, question, interruption, leaving.

use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use crate::crab::{Crab, PATIENCE};

/// crab on a pseudo-terminal, and the screen that a person would see.
struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    keys: Box<dyn Write + Send>,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    raw: Vec<u8>,
    _master: Box<dyn MasterPty + Send>,
}

impl Terminal {
    fn start(crab: &Crab, args: &[&str]) -> Self {
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_crab"));
        command.args(["--provider", "mock"]);
        command.args(args);
        Self::run(crab, command)
    }

    fn run(crab: &Crab, mut command: CommandBuilder) -> Self {
        let size = PtySize { rows: 24, cols: 80, ..PtySize::default() };
        let pair = native_pty_system().openpty(size).unwrap();
        command.env_clear();
        crab.environment().into_iter().for_each(|(name, value)| command.env(name, value));
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
        let screen = vt100::Parser::new(24, 80, 1000);
        Self { child, keys, output, screen, raw: vec![], _master: pair.master }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Reads until the screen fits.
    #[track_caller]
    fn until(&mut self, what: &str, wanted: impl Fn(&vt100::Screen) -> bool) {
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

    #[track_caller]
    fn prompt(&mut self) {
        self.until("the prompt", |screen| {
            let (row, column) = screen.cursor_position();
            column == 2 && screen.rows(0, 80).nth(row.into()).is_some_and(|line| line.starts_with('>'))
        });
    }

    #[track_caller]
    fn text(&mut self, text: &str) {
        self.until(text, |screen| screen.contents().contains(text));
    }

    /// Ctrl-D, and how crab ended.
    fn leave(&mut self) -> u32 {
        self.press("\x04");
        let status = self.child.wait().unwrap();
        status.exit_code()
    }
}

#[test]
fn a_prompt_an_answer_and_out() {
    let crab = Crab::new();
    let mut terminal = Terminal::start(&crab, &[]);
    terminal.prompt();
    terminal.press("hello crab\r");
    terminal.until("the echo", |screen| screen.contents().matches("hello crab").count() == 2);
    terminal.prompt();
    assert_eq!(terminal.leave(), 0);
    let raw = String::from_utf8_lossy(&terminal.raw);
    assert!(!raw.contains("\x1b[?1049h") && !raw.contains("\x1b[3J"), "full screen or cleared history");
}

#[test]
fn a_question_is_answered_by_y_and_by_n_with_a_reason() {
    let crab = Crab::new();
    let mut terminal = Terminal::start(&crab, &[]);
    terminal.prompt();
    terminal.press("call write {\"path\":\"one\",\"content\":\"1\"}\r");
    terminal.text("[y/n/a]");
    terminal.press("y");
    terminal.prompt();
    assert_eq!(crab.get("one"), "1");
    terminal.press("call write {\"path\":\"two\",\"content\":\"2\"}\r");
    terminal.until("the second question", |screen| screen.contents().matches("[y/n/a]").count() == 2);
    terminal.press("ntoo early\r");
    terminal.text("with this reason: too early");
    terminal.prompt();
    assert!(!crab.dir().join("two").exists());
    assert_eq!(terminal.leave(), 0);
}

#[test]
fn an_a_covers_its_class_and_nothing_else() {
    let crab = Crab::new();
    crab.script(&[
        r#"{"tool_calls":[{"name":"write","arguments":{"path":"one","content":"1"}}]}"#,
        r#"{"tool_calls":[{"name":"write","arguments":{"path":"two","content":"2"}}]}"#,
        r#"{"tool_calls":[{"name":"bash","arguments":{"command":"touch three"}}]}"#,
        r#"{"text":"all done"}"#,
    ]);
    let mut terminal = Terminal::start(&crab, &[]);
    terminal.prompt();
    terminal.press("go\r");
    terminal.text("[y/n/a]");
    terminal.press("a");
    terminal
        .until("the question about the command", |screen| screen.contents().matches("[y/n/a]").count() == 2);
    assert_eq!((crab.get("one"), crab.get("two")), ("1".into(), "2".into()));
    terminal.press("n\r");
    terminal.text("all done");
    terminal.prompt();
    assert!(!crab.dir().join("three").exists());
    assert_eq!(terminal.leave(), 0);
}

#[test]
fn ctrl_c_stops_the_turn_and_not_crab() {
    let crab = Crab::new();
    crab.script(&[
        r#"{"tool_calls":[{"name":"bash","arguments":{"command":"echo begun > begun; sleep 1000; touch late"}}]}"#,
        r#"{"text":"still here"}"#,
    ]);
    let mut terminal = Terminal::start(&crab, &["--yolo"]);
    terminal.prompt();
    terminal.press("go\r");
    crate::crab::until("the command's start", || crab.dir().join("begun").exists());
    terminal.press("\x03");
    // The prompt that is on the screen may still be the one before.
    terminal.text("stopped");
    terminal.prompt();
    terminal.press("and now?\r");
    terminal.text("still here");
    terminal.prompt();
    assert!(!crab.dir().join("late").exists());
    assert_eq!(terminal.leave(), 0);
}

#[test]
fn a_backslash_at_the_end_of_a_line_makes_a_new_one_and_is_not_sent() {
    let crab = Crab::new();
    let mut terminal = Terminal::start(&crab, &[]);
    terminal.prompt();
    terminal.press("first \\");
    terminal.text("first \\");
    terminal.press("\r");
    terminal.until("the second line", |screen| screen.cursor_position().0 == 2);
    terminal.press("second\r");
    terminal.prompt();
    // Too fast for the editor to paint in between.
    terminal.press("third \\\r");
    terminal.press("fourth\r");
    terminal.until("the answer", |screen| screen.contents().matches("fourth").count() == 2);
    terminal.prompt();
    assert_eq!(terminal.leave(), 0);
    let session = std::fs::read_to_string(crab.sessions().remove(0)).unwrap();
    assert!(session.contains("first \\nsecond") && session.contains("third \\nfourth"), "{session}");
}

#[test]
fn commands_at_the_prompt_do_what_they_say() {
    let crab = Crab::new();
    crab.put("notes.md", "n");
    let mut terminal = Terminal::start(&crab, &[]);
    terminal.prompt();
    terminal.press("/model\r");
    terminal.text("mock/mock");
    terminal.prompt();
    terminal.press("!echo from $AI_AGENT\r");
    terminal.text("goes along with the next prompt");
    terminal.prompt();
    terminal.press("what was @no\t\r");
    terminal.text("notes.md\" bytes=");
    terminal.text("$ echo from $AI_AGENT");
    terminal.text("from crab");
    terminal.prompt();
    terminal.press("/thinking loud\r");
    terminal.text("no level `loud`");
    terminal.prompt();
    terminal.press("/new\r");
    terminal.until("another session", |screen| screen.contents().matches("/help for help").count() == 2);
    terminal.prompt();
    terminal.press("/quit\r");
    assert_eq!(terminal.child.wait().unwrap().exit_code(), 0);
    assert_eq!(crab.sessions().len(), 1, "a session begins with its first prompt");
}

#[test]
fn what_is_typed_while_a_turn_runs_is_not_lost() {
    let crab = Crab::new();
    let wait = r#"{"tool_calls":[{"name":"bash","arguments":{"command":"touch begun; until [ -e go ]; do sleep 0.01; done"}}]}"#;
    crab.script(&[wait, r#"{"text":"first"}"#, r#"{"text":"second"}"#, wait, r#"{"text":"third"}"#]);
    let mut terminal = Terminal::start(&crab, &["--yolo"]);
    terminal.prompt();
    terminal.press("one\r");
    crate::crab::until("the command's start", || crab.dir().join("begun").exists());
    terminal.press("tw\u{f6}\rthr");
    terminal.text("tw\u{f6} \u{23ce} thr");
    crab.put("go", "");
    terminal.text("second");
    let ends = |screen: &vt100::Screen, end: &str| screen.contents().trim_end().ends_with(end);
    terminal.until("the draft", |screen| screen.contents().contains("> tw\u{f6}") && ends(screen, "> thr"));
    // Esc stops the turn, and what waited for its end stands in the next prompt.
    std::fs::remove_file(crab.dir().join("go")).unwrap();
    std::fs::remove_file(crab.dir().join("begun")).unwrap();
    terminal.press("ee\r");
    crate::crab::until("the command's start", || crab.dir().join("begun").exists());
    terminal.press("kept\r");
    terminal.text("kept \u{23ce}");
    terminal.press("\x1b");
    terminal.text("stopped");
    terminal.until("the line", |screen| ends(screen, "> kept"));
    terminal.press("\x15\x04");
    assert_eq!(terminal.child.wait().unwrap().exit_code(), 0);
}

#[test]
fn the_prompt_has_the_keys_of_vi_where_it_is_configured() {
    let crab = Crab::new();
    let mut terminal = Terminal::start(&crab, &["--config", "editor=\"vi\""]);
    terminal.prompt();
    terminal.press("wrong words");
    terminal.text("> wrong words");
    terminal.press("\x1b");
    terminal.text(": wrong words");
    terminal.press("0cwright\r");
    terminal.until("the answer", |screen| screen.contents().matches("right words").count() == 2);
    terminal.prompt();
    // Each prompt begins with what is typed, not with commands.
    terminal.press("x\x1b");
    terminal.text(": x");
    terminal.press("\x03");
    terminal.prompt();
    assert_eq!(terminal.leave(), 0);
}

#[test]
fn a_terminal_that_is_not_in_front_is_told_that_crab_waits() {
    let crab = Crab::new();
    let wait = r#"{"tool_calls":[{"name":"bash","arguments":{"command":"touch begun; until [ -e go ]; do sleep 0.01; done"}}]}"#;
    crab.script(&[wait, r#"{"text":"first"}"#, wait, r#"{"text":"second"}"#]);
    let mut terminal = Terminal::start(&crab, &["--yolo", "--config", "notify=\"osc9\""]);
    let notices = |terminal: &Terminal| {
        let raw = String::from_utf8_lossy(&terminal.raw).into_owned();
        (raw.matches("\x1b]9;crab is done\x07").count(), raw.matches("\x1b[?25;2004;1004h").count())
    };
    for (focus, prompt, told) in [("\x1b[O", "one\r", 1), ("\x1b[O\x1b[I", "two\r", 1)] {
        terminal.prompt();
        terminal.press(prompt);
        crate::crab::until("the command's start", || crab.dir().join("begun").exists());
        terminal.press(focus);
        // What is typed behind it shows that it was read.
        terminal.press("x");
        terminal.until("the draft", |screen| screen.contents().trim_end().ends_with('x'));
        crab.put("go", "");
        terminal.until("the prompt", |screen| screen.contents().trim_end().ends_with("> x"));
        terminal.press("\x15");
        terminal.prompt();
        assert_eq!(notices(&terminal).0, told, "{prompt:?}");
        std::fs::remove_file(crab.dir().join("go")).unwrap();
        std::fs::remove_file(crab.dir().join("begun")).unwrap();
    }
    assert_eq!(notices(&terminal).1, 2);
    assert_eq!(terminal.leave(), 0);
}

#[test]
fn ctrl_z_stops_crab_with_the_terminal_as_it_was_and_fg_goes_on() {
    let crab = Crab::new();
    let mut shell = CommandBuilder::new("sh");
    shell.arg("-i");
    let mut terminal = Terminal::run(&crab, shell);
    terminal.press(&format!("PS1='s''h: '; {} --provider mock\r", env!("CARGO_BIN_EXE_crab")));
    terminal.prompt();
    terminal.press("half");
    terminal.text("> half");
    terminal.press("\x1a");
    // Only a terminal that echoes shows what is typed for the shell.
    terminal.until("the shell", |screen| screen.contents().trim_end().ends_with("sh:"));
    terminal.press("echo $((40 + 2)); fg\r");
    terminal.text("echo $((40 + 2)); fg");
    terminal.until("the draft", |screen| screen.contents().trim_end().ends_with("> half"));
    terminal.press(" whole\r");
    terminal.until("the answer", |screen| screen.contents().matches("half whole").count() == 2);
    terminal.prompt();
    terminal.press("call bash {\"command\":\"touch begun; until [ -e go ]; do sleep 0.01; done\"}\r");
    terminal.text("run it?");
    terminal.press("y");
    crate::crab::until("the command's start", || crab.dir().join("begun").exists());
    terminal.press("ahe");
    terminal.until("the draft", |screen| screen.contents().trim_end().ends_with("ahe"));
    terminal.press("\x1a");
    terminal.until("the shell", |screen| screen.contents().trim_end().ends_with("sh:"));
    terminal.press("touch go; fg\r");
    terminal.until("the prompt", |screen| screen.contents().trim_end().ends_with("> ahe"));
    terminal.press("\x15\x04");
    terminal.until("the shell", |screen| screen.contents().trim_end().ends_with("sh:"));
    terminal.press("exit 7\r");
    assert_eq!(terminal.child.wait().unwrap().exit_code(), 7);
}

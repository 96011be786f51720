//! Tests of the question: its text, the meaning of keys, and a real pseudo-terminal.

use crab_core::message::ToolCall;
use portable_pty::{PtySize, native_pty_system};
use serde_json::json;

use super::*;

fn question(view: View) -> Question {
    let call = ToolCall { id: "1".into(), name: "x".into(), arguments: json!({}), extra: None };
    let (title, reason) = ("run a command".into(), "no rule lets it run".into());
    Question { call, title, view, reason, class: "every command".into() }
}

fn command(command: &str) -> Question {
    question(View::Command { command: command.into(), outcome: String::new() })
}

#[test]
fn the_question_shows_everything_and_what_each_key_does() {
    insta::assert_snapshot!(text(&command("touch x\r\x1b[2K ls\u{200b}"), Paint::default(), 24, 80), @r"

    ? touch x^M^[[2K ls<U+200B>
    asked because: no rule lets it run
    y: yes, once; a: for this session, every command; e: edit it; n: no, or n and why; ?: more
    run it? [y/n/a]
    ");
}

#[test]
fn padding_cannot_push_the_end_off_the_screen() {
    let padded = format!("echo harmless{}touch PWNED", "\n \n".repeat(100));
    insta::assert_snapshot!(body(&command(&padded).view, Paint::default()), @r"
      echo harmless
      (199 empty lines)
      touch PWNED
    ");
    let long = (0..100).map(|n| format!("echo {n}\n")).collect::<String>();
    let shown = text(&command(&long), Paint::default(), 24, 80);
    assert!(shown.contains("this is 102 lines long"), "{shown}");
}

#[test]
fn a_diff_is_shown_whole() {
    let diff = (0..100).map(|n| format!("+line {n}\n")).collect::<String>();
    let view = View::Diff { path: "a\x1b.rs".into(), diff, added: 100, removed: 0 };
    let shown = text(&question(view), Paint::default(), 24, 20);
    assert!(
        shown.contains("+line 0\n") && shown.contains("+line 99\n") && shown.contains("a^[.rs (+100 −0)")
    );
}

#[track_caller]
fn check(reads: &[&[u8]], expected: Option<Reply>) {
    let mut keys = Keys::default();
    let mut last = Step::More;
    for bytes in reads {
        assert_eq!(last, Step::More, "{reads:?} was over early");
        last = keys.typed(bytes).1;
    }
    assert_eq!(last, expected.map_or(Step::More, Step::Done), "{reads:?}");
}

fn denied(reason: &str) -> Option<Reply> {
    Some(Reply::Answer(Answer::Deny((!reason.is_empty()).then(|| reason.to_owned()))))
}

#[test]
fn one_key_answers() {
    check(&[b"y"], Some(Reply::Answer(Answer::Allow)));
    check(&[b"Y\r"], Some(Reply::Answer(Answer::Allow)));
    check(&[b"a"], Some(Reply::Answer(Answer::AllowSession)));
    check(&[b"\x03"], Some(Reply::Interrupted));
    check(&[b"n", b"\x03"], Some(Reply::Interrupted));
}

#[test]
fn a_question_mark_explains_the_keys_and_asks_again() {
    let (shown, step) = Keys::default().typed(b"?");
    assert_eq!(step, Step::More);
    assert!(shown.contains("ask no more for its kind") && shown.ends_with(KEYS_LINE), "{shown}");
    check(&[b"?", b"?", b"y"], Some(Reply::Answer(Answer::Allow)));
}

#[test]
fn a_command_can_be_edited_and_a_diff_cannot() {
    let typed = |can_edit| Keys { can_edit, ..Keys::default() }.typed(b"e").1;
    assert_eq!(typed(true), Step::Edit);
    assert_eq!(Some(typed(false)), denied("").map(Step::Done));
    let view = View::Diff { path: "a".into(), diff: String::new(), added: 1, removed: 0 };
    assert!(!text(&question(view), Paint::default(), 24, 80).contains("edit it"));
}

#[test]
fn anything_else_means_no() {
    for key in [&b"\r"[..], b"\n", b"x", b"\x1b", b"\x04", b" ", b"\x1a", "é".as_bytes()] {
        check(&[key], denied(""));
    }
}

#[test]
fn a_reason_is_a_line_behind_n() {
    check(&[b"n"], None);
    check(&[b"n", b"\r"], denied(""));
    check(&[b"n too risky\r"], denied("too risky"));
    check(&[b"n", b" ", b"x", b"\x7f", b"n", "\u{e9}".as_bytes(), b"\n"], denied("né"));
    check(&[b"n", b"\xc3", b"\xa9", b"\r"], denied("é"));
    check(&[b"n", b"why", b"\x1b"], denied(""));
}

#[test]
fn a_paste_is_never_an_answer() {
    check(&[b"\x1b[200~y\x1b[201~"], None);
    check(&[b"\x1b[200~y", b"y", b"\x1b[2", b"01~", b"y"], Some(Reply::Answer(Answer::Allow)));
    check(&[b"\x1b[200~y\r\x1b[201~y"], None);
    check(&[b"yyy"], None);
    check(&[b"yes\r"], None);
    check(&[b"y\ry\r"], None);
}

#[test]
fn sequences_of_the_terminal_are_no_keys() {
    check(&[b"\x1b[A"], None);
    check(&[b"\x1b[5;1R", b"y"], Some(Reply::Answer(Answer::Allow)));
    check(&[b"\x1bOA"], None);
    assert!(ends_in_escape(b"\x1b") && ends_in_escape(b"x\x1b[20") && !ends_in_escape(b"\x1b[A"));
}

/// Asks on a real terminal; `typed` is written once the question stands.
#[track_caller]
fn on_terminal(typed: &'static [u8]) -> (Reply, String, bool) {
    let pty = native_pty_system().openpty(PtySize { rows: 24, cols: 20, ..PtySize::default() }).unwrap();
    let name = pty.master.tty_name().unwrap();
    let open = || File::options().read(true).write(true).open(&name).unwrap();
    let (tty, look) = (open(), open());
    let before = tcgetattr(&look).unwrap();
    let mut writer = pty.master.take_writer().unwrap();
    // On a line of its own, so that the wait below sees it arrive: what comes later would be part of the answer.
    writer.write_all(b"yyy\r").unwrap();
    poll(&mut [PollFd::new(&look, PollFlags::IN)], None).unwrap();
    let mut reader = pty.master.try_clone_reader().unwrap();
    let driver = thread::spawn(move || {
        let mut seen = String::new();
        let mut buffer = [0; 1024];
        while !seen.contains("[y/n/a]") {
            let n = reader.read(&mut buffer).unwrap();
            seen.push_str(&String::from_utf8_lossy(&buffer[..n]));
        }
        writer.write_all(typed).unwrap();
        (seen, writer)
    });
    let (woken, _wake) = io::pipe().unwrap();
    let reply = hold(&tty, &woken, &command("touch x"), Paint::default()).unwrap();
    let after = tcgetattr(&look).unwrap();
    let is_restored = before.local_modes == after.local_modes && before.input_modes == after.input_modes;
    (reply, driver.join().unwrap().0, is_restored)
}

#[test]
fn what_was_typed_before_the_question_is_no_answer_and_the_terminal_is_restored() {
    let (reply, _, is_restored) = on_terminal(b"n later\r");
    assert_eq!((Some(reply), is_restored), (denied("later"), true));
    let (reply, seen, is_restored) = on_terminal(b"a");
    assert_eq!(reply, Reply::Answer(Answer::AllowSession));
    assert!(seen.contains("touch x") && is_restored);
}

#[test]
fn a_question_that_is_taken_back_lets_go_of_the_terminal() {
    let pty = native_pty_system().openpty(PtySize::default()).unwrap();
    let name = pty.master.tty_name().unwrap();
    let tty = File::options().read(true).write(true).open(name).unwrap();
    let (woken, wake) = io::pipe().unwrap();
    let asking = thread::spawn(move || hold(&tty, &woken, &command("x"), Paint::default()));
    drop(wake);
    assert_eq!(asking.join().unwrap().unwrap(), Reply::Answer(Answer::Deny(None)));
}

//! What stands on the screen and above it, at several widths and through changes of the size.

use portable_pty::CommandBuilder;

use crate::crab::{Crab, until};
use crate::terminal::Terminal;

/// A narrow terminal, the usual one, a wide one.
const WIDTHS: [u16; 3] = [20, 80, 200];

/// A command that writes lines and goes on when the file `go` is there.
const WAIT: &str = r#"{"tool_calls":[{"name":"bash","arguments":{"command":"seq -f row-%g- 9; touch begun; until [ -e go ]; do sleep 0.01; done; rm go begun"}}]}"#;

/// How often a text is there, wherever lines were wrapped.
fn count(everything: &str, text: &str) -> usize {
    let joined = |text: &str| text.split_whitespace().collect::<String>();
    joined(everything).matches(&joined(text)).count()
}

#[track_caller]
fn check_prompt_alone(terminal: &mut Terminal) {
    terminal.prompt();
    let everything = terminal.everything();
    let last = everything.lines().last().unwrap_or_default();
    assert_eq!(last, ">", "{everything}");
    // The lines that stand below everything while something runs are gone.
    assert!(!everything.contains('…') && !everything.contains("row-"), "{everything}");
}

#[test]
fn an_answer_stands_whole_at_every_width_with_the_prompt_in_column_one() {
    let answer = "# Heading\n\nSome *words* of a paragraph that is longer than a narrow terminal is wide.\n\n\
                  - 日本語の長い行がここにあります、折り返されます\n- 👩‍🚀👨‍👩‍👧 é e\u{301} ñ\n- שלום עולם\n\n```rust\nfn main() { println!(\"{}\", 1); }\n```\n\
                  | a | b |\n|---|---|\n| 1 | 2 |\nno line end";
    for width in WIDTHS {
        let crab = Crab::new();
        crab.script(&[&serde_json::json!({"text": answer}).to_string()]);
        let mut terminal = Terminal::sized(&crab, (24, width), &[]);
        terminal.prompt();
        terminal.press("go\r");
        terminal.text("line end");
        check_prompt_alone(&mut terminal);
        let everything = terminal.everything();
        // Each word in its place, whatever the terminal wrapped.
        assert_eq!(count(&everything, answer), 1, "at {width}:\n{everything}");
        assert_eq!(terminal.leave(), 0);
    }
}

#[test]
fn what_runs_is_shown_below_and_leaves_nothing_behind() {
    for width in WIDTHS {
        let crab = Crab::new();
        crab.script(&[WAIT, r#"{"text":"done at last"}"#]);
        let mut terminal = Terminal::sized(&crab, (24, width), &["--yolo"]);
        terminal.prompt();
        terminal.press("go\r");
        terminal.text("row-9-");
        let shown = |terminal: &mut Terminal| {
            let everything = terminal.everything();
            (1..=9)
                .filter(|n| everything.lines().any(|line| line == format!("  row-{n}-")))
                .collect::<Vec<_>>()
        };
        assert_eq!(shown(&mut terminal), [5, 6, 7, 8, 9], "at {width}:\n{}", terminal.everything());
        terminal.press("next");
        terminal.text("> next");
        crab.put("go", "");
        terminal.text("at last");
        terminal.until("the draft", |screen| screen.contents().trim_end().ends_with("> next"));
        terminal.press("\x15");
        check_title_and_end(&terminal.everything());
        terminal.prompt();
        assert_eq!(terminal.leave(), 0);
    }
}

#[track_caller]
fn check_title_and_end(everything: &str) {
    assert_eq!(count(everything, "• seq -f row-%g- 9"), 1, "{everything}");
    assert!(count(everything, "exit 0,") == 1 && count(everything, "done at last") == 1, "{everything}");
    assert!(!everything.lines().any(|line| line.starts_with("  row-")), "{everything}");
}

#[test]
fn a_terminal_that_changes_its_size_in_the_middle_of_everything_loses_nothing() {
    let crab = Crab::new();
    let text: String = (0..60).map(|n| format!("line {n} here\n")).collect();
    crab.script(&[
        &serde_json::json!({"text": text, "chunk": 10, "delay_ms": 5}).to_string(),
        WAIT,
        r#"{"tool_calls":[{"name":"write","arguments":{"path":"one","content":"1\n"}}]}"#,
        r#"{"text":"all done"}"#,
    ]);
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_crab"));
    command.args(["--provider", "mock", "--allow", "bash"]);
    let mut terminal = Terminal::run(&crab, (12, 80), &[], command);
    terminal.prompt();
    terminal.press("draft");
    terminal.text("> draft");
    terminal.resize(12, 20);
    terminal.press("ed\r");
    // In the middle of an answer.
    for (line, rows, width) in [(5, 12, 18), (20, 14, 200), (40, 24, 80)] {
        terminal.text(&format!("line {line} here"));
        terminal.resize(rows, width);
    }
    terminal.text("line 59 here");
    check_prompt_alone(&mut terminal);
    // While something runs, and a line is typed.
    terminal.press("go\r");
    until("the command's start", || crab.dir().join("begun").exists());
    for (rows, width) in [(24, 40), (24, 80), (30, 200), (30, 80)] {
        terminal.resize(rows, width);
        terminal.press("x");
        let typed = |screen: &vt100::Screen| screen.contents().trim_end().ends_with('x');
        terminal.until("the draft", typed);
    }
    terminal.press("\x15");
    crab.put("go", "");
    // At a question.
    terminal.text("[y/n/a]");
    for (rows, width) in [(30, 20), (40, 200)] {
        terminal.resize(rows, width);
    }
    terminal.press("y");
    terminal.text("all done");
    terminal.prompt();
    let everything = terminal.everything();
    for n in 0..60 {
        assert_eq!(count(&everything, &format!("line {n} here\n")), 1, "line {n}:\n{everything}");
    }
    assert_eq!((count(&everything, "all done"), crab.get("one").as_str()), (1, "1\n"), "{everything}");
    assert!(!everything.lines().any(|line| line.starts_with("  row-")), "{everything}");
    assert_eq!(terminal.leave(), 0);
}

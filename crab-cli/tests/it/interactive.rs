//! A person at a terminal: prompt, question, interruption, leaving.

use portable_pty::CommandBuilder;

use crate::crab::Crab;
use crate::terminal::Terminal;

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
    terminal.text("  not run");
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
fn a_command_is_edited_before_it_runs() {
    let crab = Crab::new();
    crab.script(&[
        r#"{"tool_calls":[{"name":"bash","arguments":{"command":"touch model"}}]}"#,
        r#"{"text":"all done"}"#,
    ]);
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_crab"));
    command.args(["--provider", "mock"]);
    let editor = [("VISUAL", "sed -i s/model/user/")];
    let mut terminal = Terminal::run(&crab, (24, 80), &editor, command);
    terminal.prompt();
    terminal.press("go\r");
    terminal.text("? touch model");
    terminal.text("[y/n/a]");
    terminal.press("e");
    terminal.text("? touch user");
    terminal.until("the second question", |screen| screen.contents().matches("[y/n/a]").count() == 2);
    terminal.press("e");
    terminal.text("the command is as it was");
    terminal.press("y");
    terminal.text("all done");
    terminal.prompt();
    assert!(crab.dir().join("user").exists() && !crab.dir().join("model").exists());
    assert_eq!(terminal.leave(), 0);
    let session = std::fs::read_to_string(crab.sessions().remove(0)).unwrap();
    assert!(session.contains("this ran: touch user"), "{session}");
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
fn a_prompt_is_written_in_an_editor_and_an_answer_copied() {
    let crab = Crab::new();
    // Stands before what the machine may have.
    crab.put("bin/pbcopy", "#!/bin/sh\ncat > copied\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(crab.dir().join("bin/pbcopy"), mode).unwrap();
    let path = format!("{}:{}", crab.dir().join("bin").display(), std::env::var("PATH").unwrap());
    let environment = [("VISUAL", "sed -i s/wrong/right/"), ("PATH", path.as_str())];
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_crab"));
    command.args(["--provider", "mock"]);
    let mut terminal = Terminal::run(&crab, (24, 80), &environment, command);
    let ends = |screen: &vt100::Screen, end: &str| screen.contents().trim_end().ends_with(end);
    terminal.prompt();
    terminal.press("/edit wrong words\r");
    terminal.until("the draft", |screen| ends(screen, "> right words"));
    terminal.press(" and wrong ones\x07");
    terminal.until("the draft", |screen| ends(screen, "> right words and right ones"));
    terminal.press("\r");
    terminal.until("the answer", |screen| screen.contents().matches("words and right ones").count() == 2);
    terminal.prompt();
    terminal.press("/copy\r");
    terminal.text("pbcopy");
    terminal.prompt();
    assert!(crab.get("copied").contains("right words and right ones"), "{}", crab.get("copied"));
    assert_eq!(terminal.leave(), 0);
}

#[test]
fn sessions_are_listed_gone_on_with_and_copied() {
    let crab = Crab::new();
    crab.mock(&["-p", "the first one"]).ok();
    let id = crab.sessions()[0].file_stem().unwrap().to_str().unwrap().to_owned();
    let id = id.rsplit('_').next().unwrap().rsplit('-').next().unwrap().to_owned();
    let mut terminal = Terminal::start(&crab, &[]);
    terminal.prompt();
    terminal.press("/sessions\r");
    terminal.text("the first one");
    terminal.prompt();
    terminal.press(&format!("/sessions {id}\r"));
    terminal.until("the session", |screen| screen.contents().matches("/help for help").count() == 2);
    terminal.prompt();
    terminal.press("and more\r");
    terminal.until("the answer", |screen| screen.contents().matches("and more").count() == 2);
    terminal.prompt();
    terminal.press("/fork\r");
    terminal.until("the copy", |screen| screen.contents().matches("/help for help").count() == 3);
    terminal.prompt();
    terminal.press("in the copy\r");
    terminal.until("the answer", |screen| screen.contents().matches("in the copy").count() == 2);
    terminal.prompt();
    assert_eq!(terminal.leave(), 0);
    let mut holds: Vec<(usize, usize)> = crab
        .sessions()
        .iter()
        .map(|file| std::fs::read_to_string(file).unwrap())
        .map(|text| (text.matches("and more").count().min(1), text.matches("in the copy").count().min(1)))
        .collect();
    holds.sort_unstable();
    assert_eq!(holds, [(1, 0), (1, 1)]);
}

#[test]
fn a_session_is_chosen_by_words_of_it() {
    let crab = Crab::new();
    for prompt in ["fix the parser", "write the docs", "parse more"] {
        crab.mock(&["-p", prompt]).ok();
    }
    let mut terminal = Terminal::start(&crab, &["-r"]);
    terminal.text("parse more");
    terminal.press("parser");
    terminal.until("the list", |screen| !screen.contents().contains("write the docs"));
    terminal.press("\r");
    terminal.prompt();
    let screen = terminal.screen().contents();
    assert!(screen.contains("fix the parser") && !screen.contains("resume which?"), "{screen}");
    terminal.press("go on\r");
    terminal.until("the answer", |screen| screen.contents().matches("go on").count() == 2);
    terminal.prompt();
    assert_eq!(terminal.leave(), 0);
    let mut terminal = Terminal::start(&crab, &["-r"]);
    terminal.text("resume which?");
    terminal.press("\x1b");
    terminal.text("no session was chosen");
    assert_eq!(terminal.child.wait().unwrap().exit_code(), 1);
}

#[test]
fn a_conversation_goes_on_from_an_earlier_turn() {
    let crab = Crab::new();
    let mut terminal = Terminal::sized(&crab, (40, 80), &[]);
    terminal.prompt();
    for (prompt, count) in [("first", 2), ("second", 2)] {
        terminal.press(&format!("{prompt}\r"));
        terminal.until(prompt, |screen| screen.contents().matches(prompt).count() == count);
        terminal.prompt();
    }
    terminal.press("/tree 1\r");
    terminal.text("goes on behind turn 1: first");
    terminal.prompt();
    terminal.press("third\r");
    terminal.until("third", |screen| screen.contents().matches("third").count() == 2);
    terminal.prompt();
    terminal.press("/tree\r");
    terminal.text("2 \u{25cb}   second");
    terminal.text("3 \u{25cf}   third  \u{2190} here");
    terminal.prompt();
    terminal.press("/tree 9\r");
    terminal.text("there is no turn 9");
    terminal.prompt();
    terminal.press("/title a tree of turns\r");
    terminal.text("this session is about: a tree of turns");
    terminal.prompt();
    terminal.press("/export notes.md\r");
    terminal.text("bytes to `notes.md`");
    terminal.prompt();
    assert!(crab.get("notes.md").starts_with("# a tree of turns\n"), "{}", crab.get("notes.md"));
    assert!(crab.get("notes.md").contains("third") && !crab.get("notes.md").contains("second"));
    terminal.press("/export notes.md\r");
    terminal.text("is there already");
    terminal.prompt();
    assert_eq!(terminal.leave(), 0);
    assert!(crab.run(&["sessions"]).ok().out.contains("a tree of turns"));
}

#[test]
fn a_turn_is_taken_back_with_its_files_and_put_there_again() {
    let crab = Crab::new();
    crab.put("a.txt", "one\n");
    crab.script(&[
        r#"{"tool_calls":[{"name":"read","arguments":{"path":"a.txt"}}]}"#,
        r#"{"tool_calls":[{"name":"edit","arguments":{"path":"a.txt","edits":[{"old":"one","new":"two"}]}},{"name":"write","arguments":{"path":"b.txt","content":"b"}},{"name":"bash","arguments":{"command":"touch made"}}]}"#,
        r#"{"text":"all done"}"#,
        r#"{"text":"another"}"#,
    ]);
    let mut terminal = Terminal::sized(&crab, (40, 100), &["--yolo"]);
    terminal.prompt();
    terminal.press("/undo\r");
    terminal.text("nothing was said");
    terminal.prompt();
    terminal.press("change it\r");
    terminal.text("all done");
    terminal.prompt();
    terminal.press("/undo\r");
    terminal.text("took back: change it");
    terminal.text("put back `");
    terminal.text("removed `");
    terminal.text("written meanwhile by commands or others: `made`");
    terminal.prompt();
    assert_eq!((crab.get("a.txt").as_str(), crab.dir().join("b.txt").exists()), ("one\n", false));
    terminal.press("/redo\r");
    terminal.text("put back: change it");
    terminal.prompt();
    assert_eq!((crab.get("a.txt"), crab.get("b.txt")), ("two\n".into(), "b".into()));
    crab.put("b.txt", "by hand");
    terminal.press("/undo\r");
    terminal.text("has changed since");
    terminal.prompt();
    assert_eq!(crab.get("a.txt"), "two\n");
    assert_eq!(terminal.leave(), 0);
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
    let mut terminal = Terminal::run(&crab, (24, 80), &[], shell);
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

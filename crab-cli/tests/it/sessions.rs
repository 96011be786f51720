//! `crab sessions`: what is found, shown, exported and removed.

use portable_pty::CommandBuilder;

use crate::crab::Crab;
use crate::terminal::Terminal;

/// A home with two sessions of one directory; their ids, the older one first.
fn two() -> (Crab, [String; 2]) {
    let crab = Crab::new();
    let id = |ran: crate::crab::Ran| ran.json().last().unwrap()["session"].as_str().unwrap().to_owned();
    crab.put("a.txt", "some words\n");
    crab.script(&[
        r#"{"tool_calls":[{"name":"read","arguments":{"path":"a.txt"}}],"usage":{"input":100,"output":5,"cost_usd":0.25}}"#,
        r#"{"text":"It holds <b>words</b>.","thinking":"let me see","usage":{"input":150,"output":9,"cost_usd":0.5}}"#,
    ]);
    let first = id(crab.mock(&["-p", "what is in a.txt?", "-o", "stream-json"]).ok());
    crab.script(&[r#"{"text":"fine"}"#]);
    let second = id(crab.mock(&["-p", "another Question", "-o", "stream-json"]).ok());
    (crab, [first, second])
}

#[test]
fn sessions_are_listed_with_what_they_came_to() {
    let (crab, [first, second]) = two();
    crab.mock(&["-r", &first, "-p", "and more"]).ok();
    let list = crab.run(&["sessions"]).ok().out;
    let lines: Vec<&str> = list.lines().collect();
    assert!(
        lines[0].starts_with(&first) && lines[0].contains("2 turns") && lines[0].contains("$0.75"),
        "{list}"
    );
    assert!(lines[1].starts_with(&second) && lines[1].contains("another Question"), "{list}");
    let json: serde_json::Value = serde_json::from_str(&crab.run(&["sessions", "--json"]).ok().out).unwrap();
    assert_eq!((json[0]["id"].as_str(), json[0]["turns"].as_u64()), (Some(first.as_str()), Some(2)));
    assert_eq!(json[0]["usage"]["output"].as_u64(), Some(14));
    let elsewhere = crab.run(&["sessions", "-C", "/", "--json"]).ok().out;
    assert_eq!(elsewhere.trim(), "[]");
    let all = crab.run(&["sessions", "--all", "-C", "/"]).ok().out;
    assert!(
        all.contains(&first) && all.contains(crab.dir().canonicalize().unwrap().to_str().unwrap()),
        "{all}"
    );
}

#[test]
fn words_are_found_whoever_said_them() {
    let (crab, [first, second]) = two();
    let search = |words: &str| crab.run(&["sessions", "search", words]).ok().out;
    assert!(search("HOLDS").contains("assistant: It holds") && !search("holds").contains(&second));
    assert!(search("some words").contains("tool_result: ") && search("some words").contains(&first));
    assert!(search("question").contains("user: another Question"));
    assert!(search("nowhere said").contains("no session has"));
}

#[test]
fn a_session_is_shown_and_exported() {
    let (crab, [first, _]) = two();
    let short = &first[..8];
    let shown = crab.run(&["sessions", "show", short]).ok().out;
    for part in ["# what is in a.txt?", "## You", "**`read`**", "> let me see", "It holds <b>words</b>."] {
        assert!(shown.contains(part), "`{part}` is not in\n{shown}");
    }
    let page = crab.run(&["sessions", "export", short, "--format", "html"]).ok().out;
    assert!(
        page.contains("It holds &lt;b&gt;words&lt;/b&gt;.")
            && !page.contains("<b>")
            && !page.contains("<script")
    );
    let json = crab.run(&["sessions", "export", short, "--format", "json"]).ok().out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["title"], "what is in a.txt?");
    assert!(json["entries"].as_array().unwrap().iter().any(|entry| entry["type"] == "tool_result"));
    crab.run(&["sessions", "show", "zzz"]).fails(2, "no session has an id");
}

#[test]
fn what_was_said_reaches_no_terminal_raw() {
    let crab = Crab::new();
    crab.script(&[r#"{"text":"copy \u001b]52;c;aGk=\u0007 and \u009b2J this"}"#]);
    let session = crab.mock(&["-p", "go", "-o", "stream-json"]).ok().json().pop().unwrap();
    let id = session["session"].as_str().unwrap();
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_crab"));
    command.args(["sessions", "show", id]);
    let mut terminal = Terminal::run(&crab, (24, 80), &[], command);
    terminal.text("copy ^[]52;c;aGk=^G and <U+009B>2J this");
    assert!(!terminal.raw.contains(&0x1b) && !terminal.raw.windows(2).any(|pair| pair == [0xc2, 0x9b]));
    assert!(crab.run(&["sessions", "show", id]).ok().out.contains('\u{1b}'));
}

#[test]
fn sessions_go_when_they_are_told_to_and_not_before() {
    let (crab, [first, second]) = two();
    // All or nothing.
    crab.run(&["sessions", "rm", &first, "zzz"]).fails(2, "no session has an id");
    assert_eq!(crab.sessions().len(), 2);
    crab.run(&["sessions", "prune", "--older-than", "1d"]).ok();
    crab.run(&["sessions", "prune", "--older-than", "soon"]).fails(2, "such as 30d");
    assert_eq!(crab.sessions().len(), 2);
    assert!(crab.run(&["sessions", "rm", &first]).ok().out.contains(&first));
    assert!(crab.run(&["sessions"]).ok().out.starts_with(&second));
    let file = std::fs::File::options().append(true).open(&crab.sessions()[0]).unwrap();
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3 * 86_400);
    file.set_modified(old).unwrap();
    drop(file);
    crab.run(&["sessions", "prune", "--older-than", "2d", "--yes"]).ok();
    assert_eq!(crab.sessions().len(), 0);
}

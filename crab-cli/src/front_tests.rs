//! Tests of the front end against an agent of the test's own making.

use std::fs::File;
use std::sync::Arc;

use crab_core::message::{Assistant, Block, ToolCall, Usage};
use crab_core::protocol::{Answer, End, EndStop, Failure, FailureKind, Question};
use crab_core::tools::View;
use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc};

use super::*;
use crate::output::Output;
use crate::output::tests::piped;
use crate::render::{Detail, Format, SessionFacts, Settings};
use crate::tty::Streams;

struct Agent {
    commands: mpsc::Receiver<Command>,
    events: broadcast::Sender<Event>,
}

impl Agent {
    fn send(&self, event: Event) {
        self.events.send(event).map(drop).unwrap();
    }

    fn say(&self, request: u32, text: &str) {
        self.send(Event::TextDelta { request, offset: 0, delta: text.into() });
        self.send(Event::MessageDone { request, message: message(text) });
    }
}

fn message(text: &str) -> Arc<Assistant> {
    Arc::new(Assistant { content: vec![Block::text(text)], ..Assistant::default() })
}

fn end(stop: EndStop, messages: &[&str]) -> Event {
    let messages: Vec<_> = messages.iter().map(|text| message(text)).collect();
    Event::TurnEnded(End {
        stop,
        error: None,
        messages,
        requests: 1,
        usage: Usage::default(),
        denied: vec![],
    })
}

fn front(output: Output, settings: Settings, capacity: usize) -> (Front, Agent) {
    let (commands, inbox) = mpsc::channel(8);
    let (events, receiver) = broadcast::channel(capacity);
    let screen =
        Screen::choose(settings, output, SessionFacts { id: "s1".into(), ..Default::default() }).unwrap();
    let handle = Handle { commands, events: receiver };
    let signals = Signals::listen().unwrap();
    (Front::new(handle, screen, signals), Agent { commands: inbox, events })
}

#[tokio::test]
async fn a_run_prints_each_message_on_a_line_of_its_own() {
    let (output, read) = piped();
    let (front, mut agent) = front(output, Settings::default(), 64);
    let agent = async {
        assert!(matches!(agent.commands.recv().await, Some(Command::Submit(_))));
        agent.say(1, "Looking.");
        agent.say(2, "All done.\n");
        agent.send(end(EndStop::End, &["Looking.", "All done.\n"]));
    };
    let (exit, ()) = tokio::join!(front.print_run(vec![vec![]]), agent);
    assert_eq!(exit.unwrap(), 0);
    assert_eq!(read(), ("Looking.\nAll done.\n".into(), String::new()));
}

#[tokio::test]
async fn quiet_prints_the_last_message_only() {
    let (output, read) = piped();
    let settings = Settings { detail: Detail::Quiet, ..Settings::default() };
    let (front, mut agent) = front(output, settings, 64);
    let agent = async {
        agent.commands.recv().await;
        agent.say(1, "Looking.");
        agent.send(Event::Warned { message: "hm".into() });
        agent.say(2, "All done.");
        agent.send(end(EndStop::End, &["Looking.", "All done."]));
    };
    let (exit, ()) = tokio::join!(front.print_run(vec![vec![]]), agent);
    assert_eq!((exit.unwrap(), read()), (0, ("All done.\n".into(), String::new())));
}

#[tokio::test]
async fn a_reader_that_lagged_still_gets_the_whole_text() {
    let (output, read) = piped();
    let (front, mut agent) = front(output, Settings::default(), 4);
    let agent = async {
        agent.commands.recv().await;
        for offset in 0..100 {
            agent.send(Event::TextDelta { request: 1, offset, delta: "x".into() });
        }
        agent.send(end(EndStop::End, &[&"x".repeat(100)]));
    };
    let (exit, ()) = tokio::join!(front.print_run(vec![vec![]]), agent);
    assert_eq!((exit.unwrap(), read()), (0, ("x".repeat(100) + "\n", String::new())));
}

fn question() -> Question {
    let call = ToolCall { id: "c1".into(), name: "bash".into(), arguments: json!({}), extra: None };
    let view = View::Command { command: "true".into(), outcome: String::new() };
    let (title, reason, class) = ("true".into(), "default".into(), "every command".into());
    Question { call, title, view, reason, class }
}

#[tokio::test]
async fn without_a_terminal_a_question_is_answered_at_once() {
    if crate::tty::controlling().is_some() {
        // Run from a terminal, the question would wait for whoever runs the tests.
        return;
    }
    let (output, _read) = piped();
    let (front, mut agent) = front(output, Settings::default(), 64);
    let agent = async {
        agent.commands.recv().await;
        agent.send(Event::QuestionAsked(question()));
        let Some(Command::Answer { id, answer }) = agent.commands.recv().await else { panic!("no answer") };
        assert_eq!((id.as_str(), answer), ("c1", Answer::Unattended));
        agent.send(end(EndStop::End, &[]));
    };
    let (exit, ()) = tokio::join!(front.print_run(vec![vec![]]), agent);
    assert_eq!(exit.unwrap(), 0);
}

#[tokio::test]
async fn a_closed_pipe_aborts_the_turn_and_ends_quietly() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let (mut err, w_err) = io::pipe().unwrap();
    let (front, mut agent) =
        front(Output::start(Streams::of(writer, w_err)).unwrap(), Settings::default(), 64);
    let agent = async {
        agent.commands.recv().await;
        agent.send(Event::TextDelta { request: 1, offset: 0, delta: "x\n".into() });
        assert!(matches!(agent.commands.recv().await, Some(Command::Abort)));
        agent.send(end(EndStop::Aborted, &["x\n"]));
    };
    let (exit, ()) = tokio::join!(front.print_run(vec![vec![]]), agent);
    assert_eq!(exit.unwrap(), 0);
    let mut said = String::new();
    io::Read::read_to_string(&mut err, &mut said).unwrap();
    assert!(!said.contains("pipe") && !said.contains("cannot"), "{said}");
}

#[tokio::test]
async fn a_full_device_is_a_failure_with_a_message() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (mut err, w_err) = io::pipe().unwrap();
    let (front, mut agent) = front(Output::start(Streams::of(full, w_err)).unwrap(), Settings::default(), 64);
    let agent = async {
        agent.commands.recv().await;
        agent.say(1, "x");
        agent.send(end(EndStop::End, &["x"]));
    };
    let (exit, ()) = tokio::join!(front.print_run(vec![vec![]]), agent);
    assert_eq!(exit.unwrap(), 1);
    let mut said = String::new();
    io::Read::read_to_string(&mut err, &mut said).unwrap();
    assert_eq!(
        said.lines().last().unwrap(),
        "crab: cannot write to standard output: no space left on device"
    );
}

#[tokio::test]
async fn stream_json_has_a_session_line_first_and_a_done_line_last() {
    let (output, read) = piped();
    let settings = Settings { format: Format::StreamJson, ..Settings::default() };
    let (front, mut agent) = front(output, settings, 64);
    let agent = async {
        agent.commands.recv().await;
        agent.say(1, "half\x1b");
        let kind = FailureKind::Auth;
        let error =
            Some(Failure { kind, message: "bad key".into(), status: Some(401), provider: Some("p".into()) });
        let Event::TurnEnded(end) = end(EndStop::Error, &["half\x1b"]) else { unreachable!() };
        agent.send(Event::TurnEnded(End { error, ..end }));
    };
    let (exit, ()) = tokio::join!(front.print_run(vec![vec![]]), agent);
    assert_eq!(exit.unwrap(), 5);
    let (out, err) = read();
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let types: Vec<_> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["session", "text", "usage", "done"]);
    assert_eq!(lines[1]["delta"], "half\x1b");
    assert_eq!(
        lines[3],
        json!({
            "type": "done", "exit": 5, "stop": "error", "result": "half\x1b", "turns": 1, "cost_usd": null,
            "error": {"kind": "auth", "message": "bad key", "status": 401, "provider": "p"}, "denied": [],
            "session": "s1", "usage": lines[3]["usage"],
        })
    );
    assert_eq!(err, "crab: bad key\n");
}

#[tokio::test]
async fn an_agent_that_is_gone_is_an_internal_failure() {
    let (output, read) = piped();
    let settings = Settings { format: Format::Json, ..Settings::default() };
    let (front, agent) = front(output, settings, 64);
    drop(agent);
    assert_eq!(front.print_run(vec![vec![]]).await.unwrap(), 1);
    let (out, err) = read();
    let done: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&done["exit"], &done["error"]["kind"]), (&json!(1), &json!("internal")));
    assert!(err.starts_with("crab: the agent ended"), "{err}");
}

#[test]
fn a_slash_and_one_word_is_a_command_and_a_path_is_a_prompt() {
    let check = |line, expected| assert_eq!(meaning(line), expected, "{line}");
    check(" \n", Meaning::Nothing);
    check("/help ", Meaning::Slash);
    check("/exit", Meaning::Slash);
    check("/model some/model", Meaning::Slash);
    check("/nope", Meaning::Slash);
    check("!ls -l", Meaning::Shell { command: "ls -l", is_told: true });
    check("!! ls", Meaning::Shell { command: "ls", is_told: false });
    check("!", Meaning::Prompt);
    check("/usr/bin", Meaning::Prompt);
    check("/usr", Meaning::Prompt);
    check("/nope what is this", Meaning::Prompt);
    check("hello", Meaning::Prompt);
}

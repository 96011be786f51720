//! Tests of the text renderer: what is shown, and the laws of styling and cutting.

use std::sync::Arc;

use crab_core::message::{Block, Part, ToolCall, Usage};
use crab_core::protocol::{Failure, FailureKind};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::output::tests::piped;

/// What these events put on both streams.
fn shown(detail: Detail, is_styled: bool, events: &[Event]) -> (String, String) {
    let (output, read) = piped();
    let mut text = Text::new(&output, detail, Paint { is_on: is_styled }).with_style(is_styled);
    for event in events {
        text.event(event).unwrap();
    }
    text.close(0).unwrap();
    drop((text, output));
    read()
}

fn message(text: &str, stop: Stop) -> Arc<Assistant> {
    Arc::new(Assistant { content: vec![Block::text(text)], stop, ..Assistant::default() })
}

fn delta(offset: usize, text: &str) -> Event {
    Event::TextDelta { request: 1, offset, delta: text.into() }
}

fn call(id: &str, title: &str) -> Event {
    let call = ToolCall { id: id.into(), name: "x".into(), arguments: json!({}), extra: None };
    Event::CallStarted { call, title: title.into() }
}

fn done(id: &str, is_error: bool, view: View) -> Event {
    let content = vec![Part::text("what the\x07 model gets")];
    let result = ToolResult { tool_call_id: id.into(), name: "x".into(), is_error, content, ms: 1234 };
    Event::CallDone { result: Arc::new(result), view }
}

fn ended(stop: EndStop, error: Option<Failure>) -> Event {
    Event::TurnEnded(End {
        stop,
        error,
        messages: vec![],
        requests: 1,
        usage: Usage::default(),
        denied: vec![],
    })
}

fn busy_turn() -> Vec<Event> {
    let diff = format!("@@ -1 +1 @@\n-one\n+two\x1b[31m\n{}", " same\n".repeat(60));
    let view = View::Diff { path: "a\x1b.rs".into(), diff, added: 1, removed: 1 };
    let failure =
        Failure { kind: FailureKind::Server, message: "no\x07\nwait".into(), status: None, provider: None };
    vec![
        delta(0, "Looking."),
        Event::MessageDone { request: 1, message: message("Looking.", Stop::Length) },
        call("1", "read a\nb\u{200b}"),
        call("2", "edit a.rs"),
        Event::ToolOutput { id: "1".into(), chunk: "live \x1b[1m".into() },
        done("1", true, View::Line { text: "no such file".into() }),
        done("2", false, view),
        call("3", "run it"),
        Event::PermissionDecided {
            id: "3".into(),
            name: "x".into(),
            decision: Decision::Deny,
            by: By::Unattended,
        },
        done("3", false, View::Command { command: "true".into(), outcome: "exit 0, 1.2 s".into() }),
        Event::Retried { attempt: 2, delay_ms: 2000, reason: "slow down".into() },
        Event::Warned { message: "hm".into() },
        ended(EndStop::Error, Some(failure)),
    ]
}

#[test]
fn calls_and_their_outcomes_are_lines_on_standard_error() {
    let (out, err) = shown(Detail::Normal, false, &busy_turn());
    assert_eq!(out, "Looking.\n");
    insta::assert_snapshot!(err.replace("   same\n", ""), @"
    crab: warning: the answer was cut by the output limit of the model
    • read a^Jb<U+200B>
    • edit a.rs
      read a^Jb<U+200B>: failed, 1.2 s: no such file
      ok, 1.2 s: a^[.rs (+1 −1)
      @@ -1 +1 @@
      -one
      +two^[[31m
      (23 more lines, `-v` shows them)
    • run it
    crab: denied: run it
    nobody could be asked: there is no terminal; `--allow RULE` lets such calls run, `--yolo` lets all run
      exit 0, 1.2 s
    crab: trying again in 2.0 s (attempt 2): slow down
    crab: warning: hm
    crab: no^G
    wait
    ");
}

#[test]
fn quiet_leaves_the_error_alone() {
    let (out, err) = shown(Detail::Quiet, false, &busy_turn());
    assert_eq!((out.as_str(), err.as_str()), ("", "crab: no^G\nwait\n"));
}

#[test]
fn verbose_shows_live_output_or_else_the_whole_result() {
    let (_, err) = shown(Detail::Verbose, false, &busy_turn());
    assert!(err.contains("live ^[[1m\n"), "{err}");
    assert_eq!(err.matches("what the^G model gets\n").count(), 2, "{err}");
    assert!(err.contains("crab: request 1: ") && !err.contains("more lines"), "{err}");
}

#[test]
fn a_plain_answer_leaves_standard_error_empty() {
    let events = [
        delta(0, "hi"),
        Event::MessageDone { request: 1, message: message("hi", Stop::End) },
        ended(EndStop::End, None),
    ];
    assert_eq!(shown(Detail::Normal, false, &events), ("hi\n".into(), String::new()));
}

#[test]
fn an_abort_ends_the_open_line() {
    let events = [delta(0, "half"), ended(EndStop::Aborted, None)];
    assert_eq!(shown(Detail::Normal, false, &events), ("half\n".into(), "crab: stopped\n".into()));
}

fn without_sgr(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        out.push_str(before);
        rest = after.split_once('m').expect("only SGR sequences are added").1;
    }
    out + rest
}

#[test]
fn styling_only_adds_sgr_sequences() {
    let (out, err) = shown(Detail::Normal, true, &busy_turn());
    assert!(err.contains("\x1b["), "{err}");
    assert_eq!((out, without_sgr(&err)), shown(Detail::Normal, false, &busy_turn()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_cut_of_the_answer_gives_the_same_bytes(
        text in "[a\r\n\u{1b}\u{9b}é\u{200d}]{0,24}",
        cuts in prop::collection::vec(0_usize..60, 0..8),
    ) {
        let whole = |cuts: &[usize]| {
            let mut events = vec![];
            let mut from = 0;
            for to in cuts.iter().copied().chain([text.len()]) {
                events.push(delta(from, &text[from..to]));
                from = to;
            }
            events.push(Event::MessageDone { request: 1, message: message(&text, Stop::End) });
            shown(Detail::Normal, false, &events).0
        };
        let mut cuts: Vec<_> = cuts.iter().map(|at| text.floor_char_boundary(*at)).collect();
        cuts.sort_unstable();
        let expected = whole(&[]);
        prop_assert_eq!(whole(&cuts), expected.clone());
        prop_assert!(!expected.chars().any(|c| c.is_control() && c != '\n'));
    }
}

fn without_style(text: &str) -> String {
    let mut pieces = text.split("\x1b[");
    let head = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(head, |text, piece| text + piece.split_once('m').map_or("", |(_, rest)| rest))
}

proptest! {
    #[test]
    fn a_styled_answer_without_its_style_is_what_a_pipe_gets(
        pieces in prop::collection::vec("[ab *_`#>|\\-\n~\\[\\]()0-9]{0,12}", 1..12),
    ) {
        let mut events = vec![];
        let mut offset = 0;
        for piece in &pieces {
            events.push(delta(offset, piece));
            offset += piece.len();
        }
        events.push(Event::MessageDone { request: 1, message: message(&pieces.concat(), Stop::End) });
        events.push(ended(EndStop::End, None));
        let (plain, _) = shown(Detail::Normal, false, &events);
        let (styled, _) = shown(Detail::Normal, true, &events);
        prop_assert_eq!(without_style(&styled), plain);
    }
}

//! Whatever deltas come: no panic, ids are unique, and a call is whole, or its raw text is kept and it is known to be cut.
#![no_main]

use std::collections::HashSet;

use arbitrary::Arbitrary;
use crab_core::accumulate::Accumulator;
use crab_core::message::{Stop, Usage};
use crab_core::provider::Delta;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

#[derive(Arbitrary, Clone, Debug)]
enum Piece {
    Text(String),
    NewText(Option<String>),
    Refusal(String),
    Thinking(String, bool),
    Signature(String),
    Redacted(String),
    Detail(String, u8, Option<String>),
    Item(String),
    Call(Option<u8>, Option<String>, Option<String>, Option<Raw>, bool),
    Usage(Option<u64>, Option<u64>),
    Stop(u8),
}

/// Arguments that are likely enough to be some.
#[derive(Arbitrary, Clone, Debug)]
enum Raw {
    Empty,
    Null,
    Whole,
    Open,
    Close,
    Any(String),
}

fn delta(piece: Piece) -> Delta {
    const STOPS: [Stop; 7] =
        [Stop::End, Stop::ToolCalls, Stop::Length, Stop::Refusal, Stop::Pause, Stop::Aborted, Stop::Cut];
    match piece {
        Piece::Text(text) => Delta::Text(text),
        Piece::NewText(phase) => Delta::NewText { phase },
        Piece::Refusal(text) => Delta::Refusal(text),
        Piece::Thinking(text, named) => Delta::Thinking { text, field: if named { "reasoning" } else { "" } },
        Piece::Signature(text) => Delta::Signature(text),
        Piece::Redacted(text) => Delta::Redacted(text),
        Piece::Detail(text, index, id) => Delta::Details(json!({"type": "t", "text": text, "index": index, "id": id})),
        Piece::Item(text) => Delta::Item(json!({"type": "reasoning", "encrypted_content": text})),
        Piece::Call(index, id, name, raw, extra) => Delta::Call {
            index: index.map(u64::from),
            id,
            name,
            arguments: raw.map(|raw| match raw {
                Raw::Empty => String::new(),
                Raw::Null => "null".into(),
                Raw::Whole => "{\"a\":1}".into(),
                Raw::Open => "{\"a\":".into(),
                Raw::Close => "1}".into(),
                Raw::Any(text) => text,
            }),
            extra: extra.then(|| json!({"x": 1})),
        },
        Piece::Usage(input, output) => Delta::Usage(Usage { input, output, ..Usage::default() }),
        Piece::Stop(stop) => Delta::Stop(STOPS[usize::from(stop) % STOPS.len()]),
    }
}

fn gather(pieces: &[Piece]) -> Accumulator {
    let mut message = Accumulator::new("p", "m").avoid(["taken".to_owned()]);
    pieces.iter().cloned().for_each(|piece| message.push(delta(piece)));
    message
}

fuzz_target!(|pieces: Vec<Piece>| {
    let message = gather(&pieces).finish();
    let mut ids = HashSet::from(["taken".to_owned()]);
    for call in message.calls() {
        assert!(!call.id.is_empty() && ids.insert(call.id.clone()), "`{}` twice", call.id);
        assert!(matches!(call.arguments, Value::Object(_) | Value::String(_)));
    }
    assert!(message.stop != Stop::ToolCalls || !ids.is_empty() && message.calls().next().is_some());
    assert_eq!(gather(&pieces).cut(Stop::Cut).calls().count(), 0);
    // What is written to a session reads back as it was.
    let text = serde_json::to_string(&message).expect("a message is JSON");
    assert_eq!(serde_json::from_str::<crab_core::message::Assistant>(&text).expect("and back"), message);
});

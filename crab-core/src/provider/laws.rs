//! Laws of every decoder: nothing that a service may send makes it panic, any cut decodes alike, and a call that began is
//! whole or known to be cut.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{Api, decode};
use crate::message::{Assistant, Stop};

const APIS: [Api; 3] = [Api::OpenaiChat, Api::OpenaiResponses, Api::AnthropicMessages];

/// Words that mean something to one decoder or another.
const WORDS: &[&str] = &[
    "",
    "0",
    "a",
    "stop",
    "length",
    "tool_calls",
    "tool_use",
    "error",
    "text",
    "thinking",
    "function_call",
    "reasoning",
    "message",
    "completed",
    "incomplete",
    "failed",
    "call_1",
    "{}",
    "{\"x\":1}",
    "{\"x",
    "<think>",
    "</think>",
    "null",
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "text_delta",
    "input_json_delta",
    "thinking_delta",
    "signature_delta",
    "response.output_item.added",
    "response.output_item.done",
    "response.output_text.delta",
    "response.function_call_arguments.delta",
    "response.reasoning_summary_text.delta",
    "response.completed",
    "response.incomplete",
    "response.failed",
];
const KEYS: &[&str] = &[
    "type",
    "id",
    "index",
    "name",
    "arguments",
    "function",
    "tool_calls",
    "delta",
    "choices",
    "content",
    "text",
    "thinking",
    "finish_reason",
    "native_finish_reason",
    "usage",
    "prompt_tokens",
    "completion_tokens",
    "error",
    "message",
    "code",
    "content_block",
    "partial_json",
    "stop_reason",
    "signature",
    "input",
    "output_index",
    "item",
    "response",
    "status",
    "summary",
    "summary_index",
    "incomplete_details",
    "reason",
    "reasoning_content",
    "reasoning_details",
    "refusal",
    "call_id",
    "phase",
    "data",
    "output",
    "input_tokens",
];

fn word() -> impl Strategy<Value = String> {
    prop_oneof![9 => prop::sample::select(WORDS).prop_map(str::to_owned), 1 => ".{0,6}"]
}

/// JSON out of the words and keys of all protocols, in any shape.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        word().prop_map(Value::String),
        (0u64..4).prop_map(|number| json!(number)),
        Just(json!(null)),
        Just(json!(true)),
        Just(json!(-1.5)),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        let fields = prop::collection::vec((prop::sample::select(KEYS), inner.clone()), 0..6);
        prop_oneof![
            1 => prop::collection::vec(inner, 0..3).prop_map(Value::Array),
            4 => fields.prop_map(|fields| {
                Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>())
            }),
        ]
    })
}

/// A piece of a chat completions call, likely enough to be one.
fn call_piece() -> impl Strategy<Value = Value> {
    let maybe = |strategy: BoxedStrategy<Value>| prop_oneof![Just(Value::Null), strategy];
    (
        maybe((0u64..3).prop_map(|index| json!(index)).boxed()),
        maybe(prop::sample::select(vec!["", "call_1", "call_2"]).prop_map(|id| json!(id)).boxed()),
        maybe(prop::sample::select(vec!["", "a", "b"]).prop_map(|name| json!(name)).boxed()),
        maybe(word().prop_map(|raw| json!(raw)).boxed()),
    )
        .prop_map(|(index, id, name, arguments)| {
            let call = json!({"index": index, "id": id, "function": {"name": name, "arguments": arguments}});
            json!({"choices": [{"delta": {"tool_calls": [call]}}]})
        })
}

/// A body: events of all kinds, framed in all ways, sometimes rubbish in between.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let event = prop_oneof![
        4 => (json_value(), prop::sample::select(vec!["\n", "\r\n", "\r"]))
            .prop_map(|(data, end)| format!("data: {data}{end}{end}").into_bytes()),
        4 => call_piece().prop_map(|data| format!("data: {data}\n\n").into_bytes()),
        1 => prop::sample::select(vec!["data: [DONE]\n\n", ": wait\n\n", "event: error\n", "\u{feff}", "{", "<html>"])
            .prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..9),
    ];
    prop::collection::vec(event, 0..12).prop_map(|events| events.concat())
}

/// The parts of a body between these places.
fn pieces<'a>(body: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (body.len() + 1)).chain([0, body.len()]).collect();
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect()
}

/// The message without the ids that are made up where a service gave none.
fn without_made_ids(mut message: Assistant, body: &[u8]) -> Value {
    let text = String::from_utf8_lossy(body).into_owned();
    for block in &mut message.content {
        if let crate::message::Block::ToolCall(call) = block
            && !text.contains(&call.id)
        {
            call.id.clear();
        }
    }
    json!(message)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_cut_of_any_answer_decodes_alike(body in body(), cuts in prop::collection::vec(any::<usize>(), 0..8)) {
        for api in APIS {
            let (whole, broken) = decode(api, [&body[..]]);
            let (cut, also_broken) = decode(api, pieces(&body, &cuts));
            prop_assert_eq!(without_made_ids(whole, &body), without_made_ids(cut, &body), "{}", api);
            prop_assert_eq!(broken, also_broken, "{}", api);
        }
    }

    #[test]
    fn a_call_that_began_is_whole_or_known_to_be_cut(body in body()) {
        for api in APIS {
            let (message, broken) = decode(api, [&body[..]]);
            let mut ids = std::collections::HashSet::new();
            for call in message.calls() {
                prop_assert!(broken.is_none(), "a broken answer has no calls");
                prop_assert!(!call.id.is_empty() && ids.insert(call.id.clone()), "`{}` twice", call.id);
                // What is no object was not whole, and goes back to the model as the text that it is.
                prop_assert!(call.arguments.is_object() || call.arguments.is_string());
            }
            let is_empty = message.calls().next().is_none();
            prop_assert!(!(is_empty && message.stop == Stop::ToolCalls), "calls without a call");
        }
    }

    #[test]
    fn any_bytes_at_all_are_survived(body in prop::collection::vec(any::<u8>(), 0..300)) {
        for api in APIS {
            decode(api, [&body[..]]);
        }
    }
}

//! Bodies of the Responses API.

use std::sync::Arc;

use super::*;
use crate::provider::ToolSpec;
use crate::provider::samples::{call, image, request, result, said, text, user};

fn reasoned(item: Value) -> Block {
    Block::Thinking(Thinking { text: "hm".into(), item: Some(item), ..Default::default() })
}

fn openai() -> Compat {
    crate::provider::services::compat("openai", "api.openai.com")
}

fn items(messages: Vec<Message>) -> Value {
    body(&request(messages), &openai(), "p")["input"].clone()
}

#[test]
fn a_small_request_holds_nothing_that_is_not_needed() {
    let body = body(&request(vec![user("hi")]), &openai(), "p");
    let expected = json!({
        "model": "m", "stream": true, "store": false, "instructions": "be good", "prompt_cache_key": "s",
        "include": ["reasoning.encrypted_content"],
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
    });
    assert_eq!(body, expected);
}

#[test]
fn options_go_out_in_the_words_of_the_api() {
    let mut request = request(vec![user("hi")]);
    request.max_output = Some(9);
    request.effort = Some(Effort::High);
    request.tools =
        Arc::new([ToolSpec { name: "t".into(), description: "d".into(), schema: json!({"type": "object"}) }]);
    let full = body(&request, &openai(), "p");
    assert_eq!(
        (&full["max_output_tokens"], &full["reasoning"]),
        (&json!(9), &json!({"effort": "high", "summary": "auto"}))
    );
    let tool = json!({"type": "function", "name": "t", "description": "d", "parameters": {"type": "object"}, "strict": false});
    assert_eq!(full["tools"][0], tool);
    let taught =
        Compat { reasoning_summary: false, encrypted_reasoning: false, output_limit: Some(4), ..openai() };
    let less = body(&request, &taught, "p");
    assert_eq!((&less["max_output_tokens"], &less["reasoning"]), (&json!(4), &json!({"effort": "high"})));
    assert_eq!(less.get("include"), None);
    request.model = "gpt-4o".into();
    let old = body(&request, &openai(), "p");
    assert!(old.get("reasoning").is_none() && old.get("include").is_none());
    request.model = "gpt-5".into();
    request.effort = Some(Effort::Off);
    assert_eq!(body(&request, &openai(), "p")["reasoning"], json!({"effort": "minimal"}));
}

#[test]
fn items_go_back_in_order_to_their_own_model() {
    let item = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "E", "status": "completed"});
    let content = vec![reasoned(item), call("call_1", json!({"x": 1}))];
    let own = items(vec![user("a"), said("p", content.clone()), result("call_1", vec![Part::text("r")])]);
    let expected = json!([
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "reasoning", "summary": [], "encrypted_content": "E"},
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{\"x\":1}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "r"},
    ]);
    assert_eq!(own, expected);
    let foreign = items(vec![user("a"), said("q", content), result("call_1", vec![])]);
    assert!(!foreign.to_string().contains("reasoning"));
}

#[test]
fn reasoning_that_would_be_refused_stays_here() {
    let encrypted = json!({"type": "reasoning", "encrypted_content": "E"});
    let alone = items(vec![user("a"), said("p", vec![text("b"), reasoned(encrypted)])]);
    assert!(!alone.to_string().contains("reasoning"), "{alone}");
    let hidden =
        json!({"type": "reasoning", "id": "rs_1", "summary": [{"text": "s"}], "encrypted_content": null});
    assert!(
        !items(vec![user("a"), said("p", vec![reasoned(hidden), text("b")])]).to_string().contains("rs_1")
    );
    let open = json!({"type": "reasoning", "id": "u", "content": [{"type": "reasoning_text", "text": "t"}]});
    let sent = items(vec![user("a"), said("p", vec![reasoned(open), text("b")])]);
    assert_eq!(
        sent[1],
        json!({"type": "reasoning", "id": "u", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]})
    );
}

#[test]
fn a_phase_goes_back_and_an_image_is_a_part_of_the_output() {
    let phased = Block::Text { text: "b".into(), phase: Some("commentary".into()) };
    let sent = items(vec![
        user("a"),
        said("p", vec![phased, call("i", json!("{\"brok"))]),
        result("i", vec![image()]),
    ]);
    assert_eq!(sent[1]["phase"], json!("commentary"));
    assert_eq!(sent[2]["arguments"], json!("{}"));
    assert_eq!(sent[3]["output"][0]["image_url"], json!("data:image/png;base64,QQ=="));
}

#[test]
fn a_longer_conversation_begins_with_the_bytes_of_the_shorter() {
    let mut history = vec![user("a"), said("p", vec![call("i", json!({"x": 1}))]), result("i", vec![])];
    let short = items(history.clone()).to_string();
    history.extend([said("p", vec![text("done")]), user("next")]);
    assert!(items(history).to_string().starts_with(short.trim_end_matches(']')));
}

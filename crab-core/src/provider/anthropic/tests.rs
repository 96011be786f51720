//! Bodies and streams of the Messages protocol.

use std::sync::Arc;

use super::*;
use crate::provider::ToolSpec;
use crate::provider::samples::{self, call, image, result, text, user};

fn request(messages: Vec<Message>) -> Request {
    Request { model: "claude-sonnet-4-5".into(), ..samples::request(messages) }
}

fn said(provider: &str, content: Vec<Block>) -> Message {
    samples::said_by(provider, "claude-sonnet-4-5", content)
}

fn thinking(signature: Option<&str>) -> Block {
    Block::Thinking(Thinking {
        text: "pläne…".into(),
        signature: signature.map(Into::into),
        ..Default::default()
    })
}

/// The messages, without cache marks.
fn sent(messages: Vec<Message>) -> Value {
    let mut messages = super::messages(&request(messages), &Compat::UNKNOWN, "anthropic");
    for block in messages.iter_mut().filter_map(|message| message["content"].as_array_mut()).flatten() {
        block.as_object_mut().unwrap().remove("cache_control");
    }
    Value::Array(messages)
}

#[test]
fn a_request_has_its_cache_marks_and_nothing_that_is_not_needed() {
    let mut request = request(vec![
        user("a"),
        said("x", vec![text("b")]),
        user("c"),
        said("x", vec![text("d")]),
        user("e"),
    ]);
    let spec = |name: &str| ToolSpec {
        name: name.into(),
        description: "d".into(),
        schema: json!({"type": "object"}),
    };
    request.tools = Arc::new([spec("a"), spec("b")]);
    let body = body(&request, &Compat::UNKNOWN, "anthropic");
    assert_eq!(body.to_string().matches("cache_control").count(), 4);
    let marked = |value: &Value| value.get("cache_control").is_some();
    assert!(marked(&body["system"][0]) && marked(&body["tools"][1]) && !marked(&body["tools"][0]));
    assert!(marked(&body["messages"][4]["content"][0]) && marked(&body["messages"][2]["content"][0]));
    assert_eq!((&body["max_tokens"], body.get("thinking")), (&json!(16_384), None));
}

#[test]
fn results_of_a_turn_are_one_message_before_any_text() {
    let calls = vec![text("  "), call("i.1", json!({"a": 1})), call("j", json!("{\"brok"))];
    let out = sent(vec![
        user("a"),
        said("x", calls),
        result("i.1", vec![image()]),
        result("j", vec![Part::text("")]),
        user("b"),
    ]);
    let id = out[1]["content"][0]["id"].clone();
    assert_ne!(id, json!("i.1"));
    let expected = json!([
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": id, "name": "look", "input": {"a": 1}},
            {"type": "tool_use", "id": "j", "name": "look", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "is_error": true, "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QQ=="}},
            ]},
            {"type": "tool_result", "tool_use_id": "j", "is_error": true, "content": [{"type": "text", "text": "(no output)"}]},
            {"type": "text", "text": "b"},
        ]},
    ]);
    assert_eq!(out, expected);
}

#[test]
fn thinking_goes_back_unchanged_to_its_own_model_and_to_no_other() {
    let blocks = || vec![thinking(Some("SIG")), thinking(None), text("b"), call("i", json!({}))];
    let own = sent(vec![user("a"), said("anthropic", blocks()), result("i", vec![Part::text("r")])]);
    assert_eq!(own[1]["content"][0], json!({"type": "thinking", "thinking": "pläne…", "signature": "SIG"}));
    assert_eq!(own[1]["content"].as_array().unwrap().len(), 3);
    let foreign = sent(vec![user("a"), said("other", blocks()), result("i", vec![Part::text("r")])]);
    assert!(!foreign.to_string().contains("pläne"));
}

#[test]
fn empty_messages_are_left_out_and_neighbours_joined() {
    let out = sent(vec![user("a"), said("anthropic", vec![thinking(Some("S")), text(" \n")]), user("b")]);
    let expected =
        json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]);
    assert_eq!(out, expected);
}

#[test]
fn a_last_message_of_the_model_ends_without_white_space() {
    let out = sent(vec![user("a"), said("x", vec![text("half \n")])]);
    assert_eq!(out[1]["content"][0]["text"], json!("half"));
}

#[track_caller]
fn check_thinking(model: &str, effort: Effort, expected: Value) {
    let mut request = request(vec![user("a")]);
    request.model = model.into();
    request.effort = Some(effort);
    let body = body(&request, &Compat::UNKNOWN, "anthropic");
    let budget = &body["thinking"]["budget_tokens"];
    assert_eq!(
        json!([body["max_tokens"], body["thinking"]["type"], budget, body["output_config"]["effort"]]),
        expected,
        "{model}"
    );
}

#[test]
fn each_generation_of_models_is_told_to_think_in_its_way() {
    check_thinking("claude-3-7-sonnet-20250219", Effort::Low, json!([18_432, "enabled", 2048, null]));
    check_thinking("claude-opus-4-20250514", Effort::High, json!([31_384, "enabled", 15_000, null]));
    check_thinking("anthropic/claude-sonnet-4.5", Effort::Medium, json!([24_576, "enabled", 8192, null]));
    check_thinking("claude-opus-4-6", Effort::High, json!([16_384, "adaptive", null, "high"]));
    check_thinking("claude-sonnet-5", Effort::Low, json!([16_384, "adaptive", null, "low"]));
    check_thinking("claude-3-5-haiku-20241022", Effort::High, json!([8192, null, null, null]));
    check_thinking("claude-3-opus-20240229", Effort::High, json!([4096, null, null, null]));
    check_thinking("claude-opus-4-6", Effort::Off, json!([16_384, null, null, null]));
    check_thinking("kimi-k2", Effort::Low, json!([18_432, "enabled", 2048, null]));
}

#[test]
fn a_run_of_tools_that_began_without_thinking_goes_on_without() {
    let mut request =
        request(vec![user("a"), said("x", vec![call("i", json!({}))]), result("i", vec![Part::text("r")])]);
    request.effort = Some(Effort::High);
    assert_eq!(body(&request, &Compat::UNKNOWN, "anthropic").get("thinking"), None);
}

#[test]
fn what_a_refusal_taught_is_kept_to() {
    let mut request = request(vec![user("a")]);
    request.effort = Some(Effort::High);
    let small = Compat { output_limit: Some(8_192), ..Compat::UNKNOWN };
    let body_of = |compat: &Compat| body(&request, compat, "anthropic");
    assert_eq!(body_of(&small)["max_tokens"], json!(8_192));
    assert_eq!(body_of(&small)["thinking"]["budget_tokens"], json!(4_096));
    let adaptive = Compat { adaptive_thinking: Some(true), ..Compat::UNKNOWN };
    assert_eq!(body_of(&adaptive)["thinking"], json!({"type": "adaptive", "display": "summarized"}));
    let silent = Compat { thinking_display: false, ..adaptive };
    assert_eq!(body_of(&silent)["thinking"], json!({"type": "adaptive"}));
    let none = Compat { reasoning: Ask::None, ..Compat::UNKNOWN };
    assert_eq!(body_of(&none).get("thinking"), None);
}

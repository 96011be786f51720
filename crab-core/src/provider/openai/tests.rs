//! Bodies and streams of chat completions.

use super::*;
use crate::message::{Stop, ToolCall};
use crate::provider::ToolSpec;

fn request(messages: Vec<Message>) -> Request {
    Request {
        model: "m".into(),
        system: "be good".into(),
        messages,
        tools: Arc::new([]),
        effort: None,
        max_output: None,
        session: "s".into(),
    }
}

fn user(text: &str) -> Message {
    Message::User(vec![Part::text(text)])
}

fn said(provider: &str, content: Vec<Block>) -> Message {
    let stop = Stop::ToolCalls;
    Message::Assistant(Assistant {
        content,
        provider: provider.into(),
        model: "m".into(),
        stop,
        ..Default::default()
    })
}

fn call(id: &str, arguments: Value) -> Block {
    Block::ToolCall(ToolCall {
        id: id.into(),
        name: "read".into(),
        arguments,
        extra: Some(json!({"google": 1})),
    })
}

fn result(id: &str, content: Vec<Part>) -> Message {
    Message::ToolResult(ToolResult {
        tool_call_id: id.into(),
        name: "read".into(),
        is_error: false,
        content,
        ms: 1,
    })
}

fn thinking(field: &str) -> Block {
    Block::Thinking(Thinking { text: "hm".into(), field: Some(field.into()), ..Default::default() })
}

fn text(text: &str) -> Block {
    Block::Text { text: text.into() }
}

#[track_caller]
fn check(messages: Vec<Message>, expected: Value) {
    let body = body(&request(messages), Quirks::of("x"), "openai");
    assert_eq!(Value::Array(body["messages"].as_array().unwrap()[1..].to_vec()), expected);
}

#[test]
fn a_small_request_holds_nothing_that_is_not_needed() {
    let body = body(&request(vec![user("hi")]), Quirks::of("x"), "openai").to_string();
    let expected = r#"{"messages":[{"content":"be good","role":"system"},{"content":"hi","role":"user"}],"model":"m","stream":true,"stream_options":{"include_usage":true}}"#;
    assert_eq!(body, expected);
}

#[test]
fn options_go_out_in_the_words_of_the_service() {
    let mut request = request(vec![user("hi")]);
    request.max_output = Some(9);
    request.effort = Some(Effort::Low);
    request.tools =
        Arc::new([ToolSpec { name: "t".into(), description: "d".into(), schema: json!({"type": "object"}) }]);
    let plain = body(&request, Quirks::of("x"), "p");
    assert_eq!((&plain["max_tokens"], &plain["reasoning_effort"]), (&json!(9), &json!("low")));
    assert_eq!(plain["tools"][0]["function"]["parameters"], json!({"type": "object"}));
    let openai = body(&request, Quirks::of("api.openai.com"), "p");
    assert_eq!((&openai["max_completion_tokens"], &openai["prompt_cache_key"]), (&json!(9), &json!("s")));
    assert_eq!(openai.get("max_tokens"), None);
}

#[test]
fn calls_and_results_keep_their_ids_in_a_form_that_is_accepted() {
    let long = "functions.read:0".repeat(9);
    let body = body(
        &request(vec![
            user("a"),
            said("x", vec![call(&long, json!({"a": 1}))]),
            result(&long, vec![Part::text("r")]),
        ]),
        Quirks::of("x"),
        "openai",
    );
    let id = body["messages"][2]["tool_calls"][0]["id"].as_str().unwrap();
    assert_eq!(body["messages"][3]["tool_call_id"], json!(id));
    assert!(id.len() <= 40);
    assert_eq!(body["messages"][2].get("content"), None);
}

#[test]
fn broken_arguments_and_empty_results_go_out_as_something_valid() {
    check(
        vec![
            user("a"),
            said("x", vec![text(" \n"), call("i", json!("{\"a"))]),
            result("i", vec![Part::text("")]),
        ],
        json!([
            {"role": "user", "content": "a"},
            {"role": "assistant", "tool_calls": [{"id": "i", "type": "function", "function": {"name": "read", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "i", "content": "(no output)"},
        ]),
    );
}

#[test]
fn images_of_results_follow_behind_all_results_of_the_turn() {
    let image = Part::Image { media_type: "image/png".into(), data: "QQ==".into() };
    let calls = vec![call("i", json!({})), call("j", json!({}))];
    let messages = vec![
        user("a"),
        said("x", calls),
        result("i", vec![image]),
        result("j", vec![Part::text("r")]),
        user("b"),
    ];
    let body = body(&request(messages), Quirks::of("x"), "openai");
    let roles: Vec<_> =
        body["messages"].as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "user"]);
    assert_eq!(body["messages"][5]["content"][1]["image_url"]["url"], json!("data:image/png;base64,QQ=="));
}

#[test]
fn blank_messages_of_the_model_are_left_out_and_users_joined() {
    check(
        vec![user("a"), said("x", vec![text("\n")]), user("b")],
        json!([{"role": "user", "content": "a\nb"}]),
    );
}

#[test]
fn reasoning_goes_back_to_its_own_model_in_its_own_field_and_to_no_other() {
    let body_of = |provider, block| {
        body(&request(vec![user("a"), said(provider, vec![block, text("b")])]), Quirks::of("x"), "openai")
    };
    assert_eq!(body_of("openai", thinking("reasoning"))["messages"][2]["reasoning"], json!("hm"));
    let content = &body_of("openai", thinking("content"))["messages"][2]["content"];
    assert_eq!(content[0]["thinking"][0]["text"], json!("hm"));
    assert_eq!(content[1]["text"], json!("b"));
    let foreign = body_of("other", thinking("reasoning_content")).to_string();
    assert!(!foreign.contains("hm") && !foreign.contains("reasoning"));
    let extra = |provider| {
        body(&request(vec![user("a"), said(provider, vec![call("i", json!({}))])]), Quirks::of("x"), "openai")
            .to_string()
    };
    assert!(extra("openai").contains("extra_content") && !extra("other").contains("extra_content"));
}

#[test]
fn refusals_teach_what_to_leave_out() {
    let mut limited = request(vec![]);
    limited.max_output = Some(1);
    let start = Quirks::of("x");
    let learnt = |words: &str| start.learn(words, &limited).unwrap();
    assert!(!learnt("unknown field `stream_options`").stream_options);
    assert!(
        learnt("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.").completion_tokens
    );
    let back =
        Quirks::of("api.openai.com").learn("'max_completion_tokens' is not supported", &limited).unwrap();
    assert!(!back.completion_tokens);
    assert!(!learnt("`reasoning_effort` is not supported").effort);
    let everywhere = learnt("The `reasoning_content` in the thinking mode must be passed back");
    assert!(everywhere.reasoning_everywhere);
    assert_eq!(everywhere.learn("reasoning_content again", &limited), None);
    assert_eq!(start.learn("max_tokens is too large", &request(vec![])), None);
}

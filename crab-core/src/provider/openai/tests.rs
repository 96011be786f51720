//! Bodies and streams of chat completions.

use std::sync::Arc;

use super::*;
use crate::provider::ToolSpec;
use crate::provider::samples::{self, image, request, result, said, text, thought, user};

/// A call of a service that wants something back with it.
fn call(id: &str, arguments: Value) -> Block {
    let mut call = samples::call(id, arguments);
    if let Block::ToolCall(call) = &mut call {
        call.extra = Some(json!({"google": 1}));
    }
    call
}

fn at(host: &str) -> Compat {
    crate::provider::services::compat("", host)
}

#[track_caller]
fn check(messages: Vec<Message>, expected: Value) {
    let body = body(&request(messages), &at("x"), "openai");
    assert_eq!(Value::Array(body["messages"].as_array().unwrap()[1..].to_vec()), expected);
}

#[test]
fn a_small_request_holds_nothing_that_is_not_needed() {
    let body = body(&request(vec![user("hi")]), &at("x"), "openai").to_string();
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
    let plain = body(&request, &at("x"), "p");
    assert_eq!((&plain["max_tokens"], &plain["reasoning_effort"]), (&json!(9), &json!("low")));
    assert_eq!(plain["tools"][0]["function"]["parameters"], json!({"type": "object"}));
    let openai = body(&request, &at("api.openai.com"), "p");
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
        &at("x"),
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
            {"role": "assistant", "tool_calls": [{"id": "i", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "i", "content": "(no output)"},
        ]),
    );
}

#[test]
fn images_of_results_follow_behind_all_results_of_the_turn() {
    let calls = vec![call("i", json!({})), call("j", json!({}))];
    let messages = vec![
        user("a"),
        said("x", calls),
        result("i", vec![image()]),
        result("j", vec![Part::text("r")]),
        user("b"),
    ];
    let body = body(&request(messages), &at("x"), "openai");
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
        body(&request(vec![user("a"), said(provider, vec![block, text("b")])]), &at("x"), "openai")
    };
    assert_eq!(body_of("openai", thought("reasoning"))["messages"][2]["reasoning"], json!("hm"));
    let content = &body_of("openai", thought("content"))["messages"][2]["content"];
    assert_eq!(content[0]["thinking"][0]["text"], json!("hm"));
    assert_eq!(content[1]["text"], json!("b"));
    let foreign = body_of("other", thought("reasoning_content")).to_string();
    assert!(!foreign.contains("hm") && !foreign.contains("reasoning"));
    let extra = |provider| {
        body(&request(vec![user("a"), said(provider, vec![call("i", json!({}))])]), &at("x"), "openai")
            .to_string()
    };
    assert!(extra("openai").contains("extra_content") && !extra("other").contains("extra_content"));
}

/// The message of the model in a conversation with a service of these habits, which thought before it called a tool.
fn echoed(compat: Compat, field: &str, first: bool) -> Value {
    let last = if first {
        vec![text("c"), call("i", json!({}))]
    } else {
        vec![thought(field), call("i", json!({}))]
    };
    let history = vec![
        user("a"),
        said("p", vec![thought(field), text("b")]),
        user("x"),
        said("p", last),
        result("i", vec![]),
    ];
    let body = body(&request(history), &compat, "p");
    body["messages"][if first { 2 } else { 4 }].clone()
}

#[test]
fn reasoning_goes_back_as_each_service_wants_it() {
    let field = "reasoning_content";
    assert_eq!(echoed(at("x"), "reasoning", true)["reasoning"], json!("hm"));
    assert_eq!(echoed(at("dashscope.aliyuncs.com"), field, true).get(field), None);
    let deepseek = at("api.deepseek.com");
    assert_eq!(echoed(deepseek, field, true)[field], json!("hm"));
    let mistral = echoed(at("api.mistral.ai"), field, true);
    assert_eq!((mistral.get(field), &mistral["content"]), (None, &json!("b")));
    assert_eq!(echoed(at("api.mistral.ai"), "content", true)["content"][0]["type"], json!("thinking"));
    let in_loop = Compat { reasoning_echo: Echo::ToolLoop, ..at("x") };
    assert_eq!(echoed(in_loop, field, true).get(field), None);
    assert_eq!(echoed(in_loop, field, false)[field], json!("hm"));
    assert!(!echoed(at("x"), chunk::TAGS, true).to_string().contains("hm"));
}

#[test]
fn a_service_that_wants_reasoning_in_each_message_gets_an_empty_one_for_what_others_said() {
    let (field, deepseek) = ("reasoning_content", at("api.deepseek.com"));
    let foreign = request(vec![
        user("a"),
        said("q", vec![text("b")]),
        user("c"),
        said("p", vec![thought(field), text("d")]),
    ]);
    let body_of = |request: &Request, compat: Compat| body(request, &compat, "p")["messages"].clone();
    assert_eq!(body_of(&foreign, deepseek)[2][field], json!(""));
    let unthought = request(vec![user("a"), said("p", vec![text("b")])]);
    // They think unless they are told not to, so that the session of another model needs it as well.
    assert_eq!(body_of(&unthought, deepseek)[2][field], json!(""));
    assert_eq!(body_of(&unthought, at("api.moonshot.ai"))[2].get(field), None);
    let called = request(vec![
        user("a"),
        said("p", vec![thought(field), text("b")]),
        said("q", vec![call("i", json!({}))]),
        result("i", vec![]),
    ]);
    assert_eq!(body_of(&called, at("api.moonshot.ai"))[3][field], json!(""));
    assert_eq!(body_of(&called, at("api.moonshot.ai"))[3]["content"], json!(""));
}

#[test]
fn reasoning_goes_back_between_tags_where_the_template_knows_them() {
    assert_eq!(echoed(at("api.cerebras.ai"), "reasoning", true)["content"], json!("<think>hm</think>b"));
    let mut untagged = request(vec![user("a"), said("p", vec![thought("reasoning"), text("b")])]);
    untagged.model = "gpt-oss-120b".into();
    assert!(!body(&untagged, &at("api.cerebras.ai"), "p")["messages"][2].to_string().contains("hm"));
}

#[test]
fn each_service_is_asked_to_think_in_its_own_words() {
    let asked = |host: &str, effort: Effort| {
        let mut request = request(vec![user("a")]);
        request.effort = Some(effort);
        let mut body = body(&request, &at(host), "p");
        let body = body.as_object_mut().unwrap();
        for key in ["model", "messages", "stream", "stream_options", "prompt_cache_key"] {
            body.remove(key);
        }
        Value::Object(body.clone())
    };
    let cases = [
        ("x", json!({"reasoning_effort": "high"}), json!({})),
        (
            "generativelanguage.googleapis.com",
            json!({"reasoning_effort": "high"}),
            json!({"reasoning_effort": "none"}),
        ),
        ("api.mistral.ai", json!({"reasoning_effort": "high"}), json!({"reasoning_effort": "none"})),
        (
            "api.z.ai",
            json!({"thinking": {"type": "enabled", "clear_thinking": false}}),
            json!({"thinking": {"type": "disabled"}}),
        ),
        (
            "api.together.xyz",
            json!({"reasoning": {"enabled": true}, "reasoning_effort": "high"}),
            json!({"reasoning": {"enabled": false}}),
        ),
        (
            "api.deepseek.com",
            json!({"thinking": {"type": "enabled"}, "reasoning_effort": "high"}),
            json!({"thinking": {"type": "disabled"}}),
        ),
        ("dashscope.aliyuncs.com", json!({"enable_thinking": true}), json!({"enable_thinking": false})),
        ("openrouter.ai", json!({"reasoning": {"effort": "high"}}), json!({"reasoning": {"enabled": false}})),
        (
            "ai-gateway.vercel.sh",
            json!({"reasoning": {"enabled": true}}),
            json!({"reasoning": {"enabled": false}}),
        ),
        ("api.minimax.io", json!({}), json!({})),
    ];
    for (host, on, off) in cases {
        assert_eq!((asked(host, Effort::High), asked(host, Effort::Off)), (on, off), "{host}");
    }
}

#[test]
fn what_a_service_cannot_read_goes_out_as_something_that_it_can() {
    let history = vec![
        user("a"),
        said("p", vec![call("call_1", json!({}))]),
        result("call_1", vec![image()]),
        user("b"),
    ];
    let mistral = body(&request(history.clone()), &at("api.mistral.ai"), "p")["messages"].clone();
    let roles: Vec<_> = mistral.as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant", "user"]);
    assert_eq!(mistral[3]["tool_call_id"].as_str().unwrap().len(), 9);
    assert_eq!(mistral[2]["tool_calls"][0]["id"], mistral[3]["tool_call_id"]);
}

#[test]
fn sealed_reasoning_of_a_gateway_goes_back_with_its_seal() {
    let chunk = json!({"choices": [{"delta": {"reasoning_content": "hm",
        "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "S"}]}}]});
    let end = json!({"choices": [{"delta": {"content": "b"}, "finish_reason": "stop"}]});
    let stream = format!("data: {chunk}\n\ndata: {end}\n\ndata: [DONE]\n\n");
    let (mut message, _) = crate::provider::decode(crate::provider::Api::OpenaiChat, [stream.as_bytes()]);
    (message.provider, message.model) = ("p".into(), "m".into());
    let body = body(&request(vec![user("a"), Message::Assistant(message)]), &at("x"), "p");
    let sealed = json!([{"type": "thinking", "thinking": "hm", "signature": "S"}]);
    assert_eq!(body["messages"][2]["thinking_blocks"], sealed);
}

#[test]
fn a_call_of_another_model_gets_a_stand_in_where_one_is_wanted() {
    let history = vec![user("a"), said("q", vec![call("i", json!({}))]), result("i", vec![])];
    let sent = |compat: &Compat| body(&request(history.clone()), compat, "p")["messages"][2].to_string();
    assert!(!sent(&at("x")).contains("extra_content"));
    assert!(sent(&Compat { call_signature: true, ..at("x") }).contains("skip_thought_signature_validator"));
}

#[test]
fn cache_marks_stand_where_the_model_needs_them() {
    let mut marked = request(vec![user("a"), said("p", vec![call("i", json!({}))]), result("i", vec![])]);
    marked.model = "anthropic/claude-sonnet-4.5".into();
    let messages = body(&marked, &at("openrouter.ai"), "p")["messages"].clone();
    let marks: Vec<bool> =
        messages.as_array().unwrap().iter().map(|m| m.to_string().contains("cache_control")).collect();
    assert_eq!(marks, [true, true, false, true]);
    marked.model = "openai/gpt-5".into();
    assert!(!body(&marked, &at("openrouter.ai"), "p").to_string().contains("cache_control"));
}

#[test]
fn a_longer_conversation_begins_with_the_bytes_of_the_shorter() {
    let mut history = vec![user("a"), said("p", vec![thought("reasoning"), call("i", json!({"x": 1}))])];
    let short = body(&request(history.clone()), &at("x"), "p")["messages"].to_string();
    history.extend([result("i", vec![]), said("p", vec![text("done")]), user("next")]);
    let long = body(&request(history), &at("x"), "p")["messages"].to_string();
    assert!(long.starts_with(short.trim_end_matches(']')));
}

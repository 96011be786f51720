//! Bodies that real services accepted, as a test of our own: each is read back into a request, and what crab would send
//! for that request must have the same shape. They lie in a collection beside the repository; without it this is skipped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Api, Effort, Request, ToolSpec, services};
use crate::message::{Assistant, Block, Message, Part, Stop, Thinking, ToolCall, ToolResult};

/// Whose body it is, by the beginning of its name.
const HOSTS: [(&str, &str); 13] = [
    ("chat-openai", "api.openai.com"),
    ("chat-azure", "me.openai.azure.com"),
    ("chat-groq", "api.groq.com"),
    ("chat-hf", "router.huggingface.co"),
    ("chat-xai", "api.x.ai"),
    ("chat-zai", "api.z.ai"),
    ("chat-deepseek", "api.deepseek.com"),
    ("chat-mistral", "api.mistral.ai"),
    ("chat-openrouter", "openrouter.ai"),
    ("chat-vercelgw", "ai-gateway.vercel.sh"),
    ("chat-snowflake", "me.snowflakecomputing.com"),
    ("chat-cerebras", "api.cerebras.ai"),
    ("responses-", "api.openai.com"),
];

fn folder() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/wire");
    std::env::var_os("CRAB_WIRE").map_or_else(beside, PathBuf::from).join("requests")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// The parts of a user's message or a result, in the words of any of the protocols.
fn parts(content: &Value) -> Vec<Part> {
    if let Some(text) = content.as_str() {
        return vec![Part::text(text)];
    }
    let part = |part: &Value| {
        let url = || part.pointer("/image_url/url").or(part.get("image_url")).map(text);
        let data = part.pointer("/source/data").map(text).or_else(url);
        match (part.get("text"), data) {
            (Some(words), _) => Some(Part::text(text(words))),
            (None, Some(data)) => Some(Part::Image { media_type: "image/png".into(), data }),
            (None, None) => None,
        }
    };
    list(content).iter().filter_map(part).collect()
}

fn call(id: &Value, name: &Value, arguments: &Value) -> Block {
    let parsed = arguments.as_str().and_then(|raw| serde_json::from_str(raw).ok());
    let arguments = parsed.unwrap_or_else(|| arguments.clone());
    Block::ToolCall(ToolCall { id: text(id), name: text(name), arguments, extra: None })
}

fn result(id: &Value, content: &Value, is_error: bool) -> Message {
    let (tool_call_id, content) = (text(id), parts(content));
    Message::ToolResult(ToolResult { tool_call_id, name: "t".into(), is_error, content, ms: 0 })
}

fn assistant(content: Vec<Block>) -> Message {
    Message::Assistant(Assistant {
        content,
        provider: "p".into(),
        model: "m".into(),
        stop: Stop::End,
        ..Assistant::default()
    })
}

fn chat(message: &Value) -> Option<Message> {
    let content = &message["content"];
    match message["role"].as_str()? {
        "user" => Some(Message::User(parts(content))),
        "tool" => Some(result(&message["tool_call_id"], content, false)),
        "assistant" => {
            let mut blocks = vec![];
            let field =
                ["reasoning_content", "reasoning"].into_iter().find(|field| message.get(field).is_some());
            let thought = list(content).iter().find(|part| part["type"] == "thinking").cloned();
            let details = list(&message["reasoning_details"]);
            if field.is_some() || thought.is_some() || !details.is_empty() {
                let text = match (&thought, field) {
                    (Some(part), _) => text(&part["thinking"][0]["text"]),
                    (None, field) => field.map(|field| text(&message[field])).unwrap_or_default(),
                };
                let field = if thought.is_some() { Some("content") } else { field }.map(str::to_owned);
                blocks.push(Block::Thinking(Thinking { text, field, details, ..Thinking::default() }));
            }
            let words = parts(content).into_iter().map(|part| match part {
                Part::Text { text } => Block::text(text),
                Part::Image { .. } => panic!("a model sends no images"),
            });
            blocks.extend(words);
            let calls = list(&message["tool_calls"]);
            let call = |c: &Value| call(&c["id"], &c["function"]["name"], &c["function"]["arguments"]);
            blocks.extend(calls.iter().map(call));
            Some(assistant(blocks))
        }
        _ => None,
    }
}

fn messages(message: &Value) -> Vec<Message> {
    let blocks = match &message["content"] {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        blocks => list(blocks),
    };
    if message["role"] == "user" {
        let (results, said): (Vec<_>, Vec<_>) = blocks.into_iter().partition(|b| b["type"] == "tool_result");
        let of = |b: &Value| result(&b["tool_use_id"], &b["content"], b["is_error"] == true);
        let mut all: Vec<_> = results.iter().map(of).collect();
        all.extend((!said.is_empty()).then(|| Message::User(parts(&Value::Array(said)))));
        return all;
    }
    let block = |block: &Value| match block["type"].as_str().unwrap() {
        "thinking" => Block::Thinking(Thinking {
            text: text(&block["thinking"]),
            signature: Some(text(&block["signature"])),
            ..Thinking::default()
        }),
        "redacted_thinking" => {
            Block::Thinking(Thinking { redacted: Some(text(&block["data"])), ..Thinking::default() })
        }
        "tool_use" => call(&block["id"], &block["name"], &block["input"]),
        _ => Block::text(text(&block["text"])),
    };
    vec![assistant(blocks.iter().map(block).collect())]
}

fn item(item: &Value) -> Option<Message> {
    Some(match item["type"].as_str().unwrap_or("message") {
        "function_call" => assistant(vec![call(&item["call_id"], &item["name"], &item["arguments"])]),
        "function_call_output" => result(&item["call_id"], &item["output"], false),
        "reasoning" => {
            assistant(vec![Block::Thinking(Thinking { item: Some(item.clone()), ..Thinking::default() })])
        }
        _ if item["role"] == "user" => Message::User(parts(&item["content"])),
        _ if item["role"] == "assistant" => assistant(vec![Block::text(text(&item["content"][0]["text"]))]),
        _ => return None,
    })
}

/// Neighbours of one kind are one message, as crab has it.
fn joined(all: impl IntoIterator<Item = Message>) -> Vec<Message> {
    let mut out: Vec<Message> = vec![];
    for message in all {
        match (out.last_mut(), message) {
            (Some(Message::User(before)), Message::User(more)) => before.extend(more),
            (Some(Message::Assistant(before)), Message::Assistant(more)) => {
                before.content.extend(more.content)
            }
            // An image behind a result is that of the result.
            (Some(Message::ToolResult(before)), Message::User(more))
                if more.iter().all(|part| matches!(part, Part::Image { .. })) =>
            {
                before.content.extend(more);
            }
            (_, message) => out.push(message),
        }
    }
    out
}

fn request(api: Api, body: &Value) -> Request {
    let said = list(body.get("messages").unwrap_or(&body["input"]));
    let history = match api {
        Api::AnthropicMessages => joined(said.iter().flat_map(messages)),
        Api::OpenaiResponses => joined(said.iter().filter_map(item)),
        _ => joined(said.iter().filter_map(chat)),
    };
    let tool = |tool: &Value| {
        let function = tool.get("function").unwrap_or(tool);
        let schema = function.get("parameters").or(function.get("input_schema")).cloned();
        ToolSpec {
            name: text(&function["name"]),
            description: text(&function["description"]),
            schema: schema.unwrap_or_default(),
        }
    };
    let tools: Vec<_> = list(&body["tools"]).iter().map(tool).collect();
    Request {
        model: "m".into(),
        system: "s".into(),
        messages: history,
        tools: Arc::from(tools),
        effort: effort(body),
        max_output: Some(9_999),
        session: "s".into(),
    }
}

fn effort(body: &Value) -> Option<Effort> {
    let word = [&body["reasoning_effort"], &body["reasoning"]["effort"], &body["output_config"]["effort"]];
    match word.into_iter().find_map(Value::as_str) {
        Some("none") => Some(Effort::Off),
        Some("low") => Some(Effort::Low),
        Some("medium") => Some(Effort::Medium),
        Some(_) => Some(Effort::High),
        None => (body.get("thinking").is_some() || body.get("reasoning").is_some()).then_some(Effort::High),
    }
}

/// Everything in a conversation that a service looks at, whatever spelling it has: one line for each thing said.
fn shape(body: &Value) -> Vec<String> {
    let mut lines = vec![];
    for message in list(body.get("messages").unwrap_or(&body["input"])) {
        let who = match (message["role"].as_str(), message["type"].as_str()) {
            (Some("system" | "developer"), _) => continue,
            (Some("tool"), _) | (_, Some("function_call_output")) => "result",
            (Some(role), _) => role,
            (None, kind) => kind.unwrap_or_default(),
        };
        let id = message.get("tool_call_id").or(message.get("call_id")).map(text).unwrap_or_default();
        match who {
            "function_call" => {
                let arguments: Value = serde_json::from_str(&text(&message["arguments"])).unwrap_or_default();
                lines.push(format!("call {id} {} {arguments}", message["name"]));
            }
            "reasoning" => {
                lines.push(format!("item {} {}", message["encrypted_content"], message["content"]))
            }
            "result" => {
                let content = message.get("output").unwrap_or(&message["content"]);
                lines.push(format!("result {id} {}", words(content)));
            }
            who => blocks(who, &message, &mut lines),
        }
    }
    lines
}

fn words(content: &Value) -> String {
    let texts = parts(content).into_iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.trim().to_owned()),
        Part::Image { .. } => None,
    });
    texts.collect::<Vec<_>>().join("\n").trim().to_owned()
}

fn blocks(who: &str, message: &Value, lines: &mut Vec<String>) {
    for block in list(&message["content"]) {
        match block["type"].as_str().unwrap_or_default() {
            "tool_result" => lines.push(format!(
                "result {} {} {}",
                text(&block["tool_use_id"]),
                words(&block["content"]),
                block["is_error"] == true
            )),
            "tool_use" => {
                lines.push(format!("call {} {} {}", text(&block["id"]), block["name"], block["input"]))
            }
            "thinking" | "redacted_thinking" => {
                lines.push(format!("thinking {} {} {}", block["thinking"], block["signature"], block["data"]))
            }
            "image" | "image_url" | "input_image" => lines.push("image".into()),
            _ => {}
        }
    }
    let said = words(&message["content"]);
    let is_caption = said.starts_with("the output of `");
    if !said.is_empty() && !is_caption {
        lines.push(format!("{who} {said}"));
    }
    for call in list(&message["tool_calls"]) {
        let function = &call["function"];
        let arguments: Value = serde_json::from_str(&text(&function["arguments"])).unwrap_or_default();
        lines.push(format!("call {} {} {arguments}", text(&call["id"]), function["name"]));
    }
    // Two fields with one text are one thought.
    let thought = ["reasoning_content", "reasoning"].into_iter().find_map(|field| message[field].as_str());
    if let Some(thought) = thought.filter(|thought| !thought.is_empty()) {
        lines.push(format!("thought {thought}"));
    }
    lines.extend(list(&message["reasoning_details"]).iter().map(|detail| format!("detail {detail}")));
}

/// What is asked for beside the conversation, as far as both know it.
fn options(body: &Value) -> BTreeMap<&'static str, Value> {
    let mut found = BTreeMap::new();
    for key in ["reasoning_effort", "enable_thinking", "store", "include", "stream_options"] {
        found.extend(body.get(key).map(|value| (key, value.clone())));
    }
    found.extend(body.pointer("/thinking/type").map(|kind| ("thinking", kind.clone())));
    found.extend(body.get("reasoning").map(|reasoning| ("reasoning", json!(reasoning.is_object()))));
    found
}

fn check(path: &Path) -> Result<(), String> {
    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
    let body: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let api = match name.split('-').next().unwrap() {
        "anthropic" => Api::AnthropicMessages,
        "responses" => Api::OpenaiResponses,
        _ => Api::OpenaiChat,
    };
    let host = HOSTS.iter().find(|(start, _)| name.starts_with(start)).map_or("", |(_, host)| host);
    let service = if name.starts_with("chat-ollama") { "ollama" } else { "" };
    let mut compat = services::compat(service, host);
    compat.adaptive_thinking = Some(body.get("output_config").is_some());
    let ours = (api.dialect().unwrap().body)(&request(api, &body), &compat, "p");
    let wrong =
        |what: &str, got: String, want: String| format!("{name}: {what}\n  ours {got}\n  accepted {want}");
    let (got, want) = (shape(&ours), shape(&body));
    let missing: Vec<_> = want.iter().filter(|line| !got.contains(line)).collect();
    let added: Vec<_> = got.iter().filter(|line| !want.contains(line)).collect();
    if !missing.is_empty() || !added.is_empty() {
        return Err(wrong("what was said", format!("{added:#?}"), format!("{missing:#?}")));
    }
    let names = |body: &Value| {
        let tools = list(&body["tools"]);
        let name = |tool: &Value| text(tool.get("name").unwrap_or(&tool["function"]["name"]));
        tools.iter().map(name).collect::<Vec<_>>()
    };
    if names(&ours) != names(&body) {
        return Err(wrong("tools", format!("{:?}", names(&ours)), format!("{:?}", names(&body))));
    }
    let (mut got, want) = (options(&ours), options(&body));
    got.retain(|key, _| want.contains_key(key));
    // What crab never sends: a switch that the service ignored.
    let want: BTreeMap<_, _> = want.into_iter().filter(|(key, _)| *key != "enable_thinking").collect();
    if got != want {
        return Err(wrong("options", format!("{got:?}"), format!("{want:?}")));
    }
    Ok(())
}

#[test]
#[expect(clippy::print_stderr, reason = "a test that did not run must say so")]
fn bodies_that_services_accepted_could_have_been_ours() {
    let Ok(entries) = std::fs::read_dir(folder()) else {
        eprintln!("skipped: no collection of requests at `CRAB_WIRE` or ../shared/wire");
        return;
    };
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    let wrong: Vec<String> = paths.iter().filter_map(|path| check(path).err()).collect();
    assert!(
        paths.len() > 50 && wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        paths.len(),
        wrong.join("\n")
    );
}

//! The Responses API, without state at the service: all items go out with every request, encrypted reasoning included.

mod events;

use serde_json::{Map, Value, json};

use super::answer::Decode;
use super::client::Dialect;
use super::compat::{Ask, Cache, Compat, IdRule};
use super::ids::Ids;
use super::models::effort_off;
use super::{Effort, Request};
use crate::message::{Assistant, Block, Message, Part, Thinking, ToolResult, text_of};

/// Responses.
pub(super) const DIALECT: Dialect = Dialect { endpoint: "/responses", body, decoder };

/// Reads one answer.
fn decoder(_: &Compat) -> Box<dyn Decode> {
    Box::new(events::Events::default())
}

/// The body of a request. Equal requests give equal bytes.
fn body(request: &Request, compat: &Compat, provider: &str) -> Value {
    let mut body = Map::new();
    let mut set = |key: &str, value: Value| drop(body.insert(key.into(), value));
    set("model", json!(request.model));
    set("input", input(request, compat, provider));
    set("stream", json!(true));
    set("store", json!(false));
    if !request.system.trim().is_empty() {
        set("instructions", json!(&*request.system));
    }
    if compat.encrypted_reasoning && can_think(&request.model) {
        set("include", json!(["reasoning.encrypted_content"]));
    }
    if let Some(limit) = request.max_output {
        set("max_output_tokens", json!(limit.min(compat.output_limit.unwrap_or(u32::MAX))));
    }
    if let Some(effort) =
        request.effort.filter(|_| compat.reasoning != Ask::None && can_think(&request.model))
    {
        set("reasoning", reasoning(effort, request, compat));
    }
    if compat.cache == Cache::Key && !request.session.is_empty() {
        set("prompt_cache_key", json!(request.session));
    }
    if !request.tools.is_empty() {
        // The service makes schemas strict by itself unless it is told not to; ours have optional arguments.
        let tool = |tool: &super::ToolSpec| {
            json!({"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.schema,
                "strict": false})
        };
        set("tools", request.tools.iter().map(tool).collect());
    }
    Value::Object(body)
}

/// OpenAI's models from before the thinking ones refuse everything that has to do with it.
fn can_think(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    !["gpt-3", "gpt-4", "chatgpt"].iter().any(|old| name.starts_with(old))
}

fn reasoning(effort: Effort, request: &Request, compat: &Compat) -> Value {
    let word = match effort {
        Effort::Off => effort_off(&request.model),
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
    };
    let mut reasoning = json!({"effort": word});
    if compat.reasoning_summary && effort != Effort::Off {
        reasoning["summary"] = json!("auto");
    }
    reasoning
}

fn input(request: &Request, compat: &Compat, provider: &str) -> Value {
    let mut out = vec![];
    // Longer ones are taken here than in chat completions.
    let mut ids =
        Ids::new(if compat.tool_ids == IdRule::Plain40 { IdRule::Plain64 } else { compat.tool_ids });
    for message in &request.messages {
        match message {
            Message::User(parts) => out.extend(user(parts)),
            Message::ToolResult(result) => out.push(output(result, &mut ids)),
            Message::Assistant(message) => {
                let own = message.provider == provider && message.model == request.model;
                assistant(message, own, &mut ids, &mut out);
            }
        }
    }
    Value::Array(out)
}

fn user(parts: &[Part]) -> Option<Value> {
    let content: Vec<_> = parts.iter().filter_map(part).collect();
    (!content.is_empty()).then(|| json!({"type": "message", "role": "user", "content": content}))
}

fn part(part: &Part) -> Option<Value> {
    match part {
        Part::Text { text } => (!text.trim().is_empty()).then(|| json!({"type": "input_text", "text": text})),
        Part::Image { media_type, data } => {
            let url = format!("data:{media_type};base64,{data}");
            Some(json!({"type": "input_image", "image_url": url, "detail": "auto"}))
        }
    }
}

/// A string where it can be one: not every copy of the API knows parts.
fn output(result: &ToolResult, ids: &mut Ids) -> Value {
    let has_image = result.content.iter().any(|part| matches!(part, Part::Image { .. }));
    let text = text_of(&result.content);
    let output = if has_image {
        result.content.iter().filter_map(part).collect()
    } else if text.trim().is_empty() {
        json!("(no output)")
    } else {
        json!(text)
    };
    json!({"type": "function_call_output", "call_id": ids.get(&result.tool_call_id), "output": output})
}

fn assistant(message: &Assistant, own: bool, ids: &mut Ids, out: &mut Vec<Value>) {
    let mut items: Vec<Value> = vec![];
    for block in &message.content {
        match block {
            Block::Text { text, .. } if text.trim().is_empty() => {}
            Block::Text { text, phase } => {
                let mut item = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]});
                if let Some(phase) = phase.as_ref().filter(|_| own) {
                    item["phase"] = json!(phase);
                }
                items.push(item);
            }
            Block::Thinking(thinking) => items.extend(reasoning_item(thinking).filter(|_| own)),
            Block::ToolCall(call) => {
                let arguments =
                    if call.arguments.is_object() { call.arguments.to_string() } else { "{}".to_owned() };
                if own {
                    ids.keep(&call.id);
                }
                items.push(json!({"type": "function_call", "call_id": ids.get(&call.id), "name": call.name,
                    "arguments": arguments}));
            }
        }
    }
    // Reasoning without what it led to is refused.
    while items.last().is_some_and(|item| item["type"] == "reasoning") {
        items.pop();
    }
    out.append(&mut items);
}

/// The item as it came, in the form in which it is taken back. The service has not kept it, so its id would be looked
/// for in vain; only copies that send their reasoning in the open know it by its id.
fn reasoning_item(thinking: &Thinking) -> Option<Value> {
    let item = thinking.item.as_ref()?;
    let is_given = |key: &str| match item.get(key) {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(parts)) => !parts.is_empty(),
        _ => false,
    };
    let keys: &[&str] = match (is_given("encrypted_content"), is_given("content")) {
        (true, _) => &["type", "summary", "encrypted_content"],
        (false, true) => &["type", "id", "summary", "content"],
        (false, false) => return None,
    };
    let mut out: Map<String, Value> =
        keys.iter().filter_map(|key| Some(((*key).to_owned(), item.get(*key)?.clone()))).collect();
    out.entry("summary").or_insert_with(|| json!([]));
    Some(Value::Object(out))
}

#[cfg(test)]
mod tests;

//! The Messages API: requests out, with cache marks and thinking as each model takes it.

mod events;

use serde_json::{Map, Value, json};

use super::answer::Decode;
use super::client::Dialect;
use super::compat::{Ask, Compat, IdRule};
use super::ids::Ids;
use super::{Effort, Request};
use crate::message::{Assistant, Block, Message, Part, Thinking, ToolResult};

/// Enough for a long file, and within what every model since 3.7 can give.
const MAX_OUTPUT: u32 = 16_384;

/// Messages.
pub(super) const DIALECT: Dialect = Dialect { endpoint: "/messages", body, decoder };

/// Reads one answer.
fn decoder(_: &Compat) -> Box<dyn Decode> {
    Box::new(events::Events::default())
}

/// The body of a request. Equal requests give equal bytes.
fn body(request: &Request, compat: &Compat, provider: &str) -> Value {
    let mut messages = messages(request, compat, provider);
    let thinking = request.effort.and_then(|effort| thinking(&request.model, effort, compat));
    let thinking = thinking.filter(|thinking| thinking.budget.is_none() || !is_unthought_loop(&messages));
    mark_users(&mut messages);
    let mut body = Map::new();
    body.insert("model".into(), json!(request.model));
    body.insert("messages".into(), Value::Array(messages));
    body.insert("stream".into(), json!(true));
    let most = compat.output_limit.unwrap_or(u32::MAX);
    let limit = request.max_output.unwrap_or_else(|| default_limit(&request.model)).min(most);
    body.insert("max_tokens".into(), json!(limit));
    if !request.system.trim().is_empty() {
        let block = json!({"type": "text", "text": &*request.system, "cache_control": {"type": "ephemeral"}});
        body.insert("system".into(), json!([block]));
    }
    let mut tools: Vec<_> = request.tools.iter().map(tool).collect();
    if let Some(last) = tools.last_mut() {
        mark(last);
        body.insert("tools".into(), Value::Array(tools));
    }
    match thinking {
        Some(Mode { budget: Some(budget), .. }) => {
            let limit = limit.saturating_add(budget).min(most);
            // At least as much as the answer needs stays for it, and the service wants a budget of 1,024.
            let budget = budget.min(limit / 2).max(1_024);
            body.insert("thinking".into(), json!({"type": "enabled", "budget_tokens": budget}));
            body.insert("max_tokens".into(), json!(limit.max(budget + 1)));
        }
        Some(Mode { effort, .. }) => {
            // Newer models think in silence unless a summary is asked for.
            let mut thinking = json!({"type": "adaptive"});
            if compat.thinking_display {
                thinking["display"] = json!("summarized");
            }
            body.insert("thinking".into(), thinking);
            body.insert("output_config".into(), json!({"effort": effort}));
        }
        None => {}
    }
    Value::Object(body)
}

fn tool(tool: &super::ToolSpec) -> Value {
    json!({"name": tool.name, "description": tool.description, "input_schema": tool.schema})
}

/// How a model is told to think: by a number of tokens, or by a word.
struct Mode {
    budget: Option<u32>,
    effort: &'static str,
}

fn thinking(model: &str, effort: Effort, compat: &Compat) -> Option<Mode> {
    if compat.reasoning == Ask::None {
        return None;
    }
    let (budget, effort) = match effort {
        Effort::Off => return None,
        Effort::Low => (2_048, "low"),
        Effort::Medium => (8_192, "medium"),
        // With the default output this stays below 32,000, the least that a thinking model gives.
        Effort::High => (15_000, "high"),
    };
    let version = version(model);
    if version.is_some_and(|version| version < (3, 7)) {
        return None;
    }
    // A service of someone else knows the older way rather than the newer.
    let is_new = compat.adaptive_thinking.unwrap_or_else(|| version.is_some_and(|version| version > (4, 5)));
    Some(Mode { budget: (!is_new).then_some(budget), effort })
}

/// Models before 3.7 refuse to give more.
fn default_limit(model: &str) -> u32 {
    match version(model) {
        Some(version) if version < (3, 5) => 4_096,
        Some(version) if version < (3, 7) => 8_192,
        _ => MAX_OUTPUT,
    }
}

/// The version in a Claude's name: `claude-3-7-sonnet-20250219`, `claude-opus-4-1`, `anthropic/claude-sonnet-4.5`.
fn version(model: &str) -> Option<(u32, u32)> {
    let name = &model[model.find("claude")?..];
    let mut numbers =
        name.split(['-', '.', '@', ':']).skip(1).skip_while(|part| part.parse::<u32>().is_err());
    // A date is not a version.
    let mut number = || numbers.next()?.parse().ok().filter(|number| *number < 100);
    let major = number()?;
    Some((major, number().unwrap_or(0)))
}

fn messages(request: &Request, compat: &Compat, provider: &str) -> Vec<Value> {
    let mut list = List { out: vec![], user: vec![], ids: Ids::new(ids_of(compat)) };
    for message in &request.messages {
        match message {
            Message::User(parts) => list.user.extend(parts.iter().filter_map(part)),
            Message::ToolResult(result) => {
                let block = list.result(result);
                list.user.push(block);
            }
            Message::Assistant(message) => {
                let own = message.provider == provider && message.model == request.model;
                list.assistant(message, own);
            }
        }
    }
    list.flush();
    trim_last(&mut list.out);
    list.out
}

/// Every Messages service looks at the letters of an id.
fn ids_of(compat: &Compat) -> IdRule {
    if compat.tool_ids == IdRule::Alnum9 { IdRule::Alnum9 } else { IdRule::Plain64 }
}

struct List {
    out: Vec<Value>,
    /// The blocks of the user's next message.
    user: Vec<Value>,
    ids: Ids,
}

impl List {
    fn flush(&mut self) {
        let mut blocks = std::mem::take(&mut self.user);
        if blocks.is_empty() {
            return;
        }
        // Results must come first; the sort is stable.
        blocks.sort_by_key(|block| block["type"] != "tool_result");
        self.out.push(json!({"role": "user", "content": blocks}));
    }

    fn result(&mut self, result: &ToolResult) -> Value {
        let mut content: Vec<_> = result.content.iter().filter_map(part).collect();
        if content.is_empty() {
            content.push(json!({"type": "text", "text": "(no output)"}));
        }
        let id = self.ids.get(&result.tool_call_id);
        let mut block = json!({"type": "tool_result", "tool_use_id": id, "content": content});
        if result.is_error {
            block["is_error"] = json!(true);
        }
        block
    }

    fn assistant(&mut self, message: &Assistant, own: bool) {
        let mut blocks: Vec<_> = message.content.iter().filter_map(|block| self.block(block, own)).collect();
        if !own {
            // Another service may have talked on behind a call; here nothing may.
            blocks.sort_by_key(|block| block["type"] == "tool_use");
        }
        // Thinking alone is no message.
        if blocks.iter().all(is_thinking) {
            return;
        }
        self.flush();
        if self.out.is_empty() {
            self.out.push(
                json!({"role": "user", "content": [{"type": "text", "text": "(the conversation goes on)"}]}),
            );
        }
        match self
            .out
            .last_mut()
            .filter(|last| last["role"] == "assistant")
            .and_then(|last| last["content"].as_array_mut())
        {
            Some(last) => last.extend(blocks),
            None => self.out.push(json!({"role": "assistant", "content": blocks})),
        }
    }

    fn block(&mut self, block: &Block, own: bool) -> Option<Value> {
        match block {
            Block::Text { text, .. } => text_block(text),
            Block::Thinking(thinking) => thinking_block(thinking).filter(|_| own),
            Block::ToolCall(call) => {
                let input = if call.arguments.is_object() { call.arguments.clone() } else { json!({}) };
                Some(
                    json!({"type": "tool_use", "id": self.ids.get(&call.id), "name": call.name, "input": input}),
                )
            }
        }
    }
}

fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}))
}

/// Byte for byte as it came, or not at all: without its signature the service refuses it.
pub(super) fn thinking_block(thinking: &Thinking) -> Option<Value> {
    if let Some(data) = &thinking.redacted {
        return Some(json!({"type": "redacted_thinking", "data": data}));
    }
    let signature = thinking.signature.as_ref()?;
    Some(json!({"type": "thinking", "thinking": thinking.text, "signature": signature}))
}

fn part(part: &Part) -> Option<Value> {
    match part {
        Part::Text { text } => text_block(text),
        Part::Image { media_type, data } => {
            let source = json!({"type": "base64", "media_type": media_type, "data": data});
            Some(json!({"type": "image", "source": source}))
        }
    }
}

fn is_thinking(block: &Value) -> bool {
    block["type"] == "thinking" || block["type"] == "redacted_thinking"
}

/// The model goes on from a last message of its own, which may not end in white space.
fn trim_last(messages: &mut [Value]) {
    let Some(last) = messages.last_mut().filter(|last| last["role"] == "assistant") else { return };
    let block = last["content"].as_array_mut().and_then(|blocks| blocks.last_mut());
    if let Some(Value::String(text)) = block.and_then(|block| block.get_mut("text")) {
        text.truncate(text.trim_end().len());
    }
}

/// A run of tools that began without thinking can't go on with it: the service then misses the first block.
fn is_unthought_loop(messages: &[Value]) -> bool {
    let [.., asked, answered] = messages else { return false };
    answered["content"][0]["type"] == "tool_result" && !is_thinking(&asked["content"][0])
}

/// The last two messages of the user: one is read from the cache, the other is written to it.
fn mark_users(messages: &mut [Value]) {
    let users = messages.iter_mut().rev().filter(|message| message["role"] == "user");
    for message in users.take(2) {
        if let Some(last) = message["content"].as_array_mut().and_then(|blocks| blocks.last_mut()) {
            mark(last);
        }
    }
}

fn mark(value: &mut Value) {
    value["cache_control"] = json!({"type": "ephemeral"});
}

#[cfg(test)]
mod tests;

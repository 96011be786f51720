//! Chat completions: requests out, and what a service was found not to accept.

mod chunk;
mod tags;

use serde_json::{Map, Value, json};

use super::answer::Decode;
use super::anthropic::thinking_block;
use super::client::Dialect;
use super::compat::{Ask, Cache, Compat, Echo, TokensField};
use super::ids::Ids;
use super::{Effort, Request};
use crate::message::{Assistant, Block, Message, Part, Thinking, ToolResult, text_of};

/// Chat completions.
pub(super) const DIALECT: Dialect = Dialect { endpoint: "/chat/completions", body, decoder };

/// Reads one answer.
fn decoder(compat: &Compat) -> Box<dyn Decode> {
    Box::new(chunk::Chunks::new(compat.think_tags))
}

/// The body of a request. Equal requests give equal bytes: keys are sorted and nothing depends on the time.
fn body(request: &Request, compat: &Compat, provider: &str) -> Value {
    let mut body = Map::new();
    body.insert("model".into(), json!(request.model));
    body.insert("messages".into(), messages(request, compat, provider));
    body.insert("stream".into(), json!(true));
    if compat.stream_options {
        body.insert("stream_options".into(), json!({"include_usage": true}));
    }
    if let Some(limit) = request.max_output {
        let field = match compat.max_tokens_field {
            TokensField::MaxTokens => "max_tokens",
            TokensField::MaxCompletionTokens => "max_completion_tokens",
        };
        body.insert(field.into(), json!(limit.min(compat.output_limit.unwrap_or(u32::MAX))));
    }
    if let Some(effort) = request.effort {
        ask(compat.reasoning, effort, &mut body);
    }
    if compat.cache == Cache::Key && !request.session.is_empty() {
        body.insert("prompt_cache_key".into(), json!(request.session));
    }
    if !request.tools.is_empty() {
        let tool = |tool: &super::ToolSpec| {
            let function =
                json!({"name": tool.name, "description": tool.description, "parameters": tool.schema});
            json!({"type": "function", "function": function})
        };
        body.insert("tools".into(), request.tools.iter().map(tool).collect());
    }
    Value::Object(body)
}

/// Asks the model to think, in the words of its service.
fn ask(how: Ask, effort: Effort, body: &mut Map<String, Value>) {
    let on = effort != Effort::Off;
    let word = match effort {
        Effort::Off => "none",
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
    };
    let kind = json!({"type": if on { "enabled" } else { "disabled" }});
    let mut set = |key: &str, value: Value| drop(body.insert(key.into(), value));
    match how {
        Ask::None => {}
        Ask::Effort if !on => {}
        Ask::Effort | Ask::EffortNone => set("reasoning_effort", json!(word)),
        Ask::HighNone => set("reasoning_effort", json!(if on { "high" } else { "none" })),
        Ask::Thinking => set("thinking", kind),
        Ask::ThinkingKept if on => {
            set("thinking", json!({"type": "enabled", "clear_thinking": false}));
        }
        Ask::ThinkingKept => set("thinking", kind),
        Ask::ThinkingEffort => {
            set("thinking", kind);
            if on {
                set("reasoning_effort", json!(word));
            }
        }
        Ask::EnabledEffort => {
            set("reasoning", json!({"enabled": on}));
            if on {
                set("reasoning_effort", json!(word));
            }
        }
        Ask::EnableThinking => set("enable_thinking", json!(on)),
        Ask::Template => set("chat_template_kwargs", json!({"enable_thinking": on})),
        Ask::Object if on => set("reasoning", json!({"effort": word})),
        Ask::Object | Ask::Enabled => set("reasoning", json!({"enabled": on})),
    }
}

fn messages(request: &Request, compat: &Compat, provider: &str) -> Value {
    let own = |message: &Assistant| message.provider == provider && message.model == request.model;
    let asked = request.messages.iter().rposition(|message| matches!(message, Message::User(_)));
    let mut list = List {
        out: vec![],
        user: vec![],
        ids: Ids::new(compat.tool_ids),
        compat,
        // Its template has no word for reasoning of before, and without a mark it would read as the answer.
        echo: match compat.reasoning_echo {
            Echo::ThinkTags if request.model.contains("gpt-oss") => Echo::Never,
            echo => echo,
        },
    };
    if !request.system.trim().is_empty() {
        list.out.push(json!({"role": "system", "content": &*request.system}));
    }
    for (at, message) in request.messages.iter().enumerate() {
        match message {
            Message::User(parts) => list.user.extend(parts.iter().cloned()),
            Message::ToolResult(result) => list.result(result),
            Message::Assistant(message) => {
                let in_loop = asked.is_none_or(|asked| at > asked);
                list.assistant(message, own(message), in_loop);
            }
        }
    }
    list.flush();
    if compat.cache == Cache::Parts && needs_marks(&request.model) {
        mark(&mut list.out);
    }
    Value::Array(list.out)
}

/// The models whose makers cache nothing unless told what.
fn needs_marks(model: &str) -> bool {
    ["claude", "qwen"].iter().any(|name| model.contains(name))
}

/// Marks the system prompt and the last two messages that are not the model's: one is read from the cache, the other is
/// written to it.
fn mark(messages: &mut [Value]) {
    let is_marked = |message: &&mut Value| message["role"] != "assistant";
    let system = usize::from(messages.first().is_some_and(|first| first["role"] == "system"));
    let (first, rest) = messages.split_at_mut(system);
    for message in first.iter_mut().chain(rest.iter_mut().rev().filter(is_marked).take(2)) {
        let content = message["content"].take();
        let mut parts = match content {
            Value::Array(parts) => parts,
            text => vec![json!({"type": "text", "text": text})],
        };
        if let Some(last) = parts.iter_mut().rfind(|part| part["type"] == "text") {
            last["cache_control"] = json!({"type": "ephemeral"});
        }
        message["content"] = Value::Array(parts);
    }
}

struct List<'a> {
    out: Vec<Value>,
    /// What the user says next: images of results wait here until all results of the turn are out.
    user: Vec<Part>,
    ids: Ids,
    compat: &'a Compat,
    echo: Echo,
}

impl List<'_> {
    fn flush(&mut self) {
        let mut parts = std::mem::take(&mut self.user);
        parts.retain(|part| !matches!(part, Part::Text { text } if text.trim().is_empty()));
        if parts.is_empty() {
            return;
        }
        if !self.compat.user_after_tool && self.out.last().is_some_and(|last| last["role"] == "tool") {
            self.out.push(json!({"role": "assistant", "content": "(the results are above)"}));
        }
        let plain = parts.iter().all(|part| matches!(part, Part::Text { .. }));
        let content = if plain { json!(text_of(&parts)) } else { parts.iter().map(part).collect() };
        self.out.push(json!({"role": "user", "content": content}));
    }

    /// The content of a result is text here, so that its images follow as the user's.
    fn result(&mut self, result: &ToolResult) {
        let mut text = text_of(&result.content);
        let images = result.content.iter().filter(|part| matches!(part, Part::Image { .. }));
        let before = self.user.len();
        self.user.extend(images.cloned());
        let count = self.user.len() - before;
        if count > 0 {
            self.user.insert(before, Part::text(format!("the output of `{}` is this image:", result.name)));
        }
        if text.trim().is_empty() {
            text = if count > 0 { "(an image, in the next message)".into() } else { "(no output)".into() };
        }
        let id = self.ids.get(&result.tool_call_id);
        self.out.push(json!({"role": "tool", "tool_call_id": id, "content": text}));
    }

    fn assistant(&mut self, message: &Assistant, own: bool, in_loop: bool) {
        let text = message.text();
        let calls: Vec<_> = message.calls().map(|call| self.call(call, own)).collect();
        if text.trim().is_empty() && calls.is_empty() {
            return;
        }
        self.flush();
        let mut out = Map::new();
        out.insert("role".into(), json!("assistant"));
        if !text.trim().is_empty() {
            out.insert("content".into(), json!(text));
        } else if self.compat.empty_content {
            out.insert("content".into(), json!(""));
        }
        let has_calls = !calls.is_empty();
        if has_calls {
            out.insert("tool_calls".into(), json!(calls));
        }
        match self.echo {
            Echo::Never => {}
            Echo::ToolLoop if !in_loop => {}
            _ if own => echo(message, self.echo, &mut out),
            _ => {}
        }
        // Such a model thinks unless it is told not to, and does not mind the field when it does not.
        let is_due = match self.echo {
            Echo::EveryMessage => true,
            Echo::CallMessages => has_calls,
            _ => false,
        };
        if is_due {
            out.entry("reasoning_content").or_insert_with(|| json!(""));
        }
        self.out.push(Value::Object(out));
    }

    /// Broken arguments were answered with an error; sent again as they are, they would spoil every later request.
    fn call(&mut self, call: &crate::message::ToolCall, own: bool) -> Value {
        let arguments = if call.arguments.is_object() { call.arguments.to_string() } else { "{}".to_owned() };
        if own {
            self.ids.keep(&call.id);
        }
        let function = json!({"name": call.name, "arguments": arguments});
        let mut out = json!({"id": self.ids.get(&call.id), "type": "function", "function": function});
        match call.extra.as_ref().filter(|_| own) {
            Some(extra) => out["extra_content"] = extra.clone(),
            // What Google documents for calls that its models did not make.
            None if self.compat.call_signature => {
                out["extra_content"] =
                    json!({"google": {"thought_signature": "skip_thought_signature_validator"}});
            }
            None => {}
        }
        out
    }
}

fn thoughts(message: &Assistant) -> impl Iterator<Item = &Thinking> {
    message.content.iter().filter_map(|block| match block {
        Block::Thinking(thinking) => Some(thinking),
        _ => None,
    })
}

/// Reasoning goes back in the field that it came in, as far as the service takes that.
fn echo(message: &Assistant, how: Echo, out: &mut Map<String, Value>) {
    let details: Vec<_> = thoughts(message).flat_map(|thinking| &thinking.details).cloned().collect();
    if !details.is_empty() && how != Echo::ContentPart {
        out.insert("reasoning_details".into(), Value::Array(details));
    }
    // Out of a gateway to Anthropic's models: they refuse reasoning without its seal.
    let sealed: Vec<_> = thoughts(message).filter_map(thinking_block).collect();
    if !sealed.is_empty() && how == Echo::SameField {
        out.insert("thinking_blocks".into(), Value::Array(sealed));
    }
    let Some(field) = thoughts(message).find_map(|thinking| thinking.field.as_deref()) else { return };
    let text: String = thoughts(message).map(|thinking| thinking.text.as_str()).collect();
    match (field, how) {
        (_, Echo::ThinkTags) => {
            let said = out.get("content").and_then(Value::as_str).unwrap_or_default();
            out.insert("content".into(), json!(format!("<think>{text}</think>{said}")));
        }
        ("content", _) => {
            let mut parts = vec![json!({"type": "thinking", "thinking": [{"type": "text", "text": text}]})];
            parts.extend(out.get("content").map(|said| json!({"type": "text", "text": said})));
            out.insert("content".into(), Value::Array(parts));
        }
        // Templates that know the tags take the reasoning out again.
        ("reasoning_details" | chunk::TAGS, _) | (_, Echo::ContentPart) => {}
        (_, Echo::EveryMessage | Echo::CallMessages) => {
            drop(out.insert("reasoning_content".into(), json!(text)))
        }
        (field, _) => drop(out.insert(field.into(), json!(text))),
    }
}

fn part(part: &Part) -> Value {
    match part {
        Part::Text { text } => json!({"type": "text", "text": text}),
        Part::Image { media_type, data } => {
            json!({"type": "image_url", "image_url": {"url": format!("data:{media_type};base64,{data}")}})
        }
    }
}

#[cfg(test)]
mod tests;

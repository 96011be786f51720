//! Chat completions: requests out, and what a service was found not to accept.

mod chunk;

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};

use super::answer::Decode;
use super::failure::Said;
use super::http::{Exchange, Http};
use super::ids::Ids;
use super::retry::{self, Policy};
use super::{Deltas, Effort, Provider, Request};
use crate::message::{Assistant, Block, Message, Part, Thinking, ToolResult, text_of};

/// In what a service differs from the rest. Found by its host, then learnt from its refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quirks {
    /// It takes `stream_options`.
    stream_options: bool,
    /// It wants `max_completion_tokens` instead of `max_tokens`.
    completion_tokens: bool,
    /// It takes `reasoning_effort`.
    effort: bool,
    /// It takes `prompt_cache_key`.
    cache_key: bool,
    /// It wants `reasoning_content` on every message of the model, empty when there was none.
    reasoning_everywhere: bool,
}

impl Quirks {
    pub(super) fn of(host: &str) -> Self {
        let openai = host == "api.openai.com";
        Self {
            stream_options: host != "api.mistral.ai",
            completion_tokens: openai,
            effort: true,
            cache_key: openai,
            reasoning_everywhere: false,
        }
    }

    /// What the words of a refusal teach, when they are about something that was sent.
    fn learn(self, words: &str, request: &Request) -> Option<Self> {
        // A limit that is too high for the model is no limit under the wrong name.
        let is_value =
            ["too large", "at most", "less than", "exceed"].iter().any(|word| words.contains(word));
        let limited = request.max_output.is_some() && (!is_value || words.contains("instead"));
        let names_completion = words.contains("max_completion_tokens");
        let mut new = self;
        if words.contains("stream_options") {
            new.stream_options = false;
        } else if limited && !self.completion_tokens && words.contains("max_tokens") {
            new.completion_tokens = true;
        } else if limited && self.completion_tokens && names_completion {
            new.completion_tokens = false;
        } else if words.contains("reasoning_effort") {
            new.effort = false;
        } else if words.contains("prompt_cache_key") {
            new.cache_key = false;
        } else if words.contains("reasoning_content") {
            new.reasoning_everywhere = true;
        }
        (new != self).then_some(new)
    }
}

/// A service that speaks chat completions.
pub(super) struct Openai {
    http: Arc<Http>,
    policy: Policy,
    quirks: Arc<Mutex<Quirks>>,
}

impl Openai {
    pub(super) fn new(http: Http, policy: Policy) -> Self {
        let quirks = Quirks::of(&http.service.host);
        Self { http: Arc::new(http), policy, quirks: Arc::new(Mutex::new(quirks)) }
    }
}

impl Provider for Openai {
    fn name(&self) -> &str {
        &self.http.service.name
    }

    fn stream(&self, request: Request) -> Deltas {
        let (http, quirks) = (Arc::clone(&self.http), Arc::clone(&self.quirks));
        let request = Arc::new(request);
        retry::stream(self.policy, move || {
            let (request, quirks, name) =
                (Arc::clone(&request), Arc::clone(&quirks), http.service.name.clone());
            let known = *quirks.lock().unwrap_or_else(PoisonError::into_inner);
            let body = body(&request, known, &name).to_string().into_bytes();
            let (mut sent, mut renamed) = (known, false);
            let amend = move |said: &Said| {
                let learnt = sent.learn(&said.message, &request)?;
                // A service that refuses the limit under both names is not asked a third time.
                if learnt.completion_tokens != sent.completion_tokens && std::mem::replace(&mut renamed, true)
                {
                    return None;
                }
                sent = learnt;
                *quirks.lock().unwrap_or_else(PoisonError::into_inner) = sent;
                Some(super::openai::body(&request, sent, &name).to_string().into_bytes())
            };
            http.attempt(Exchange { body, decoder: decoder(), amend: Box::new(amend) })
        })
    }
}

/// Reads one answer.
pub(super) fn decoder() -> Box<dyn Decode> {
    Box::new(chunk::Chunks::default())
}

/// The body of a request. Equal requests give equal bytes: keys are sorted and nothing depends on the time.
fn body(request: &Request, quirks: Quirks, provider: &str) -> Value {
    let mut body = Map::new();
    body.insert("model".into(), json!(request.model));
    body.insert("messages".into(), messages(request, quirks, provider));
    body.insert("stream".into(), json!(true));
    if quirks.stream_options {
        body.insert("stream_options".into(), json!({"include_usage": true}));
    }
    if let Some(limit) = request.max_output {
        let field = if quirks.completion_tokens { "max_completion_tokens" } else { "max_tokens" };
        body.insert(field.into(), json!(limit));
    }
    if let Some(effort) = effort(request.effort).filter(|_| quirks.effort) {
        body.insert("reasoning_effort".into(), json!(effort));
    }
    if quirks.cache_key && !request.session.is_empty() {
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

/// Few services know a word for "not at all", and those that don't refuse the whole request.
fn effort(effort: Option<Effort>) -> Option<&'static str> {
    match effort? {
        Effort::Off => None,
        Effort::Low => Some("low"),
        Effort::Medium => Some("medium"),
        Effort::High => Some("high"),
    }
}

fn messages(request: &Request, quirks: Quirks, provider: &str) -> Value {
    let mut list = List { out: vec![], user: vec![], ids: Ids::new(40) };
    if !request.system.trim().is_empty() {
        list.out.push(json!({"role": "system", "content": &*request.system}));
    }
    for message in &request.messages {
        match message {
            Message::User(parts) => list.user.extend(parts.iter().cloned()),
            Message::ToolResult(result) => list.result(result),
            Message::Assistant(message) => {
                let own = message.provider == provider && message.model == request.model;
                list.assistant(message, own, quirks);
            }
        }
    }
    list.flush();
    Value::Array(list.out)
}

struct List {
    out: Vec<Value>,
    /// What the user says next: images of results wait here until all results of the turn are out.
    user: Vec<Part>,
    ids: Ids,
}

impl List {
    fn flush(&mut self) {
        let mut parts = std::mem::take(&mut self.user);
        parts.retain(|part| !matches!(part, Part::Text { text } if text.trim().is_empty()));
        if parts.is_empty() {
            return;
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

    fn assistant(&mut self, message: &Assistant, own: bool, quirks: Quirks) {
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
        }
        if !calls.is_empty() {
            out.insert("tool_calls".into(), json!(calls));
        }
        if own {
            echo(message, &mut out);
        }
        if quirks.reasoning_everywhere {
            out.entry("reasoning_content").or_insert_with(|| json!(""));
        }
        self.out.push(Value::Object(out));
    }

    /// Broken arguments were answered with an error; sent again as they are, they would spoil every later request.
    fn call(&mut self, call: &crate::message::ToolCall, own: bool) -> Value {
        let arguments = if call.arguments.is_object() { call.arguments.to_string() } else { "{}".to_owned() };
        let function = json!({"name": call.name, "arguments": arguments});
        let mut out = json!({"id": self.ids.get(&call.id), "type": "function", "function": function});
        if let Some(extra) = call.extra.as_ref().filter(|_| own) {
            out["extra_content"] = extra.clone();
        }
        out
    }
}

/// Reasoning goes back in the field that it came in.
fn echo(message: &Assistant, out: &mut Map<String, Value>) {
    let thoughts = message.content.iter().filter_map(|block| match block {
        Block::Thinking(thinking) => Some(thinking),
        _ => None,
    });
    let thoughts: Vec<&Thinking> = thoughts.collect();
    let details: Vec<_> = thoughts.iter().flat_map(|thinking| &thinking.details).cloned().collect();
    if !details.is_empty() {
        out.insert("reasoning_details".into(), Value::Array(details));
    }
    let Some(field) = thoughts.iter().find_map(|thinking| thinking.field.as_deref()) else { return };
    let text: String = thoughts.iter().map(|thinking| thinking.text.as_str()).collect();
    match field {
        "reasoning_details" => {}
        "content" => {
            let mut parts = vec![json!({"type": "thinking", "thinking": [{"type": "text", "text": text}]})];
            parts.extend(out.get("content").map(|said| json!({"type": "text", "text": said})));
            out.insert("content".into(), Value::Array(parts));
        }
        field => drop(out.insert(field.into(), json!(text))),
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

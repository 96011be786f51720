//! Derives a valid request history from a session's path, whatever the file went through.
//!
//! The file is never repaired: the same path gives the same messages at every call, byte for byte, and what the model said
//! stays as it was sent before when the path grows.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::message::{Assistant, Block, Message, Part, Stop, Thinking, ToolCall, ToolResult};
use crate::session::{Body, Entry};

/// What the model gets in the place of a result that was never recorded.
const INTERRUPTED: &str = "the run was interrupted before the result of this call was recorded. Its effects are unknown: \
     check the present state before you run it again";
/// What a result reads that has no content.
const NO_OUTPUT: &str = "(no output)";
/// What stands between two messages of the model that follow each other.
const CONTINUED: &str = "(continued)";

/// The messages of a request to `model` at `provider`.
///
/// The first message is the user's. Each call has a unique id and exactly one result, which stand behind their message in
/// the order of the calls. No message is empty, no user message follows another, and between two messages of the model
/// stands a result or a user message; an answer that broke off and the message that goes on with it are one. Reasoning of another provider or model is left out, its signature would be refused.
pub fn messages(path: &[Arc<Entry>], provider: &str, model: &str) -> Vec<Message> {
    let mut history = History::default();
    for entry in path {
        match &entry.body {
            Body::User { content } => history.user(content),
            Body::Assistant(message) => {
                let same = message.provider == provider && message.model == model;
                history.assistant(message, same);
            }
            Body::ToolResult(result) => history.result(result),
            _ => {}
        }
    }
    history.messages
}

#[derive(Default)]
struct History {
    messages: Vec<Message>,
    /// Calls without a result, by the id that the file has for them: where the result belongs. A service that counts its
    /// calls anew in each message gives the same id again, so there can be several in one message.
    open: HashMap<String, VecDeque<usize>>,
    used_ids: HashSet<String>,
}

impl History {
    fn user(&mut self, content: &[Part]) {
        let mut parts: Vec<Part> = content.iter().filter(|part| !is_blank(part)).cloned().collect();
        if parts.is_empty() {
            return;
        }
        match self.messages.last_mut() {
            Some(Message::User(before)) => before.append(&mut parts),
            _ => self.messages.push(Message::User(parts)),
        }
    }

    fn assistant(&mut self, message: &Assistant, same: bool) {
        let mut message = cleaned(message, same);
        if message.content.is_empty() {
            return;
        }
        if let Some(Message::Assistant(cut)) = self.messages.pop_if(|last| is_begun(last, &message)) {
            message = joined(&cut, message);
        }
        if matches!(self.messages.last(), None | Some(Message::Assistant(_))) {
            self.messages.push(Message::User(vec![Part::text(CONTINUED)]));
        }
        for call in message.calls() {
            self.open.remove(&call.id);
        }
        let first_result = self.messages.len() + 1;
        let mut results = Vec::new();
        for block in &mut message.content {
            let Block::ToolCall(call) = block else { continue };
            self.open.entry(call.id.clone()).or_default().push_back(first_result + results.len());
            self.make_valid(call);
            results.push(Message::ToolResult(interrupted(call)));
        }
        self.messages.push(Message::Assistant(message));
        self.messages.append(&mut results);
    }

    /// Puts a result where its call waits for it. A result without such a call, or a second one, is left out.
    fn result(&mut self, result: &ToolResult) {
        let Some(place) = self.open.get_mut(&result.tool_call_id).and_then(VecDeque::pop_front) else {
            return;
        };
        let Some(Message::ToolResult(slot)) = self.messages.get_mut(place) else { return };
        let mut content: Vec<Part> = result.content.iter().filter(|part| !is_blank(part)).cloned().collect();
        if content.is_empty() {
            content.push(Part::text(NO_OUTPUT));
        }
        slot.content = content;
        slot.is_error = result.is_error;
        slot.ms = result.ms;
    }

    /// Gives a call a name and an id that no other call has. Depends on earlier calls only, so that the beginning of a
    /// growing history stays as it was.
    fn make_valid(&mut self, call: &mut ToolCall) {
        if call.name.is_empty() {
            call.name = "unknown".into();
        }
        let base = if call.id.is_empty() { "call" } else { &call.id };
        let mut id = base.to_owned();
        let mut number = 2;
        while !self.used_ids.insert(id.clone()) {
            id = format!("{base}_{number}");
            number += 1;
        }
        call.id = id;
    }
}

fn interrupted(call: &ToolCall) -> ToolResult {
    ToolResult {
        tool_call_id: call.id.clone(),
        name: call.name.clone(),
        is_error: true,
        content: vec![Part::text(INTERRUPTED)],
        ms: 0,
    }
}

fn is_blank(part: &Part) -> bool {
    match part {
        Part::Text { text } => text.trim().is_empty(),
        Part::Image { data, .. } => data.is_empty(),
    }
}

/// The message without what its service, or another one, would refuse.
fn cleaned(message: &Assistant, same: bool) -> Assistant {
    // What a service cut short on purpose it cuts short again when it reads it.
    let refused = message.stop == Stop::Refusal;
    let partial = matches!(message.stop, Stop::Aborted | Stop::Cut);
    let keep = |block: &&Block| match block {
        _ if refused => false,
        Block::Text { text, .. } => !text.trim().is_empty(),
        Block::Thinking(thinking) => same && can_go_back(thinking, partial),
        Block::ToolCall(_) => true,
    };
    let mut content: Vec<Block> = message.content.iter().filter(keep).cloned().collect();
    // Anthropic's API takes no message that ends in signed reasoning, as one that was stopped early does.
    while matches!(content.last(), Some(Block::Thinking(thinking)) if is_signed(thinking)) {
        content.pop();
    }
    if content.iter().all(|block| matches!(block, Block::Thinking(_))) {
        content.clear();
    }
    Assistant {
        content,
        refusal: None,
        provider: message.provider.clone(),
        model: message.model.clone(),
        stop: message.stop,
        usage: message.usage,
    }
}

/// Whether the second message goes on with the first, which broke off.
fn is_begun(first: &Message, second: &Assistant) -> bool {
    match first {
        Message::Assistant(cut) => {
            cut.stop == Stop::Cut && cut.provider == second.provider && cut.model == second.model
        }
        _ => false,
    }
}

/// One message of an answer that broke off and was gone on with. Of the first part the words count; they stand behind
/// the reasoning of the second, since a message has to begin with its reasoning.
fn joined(cut: &Assistant, mut message: Assistant) -> Assistant {
    let words = cut.text();
    let at = message.content.iter().position(|block| !matches!(block, Block::Thinking(_)));
    match at.and_then(|at| message.content.get_mut(at)) {
        Some(Block::Text { text, .. }) => text.insert_str(0, &words),
        _ => message.content.insert(at.unwrap_or(message.content.len()), Block::text(words)),
    }
    message
}

fn is_signed(thinking: &Thinking) -> bool {
    let given = |field: &Option<String>| field.as_deref().is_some_and(|text| !text.is_empty());
    given(&thinking.signature) || given(&thinking.redacted) || thinking.item.is_some()
}

/// Whether a service takes its own reasoning back: with its signature, or in the field that it came in. Of a message that
/// was cut only what is signed is known to be whole.
fn can_go_back(thinking: &Thinking, partial: bool) -> bool {
    is_signed(thinking) || (!partial && (thinking.field.is_some() || !thinking.details.is_empty()))
}

#[cfg(test)]
mod tests;

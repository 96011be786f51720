//! Pieces of conversations for the tests of all dialects.

use std::sync::Arc;

use serde_json::Value;

use super::Request;
use crate::message::{Assistant, Block, Message, Part, Stop, Thinking, ToolCall, ToolResult};

/// A request to the model `m` in the session `s`.
pub(super) fn request(messages: Vec<Message>) -> Request {
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

pub(super) fn user(text: &str) -> Message {
    Message::User(vec![Part::text(text)])
}

/// What the model `m` of a provider said.
pub(super) fn said(provider: &str, content: Vec<Block>) -> Message {
    said_by(provider, "m", content)
}

pub(super) fn said_by(provider: &str, model: &str, content: Vec<Block>) -> Message {
    let (provider, model) = (provider.into(), model.into());
    Message::Assistant(Assistant { content, provider, model, stop: Stop::End, ..Default::default() })
}

pub(super) fn text(text: &str) -> Block {
    Block::text(text)
}

/// Reasoning that came in a field.
pub(super) fn thought(field: &str) -> Block {
    Block::Thinking(Thinking { text: "hm".into(), field: Some(field.into()), ..Default::default() })
}

pub(super) fn call(id: &str, arguments: Value) -> Block {
    Block::ToolCall(ToolCall { id: id.into(), name: "look".into(), arguments, extra: None })
}

pub(super) fn result(id: &str, content: Vec<Part>) -> Message {
    Message::ToolResult(ToolResult {
        tool_call_id: id.into(),
        name: "look".into(),
        is_error: true,
        content,
        ms: 1,
    })
}

pub(super) fn image() -> Part {
    Part::Image { media_type: "image/png".into(), data: "QQ==".into() }
}

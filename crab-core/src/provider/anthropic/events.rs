//! Events of the Messages API to deltas.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::message::{Stop, Usage};
use crate::provider::Delta;
use crate::provider::answer::{Broken, Decode, json};
use crate::provider::failure::Said;
use crate::sse::Event;

/// The state of one answer.
#[derive(Default)]
pub(super) struct Events {
    open: BTreeMap<u64, Open>,
    counts: Counts,
    reason: Option<String>,
    done: bool,
}

/// A block that has begun.
#[derive(Default)]
struct Open {
    kind: String,
    signature: String,
    /// Arguments that came whole with the start; pieces that follow outweigh them.
    input: Option<String>,
    has_pieces: bool,
}

/// Figures as the service counts them; any later one that is not null holds.
#[derive(Default)]
struct Counts {
    input: Option<u64>,
    output: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    thinking: Option<u64>,
}

impl Decode for Events {
    fn event(&mut self, event: &Event, out: &mut Vec<Delta>) -> Result<(), Said> {
        if self.done || event.data.trim() == "[DONE]" {
            return Ok(());
        }
        let Some(data) = json(event)? else { return Ok(()) };
        // Some proxies leave the event lines out.
        let kind = text(&data, "type").or(event.name.as_deref()).unwrap_or_default();
        match kind {
            "error" => return Err(Said::read(&data, None)),
            "message_start" => out.extend(self.counts.take(data.pointer("/message/usage"))),
            "content_block_start" => self.start(index(&data), data.get("content_block"), out),
            "content_block_delta" => self.delta(index(&data), data.get("delta"), out),
            "content_block_stop" => self.stop(index(&data), out),
            "message_delta" => {
                let reason = data.get("delta").and_then(|delta| text(delta, "stop_reason"));
                self.reason = reason.map(str::to_owned).or(self.reason.take());
                out.extend(self.counts.take(data.get("usage")));
            }
            "message_stop" => self.done = true,
            _ => {}
        }
        Ok(())
    }

    fn whole(&mut self, body: &Value, out: &mut Vec<Delta>) -> Result<(), Said> {
        let Some(blocks) =
            body.get("content").and_then(Value::as_array).filter(|_| text(body, "type") != Some("error"))
        else {
            return Err(Said::read(body, None));
        };
        for (index, block) in (0..).zip(blocks) {
            self.start(index, Some(block), out);
            self.stop(index, out);
        }
        self.reason = text(body, "stop_reason").map(str::to_owned);
        out.extend(self.counts.take(body.get("usage")));
        self.done = true;
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn is_finished(&self) -> bool {
        self.done || self.reason.is_some()
    }

    fn end(&mut self, out: &mut Vec<Delta>) -> Result<Stop, Broken> {
        for index in self.open.keys().copied().collect::<Vec<_>>() {
            self.stop(index, out);
        }
        match self.reason.as_deref() {
            None if !self.done => Err(Broken::Cut),
            Some("tool_use") => Ok(Stop::ToolCalls),
            Some("max_tokens" | "model_context_window_exceeded") => Ok(Stop::Length),
            Some("pause_turn") => Ok(Stop::Pause),
            Some("refusal") => Ok(Stop::Refusal),
            _ => Ok(Stop::End),
        }
    }
}

impl Events {
    fn start(&mut self, index: u64, block: Option<&Value>, out: &mut Vec<Delta>) {
        let none = Value::Null;
        let block = block.unwrap_or(&none);
        let said = |name: &str| text(block, name).unwrap_or_default().to_owned();
        let mut open = Open { kind: said("type"), signature: said("signature"), ..Open::default() };
        match open.kind.as_str() {
            "text" => push_text(said("text"), out),
            "thinking" => out.push(Delta::Thinking { text: said("thinking"), field: "" }),
            "redacted_thinking" => out.push(Delta::Redacted(said("data"))),
            "tool_use" => {
                let full = |input: &&Value| input.as_object().is_some_and(|map| !map.is_empty());
                open.input = block.get("input").filter(full).map(Value::to_string);
                out.push(Delta::Call {
                    index: Some(index),
                    id: Some(said("id")),
                    name: Some(said("name")),
                    arguments: None,
                    extra: None,
                });
            }
            _ => {}
        }
        self.open.insert(index, open);
    }

    fn delta(&mut self, index: u64, delta: Option<&Value>, out: &mut Vec<Delta>) {
        let (Some(open), Some(delta)) = (self.open.get_mut(&index), delta) else { return };
        let said = |name: &str| text(delta, name).unwrap_or_default().to_owned();
        match (open.kind.as_str(), text(delta, "type").unwrap_or_default()) {
            ("text", "text_delta") => push_text(said("text"), out),
            ("thinking", "thinking_delta") => out.push(Delta::Thinking { text: said("thinking"), field: "" }),
            ("thinking", "signature_delta") => open.signature.push_str(&said("signature")),
            ("tool_use", "input_json_delta") if !said("partial_json").is_empty() => {
                open.has_pieces = true;
                out.push(arguments(index, said("partial_json")));
            }
            _ => {}
        }
    }

    /// A thinking block without its end has no signature, and so it never goes back.
    fn stop(&mut self, index: u64, out: &mut Vec<Delta>) {
        let Some(open) = self.open.remove(&index) else { return };
        match (open.kind.as_str(), open.input) {
            ("thinking", _) => out.push(Delta::Signature(open.signature)),
            ("tool_use", Some(input)) if !open.has_pieces => out.push(arguments(index, input)),
            _ => {}
        }
    }
}

impl Counts {
    fn take(&mut self, usage: Option<&Value>) -> Option<Delta> {
        let usage = usage?;
        let set = |field: &mut Option<u64>, path: &str| {
            *field = usage.pointer(path).and_then(Value::as_u64).or(*field);
        };
        set(&mut self.input, "/input_tokens");
        set(&mut self.output, "/output_tokens");
        set(&mut self.cache_read, "/cache_read_input_tokens");
        set(&mut self.cache_write, "/cache_creation_input_tokens");
        set(&mut self.thinking, "/output_tokens_details/thinking_tokens");
        // The service leaves both cache figures out of its input.
        let cached = self.cache_read.unwrap_or(0).saturating_add(self.cache_write.unwrap_or(0));
        Some(Delta::Usage(Usage {
            input: Some(self.input?.saturating_add(cached)),
            output: self.output,
            cache_read: self.cache_read,
            cache_write: self.cache_write,
            reasoning: self.thinking,
            cost_usd: None,
        }))
    }
}

fn index(data: &Value) -> u64 {
    data.get("index").and_then(Value::as_u64).unwrap_or(0)
}

fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str()
}

fn push_text(text: String, out: &mut Vec<Delta>) {
    if !text.is_empty() {
        out.push(Delta::Text(text));
    }
}

fn arguments(index: u64, raw: String) -> Delta {
    Delta::Call { index: Some(index), id: None, name: None, arguments: Some(raw), extra: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::answer::Answer;
    use serde_json::json;

    fn decode(events: &[Value]) -> (Vec<Delta>, Result<(), Broken>) {
        let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        let mut answer = Answer::new(Box::new(Events::default()));
        let result = answer.feed(body.as_bytes()).and_then(|()| answer.end());
        (std::iter::from_fn(|| answer.next()).collect(), result)
    }

    fn start(block: Value) -> Value {
        json!({"type": "content_block_start", "index": 0, "content_block": block})
    }

    fn end(reason: &str) -> Value {
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}})
    }

    #[test]
    fn every_reason_has_its_word() {
        let words = [
            ("end_turn", Stop::End),
            ("tool_use", Stop::ToolCalls),
            ("max_tokens", Stop::Length),
            ("pause_turn", Stop::Pause),
            ("refusal", Stop::Refusal),
            ("a word of tomorrow", Stop::End),
        ];
        for (word, stop) in words {
            let (deltas, result) = decode(&[end(word)]);
            assert_eq!((deltas.last(), result), (Some(&Delta::Stop(stop)), Ok(())));
        }
    }

    #[test]
    fn a_signature_closes_its_block_even_when_nothing_can_be_read() {
        let block = json!({"type": "thinking", "thinking": "", "signature": ""});
        let sign = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "S"}});
        let stop = json!({"type": "content_block_stop", "index": 0});
        let (deltas, _) = decode(&[start(block), sign, stop, end("end_turn")]);
        assert_eq!(deltas[1], Delta::Signature("S".into()));
    }

    #[test]
    fn events_that_make_no_sense_do_no_harm() {
        let odd = [
            json!({"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": "x"}}),
            json!({"type": "content_block_start"}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta"}}),
            json!({"type": "something_new"}),
            json!([1]),
            json!("x"),
        ];
        let (deltas, result) = decode(&odd);
        assert_eq!((deltas, result), (vec![], Err(Broken::Cut)));
    }
}

//! Events of the Responses API to deltas. Items are told apart by their place in the output: some services give one
//! item several ids.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::message::{Stop, Usage};
use crate::provider::Delta;
use crate::provider::answer::{Broken, Decode, json};
use crate::provider::failure::Said;
use crate::provider::models::cost;
use crate::sse::Event;

/// The state of one answer.
#[derive(Default)]
pub(super) struct Events {
    items: BTreeMap<u64, Item>,
    /// The status of the whole, and why it is not whole.
    status: Option<String>,
    reason: Option<String>,
    has_refused: bool,
    done: bool,
}

/// An item that has begun.
#[derive(Default)]
struct Item {
    kind: String,
    /// Text, arguments or reasoning has come in pieces, so that the finished item brings nothing new.
    has_pieces: bool,
    /// The part of the reasoning that the last piece belonged to.
    part: Option<(&'static str, u64)>,
    done: bool,
}

impl Decode for Events {
    fn event(&mut self, event: &Event, out: &mut Vec<Delta>) -> Result<(), Said> {
        if self.done || event.data.trim() == "[DONE]" {
            return Ok(());
        }
        let Some(data) = json(event)? else { return Ok(()) };
        let kind = text(&data, "type").or(event.name.as_deref()).unwrap_or_default();
        match kind {
            "error" => return Err(Said::read(&data, None)),
            "" if data.get("error").is_some_and(|error| !error.is_null()) => {
                return Err(Said::read(&data, None));
            }
            "response.output_item.added" => self.start(place(&data), data.get("item"), out),
            "response.output_item.done" => self.finish(place(&data), data.get("item"), out),
            "response.completed" | "response.incomplete" | "response.failed" | "response.done" => {
                return self.close(data.get("response").unwrap_or(&Value::Null), out);
            }
            _ if kind.ends_with(".delta") => self.delta(kind, &data, out),
            _ => {}
        }
        Ok(())
    }

    fn whole(&mut self, body: &Value, out: &mut Vec<Delta>) -> Result<(), Said> {
        let Some(items) = body.get("output").and_then(Value::as_array) else {
            return Err(Said::read(body, None));
        };
        for (place, item) in (0..).zip(items) {
            self.start(place, Some(item), out);
            self.finish(place, Some(item), out);
        }
        self.close(body, out)
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn is_finished(&self) -> bool {
        self.done
    }

    fn end(&mut self, _: &mut Vec<Delta>) -> Result<Stop, Broken> {
        let has_calls = self.items.values().any(|item| item.kind == "function_call");
        // A call that never got its end may look whole and be none.
        let is_half = self.items.values().any(|item| item.kind == "function_call" && !item.done);
        Ok(match (self.status.as_deref(), self.reason.as_deref()) {
            _ if !self.done => return Err(Broken::Cut),
            (_, Some("content_filter")) => Stop::Refusal,
            (Some("incomplete"), _) => Stop::Length,
            _ if is_half => return Err(Broken::Cut),
            _ if has_calls => Stop::ToolCalls,
            _ if self.has_refused => Stop::Refusal,
            _ => Stop::End,
        })
    }
}

impl Events {
    fn start(&mut self, place: u64, item: Option<&Value>, out: &mut Vec<Delta>) {
        let none = Value::Null;
        let from = item.unwrap_or(&none);
        let kind = text(from, "type").unwrap_or_default().to_owned();
        match kind.as_str() {
            // The reasoning keeps its place before the text that may come while it is still open.
            "reasoning" => out.push(Delta::Thinking { text: String::new(), field: "" }),
            "message" => out.push(Delta::NewText { phase: text(from, "phase").map(str::to_owned) }),
            "function_call" => out.push(Delta::Call {
                index: Some(place),
                id: text(from, "call_id").or(text(from, "id")).map(str::to_owned),
                name: text(from, "name").map(str::to_owned),
                arguments: None,
                extra: None,
            }),
            _ => {}
        }
        self.items.insert(place, Item { kind, ..Item::default() });
    }

    fn delta(&mut self, kind: &str, data: &Value, out: &mut Vec<Delta>) {
        let Some(piece) = text(data, "delta") else { return };
        let at = place(data);
        let item = self.items.entry(at).or_default();
        match kind {
            "response.output_text.delta" => out.push(Delta::Text(piece.to_owned())),
            "response.refusal.delta" => {
                self.has_refused = true;
                out.push(Delta::Refusal(piece.to_owned()));
            }
            "response.reasoning_summary_text.delta" => {
                item.think("summary", number(data, "summary_index"), piece, out)
            }
            "response.reasoning_text.delta" => {
                item.think("content", number(data, "content_index"), piece, out)
            }
            // The finished item brings the name and all of it.
            "response.function_call_arguments.delta" if item.kind.is_empty() => return,
            "response.function_call_arguments.delta" => out.push(arguments(at, piece)),
            _ => return,
        }
        item.has_pieces = true;
    }

    fn finish(&mut self, place: u64, item: Option<&Value>, out: &mut Vec<Delta>) {
        let Some(from) = item else { return };
        // Some services leave the beginning out; text that came without one stays as it is.
        let is_begun = self.items.get(&place).is_some_and(|item| item.has_pieces || !item.kind.is_empty());
        if !is_begun {
            self.start(place, item, out);
        }
        let Some(item) = self.items.get_mut(&place).filter(|item| !item.done) else { return };
        item.done = text(from, "status") != Some("incomplete");
        let news = !item.has_pieces;
        let kind = if item.kind.is_empty() { text(from, "type").unwrap_or_default() } else { &item.kind };
        match kind.to_owned().as_str() {
            "message" if news => self.has_refused |= message(from, out),
            "function_call" if news => out.extend(text(from, "arguments").map(|raw| arguments(place, raw))),
            "reasoning" => {
                let parts =
                    |key: &str| from.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                let parts = if parts("summary").is_empty() { parts("content") } else { parts("summary") };
                for (index, part) in (0..).zip(parts).filter(|_| news) {
                    item.think("whole", index, text(part, "text").unwrap_or_default(), out);
                }
                out.push(Delta::Item(from.clone()));
            }
            _ => {}
        }
    }

    fn close(&mut self, response: &Value, out: &mut Vec<Delta>) -> Result<(), Said> {
        if self.items.is_empty() {
            // Nothing came on the way, so that this is the first word of it.
            for (place, item) in
                (0..).zip(response.get("output").and_then(Value::as_array).into_iter().flatten())
            {
                self.finish(place, Some(item), out);
            }
        }
        out.extend(usage(response.get("usage")).map(Delta::Usage));
        self.done = true;
        self.status = text(response, "status").map(str::to_owned);
        self.reason =
            response.pointer("/incomplete_details/reason").and_then(Value::as_str).map(str::to_owned);
        let has_failed = matches!(self.status.as_deref(), Some("failed" | "cancelled"));
        let error = response.get("error").filter(|error| !error.is_null());
        if has_failed || error.is_some() { Err(Said::read(response, None)) } else { Ok(()) }
    }
}

impl Item {
    /// Reasoning comes in parts, which stand apart as paragraphs do.
    fn think(&mut self, source: &'static str, part: u64, text: &str, out: &mut Vec<Delta>) {
        let before = self.part.replace((source, part));
        let gap = if before.is_some_and(|before| before != (source, part)) { "\n\n" } else { "" };
        out.push(Delta::Thinking { text: format!("{gap}{text}"), field: "" });
    }
}

/// The content of a message that came whole. Tells whether it is a refusal.
fn message(item: &Value, out: &mut Vec<Delta>) -> bool {
    let mut has_refused = false;
    for part in item.get("content").and_then(Value::as_array).into_iter().flatten() {
        out.extend(text(part, "text").map(|text| Delta::Text(text.to_owned())));
        if let Some(words) = text(part, "refusal") {
            has_refused = true;
            out.push(Delta::Refusal(words.to_owned()));
        }
    }
    has_refused
}

fn usage(from: Option<&Value>) -> Option<Usage> {
    let from = from?;
    let number = |path: &str| from.pointer(path).and_then(Value::as_u64);
    Some(Usage {
        input: Some(number("/input_tokens")?),
        output: number("/output_tokens"),
        cache_read: number("/input_tokens_details/cached_tokens"),
        cache_write: number("/input_tokens_details/cache_write_tokens"),
        reasoning: number("/output_tokens_details/reasoning_tokens"),
        cost_usd: cost(from),
    })
}

fn arguments(place: u64, piece: &str) -> Delta {
    Delta::Call { index: Some(place), id: None, name: None, arguments: Some(piece.to_owned()), extra: None }
}

fn place(data: &Value) -> u64 {
    number(data, "output_index")
}

fn number(data: &Value, name: &str) -> u64 {
    data.get(name).and_then(Value::as_u64).unwrap_or(0)
}

fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accumulate::Accumulator;
    use crate::message::{Assistant, Block};
    use crate::provider::answer::Answer;
    use serde_json::json;

    fn decode(events: &[Value]) -> (Assistant, Result<(), Broken>) {
        let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        let mut answer = Answer::new(Box::new(Events::default()));
        let result = answer.feed(body.as_bytes()).and_then(|()| answer.end());
        let mut message = Accumulator::new("p", "m");
        std::iter::from_fn(|| answer.next()).for_each(|delta| message.push(delta));
        (message.finish(), result)
    }

    fn added(place: u64, item: Value) -> Value {
        json!({"type": "response.output_item.added", "output_index": place, "item": item})
    }

    fn ended(place: u64, item: Value) -> Value {
        json!({"type": "response.output_item.done", "output_index": place, "item": item})
    }

    fn completed() -> Value {
        json!({"type": "response.completed", "response": {"status": "completed", "output": []}})
    }

    #[test]
    fn what_came_without_its_beginning_or_only_at_the_end_is_taken_all_the_same() {
        let call = json!({"type": "function_call", "call_id": "c", "name": "look", "arguments": "{\"x\":1}"});
        let piece =
            json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{\"x\""});
        let said = json!({"type": "message", "content": [{"type": "output_text", "text": "hi"}]});
        let close = |output: &[Value]| json!({"type": "response.completed", "response": {"status": "completed", "output": output}});
        for events in [
            vec![piece, ended(0, call.clone()), ended(1, said.clone()), completed()],
            vec![close(&[call, said])],
        ] {
            let (message, result) = decode(&events);
            assert_eq!(result, Ok(()));
            assert_eq!(message.text(), "hi");
            let calls: Vec<_> =
                message.calls().map(|call| (call.name.as_str(), call.arguments.clone())).collect();
            assert_eq!(calls, [("look", json!({"x": 1}))]);
        }
        let piece = json!({"type": "response.output_text.delta", "output_index": 0, "delta": "hi"});
        let said = json!({"type": "message", "content": [{"type": "output_text", "text": "hi"}]});
        assert_eq!(decode(&[piece, ended(0, said), completed()]).0.text(), "hi");
    }

    #[test]
    fn reasoning_keeps_its_place_and_its_item_while_text_overtakes_it() {
        let item = json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "E"});
        let events = [
            added(0, json!({"type": "reasoning"})),
            added(1, json!({"type": "message", "phase": "commentary"})),
            json!({"type": "response.output_text.delta", "output_index": 1, "delta": "hi"}),
            ended(0, item.clone()),
            ended(1, json!({"type": "message", "content": [{"type": "output_text", "text": "hi"}]})),
            completed(),
        ];
        let (message, result) = decode(&events);
        assert_eq!(result, Ok(()));
        let [Block::Thinking(thinking), Block::Text { text, phase }] = message.content.as_slice() else {
            panic!("{:?}", message.content)
        };
        assert_eq!(thinking.item.as_ref(), Some(&item));
        assert_eq!((text.as_str(), phase.as_deref()), ("hi", Some("commentary")));
    }

    #[test]
    fn a_call_without_its_end_never_runs() {
        let call = json!({"type": "function_call", "call_id": "c", "name": "t", "arguments": "{}"});
        let (message, result) = decode(&[added(0, call.clone()), ended(0, call.clone()), completed()]);
        assert_eq!((message.stop, result), (Stop::ToolCalls, Ok(())));
        let (_, result) = decode(&[added(0, call.clone()), completed()]);
        assert_eq!(result, Err(Broken::Cut));
        let (_, result) = decode(&[added(0, call)]);
        assert_eq!(result, Err(Broken::Cut));
    }

    #[test]
    fn a_failure_is_told_in_the_words_of_the_service() {
        let failed = json!({"type": "response.failed", "response": {"status": "failed",
            "error": {"code": "server_is_overloaded", "message": "busy"}}});
        let (_, result) = decode(&[failed]);
        assert!(
            matches!(result, Err(Broken::Said(said)) if said.message == "busy" && said.tags.contains("overloaded"))
        );
        let flat = json!({"type": "error", "code": "x", "message": "boom"});
        assert!(matches!(decode(&[flat]).1, Err(Broken::Said(said)) if said.message == "boom"));
    }

    #[test]
    fn parts_of_reasoning_stand_apart() {
        let piece = |part: u64, text: &str| json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": part, "delta": text});
        let (message, _) = decode(&[
            added(0, json!({"type": "reasoning"})),
            piece(0, "a"),
            piece(0, "b"),
            piece(1, "c"),
            completed(),
        ]);
        let Block::Thinking(thinking) = &message.content[0] else { panic!("no thinking first") };
        assert_eq!(thinking.text, "ab\n\nc");
    }

    #[test]
    fn what_makes_no_sense_does_no_harm() {
        let odd = [
            json!({"type": "response.output_item.done", "output_index": 3}),
            json!({"type": "response.output_text.delta"}),
            json!({"type": "response.nothing_known.delta", "delta": "x"}),
            json!({"type": "keepalive"}),
            json!([1]),
            json!("x"),
        ];
        let (message, result) = decode(&odd);
        assert_eq!((message.content.len(), result), (0, Err(Broken::Cut)));
    }
}

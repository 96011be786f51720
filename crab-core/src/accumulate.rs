//! Deltas to one message: tolerant of how services cut calls, and strict about what may run.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher, RandomState};

use serde_json::{Map, Value};

use crate::message::{Assistant, Block, Stop, Thinking, ToolCall, Usage};
use crate::provider::Delta;

/// Puts the deltas of one answer together.
#[derive(Debug, Default)]
pub struct Accumulator {
    provider: String,
    model: String,
    pieces: Vec<Piece>,
    slots: Slots,
    refusal: Option<String>,
    usage: Usage,
    stop: Option<Stop>,
    taken: HashSet<String>,
}

#[derive(Debug)]
enum Piece {
    Text {
        text: String,
        phase: Option<String>,
    },
    Thinking {
        thinking: Thinking,
        /// A signature has come: what follows is another block.
        closed: bool,
    },
    /// The number of a slot.
    Call(usize),
}

impl Accumulator {
    /// An empty message of this provider and model.
    pub fn new(provider: impl Into<String>, model: impl Into<String>) -> Self {
        Self { provider: provider.into(), model: model.into(), ..Self::default() }
    }

    /// Call ids that the session has already; some services count from zero in every answer. A call that comes with
    /// one of them gets an id of its own.
    pub fn avoid(mut self, ids: impl IntoIterator<Item = String>) -> Self {
        self.taken.extend(ids);
        self
    }

    /// Takes the next delta.
    pub fn push(&mut self, delta: Delta) {
        match delta {
            Delta::Text(text) => self.text(&text),
            Delta::NewText { phase } => self.pieces.push(Piece::Text { text: String::new(), phase }),
            Delta::Refusal(text) => self.refusal.get_or_insert_default().push_str(&text),
            Delta::Thinking { text, field } => self.thinking(&text, field),
            Delta::Signature(signature) => self.sign(signature),
            Delta::Redacted(data) => {
                let thinking = Thinking { redacted: Some(data), ..Thinking::default() };
                self.pieces.push(Piece::Thinking { thinking, closed: true });
            }
            Delta::Details(detail) => self.detail(detail),
            Delta::Item(item) => self.item(item),
            Delta::Call { index, id, name, arguments, extra } => {
                let known = self.slots.len();
                let slot = self.slots.push(&CallPiece { index, id, name, arguments, extra });
                if slot == known {
                    self.pieces.push(Piece::Call(slot));
                }
            }
            Delta::Usage(usage) => replace(&mut self.usage, &usage),
            Delta::Stop(stop) => self.stop = Some(stop),
            Delta::Retrying { .. } => self.begin_anew(),
            Delta::Warning(_) => {}
        }
    }

    /// A failed try leaves nothing behind.
    fn begin_anew(&mut self) {
        let taken = std::mem::take(&mut self.taken);
        let (provider, model) = (std::mem::take(&mut self.provider), std::mem::take(&mut self.model));
        *self = Self { taken, provider, model, ..Self::default() };
    }

    /// Whether nothing has come that a message could hold.
    pub fn is_empty(&self) -> bool {
        self.pieces.iter().all(|piece| matches!(piece, Piece::Text { text, .. } if text.is_empty()))
    }

    /// The message of a stream that ended well. Complete calls outweigh what the service called the end.
    pub fn finish(mut self) -> Assistant {
        let said = self.stop.unwrap_or_default();
        let cut = matches!(said, Stop::Length | Stop::Cut | Stop::Aborted);
        let calls = self.slots.finish(cut, &mut self.taken);
        let whole = calls.iter().all(|call| call.arguments.is_object());
        let stop = match said {
            Stop::End if !calls.is_empty() && whole => Stop::ToolCalls,
            Stop::ToolCalls if calls.is_empty() => Stop::End,
            said => said,
        };
        self.message(calls, stop)
    }

    /// What is worth keeping of a stream that was aborted or failed: what was said, and none of its calls, since none
    /// of them has run and the last may be half.
    pub fn cut(self, stop: Stop) -> Assistant {
        self.message(vec![], stop)
    }

    fn message(self, calls: Vec<ToolCall>, stop: Stop) -> Assistant {
        let mut calls: Vec<_> = calls.into_iter().map(Some).collect();
        let blocks = self.pieces.into_iter().filter_map(|piece| match piece {
            Piece::Text { text, .. } if text.is_empty() => None,
            Piece::Text { text, phase } => Some(Block::Text { text, phase }),
            Piece::Thinking { thinking, .. } => Some(Block::Thinking(thinking)),
            Piece::Call(slot) => calls.get_mut(slot)?.take().map(Block::ToolCall),
        });
        let content = blocks.collect();
        let Self { provider, model, refusal, usage, .. } = self;
        Assistant { content, refusal, provider, model, stop, usage }
    }

    fn text(&mut self, text: &str) {
        match self.pieces.last_mut() {
            Some(Piece::Text { text: last, .. }) => last.push_str(text),
            _ if text.is_empty() => {}
            _ => self.pieces.push(Piece::Text { text: text.to_owned(), phase: None }),
        }
    }

    fn thinking(&mut self, text: &str, field: &str) {
        let field = (!field.is_empty()).then(|| field.to_owned());
        match self.pieces.last_mut() {
            Some(Piece::Thinking { thinking, closed: false }) => {
                thinking.text.push_str(text);
                thinking.field = thinking.field.take().or(field);
            }
            _ => {
                let thinking = Thinking { text: text.to_owned(), field, ..Thinking::default() };
                self.pieces.push(Piece::Thinking { thinking, closed: false });
            }
        }
    }

    /// An empty signature only closes the block: what follows must not be joined to it.
    fn sign(&mut self, signature: String) {
        if signature.is_empty() {
            if let Some(Piece::Thinking { closed, .. }) = self.pieces.last_mut() {
                *closed = true;
            }
            return;
        }
        if !matches!(self.pieces.last(), Some(Piece::Thinking { closed: false, .. })) {
            self.pieces.push(Piece::Thinking { thinking: Thinking::default(), closed: false });
        }
        if let Some(Piece::Thinking { thinking, closed }) = self.pieces.last_mut() {
            thinking.signature = Some(signature);
            *closed = true;
        }
    }

    /// A finished item of reasoning belongs to the one whose text came before; a message may have begun in between.
    fn item(&mut self, item: Value) {
        let open = self.pieces.iter_mut().find_map(|piece| match piece {
            Piece::Thinking { thinking, closed } if !*closed => Some((thinking, closed)),
            _ => None,
        });
        match open {
            Some((thinking, closed)) => {
                thinking.item = Some(item);
                *closed = true;
            }
            None => {
                let thinking = Thinking { item: Some(item), ..Thinking::default() };
                self.pieces.push(Piece::Thinking { thinking, closed: true });
            }
        }
    }

    /// Details may come behind the text that they belong to, so they go to the last reasoning there is.
    fn detail(&mut self, detail: Value) {
        let last = self.pieces.iter_mut().rev().find_map(|piece| match piece {
            Piece::Thinking { thinking, .. } => Some(thinking),
            _ => None,
        });
        match last {
            Some(thinking) => merge_detail(&mut thinking.details, detail),
            None => {
                let thinking = Thinking { details: vec![detail], ..Thinking::default() };
                self.pieces.push(Piece::Thinking { thinking, closed: false });
            }
        }
    }
}

/// Joins a piece of a reasoning detail to the one that it continues: same type, same index.
fn merge_detail(details: &mut Vec<Value>, detail: Value) {
    let key = |value: &Value| (value.get("type").cloned(), value.get("index").cloned());
    let (Some(Value::Object(last)), Value::Object(new)) = (details.last_mut(), &detail) else {
        return details.push(detail);
    };
    let id = |map: &Map<String, Value>| map.get("id").filter(|id| !id.is_null()).cloned();
    let other_id = matches!((id(last), id(new)), (Some(a), Some(b)) if a != b);
    if other_id || key(&detail) != key(&Value::Object(last.clone())) || new.contains_key("data") {
        return details.push(detail);
    }
    for (name, value) in new {
        match (last.get_mut(name), value) {
            (Some(Value::String(old)), Value::String(more))
                if matches!(name.as_str(), "text" | "summary") =>
            {
                old.push_str(more);
            }
            (_, Value::Null) => {}
            _ => drop(last.insert(name.clone(), value.clone())),
        }
    }
}

fn replace(old: &mut Usage, new: &Usage) {
    *old = Usage {
        input: new.input.or(old.input),
        output: new.output.or(old.output),
        cache_read: new.cache_read.or(old.cache_read),
        cache_write: new.cache_write.or(old.cache_write),
        reasoning: new.reasoning.or(old.reasoning),
        cost_usd: new.cost_usd.or(old.cost_usd),
    };
}

/// A piece of a call, as [`Delta::Call`] carries it.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallPiece {
    pub(crate) index: Option<u64>,
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) arguments: Option<String>,
    pub(crate) extra: Option<Value>,
}

#[derive(Debug, Default)]
struct Slot {
    index: Option<u64>,
    id: Option<String>,
    name: String,
    raw: String,
    extra: Option<Value>,
}

/// Stitches the pieces of calls, whatever the service leaves out or repeats.
#[derive(Debug, Default)]
pub(crate) struct Slots(Vec<Slot>);

impl Slots {
    /// How many calls there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is a call, and each has arguments that are whole by themselves.
    pub(crate) fn are_whole(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|slot| parse(&slot.raw, true).is_object())
    }

    /// Takes a piece and gives the number of its call.
    pub(crate) fn push(&mut self, piece: &CallPiece) -> usize {
        let id = piece.id.as_deref().filter(|id| !id.is_empty());
        let name = piece.name.as_deref().filter(|name| !name.is_empty());
        let at = self.find(piece.index, id, name).unwrap_or(self.0.len());
        if at == self.0.len() {
            self.0.push(Slot { index: piece.index, ..Slot::default() });
        }
        let slot = &mut self.0[at];
        if slot.id.is_none() {
            slot.id = id.map(str::to_owned);
        }
        if let Some(name) = name.filter(|name| *name != slot.name) {
            slot.name.push_str(name);
        }
        slot.raw.push_str(piece.arguments.as_deref().unwrap_or_default());
        slot.extra = piece.extra.clone().or(slot.extra.take());
        at
    }

    fn find(&self, index: Option<u64>, id: Option<&str>, name: Option<&str>) -> Option<usize> {
        if index.is_some() {
            let at = self.0.iter().rposition(|slot| slot.index == index)?;
            return (!self.0[at].is_another(id, name)).then_some(at);
        }
        let last = || self.0.len().checked_sub(1);
        match (id, name) {
            // Some services make up a new id for every piece; without a name it begins no call.
            (Some(id), None) => self.with_id(id).or_else(last),
            (Some(id), Some(_)) => self.with_id(id),
            (None, None) => last(),
            (None, Some(_)) => None,
        }
    }

    fn with_id(&self, id: &str) -> Option<usize> {
        self.0.iter().position(|slot| slot.id.as_deref() == Some(id))
    }

    /// The calls, their arguments parsed. `cut` says that the message did not come to its end.
    fn finish(&mut self, cut: bool, taken: &mut HashSet<String>) -> Vec<ToolCall> {
        let slots = std::mem::take(&mut self.0).into_iter();
        let calls = slots.map(|slot| {
            let id = slot.id.filter(|id| !taken.contains(id)).unwrap_or_else(make_id);
            taken.insert(id.clone());
            ToolCall { id, name: slot.name, arguments: parse(&slot.raw, cut), extra: slot.extra }
        });
        calls.collect()
    }
}

impl Slot {
    /// Some services give every call the same index: a new id or, without ids, a name behind whole arguments tells.
    fn is_another(&self, id: Option<&str>, name: Option<&str>) -> bool {
        match (name, id, &self.id) {
            (None, ..) => false,
            (Some(_), Some(new), Some(old)) => new != old,
            (Some(_), None, None) => !self.raw.is_empty() && parse(&self.raw, false).is_object(),
            _ => false,
        }
    }
}

/// An object, or the raw text as a string. Nothing at all means no arguments, unless the message was cut before any came.
fn parse(raw: &str, cut: bool) -> Value {
    match raw.trim() {
        "" if !cut => Value::Object(Map::new()),
        "null" => Value::Object(Map::new()),
        text => match serde_json::from_str(text) {
            Ok(Value::Object(map)) => Value::Object(map),
            _ => Value::String(raw.to_owned()),
        },
    }
}

fn make_id() -> String {
    // Each `RandomState` of a process has other keys, so no random number generator is needed.
    format!("call_{:016x}", RandomState::new().build_hasher().finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(index: Option<u64>, id: &str, name: &str, arguments: &str) -> Delta {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Delta::Call { index, id: some(id), name: some(name), arguments: some(arguments), extra: None }
    }

    fn finish(deltas: impl IntoIterator<Item = Delta>) -> Assistant {
        let mut message = Accumulator::new("p", "m");
        deltas.into_iter().for_each(|delta| message.push(delta));
        message.finish()
    }

    #[track_caller]
    fn check(deltas: &[Delta], expected: &[(&str, Value)], stop: Stop) {
        let message = finish(deltas.to_vec());
        let calls: Vec<_> =
            message.calls().map(|call| (call.name.as_str(), call.arguments.clone())).collect();
        assert_eq!(calls, expected);
        assert_eq!(message.stop, stop);
    }

    #[test]
    fn calls_are_stitched_however_a_service_cuts_them() {
        let end = || Delta::Stop(Stop::End);
        let one = [("a", json!({"x": 1}))];
        let two = [("a", json!({"x": 1})), ("b", json!({"y": 2}))];
        check(
            &[call(Some(0), "i", "a", "{\"x\""), call(Some(0), "", "", ":1}"), end()],
            &one,
            Stop::ToolCalls,
        );
        check(&[call(Some(0), "i", "a", "{\"x\""), call(Some(0), "i", "a", ":1}")], &one, Stop::ToolCalls);
        check(&[call(None, "i", "a", "{\"x\""), call(None, "", "", ":1}")], &one, Stop::ToolCalls);
        check(&[call(None, "i", "a", "{\"x\""), call(None, "j", "", ":1}")], &one, Stop::ToolCalls);
        check(&[call(None, "i", "a", "{\"x\":1}"), call(None, "j", "b", "{\"y\":2}")], &two, Stop::ToolCalls);
        check(
            &[call(Some(0), "i", "a", "{\"x\":1}"), call(Some(0), "j", "b", "{\"y\":2}")],
            &two,
            Stop::ToolCalls,
        );
        check(
            &[call(Some(0), "", "a", "{\"x\":1}"), call(Some(0), "", "b", "{\"y\":2}")],
            &two,
            Stop::ToolCalls,
        );
        let mixed = [
            call(Some(0), "i", "a", "{\"x\""),
            call(Some(1), "j", "b", "{\"y\""),
            call(Some(0), "", "", ":1}"),
            call(Some(1), "", "", ":2}"),
        ];
        check(&mixed, &two, Stop::ToolCalls);
    }

    #[test]
    fn missing_arguments_are_an_empty_object_only_when_nothing_was_cut() {
        check(&[call(Some(0), "i", "a", "")], &[("a", json!({}))], Stop::ToolCalls);
        check(&[call(Some(0), "i", "a", "null")], &[("a", json!({}))], Stop::ToolCalls);
        let length = || Delta::Stop(Stop::Length);
        check(&[call(Some(0), "i", "a", ""), length()], &[("a", json!(""))], Stop::Length);
        check(&[call(Some(0), "i", "a", "{\"x"), length()], &[("a", json!("{\"x"))], Stop::Length);
    }

    #[test]
    fn arguments_that_are_no_object_are_kept_as_they_came() {
        let stop = || Delta::Stop(Stop::ToolCalls);
        check(
            &[call(Some(0), "i", "a", "{city: Rome}"), stop()],
            &[("a", json!("{city: Rome}"))],
            Stop::ToolCalls,
        );
        check(&[call(Some(0), "i", "a", "[1]"), stop()], &[("a", json!("[1]"))], Stop::ToolCalls);
        check(&[stop()], &[], Stop::End);
    }

    #[test]
    fn blocks_keep_their_order_and_thinking_its_signature() {
        let message = finish([
            Delta::Thinking { text: "plä".into(), field: "" },
            Delta::Thinking { text: "ne".into(), field: "" },
            Delta::Signature("S".into()),
            Delta::Redacted("R".into()),
            Delta::Text("a".into()),
            Delta::Text("b".into()),
            call(Some(3), "i", "t", "{}"),
            Delta::Text("c".into()),
        ]);
        let kinds = message.content.iter().map(|block| match block {
            Block::Text { text, .. } => format!("text {text}"),
            Block::Thinking(thinking) => {
                format!("thinking {} {:?} {:?}", thinking.text, thinking.signature, thinking.redacted)
            }
            Block::ToolCall(call) => format!("call {}", call.name),
        });
        let expected =
            ["thinking pläne Some(\"S\") None", "thinking  None Some(\"R\")", "text ab", "call t", "text c"];
        assert_eq!(kinds.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn ids_are_unique_in_the_session() {
        let mut message = Accumulator::new("p", "m").avoid(["call_0".to_owned()]);
        message.push(call(Some(0), "call_0", "a", "{}"));
        message.push(call(Some(1), "x", "a", "{}"));
        message.push(call(Some(2), "x", "b", "{}"));
        message.push(call(Some(3), "", "c", "{}"));
        let message = message.finish();
        let ids: HashSet<_> = message.calls().map(|call| call.id.clone()).collect();
        assert_eq!(ids.len(), 4);
        assert!(ids.contains("x") && !ids.contains("call_0"));
    }

    #[test]
    fn a_cut_message_keeps_what_was_said_and_no_call() {
        let mut message = Accumulator::new("p", "m");
        message.push(Delta::Thinking { text: "t".into(), field: "reasoning" });
        message.push(Delta::Text("half an".into()));
        message.push(call(Some(0), "i", "write", "{\"path\""));
        let message = message.cut(Stop::Cut);
        assert_eq!(
            (message.text().as_str(), message.calls().count(), message.stop),
            ("half an", 0, Stop::Cut)
        );
        assert!(matches!(&message.content[0], Block::Thinking(t) if t.field.as_deref() == Some("reasoning")));
    }

    #[test]
    fn a_try_that_failed_leaves_nothing_in_the_message() {
        let retrying =
            Delta::Retrying { attempt: 2, delay: std::time::Duration::ZERO, reason: "cut".to_owned() };
        let message = finish([
            Delta::Thinking { text: "lost".into(), field: "" },
            call(Some(0), "i", "a", "{"),
            retrying,
            Delta::Thinking { text: "kept".into(), field: "" },
            Delta::Text("said".into()),
        ]);
        assert!(matches!(&message.content[0], Block::Thinking(thinking) if thinking.text == "kept"));
        assert_eq!((message.content.len(), message.provider.as_str()), (2, "p"));
    }

    #[test]
    fn pieces_of_reasoning_details_grow_together() {
        let message = finish([
            Delta::Thinking { text: "ab".into(), field: "reasoning" },
            Delta::Details(json!({"type": "reasoning.text", "index": 0, "text": "a"})),
            Delta::Details(json!({"type": "reasoning.text", "index": 0, "text": "b", "signature": null})),
            Delta::Text("answer".into()),
            Delta::Details(json!({"type": "reasoning.text", "index": 0, "signature": "S"})),
            Delta::Details(json!({"type": "reasoning.encrypted", "index": 0, "data": "D"})),
        ]);
        let Block::Thinking(thinking) = &message.content[0] else { panic!("no thinking first") };
        let expected = json!([
            {"type": "reasoning.text", "index": 0, "text": "ab", "signature": "S"},
            {"type": "reasoning.encrypted", "index": 0, "data": "D"},
        ]);
        assert_eq!(json!(thinking.details), expected);
    }

    #[test]
    fn later_figures_replace_only_what_they_have() {
        let usage = |input, output| Delta::Usage(Usage { input, output, ..Usage::default() });
        let message = finish([usage(Some(9), Some(1)), usage(None, Some(7))]);
        assert_eq!((message.usage.input, message.usage.output), (Some(9), Some(7)));
    }
}

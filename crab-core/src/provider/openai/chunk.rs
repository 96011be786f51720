//! Chunks of chat completions to deltas: one reader for the dialects of many services.

use serde_json::Value;

use super::tags::Tags;
use crate::accumulate::{CallPiece, Slots};
use crate::message::{Stop, Usage};
use crate::provider::Delta;
use crate::provider::answer::{Broken, Decode, json};
use crate::provider::failure::Said;
use crate::provider::models::cost;
use crate::sse::Event;

/// The fields that carry reasoning, in the order in which they are looked for; some services send two with one text.
const REASONING: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_text"];

/// The name of the field for reasoning that stands in the text between tags.
pub(super) const TAGS: &str = "think";

/// The state of one answer.
#[derive(Default)]
pub(super) struct Chunks {
    tags: Tags,
    /// The last finish word.
    finish: Option<String>,
    /// The upstream's own word says that the answer was cut, whatever the gateway calls it.
    cut: bool,
    refused: bool,
    done: bool,
    /// A second stitching of the calls: a stream without a finish word is whole when they are.
    calls: Slots,
}

impl Decode for Chunks {
    fn event(&mut self, event: &Event, out: &mut Vec<Delta>) -> Result<(), Said> {
        if self.done {
            return Ok(());
        }
        if event.data.trim() == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        let Some(chunk) = json(event)?.filter(Value::is_object) else { return Ok(()) };
        let choices = chunk.get("choices").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for choice in choices.iter().filter(|choice| is_first(choice)) {
            self.choice(choice, choice.get("delta"), out);
        }
        out.extend(find_usage(&chunk, choices.first()).map(Delta::Usage));
        match find_error(&chunk, choices.first(), event.name.as_deref()) {
            Some(error) => Err(Said::read(error, None)),
            None => Ok(()),
        }
    }

    fn whole(&mut self, body: &Value, out: &mut Vec<Delta>) -> Result<(), Said> {
        let Some(choice) = body.pointer("/choices/0") else { return Err(Said::read(body, None)) };
        let mut message = choice.get("message").cloned().unwrap_or_default();
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        for (index, call) in calls.into_iter().flatten().enumerate() {
            if let Some(call) = call.as_object_mut() {
                call.entry("index").or_insert(index.into());
            }
        }
        self.choice(choice, Some(&message), out);
        out.extend(find_usage(body, Some(choice)).map(Delta::Usage));
        self.done = true;
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn is_finished(&self) -> bool {
        self.done || self.finish.is_some()
    }

    fn end(&mut self, out: &mut Vec<Delta>) -> Result<Stop, Broken> {
        self.tags.finish(out);
        let stop = match self.finish.as_deref() {
            None if self.calls.are_whole() => Stop::ToolCalls,
            None if !self.done => return Err(Broken::Cut),
            None => Stop::End,
            Some(word @ ("error" | "network_error" | "insufficient_system_resource")) => {
                let mut said = Said::text(format!("the answer ended with `{word}`"), None);
                said.tags = "server_error".into();
                return Err(Broken::Said(said));
            }
            Some("tool_calls" | "tool_use" | "function_call") => Stop::ToolCalls,
            Some("length" | "max_tokens" | "model_length" | "model_context_window_exceeded") => Stop::Length,
            Some("content_filter" | "sensitive" | "refusal") => Stop::Refusal,
            Some(_) => Stop::End,
        };
        Ok(match stop {
            Stop::End | Stop::ToolCalls if self.cut => Stop::Length,
            Stop::End if self.refused && self.calls.len() == 0 => Stop::Refusal,
            stop => stop,
        })
    }
}

impl Chunks {
    /// Whether reasoning is looked for in the text.
    pub(super) fn new(think_tags: bool) -> Self {
        Self { tags: Tags::new(think_tags), ..Self::default() }
    }

    fn choice(&mut self, choice: &Value, delta: Option<&Value>, out: &mut Vec<Delta>) {
        let none = Value::Null;
        let delta = delta.unwrap_or(&none);
        reasoning(delta, out);
        content(delta.get("content"), |delta| self.tags.take(delta, out));
        if let Some(text) = text(delta.get("refusal")) {
            self.refused = true;
            out.push(Delta::Refusal(text.to_owned()));
        }
        for call in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.tags.finish(out);
            out.push(self.call(call));
        }
        if let Some(word) = text(choice.get("finish_reason")) {
            self.finish = Some(word.to_owned());
        }
        let native = text(choice.get("native_finish_reason")).map(str::to_lowercase);
        self.cut |= matches!(native.as_deref(), Some("length" | "max_tokens" | "max_output_tokens"));
    }

    fn call(&mut self, call: &Value) -> Delta {
        let function = call.get("function");
        let arguments = function.and_then(|function| function.get("arguments"));
        let piece = CallPiece {
            index: call.get("index").and_then(Value::as_u64),
            id: text(call.get("id")).map(str::to_owned),
            name: text(function.and_then(|function| function.get("name"))).map(str::to_owned),
            arguments: match arguments {
                None | Some(Value::Null) => None,
                Some(Value::String(raw)) => Some(raw.clone()),
                Some(whole) => Some(whole.to_string()),
            },
            extra: call.get("extra_content").filter(|extra| !extra.is_null()).cloned(),
        };
        self.calls.push(&piece);
        let CallPiece { index, id, name, arguments, extra } = piece;
        Delta::Call { index, id, name, arguments, extra }
    }
}

fn is_first(choice: &Value) -> bool {
    matches!(choice.get("index"), None | Some(Value::Null))
        || choice.get("index").and_then(Value::as_u64) == Some(0)
}

/// A text that says something.
fn text(value: Option<&Value>) -> Option<&str> {
    value?.as_str().filter(|text| !text.is_empty())
}

fn reasoning(delta: &Value, out: &mut Vec<Delta>) {
    let details = delta.get("reasoning_details").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let field = REASONING.into_iter().find_map(|field| Some((field, text(delta.get(field))?.to_owned())));
    let in_details = || {
        let texts =
            details.iter().filter_map(|detail| text(detail.get("text")).or(text(detail.get("summary"))));
        ("reasoning_details", texts.collect())
    };
    let (field, text) = field.unwrap_or_else(in_details);
    if !text.is_empty() {
        out.push(Delta::Thinking { text, field });
    }
    out.extend(details.iter().filter(|detail| detail.is_object()).cloned().map(Delta::Details));
    // LiteLLM sends the text of Anthropic's blocks as `reasoning_content` too, and their seals here alone.
    for block in delta.get("thinking_blocks").and_then(Value::as_array).into_iter().flatten() {
        out.extend(self::text(block.get("signature")).map(|seal| Delta::Signature(seal.to_owned())));
        out.extend(self::text(block.get("data")).map(|data| Delta::Redacted(data.to_owned())));
    }
}

/// A string, or the parts of Mistral, whose reasoning comes as content.
fn content(content: Option<&Value>, take: impl FnMut(Delta)) {
    match content {
        Some(Value::String(text)) if !text.is_empty() => {
            Some(Delta::Text(text.clone())).into_iter().for_each(take)
        }
        Some(Value::Array(parts)) => parts.iter().filter_map(content_part).for_each(take),
        _ => {}
    }
}

fn content_part(part: &Value) -> Option<Delta> {
    if text(part.get("type")) != Some("thinking") {
        return text(part.get("text")).map(|text| Delta::Text(text.to_owned()));
    }
    let thinking = match part.get("thinking") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(|part| text(part.get("text"))).collect(),
        _ => return None,
    };
    Some(Delta::Thinking { text: thinking, field: "content" })
}

fn find_error<'a>(chunk: &'a Value, first: Option<&'a Value>, name: Option<&str>) -> Option<&'a Value> {
    let says_something = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => true,
    };
    let flat =
        chunk.get("message").is_some() && chunk.get("choices").is_none() && chunk.get("code").is_some();
    let is_error = name == Some("error") || text(chunk.get("object")) == Some("error") || flat;
    if is_error || chunk.get("error").is_some_and(says_something) {
        return Some(chunk);
    }
    // OpenRouter puts the upstream's failure into the choice.
    first.filter(|choice| choice.get("error").is_some_and(Value::is_object))
}

/// The figures have four places.
fn find_usage(chunk: &Value, first: Option<&Value>) -> Option<Usage> {
    let places =
        [chunk.get("usage"), first.and_then(|choice| choice.get("usage")), chunk.pointer("/x_groq/usage")];
    let found =
        places.into_iter().flatten().find(|usage| usage.as_object().is_some_and(|map| !map.is_empty()))?;
    usage(found)
}

fn usage(from: &Value) -> Option<Usage> {
    let number = |path: &str| {
        let value = from.pointer(path)?;
        value.as_u64().or_else(|| value.as_f64().filter(|number| *number >= 0.0).map(|number| number as u64))
    };
    let first = |paths: &[&str]| paths.iter().find_map(|path| number(path));
    let input = number("/prompt_tokens")?;
    let (output, total) = (number("/completion_tokens"), number("/total_tokens"));
    // xAI and Gemini leave the reasoning out of the completion but not out of the total; with audio, the total holds more.
    let audio = number("/prompt_audio_seconds").is_some_and(|seconds| seconds > 0);
    let rest = total.filter(|_| !audio).map(|total| total.saturating_sub(input));
    Some(Usage {
        input: Some(input),
        output: output.map(|output| output.max(rest.unwrap_or(0))),
        cache_read: first(&[
            "/prompt_tokens_details/cached_tokens",
            "/prompt_cache_hit_tokens",
            "/cached_tokens",
            "/num_cached_tokens",
            "/cache_read_input_tokens",
        ]),
        cache_write: first(&["/prompt_tokens_details/cache_write_tokens", "/cache_creation_input_tokens"]),
        reasoning: first(&["/completion_tokens_details/reasoning_tokens", "/reasoning_tokens"]),
        cost_usd: cost(from),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::answer::Answer;
    use serde_json::json;
    use std::slice::from_ref;

    fn decode(chunks: &[Value], end: &str) -> (Vec<Delta>, Result<(), Broken>) {
        let mut body: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
        body.push_str(end);
        let mut answer = Answer::new(Box::new(Chunks::default()));
        let result = answer.feed(body.as_bytes()).and_then(|()| answer.end());
        (std::iter::from_fn(|| answer.next()).collect(), result)
    }

    fn chunk(delta: Value, finish: Option<&str>) -> Value {
        json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    }

    #[track_caller]
    fn check_stop(chunks: &[Value], end: &str, expected: Result<Stop, Broken>) {
        let (deltas, result) = decode(chunks, end);
        match expected {
            Ok(stop) => assert_eq!((deltas.last(), result), (Some(&Delta::Stop(stop)), Ok(()))),
            Err(broken) => assert_eq!(result, Err(broken)),
        }
    }

    #[test]
    fn the_end_is_told_by_what_came_and_not_by_the_word_alone() {
        let hi = chunk(json!({"content": "hi"}), None);
        let call = chunk(
            json!({"tool_calls": [{"index": 0, "id": "i", "function": {"name": "a", "arguments": "{}"}}]}),
            None,
        );
        let half = chunk(
            json!({"tool_calls": [{"index": 0, "id": "i", "function": {"name": "a", "arguments": "{\"x"}}]}),
            None,
        );
        let end = |word| chunk(json!({}), Some(word));
        check_stop(&[hi.clone(), end("stop")], "", Ok(Stop::End));
        check_stop(from_ref(&hi), "data: [DONE]\n\n", Ok(Stop::End));
        check_stop(from_ref(&hi), "", Err(Broken::Cut));
        check_stop(&[], "", Err(Broken::Cut));
        check_stop(from_ref(&call), "", Ok(Stop::ToolCalls));
        check_stop(&[half], "", Err(Broken::Cut));
        check_stop(&[hi.clone(), end("content_filter")], "", Ok(Stop::Refusal));
        check_stop(&[hi.clone(), end("a word of tomorrow")], "", Ok(Stop::End));
        let cut = json!({"choices": [{"delta": {}, "finish_reason": "tool_calls", "native_finish_reason": "length"}]});
        check_stop(&[call, cut], "", Ok(Stop::Length));
        assert!(matches!(decode(&[hi, end("error")], "").1, Err(Broken::Said(_))));
    }

    #[test]
    fn reasoning_outside_the_completion_is_counted() {
        let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 40});
        assert_eq!(super::usage(&usage).unwrap().output, Some(30));
        let inside = json!({"prompt_tokens": 10, "completion_tokens": 30, "total_tokens": 40,
            "completion_tokens_details": {"reasoning_tokens": 25}});
        assert_eq!(super::usage(&inside).unwrap().output, Some(30));
        assert_eq!(super::usage(&json!({"completion_tokens": 3})), None);
    }

    #[test]
    fn text_in_the_chunk_of_an_error_is_not_lost() {
        let chunk = json!({"error": {"message": "boom"}, "choices": [{"delta": {"content": "last"}}]});
        let (deltas, result) = decode(&[chunk], "");
        assert_eq!(deltas, [Delta::Text("last".into())]);
        assert!(matches!(result, Err(Broken::Said(said)) if said.message == "boom"));
    }
}

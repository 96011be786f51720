//! Whole answers through the decoders: those in `fixtures/streams`, and a larger collection where there is one.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::answer::{Answer, Broken, Decode};
use super::failure::{Said, classify};
use super::{Error, anthropic, compat::Compat, failure::Service, openai, responses};
use crate::accumulate::Accumulator;
use crate::message::{Assistant, Block, Stop};
use crate::protocol::FailureKind;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/streams")
}

/// The larger collection: `CRAB_WIRE`, or a folder beside the repository.
fn collection() -> Vec<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/wire");
    let root = std::env::var_os("CRAB_WIRE").map_or_else(beside, PathBuf::from);
    ["open", "constructed"]
        .map(|name| root.join("streams").join(name))
        .into_iter()
        .filter(|p| p.is_dir())
        .collect()
}

fn decoder(protocol: &str) -> Box<dyn Decode> {
    let dialect = match protocol {
        "anthropic" => anthropic::DIALECT,
        "responses" => responses::DIALECT,
        _ => openai::DIALECT,
    };
    (dialect.decoder)(&Compat::UNKNOWN)
}

/// What a front end would have got: the message, and how the answer broke.
fn run(body: &[u8], protocol: &str, step: usize) -> (Assistant, Option<Broken>) {
    let mut answer = Answer::new(decoder(protocol));
    let mut result = Ok(());
    for piece in body.chunks(step) {
        result = answer.feed(piece);
        if result.is_err() || answer.is_done() {
            break;
        }
    }
    let broken = result.and_then(|()| answer.end()).err();
    let mut message = Accumulator::new("p", "m");
    std::iter::from_fn(|| answer.next()).for_each(|delta| message.push(delta));
    let message = if broken.is_some() { message.cut(Stop::Cut) } else { message.finish() };
    (message, broken)
}

fn thinking(message: &Assistant) -> String {
    let texts = message.content.iter().filter_map(|block| match block {
        Block::Thinking(thinking) => Some(thinking.text.as_str()),
        _ => None,
    });
    texts.collect()
}

fn calls(message: &Assistant) -> Vec<Value> {
    message.calls().map(|call| json!([call.name, call.arguments])).collect()
}

fn expected_calls(expected: &Value) -> Vec<Value> {
    let calls = expected["tool_calls"].as_array().unwrap().iter();
    let calls = calls.map(|call| match call.get("arguments_raw") {
        Some(raw) => json!([call["name"], raw]),
        None => json!([call["name"], call["arguments"]]),
    });
    calls.collect()
}

fn usage(message: &Assistant) -> Value {
    let usage = message.usage;
    json!({"input": usage.input, "output": usage.output, "cache_read": usage.cache_read,
        "cache_write": usage.cache_write, "reasoning": usage.reasoning})
}

fn stop(expected: &Value) -> Stop {
    match expected["finish"].as_str().unwrap() {
        "tool_calls" => Stop::ToolCalls,
        "length" => Stop::Length,
        "content_filter" | "refusal" => Stop::Refusal,
        "pause" => Stop::Pause,
        // A marker of the end without any answer is an end: the caller sees that the message is empty.
        _ => Stop::End,
    }
}

fn check_stream(path: &Path, expected: &Value, body: &[u8]) -> Result<(), String> {
    let protocol = expected["_"]["proto"].as_str().unwrap();
    for step in [body.len().max(1), 1, 7, 64] {
        let (message, broken) = run(body, protocol, step);
        let wrong = |what: &str, got: &Value, want: &Value| {
            let (name, got, want) = (path.display(), got.to_string(), want.to_string());
            (got != want)
                .then(|| format!("{name} in pieces of {step}: {what}\n  got  {got}\n  want {want}"))
                .map_or(Ok(()), Err)
        };
        wrong("text", &json!(message.text()), &expected["text"])?;
        wrong("refusal", &json!(message.refusal), &expected.get("refusal").cloned().unwrap_or_default())?;
        wrong("thinking", &json!(thinking(&message)), &expected["thinking"])?;
        match (&broken, &expected["error"]) {
            (None, Value::Null) => {
                wrong("calls", &json!(calls(&message)), &json!(expected_calls(expected)))?;
                wrong("stop", &json!(message.stop), &json!(stop(expected)))?;
                wrong("usage", &usage(&message), &expected["usage"])?;
            }
            (Some(Broken::Cut), Value::Null) => wrong("finish", &json!("none"), &expected["finish"])?,
            (Some(Broken::Said(said) | Broken::Refused(said)), error) => {
                wrong("error", &json!(said.message), &error["message"])?;
                wrong("status", &json!(said.status), &error["status"])?;
            }
            // The collection keeps the first line of a page, where a person is told its words.
            (Some(Broken::Foreign(_)), error) => wrong("error", &json!("not_sse"), &error["type"])?,
            (broken, error) => wrong("end", &json!(format!("{broken:?}")), error)?,
        }
    }
    Ok(())
}

/// A failure's class has another name here and there.
fn kind(name: &str) -> FailureKind {
    serde_json::from_value::<KindName>(json!(name)).unwrap().0
}

struct KindName(FailureKind);

impl<'de> serde::Deserialize<'de> for KindName {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        use FailureKind::*;
        let name = String::deserialize(from)?;
        let kinds = [Auth, Quota, RateLimit, Overloaded, Overflow, NotFound, BadRequest, Server, ToolFailed];
        let found = kinds.into_iter().find(|kind| json!(kind) == json!(name));
        Ok(Self(found.unwrap_or(if name == "timeout" { Network } else { Internal })))
    }
}

fn check_body(path: &Path, expected: &Value, body: &[u8]) -> Result<(), String> {
    let Some(name) = expected["error_kind"].as_str() else { return check_stream(path, expected, body) };
    let status = expected["_"]["status"].as_u64().and_then(|status| u16::try_from(status).ok());
    let said = Said::read(&serde_json::from_slice(body).unwrap(), status);
    let got = classify(&said);
    let error: Error = Service::default().refused(&said);
    let retryable = json!(error.is_retryable());
    if got != kind(name)
        || retryable != expected["retryable"]
        || json!(said.message) != expected["error"]["message"]
    {
        return Err(format!("{}: {got:?} instead of {name}, {said:?}", path.display()));
    }
    Ok(())
}

/// Checks every answer of a folder, and gives the number of them and what is wrong.
fn check_folder(folder: &Path) -> (usize, Vec<String>) {
    let (mut count, mut wrong) = (0, vec![]);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some((stem, suffix)) = name.rsplit_once('.') else { continue };
        let expected = folder.join(format!("{stem}.expected.json"));
        if !matches!(suffix, "sse" | "json") || name.ends_with(".expected.json") || !expected.exists() {
            continue;
        }
        let expected: Value = serde_json::from_slice(&std::fs::read(expected).unwrap()).unwrap();
        let body = std::fs::read(&path).unwrap();
        let result = match suffix {
            "sse" => check_stream(&path, &expected, &body),
            _ => check_body(&path, &expected, &body),
        };
        count += 1;
        wrong.extend(result.err());
    }
    (count, wrong)
}

#[test]
fn the_streams_of_the_fixtures_give_what_they_hold() {
    let (count, wrong) = check_folder(&fixtures());
    assert!(count >= 110, "{count} fixtures");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[expect(clippy::print_stderr, reason = "a test that did not run must say so")]
fn the_streams_of_the_collection_give_what_they_hold() {
    let folders = collection();
    if folders.is_empty() {
        eprintln!("skipped: no collection of streams at `CRAB_WIRE` or ../shared/wire");
        return;
    }
    let (count, wrong): (Vec<_>, Vec<_>) = folders.iter().map(|folder| check_folder(folder)).unzip();
    let wrong = wrong.concat();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), count.iter().sum::<usize>(), wrong.join("\n"));
}

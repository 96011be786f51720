//! Machine-readable output: one JSON object a line, or the `done` object alone.

use std::io;

use crab_core::message::text_of;
use crab_core::protocol::{End, EndStop, Event, Failure, FailureKind};
use serde_json::{Value, json};

use super::answer::{Answer, last_text};
use super::plain::Text;
use super::terminal::Paint;
use super::{Detail, Format, Renderer, SessionFacts};
use crate::output::{Output, Sink};

/// Renders for programs; standard error stays for people.
pub(super) struct Json {
    out: Sink,
    log: Text,
    session: String,
    is_stream: bool,
    answer: Answer,
    end: Option<End>,
}

impl Json {
    /// Writes the `session` line at once when it streams.
    pub(super) fn new(output: &Output, facts: SessionFacts, log: Log) -> io::Result<Self> {
        let json = Self {
            out: output.out.clone(),
            log: Text::log_only(output, log.detail, log.paint),
            session: facts.id.clone(),
            is_stream: log.is_stream,
            answer: Answer::default(),
            end: None,
        };
        json.line(json!({
            "type": "session", "version": facts.version, "id": facts.id, "file": facts.file, "cwd": facts.cwd,
            "provider": facts.provider, "model": facts.model,
        }))?;
        Ok(json)
    }

    fn line(&self, object: Value) -> io::Result<()> {
        if self.is_stream { self.out.write(format!("{object}\n")) } else { Ok(()) }
    }

    fn text(&self, delta: &str) -> io::Result<()> {
        if delta.is_empty() {
            return Ok(());
        }
        self.line(json!({"type": "text", "delta": delta}))
    }

    fn stream(&mut self, event: &Event) -> io::Result<()> {
        let object = match event {
            Event::TextDelta { request, offset, delta } => {
                let delta = self.answer.delta(*request, *offset, delta);
                return self.text(delta);
            }
            Event::MessageDone { request, message } => {
                let rest = self.answer.done(*request, message).unwrap_or_default();
                self.text(&rest)?;
                let mut usage = json!(message.usage);
                usage["type"] = "usage".into();
                usage
            }
            Event::TurnEnded(end) => {
                for (_, rest) in self.answer.ended(&end.messages) {
                    self.text(&rest)?;
                }
                self.end = Some(end.clone());
                return Ok(());
            }
            Event::ThinkingDelta { delta } => json!({"type": "thinking", "delta": delta}),
            Event::Retried { attempt, delay_ms, reason } => {
                json!({"type": "retry", "attempt": attempt, "delay_ms": delay_ms, "reason": reason})
            }
            Event::CallStarted { call, .. } => {
                json!({"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments})
            }
            Event::PermissionDecided { id, name, decision, by } => {
                json!({"type": "permission", "id": id, "name": name, "decision": decision, "by": by})
            }
            Event::ToolOutput { id, chunk } => json!({"type": "tool_output", "id": id, "chunk": chunk}),
            Event::CallDone { result, .. } => json!({
                "type": "tool_result", "id": result.tool_call_id, "name": result.name,
                "output": text_of(&result.content), "is_error": result.is_error, "ms": result.ms,
            }),
            Event::Warned { message } => json!({"type": "warning", "message": message}),
            Event::TurnStarted { .. } | Event::RequestStarted { .. } | Event::QuestionAsked(_) => {
                return Ok(());
            }
        };
        self.line(object)
    }
}

/// What goes beside the objects.
pub(super) struct Log {
    /// How much is said on standard error.
    pub(super) detail: Detail,
    /// Its style.
    pub(super) paint: Paint,
    /// Whether events are written as they happen.
    pub(super) is_stream: bool,
}

impl Renderer for Json {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.log.event(event)?;
        self.stream(event)
    }

    fn lagged(&mut self, events: u64) -> io::Result<()> {
        self.answer.lagged();
        let message = format!("{events} events were missed; the text is whole all the same");
        self.line(json!({"type": "warning", "message": message}))
    }

    fn close(&mut self, exit: u8) -> io::Result<()> {
        let done = match self.end.take() {
            Some(end) => done(&end, exit, &self.session),
            None => done(&unfinished(exit), exit, &self.session),
        };
        self.out.write(format!("{done}\n"))
    }
}

/// What a run says that failed before it had a session.
pub(crate) fn failed(failure: &Failure, exit: u8, format: Format) -> String {
    let end = End { error: Some(failure.clone()), stop: EndStop::Error, ..unfinished(exit) };
    let done = done(&end, exit, "");
    let session = json!({
        "type": "session", "version": env!("CARGO_PKG_VERSION"), "id": null, "file": null, "cwd": null,
        "provider": null, "model": null,
    });
    match format {
        Format::Text => String::new(),
        Format::Json => format!("{done}\n"),
        Format::StreamJson => format!("{session}\n{done}\n"),
    }
}

fn done(end: &End, exit: u8, session: &str) -> Value {
    json!({
        "type": "done", "exit": exit, "stop": end.stop, "result": last_text(&end.messages), "error": end.error,
        "turns": end.requests, "usage": end.usage, "cost_usd": end.usage.cost_usd, "denied": end.denied,
        "session": session,
    })
}

/// The end of a turn that did not come to its own.
fn unfinished(exit: u8) -> End {
    let is_signal = exit >= 128;
    let error = (!is_signal && exit != 0).then(|| Failure {
        kind: FailureKind::Internal,
        message: "the run ended before its turn did".into(),
        status: None,
        provider: None,
    });
    let stop = if error.is_some() { EndStop::Error } else { EndStop::Aborted };
    End { stop, error, messages: vec![], requests: 0, usage: Default::default(), denied: vec![] }
}

//! One turn: ask the model, stream its answer, run its calls, until it makes none. Owns the pairing invariant: every
//! call gets exactly one result, whatever happens.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use futures_util::StreamExt;
use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::accumulate::Accumulator;
use crate::agent::{Agent, Model};
use crate::context;
use crate::gate::Hidden;
use crate::message::{Assistant, Message, Part, Stop, ToolCall, Usage};
use crate::protocol::{Answer, End, EndStop, Event, Failure, FailureKind};
use crate::provider::{Delta, Error, Request, ToolSpec};
use crate::session::Body;

mod calls;
mod guard;

use guard::Guard;

/// Times in a row that an answer is gone on with that broke off.
const CUTS: u32 = 2;

/// What a model is told whose answer broke off. It stands behind that answer in the next request alone.
const GO_ON: &str = "(The connection broke in the middle of your answer; the user has seen all of it that stands above. \
     Go on exactly where it ends, without repeating anything.)";
/// What it is told with the last request that a limit allows.
const LAST: &str = "(This is the last request of this run: calls will not run any more. Say now what was done and what is left.)";

/// How a turn hears and is heard.
pub(crate) struct Line {
    /// Events out.
    pub(crate) events: broadcast::Sender<Event>,
    /// Answers to questions.
    pub(crate) answered: mpsc::Receiver<(String, Answer)>,
    /// Cancelled to abort the turn.
    pub(crate) cancel: CancellationToken,
}

/// Runs one turn to its end. The session is valid whenever this future is dropped.
pub(crate) async fn run(agent: &mut Agent, prompt: Vec<Part>, line: Line) -> End {
    let timed_out = Arc::new(AtomicBool::new(false));
    let _alarm = agent.limits.time.map(|time| {
        let (cancel, timed_out) = (line.cancel.clone(), timed_out.clone());
        AbortOnDropHandle::new(tokio::spawn(async move {
            tokio::time::sleep(time).await;
            timed_out.store(true, Ordering::Relaxed);
            cancel.cancel();
        }))
    });
    let specs = agent.tools.iter().map(|tool| ToolSpec {
        name: tool.name().to_owned(),
        description: tool.description().to_owned(),
        schema: tool.schema(),
    });
    let mut turn = Turn {
        specs: specs.collect(),
        ids: used_ids(agent),
        agent,
        line,
        end: End {
            stop: EndStop::End,
            error: None,
            messages: Vec::new(),
            requests: 0,
            usage: Usage::default(),
            denied: Vec::new(),
        },
        guard: Guard::default(),
        asked: 0,
        cuts: 0,
        unsaved: false,
        deadline: None,
        hidden: None,
    };
    turn.hidden = turn.hide();
    let halt = turn.drive(prompt).await.err();
    if let Err(error) = turn.agent.session.end_turn() {
        turn.unsaved_because(&error);
    }
    turn.settle().await;
    let seconds = turn.agent.limits.time.unwrap_or_default().as_secs_f64();
    turn.finish(match halt {
        Some(Halt::Aborted) if timed_out.load(Ordering::Relaxed) => {
            Some(Halt::Limit(format!("stopped after {seconds} s, the time limit of this run")))
        }
        halt => halt,
    })
}

fn used_ids(agent: &Agent) -> HashSet<String> {
    let path = agent.session.path();
    let messages = path.iter().filter_map(|entry| match &entry.body {
        Body::Assistant(message) => Some(message),
        _ => None,
    });
    messages.flat_map(Assistant::calls).map(|call| call.id.clone()).collect()
}

/// Why a turn ends before the model is done.
enum Halt {
    Aborted,
    Limit(String),
    Failed(Failure),
}

struct Turn<'a> {
    agent: &'a mut Agent,
    line: Line,
    specs: Arc<[ToolSpec]>,
    /// Every call id of the session: some services restart theirs in every answer.
    ids: HashSet<String>,
    end: End,
    guard: Guard,
    /// Who is asked: 0 is the model, the others are those that it falls back on.
    asked: usize,
    /// Answers that broke off since the last whole one.
    cuts: u32,
    /// Whether the user knows that the session is not being saved.
    unsaved: bool,
    /// What searches leave out.
    hidden: Option<Hidden>,
    /// Set by the abort: when calls that still run are dropped.
    deadline: Option<tokio::time::Instant>,
}

impl Turn<'_> {
    async fn drive(&mut self, mut prompt: Vec<Part>) -> Result<(), Halt> {
        for part in &mut prompt {
            self.redact(part);
        }
        self.note_model();
        self.append(Body::User { content: prompt.clone() });
        self.send(Event::TurnStarted { prompt: Arc::new(prompt) });
        let mut empty = 0;
        loop {
            self.check_limits()?;
            let message = match self.ask().await {
                Err(Halt::Failed(failure)) if self.goes_on_after(&failure) => continue,
                message => message?,
            };
            self.cuts = 0;
            let calls: Vec<ToolCall> = message.calls().cloned().collect();
            if !calls.is_empty() {
                if message.stop == Stop::Refusal {
                    self.refuse(
                        &calls,
                        message.stop,
                        "not run: the service refused to go on with this answer",
                    );
                    return Err(self.refused(&message));
                }
                if self.is_last() {
                    self.refuse(&calls, message.stop, "not run: this was the last request of the run");
                    continue;
                }
                let results = match message.stop {
                    Stop::Length => self.refuse_cut(&calls),
                    _ => self.run_calls(&calls).await?,
                };
                self.guard.check(message.stop, &calls, &results)?;
                continue;
            }
            match message.stop {
                Stop::Pause => self.guard.pause()?,
                Stop::Refusal => return Err(self.refused(&message)),
                Stop::Length if message.text().trim().is_empty() => {
                    let what = "reached its output limit before it said anything: raise `max_output` for this model, \
                                or begin a new session when this one has grown too long";
                    return Err(self.failed(FailureKind::Overflow, what));
                }
                Stop::Length => return Ok(()),
                _ if !message.text().trim().is_empty() => return Ok(()),
                _ if empty == 0 => {
                    empty += 1;
                    self.warn("the answer was empty; asking once more".into());
                }
                _ => {
                    return Err(self.failed(
                        FailureKind::Internal,
                        "answered twice with nothing: try again, or another model; a server of your own may have cut \
                         the conversation to its context window",
                    ));
                }
            }
        }
    }

    /// Whether a failed request is not the end: an answer that broke off is gone on with, and where the model stays
    /// overloaded the next one is asked. The user is told in either case.
    fn goes_on_after(&mut self, failure: &Failure) -> bool {
        use FailureKind::{Cut, Network, Overloaded, RateLimit, Server};
        if self.is_last() || self.line.cancel.is_cancelled() {
            return false;
        }
        let broke_off = self.end.messages.last().is_some_and(|last| is_unfinished(last));
        let why = failure.message.trim_end_matches("; try again");
        if broke_off {
            let goes_on =
                self.cuts < CUTS && matches!(failure.kind, Cut | Network | Overloaded | Server | RateLimit);
            if goes_on {
                self.cuts += 1;
                self.warn(format!("{why}; what came is kept, and the model is asked to go on from there"));
            }
            return goes_on;
        }
        let can_help = matches!(failure.kind, Overloaded | RateLimit | Server);
        let Some(next) = self.agent.fallback.get(self.asked).filter(|_| can_help) else { return false };
        let next = format!("{}/{}", next.provider.name(), next.name);
        self.asked += 1;
        self.warn(format!("{why}; the rest of this turn goes to `{next}`"));
        true
    }

    fn model(&self) -> &Model {
        let fallback = self.asked.checked_sub(1).and_then(|at| self.agent.fallback.get(at));
        fallback.unwrap_or(&self.agent.model)
    }

    /// Writes down who is asked, when that changed. Falling back is no choice of the user's, so it is not written.
    fn note_model(&mut self) {
        let Model { provider, name, .. } = &self.agent.model;
        let model = Body::Model { provider: provider.name().to_owned(), model: name.clone() };
        let path = self.agent.session.path();
        let last = path.iter().rev().find(|entry| matches!(entry.body, Body::Model { .. }));
        if last.is_none_or(|entry| entry.body != model) {
            self.append(model);
        }
    }

    fn check_limits(&mut self) -> Result<(), Halt> {
        let limits = &self.agent.limits;
        if let Some(most) = limits.requests.filter(|most| self.end.requests >= *most) {
            return Err(Halt::Limit(format!(
                "stopped after {most} model requests, the limit of this run (--max-turns)"
            )));
        }
        let Some(most) = limits.cost_usd else { return Ok(()) };
        match self.end.usage.cost_usd {
            Some(cost) if cost >= most => {
                Err(Halt::Limit(format!("stopped at ${cost:.4}, past the limit of ${most} (--max-cost)")))
            }
            None if self.end.requests == 1 => {
                self.warn("this service does not say what a request costs, so --max-cost cannot hold".into());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// One request: its message, which is in the session already.
    async fn ask(&mut self) -> Result<Assistant, Halt> {
        if self.line.cancel.is_cancelled() {
            return Err(Halt::Aborted);
        }
        self.end.requests += 1;
        self.send(Event::RequestStarted { request: self.end.requests });
        let Model { provider, name, .. } = self.model().clone();
        let mut deltas = provider.stream(self.request());
        let mut stream = Streamed {
            events: self.line.events.clone(),
            request: self.end.requests,
            offset: 0,
            message: Accumulator::new(provider.name(), name),
        };
        let cancel = self.line.cancel.clone();
        let outcome = loop {
            match cancel.run_until_cancelled(deltas.next()).await {
                None => break Err(Halt::Aborted),
                Some(None) => break Ok(()),
                Some(Some(Err(error))) => break Err(Halt::Failed(self.explain(error))),
                Some(Some(Ok(delta))) => stream.take(delta),
            }
            // A burst that is all there at once must leave the front end time to keep up.
            tokio::task::coop::consume_budget().await;
        };
        drop(deltas);
        let message = self.keep(match &outcome {
            Ok(()) => stream.message.finish(),
            Err(Halt::Aborted) => stream.message.cut(Stop::Aborted),
            Err(_) => stream.message.cut(Stop::Cut),
        });
        outcome.map(|()| message)
    }

    fn request(&mut self) -> Request {
        let agent = &*self.agent;
        let path = agent.session.path();
        let model = self.model();
        let mut messages = context::messages(&path, model.provider.name(), &model.name);
        let broke_off = matches!(messages.last(), Some(Message::Assistant(last)) if last.stop == Stop::Cut);
        let notes = [(broke_off, GO_ON), (self.is_last(), LAST)];
        for (_, note) in notes.into_iter().filter(|(is_due, _)| *is_due) {
            match messages.last_mut() {
                Some(Message::User(parts)) => parts.push(Part::text(note)),
                _ => messages.push(Message::User(vec![Part::text(note)])),
            }
        }
        Request {
            model: model.name.clone(),
            system: agent.system.clone(),
            messages,
            tools: self.specs.clone(),
            effort: agent.effort,
            max_output: model.max_output,
            session: agent.session.id().to_owned(),
        }
    }

    /// Whether the request under way is the last that the limit allows.
    fn is_last(&self) -> bool {
        self.agent.limits.requests.is_some_and(|most| self.end.requests >= most)
    }

    /// Writes a message into the session, then tells of it. One that says nothing at all is told of but not kept.
    fn keep(&mut self, mut message: Assistant) -> Assistant {
        for block in &mut message.content {
            if let crate::message::Block::ToolCall(call) = block {
                call.id = self.unique(&call.id);
            }
        }
        self.end.usage.add(&message.usage);
        if !message.content.is_empty() {
            self.append(Body::Assistant(message.clone()));
        }
        let shared = Arc::new(message.clone());
        self.end.messages.push(shared.clone());
        self.send(Event::MessageDone { request: self.end.requests, message: shared });
        message
    }

    fn unique(&mut self, id: &str) -> String {
        let tries = (2..).map(|n| format!("{id}-{n}"));
        // The iterator has no end, so one of them is free.
        let free = std::iter::once(id.to_owned()).chain(tries).find(|id| !self.ids.contains(id));
        let free = free.unwrap_or_default();
        self.ids.insert(free.clone());
        free
    }

    fn finish(mut self, halt: Option<Halt>) -> End {
        match halt {
            None => {}
            Some(Halt::Aborted) => self.end.stop = EndStop::Aborted,
            Some(Halt::Limit(message)) => {
                self.end.stop = EndStop::Limit;
                self.end.error =
                    Some(Failure { kind: FailureKind::Internal, message, status: None, provider: None });
            }
            Some(Halt::Failed(failure)) => {
                self.end.stop = EndStop::Error;
                self.end.error = Some(failure);
            }
        }
        self.end
    }

    fn refused(&self, message: &Assistant) -> Halt {
        let said = message.refusal.clone().unwrap_or_else(|| message.text());
        let said = if said.trim().is_empty() { "no reason was given".to_owned() } else { said };
        self.failed(FailureKind::Refusal, &format!("refused to answer: {}", said.trim()))
    }

    fn failed(&self, kind: FailureKind, what: &str) -> Halt {
        let Model { provider, name, .. } = self.model();
        let provider = provider.name();
        let message = format!("{provider} ({name}) {what}");
        Halt::Failed(Failure { kind, message, status: None, provider: Some(provider.to_owned()) })
    }

    fn explain(&self, error: Error) -> Failure {
        let mut failure = error.failure;
        failure.message = self.agent.secrets.redact(&failure.message).into_owned();
        failure
    }

    /// What was said is on the disk before anything else happens that cannot be taken back.
    async fn settle(&mut self) {
        let Some(unsynced) = self.agent.session.unsynced() else { return };
        let synced = tokio::task::spawn_blocking(move || unsynced.sync()).await;
        if let Ok(Err(error)) = synced {
            self.warn(format!("the session may not survive a crash of the machine: the disk said {error}"));
        }
    }

    fn append(&mut self, body: Body) {
        if let Err(error) = self.agent.session.append(body) {
            self.unsaved_because(&error);
        }
    }

    fn unsaved_because(&mut self, error: &crate::session::Error) {
        // Once is enough: a full disk fails every entry that follows.
        if !std::mem::replace(&mut self.unsaved, true) {
            self.warn(error.to_string());
        }
    }

    fn warn(&self, message: String) {
        self.send(Event::Warned { message });
    }

    fn send(&self, event: Event) {
        // A turn without a front end goes on to its end: the session has it all.
        let _ = self.line.events.send(event);
    }

    fn redact(&self, part: &mut Part) {
        if let Part::Text { text } = part {
            *text = self.agent.secrets.redact(text).into_owned();
        }
    }
}

/// Whether the message broke off behind words that a person has seen.
fn is_unfinished(message: &Assistant) -> bool {
    message.stop == Stop::Cut && !message.text().trim().is_empty()
}

/// A message on its way in.
struct Streamed {
    events: broadcast::Sender<Event>,
    request: u32,
    /// Bytes of text so far.
    offset: usize,
    message: Accumulator,
}

impl Streamed {
    fn take(&mut self, delta: Delta) {
        let event = match &delta {
            Delta::Text(text) if !text.is_empty() => {
                let offset = self.offset;
                self.offset += text.len();
                Some(Event::TextDelta { request: self.request, offset, delta: text.as_str().into() })
            }
            Delta::Thinking { text, .. } if !text.is_empty() => {
                Some(Event::ThinkingDelta { delta: text.as_str().into() })
            }
            Delta::Warning(message) => Some(Event::Warned { message: message.clone() }),
            Delta::Retrying { attempt, delay, reason } => Some(Event::Retried {
                attempt: *attempt,
                delay_ms: u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
                reason: reason.clone(),
            }),
            _ => None,
        };
        if let Some(event) = event {
            // Nobody may be listening; the message is kept all the same.
            let _ = self.events.send(event);
        }
        self.message.push(delta);
    }
}

/// Milliseconds since `start`.
fn since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}

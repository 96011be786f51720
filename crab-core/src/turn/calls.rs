//! A message's calls: prepared, run and answered, each by one path.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::broadcast;
use tokio_util::task::AbortOnDropHandle;

use super::{Halt, Turn, since};
use crate::changes::Made;
use crate::clip;
use crate::gate::{Hidden, Permit, Verdict};
use crate::message::{Part, Stop, ToolCall, ToolResult, text_of};
use crate::protocol::{Answer, By, Decision, Denied, Event, Question};
use crate::redact::{Redacting, Secrets};
use crate::session::{Body, Facts};
use crate::tools::{Access, Cx, Kind, Output, Tool, View};

/// How long cancelled calls may take, all together, to end by themselves: time to stop their processes and to say what
/// they have so far. Front ends wait a little longer.
const GRACE: Duration = Duration::from_millis(1500);
const CUT: &str = "not run: the answer was cut by the limit of output tokens in the middle of its calls. \
                   Make smaller calls, one at a time: write a long file in parts.";
const NOT_STARTED: &str = "not run: the turn was interrupted before this call started";

/// A call on its way to its result.
enum Prepared<'a> {
    /// It may run.
    Ready(Ready<'a>),
    /// It has its answer already.
    Answered(String),
}

/// A call that may run.
struct Ready<'a> {
    call: &'a ToolCall,
    tool: Arc<dyn Tool>,
    permit: Permit,
    kind: Kind,
    /// What runs: the call's own arguments, or those that the user made of them.
    arguments: Value,
    /// The command that the user put in the place of the model's.
    edited: Option<String>,
}

/// What the gate and the user make of a call.
enum Passage {
    Open(Permit),
    /// The text is for the model.
    Closed(String),
    /// The user changed the command, which has to pass again.
    Edited(String),
}

/// A call that the gate looks at.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    call: &'a ToolCall,
    tool: &'a Arc<dyn Tool>,
    access: &'a Access,
    title: &'a str,
}

/// A call that runs, in a task of its own that ends when this is dropped.
struct Started {
    task: AbortOnDropHandle<Outcome>,
    start: Instant,
}

/// What a call came to, before it is written.
struct Outcome {
    result: Result<Output, String>,
    ms: u64,
}

impl Outcome {
    fn error(text: impl Into<String>) -> Self {
        Self { result: Err(text.into()), ms: 0 }
    }

    /// Puts words in front of what the model reads.
    fn tell(&mut self, words: &str) {
        match &mut self.result {
            Ok(output) => output.content.insert(0, Part::text(words)),
            Err(text) => text.insert_str(0, &format!("{words}\n")),
        }
    }
}

impl Turn<'_> {
    /// Runs the calls of one message: neighbours that only read side by side, all others one after another, so that
    /// each sees what those before it did. Gives the text of each result.
    pub(super) async fn run_calls(&mut self, calls: &[ToolCall]) -> Result<Vec<String>, Halt> {
        let mut texts = Vec::new();
        let mut batch: Vec<Ready> = Vec::new();
        for call in calls {
            if self.line.cancel.is_cancelled() {
                // What was already begun is answered first: results stay in the order of the calls.
                texts.extend(self.run_batch(std::mem::take(&mut batch)).await);
                self.announce(call);
                texts.push(self.answer(call, Outcome::error(NOT_STARTED)));
                continue;
            }
            if self.access(call).is_none_or(|access| access.kind != Kind::Read) {
                texts.extend(self.run_batch(std::mem::take(&mut batch)).await);
            }
            match self.prepare(call).await {
                Prepared::Ready(ready) => {
                    let kind = ready.kind;
                    batch.push(ready);
                    if kind != Kind::Read {
                        texts.extend(self.run_batch(std::mem::take(&mut batch)).await);
                    }
                }
                Prepared::Answered(text) => {
                    texts.extend(self.run_batch(std::mem::take(&mut batch)).await);
                    texts.push(self.answer(call, Outcome::error(text)));
                }
            }
        }
        texts.extend(self.run_batch(batch).await);
        if self.line.cancel.is_cancelled() { Err(Halt::Aborted) } else { Ok(texts) }
    }

    /// Answers the calls of a message that the output limit cut: none of them runs, for the later ones may be missing.
    pub(super) fn refuse_cut(&mut self, calls: &[ToolCall]) -> Vec<String> {
        self.warn("the output limit cut the answer in the middle of a tool call, which was not run".into());
        self.refuse(calls, Stop::Length, CUT)
    }

    /// Answers calls that will not run. What is no whole call is answered in the session alone.
    pub(super) fn refuse(&mut self, calls: &[ToolCall], stop: Stop, why: &str) -> Vec<String> {
        let was_cut = !matches!(stop, Stop::End | Stop::ToolCalls);
        let answers = calls.iter().map(|call| match call.arguments.as_str().filter(|_| was_cut) {
            None => {
                self.announce(call);
                self.answer(call, Outcome::error(why))
            }
            Some(raw) => {
                let text = format!("{why}\nreceived of the arguments: {}", clip::middle(raw, 1_000));
                text_of(&self.record(call, Outcome::error(text)).0.content)
            }
        });
        answers.collect()
    }

    fn tool(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.agent.tools.iter().find(|tool| tool.name() == name).cloned()
    }

    fn access(&self, call: &ToolCall) -> Option<Access> {
        let tool = self.tool(&call.name)?;
        let cx = self.cx(self.live(&call.id));
        std::panic::catch_unwind(AssertUnwindSafe(|| tool.access(&call.arguments, &cx))).ok()
    }

    /// Tells that a whole call will be run, denied or answered; gives its title.
    fn announce(&self, call: &ToolCall) -> String {
        let title =
            self.tool(&call.name).map_or_else(|| call.name.clone(), |tool| tool.title(&call.arguments));
        self.send(Event::CallStarted { call: call.clone(), title: title.clone() });
        title
    }

    /// Looks the tool up, checks the arguments' form and asks the gate; says so to the front end.
    async fn prepare<'a>(&mut self, call: &'a ToolCall) -> Prepared<'a> {
        let (found, mut title) = (self.tool(&call.name), self.announce(call));
        let Some(tool) = found else { return Prepared::Answered(self.unknown(&call.name)) };
        if let Some(raw) = call.arguments.as_str() {
            return Prepared::Answered(unparsable(tool.as_ref(), raw));
        }
        let mut current = call.clone();
        let mut edited = None;
        loop {
            let Some(access) = self.access(&current) else {
                let why = format!("not run: `{}` failed while it looked at its arguments", call.name);
                return Prepared::Answered(why);
            };
            let candidate = Candidate { call: &current, tool: &tool, access: &access, title: &title };
            match self.gate(&candidate).await {
                Passage::Open(permit) => {
                    let arguments = current.arguments;
                    return Prepared::Ready(Ready {
                        call,
                        tool,
                        permit,
                        kind: access.kind,
                        arguments,
                        edited,
                    });
                }
                Passage::Closed(text) => return Prepared::Answered(text),
                Passage::Edited(command) => {
                    let Some(arguments) = tool.edited(&current.arguments, &command) else {
                        return Prepared::Answered(
                            "not run: the user wanted to change it, which cannot be done".into(),
                        );
                    };
                    current.arguments = arguments;
                    title = tool.title(&current.arguments);
                    edited = Some(command);
                }
            }
        }
    }

    async fn gate(&mut self, candidate: &Candidate<'_>) -> Passage {
        let Candidate { call, tool, access, title } = *candidate;
        let (decision, by, outcome) = match self.agent.gate.decide(tool.name(), access) {
            Verdict::Allow(permit, by) => (Decision::Allow, by, Ok(permit)),
            Verdict::Deny(text) => (Decision::Deny, By::Rule, Err(text)),
            Verdict::Ask(reason) => {
                let answer = match self.question(candidate, reason).await {
                    Some(Answer::Edit(command)) => return Passage::Edited(command),
                    Some(answer) => answer,
                    None => return Passage::Closed(NOT_STARTED.into()),
                };
                let ruling = self.agent.gate.rule(access, answer);
                (ruling.decision, ruling.by, ruling.outcome)
            }
        };
        if outcome.is_err() {
            let denied = Denied { id: call.id.clone(), name: call.name.clone(), title: title.to_owned() };
            self.end.denied.push(denied);
        }
        // Reads that no rule had to decide are not worth a line each.
        if !(access.kind == Kind::Read && decision == Decision::Allow) {
            self.append(Body::Permission {
                tool_call_id: call.id.clone(),
                name: call.name.clone(),
                decision,
                by,
            });
        }
        self.send(Event::PermissionDecided { id: call.id.clone(), name: call.name.clone(), decision, by });
        outcome.map_or_else(Passage::Closed, Passage::Open)
    }

    /// Asks the user and waits for the answer. `None` when the turn is aborted.
    async fn question(&mut self, candidate: &Candidate<'_>, reason: String) -> Option<Answer> {
        let Candidate { call, tool, access, title } = *candidate;
        let (worker, arguments, cx) = (tool.clone(), call.arguments.clone(), self.cx(self.live(&call.id)));
        let preview = tokio::task::spawn_blocking(move || worker.preview(&arguments, &cx)).await;
        let view = preview.unwrap_or_else(|_| View::Line { text: call.arguments.to_string() });
        self.send(Event::QuestionAsked(Question {
            call: call.clone(),
            title: title.to_owned(),
            view: self.redacted(view),
            reason,
            class: access.class.clone(),
        }));
        let cancel = self.line.cancel.clone();
        loop {
            match cancel.run_until_cancelled(self.line.answered.recv()).await? {
                Some((id, answer)) if id == call.id => return Some(answer),
                // An answer that came too late for an earlier question.
                Some(_) => {}
                None => return Some(Answer::Unattended),
            }
        }
    }

    fn unknown(&self, name: &str) -> String {
        let names: Vec<&str> = self.agent.tools.iter().map(|tool| tool.name()).collect();
        format!("there is no tool `{}`; the tools are: {}", clip::middle(name, 100), names.join(", "))
    }

    /// Runs calls side by side and writes their results in the order of the calls.
    async fn run_batch(&mut self, batch: Vec<Ready<'_>>) -> Vec<String> {
        if batch.iter().any(|ready| ready.kind != Kind::Read) {
            self.settle().await;
        }
        let started = batch.into_iter().map(|mut ready| (ready.call, ready.edited.take(), self.start(ready)));
        let started: Vec<_> = started.collect();
        let mut texts = Vec::with_capacity(started.len());
        for (call, edited, running) in started {
            let mut outcome = self.wait(running).await;
            if let Some(command) = edited {
                outcome.tell(&format!("(the user changed the command before it ran; this ran: {command})"));
            }
            texts.push(self.answer(call, outcome));
        }
        texts
    }

    fn start(&self, Ready { call, tool, permit, arguments, .. }: Ready<'_>) -> Started {
        let (live, start) = (self.live(&call.id), Instant::now());
        let cx = self.cx(live.clone());
        let task = tokio::spawn(async move {
            let result = tool.run(arguments, permit, cx).await;
            live.finish();
            Outcome { result, ms: since(start) }
        });
        Started { task: AbortOnDropHandle::new(task), start }
    }

    /// Waits for a call: its own end, or a short grace after an abort.
    async fn wait(&mut self, Started { mut task, start }: Started) -> Outcome {
        let joined = match self.line.cancel.run_until_cancelled(&mut task).await {
            Some(joined) => joined,
            None => match tokio::time::timeout_at(self.deadline(), &mut task).await {
                Ok(joined) => joined,
                Err(_) => {
                    let text =
                        "interrupted: the call did not end in time and was dropped; its effects are unknown";
                    return Outcome { result: Err(text.into()), ms: since(start) };
                }
            },
        };
        joined.unwrap_or_else(|error| Outcome { result: Err(panicked(error)), ms: since(start) })
    }

    /// When the last call must have ended after an abort.
    fn deadline(&mut self) -> tokio::time::Instant {
        *self.deadline.get_or_insert_with(|| tokio::time::Instant::now() + GRACE)
    }

    /// Writes a call's one result into the session, then tells of it.
    fn answer(&mut self, call: &ToolCall, outcome: Outcome) -> String {
        let (result, view) = self.record(call, outcome);
        let text = text_of(&result.content);
        self.send(Event::CallDone { result: Arc::new(result), view: self.redacted(view) });
        text
    }

    fn record(&mut self, call: &ToolCall, outcome: Outcome) -> (ToolResult, View) {
        let is_error = outcome.result.is_err();
        let (mut content, view) = match outcome.result {
            Ok(output) => (output.content, output.view),
            Err(text) => {
                let line = text.lines().next().unwrap_or_default().to_owned();
                (vec![Part::text(text)], View::Line { text: line })
            }
        };
        content.iter_mut().for_each(|part| self.redact(part));
        content.retain(|part| !matches!(part, Part::Text { text } if text.trim().is_empty()));
        if content.is_empty() {
            content.push(Part::text("(no output)"));
        }
        let result = ToolResult {
            tool_call_id: call.id.clone(),
            name: call.name.clone(),
            is_error,
            content,
            ms: outcome.ms,
        };
        self.append(Body::ToolResult(result.clone()));
        let Made { changed, problems } = self.agent.changes.take();
        problems.into_iter().for_each(|problem| self.warn(problem));
        if !changed.is_empty() {
            self.append(Body::noting("files were changed", Facts { changed, ..Facts::default() }));
        }
        (result, view)
    }

    fn redacted(&self, mut view: View) -> View {
        let texts = match &mut view {
            View::Line { text } => vec![text],
            View::Diff { path, diff, .. } => vec![path, diff],
            View::Command { command, outcome } => vec![command, outcome],
        };
        for text in texts {
            *text = self.agent.secrets.redact(text).into_owned();
        }
        view
    }

    /// What a deny rule keeps from any tool that only reads is kept from those that search. To forbid a search outright
    /// hides nothing from the others; to forbid what shows the place that it is given does.
    pub(super) fn hide(&self) -> Option<Hidden> {
        let cx = self.cx(self.live(""));
        let access = |tool: &Arc<dyn Tool>| {
            std::panic::catch_unwind(AssertUnwindSafe(|| tool.access(&serde_json::json!({}), &cx))).ok()
        };
        // Also of tools that this session does not offer: the rule is about the places.
        let known = crate::tools::all();
        let tools = self.agent.tools.iter().chain(&known);
        let tools = tools.filter_map(|tool| Some((tool.name(), access(tool)?)));
        let tools: Vec<_> = tools.filter(|(_, access)| access.kind == Kind::Read).collect();
        let readers: Vec<&str> =
            tools.iter().filter(|(_, access)| access.opaque).map(|(name, _)| *name).collect();
        self.agent.gate.hidden(&tools.iter().map(|(name, _)| *name).collect::<Vec<_>>(), &readers)
    }

    fn live(&self, id: &str) -> Arc<Live> {
        let secrets = self.agent.secrets.clone();
        let clean = Mutex::new(Redacting::new(secrets.clone()));
        Arc::new(Live { events: self.line.events.clone(), id: id.to_owned(), clean, secrets })
    }

    fn cx(&self, live: Arc<Live>) -> Cx {
        let agent = &*self.agent;
        Cx {
            cwd: agent.cwd.clone(),
            seen: agent.seen.clone(),
            changes: agent.changes.clone(),
            cancel: self.line.cancel.clone(),
            output: Arc::new(move |chunk| live.push(chunk)),
            environment: agent.environment.clone(),
            spill: agent.spill.clone(),
            hidden: self.hidden.clone(),
            secrets: agent.secrets.clone(),
        }
    }
}

/// The live output of a call, with secrets taken out that may come in pieces.
struct Live {
    events: broadcast::Sender<Event>,
    id: String,
    clean: Mutex<Redacting>,
    secrets: Arc<Secrets>,
}

impl Live {
    fn push(&self, chunk: &str) {
        let chunk = self.clean.lock().unwrap_or_else(PoisonError::into_inner).push(chunk);
        self.send(chunk);
    }

    /// Lets out what was held back because it could have been the beginning of a secret.
    fn finish(&self) {
        let mut clean = self.clean.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = std::mem::replace(&mut *clean, Redacting::new(self.secrets.clone())).finish();
        drop(clean);
        self.send(rest);
    }

    fn send(&self, chunk: String) {
        if !chunk.is_empty() {
            // Live output is for whoever watches; the result has it all.
            let _ = self.events.send(Event::ToolOutput { id: self.id.clone(), chunk });
        }
    }
}

fn unparsable(tool: &dyn Tool, raw: &str) -> String {
    let why = match serde_json::from_str::<serde_json::Value>(raw) {
        Ok(_) => "they are JSON, but not an object".to_owned(),
        Err(err) => err.to_string(),
    };
    format!(
        "not run: the arguments of `{}` are no JSON object ({why})\nreceived: {}\nexpected, as a JSON schema: {}",
        tool.name(),
        clip::middle(raw, 2_000),
        tool.schema()
    )
}

fn panicked(error: tokio::task::JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else { return "interrupted: its effects are unknown".into() };
    let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    format!("the tool failed in itself ({said}); this is a fault of crab, not of the call: try another way")
}

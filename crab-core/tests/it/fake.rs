//! A scripted provider that refuses malformed histories, tools made of closures, and a front end made of a few verbs.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use crab_core::agent::{self, Agent, Handle, Limits, Model};
use crab_core::gate::{Gate, Permit};
use crab_core::home::Home;
use crab_core::message::{Message, Part, Stop, text_of};
use crab_core::process::Environment;
use crab_core::protocol::{Command, End, Event, Failure, FailureKind};
use crab_core::provider::{Delta, Deltas, Error, Provider, Request};
use crab_core::redact::Secrets;
use crab_core::seen::Seen;
use crab_core::session::Session;
use crab_core::tools::{Access, Cx, Kind, Output, Running, Tool};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

/// One thing that the fake service does.
#[derive(Clone)]
pub(crate) enum Step {
    Delta(Delta),
    Hang,
    Fail(FailureKind),
}

pub(crate) fn say(text: &str) -> Step {
    Step::Delta(Delta::Text(text.into()))
}

pub(crate) fn stop(stop: Stop) -> Step {
    Step::Delta(Delta::Stop(stop))
}

pub(crate) fn call(id: &str, name: &str, arguments: &str) -> Step {
    half_call(id, name, arguments)
}

/// The same deltas as a whole call: only what follows tells them apart.
pub(crate) fn half_call(id: &str, name: &str, arguments: &str) -> Step {
    Step::Delta(Delta::Call {
        index: None,
        id: Some(id.into()),
        name: Some(name.into()),
        arguments: Some(arguments.into()),
        extra: None,
    })
}

struct Scripted {
    name: &'static str,
    answers: Mutex<VecDeque<Vec<Step>>>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Provider for Scripted {
    fn name(&self) -> &str {
        self.name
    }

    fn stream(&self, request: Request) -> Deltas {
        let fault = malformed(&request.messages);
        self.requests.lock().unwrap().push(request);
        let mut steps = match fault {
            Some(fault) => panic!("malformed request: {fault}"),
            None => self.answers.lock().unwrap().pop_front().unwrap_or_else(|| vec![say("script ended")]),
        };
        let has = |wanted: fn(&Step) -> bool, steps: &[Step]| steps.iter().any(wanted);
        if !has(|step| matches!(step, Step::Hang | Step::Fail(_) | Step::Delta(Delta::Stop(_))), &steps) {
            let calls = has(|step| matches!(step, Step::Delta(Delta::Call { .. })), &steps);
            steps.push(stop(if calls { Stop::ToolCalls } else { Stop::End }));
        }
        Box::pin(stream::unfold(VecDeque::from(steps), |mut steps| async move {
            let item = match steps.pop_front()? {
                Step::Delta(delta) => Ok(delta),
                Step::Hang => std::future::pending().await,
                Step::Fail(kind) => Err(Error {
                    failure: Failure { kind, message: "fake failure".into(), status: None, provider: None },
                    retry_after: None,
                }),
            };
            Some((item, steps))
        }))
    }
}

/// What a strict service would refuse in this history.
fn malformed(messages: &[Message]) -> Option<String> {
    let mut open: VecDeque<&str> = VecDeque::new();
    for (at, message) in messages.iter().enumerate() {
        match message {
            Message::ToolResult(result) => {
                if open.pop_front() != Some(&result.tool_call_id) {
                    return Some(format!("{at}: result {} does not follow its call", result.tool_call_id));
                }
                if result.content.is_empty() {
                    return Some(format!("{at}: empty result"));
                }
            }
            _ if !open.is_empty() => return Some(format!("{at}: calls without results: {open:?}")),
            Message::User(parts) if text_of(parts).trim().is_empty() => {
                return Some(format!("{at}: empty user message"));
            }
            Message::User(_) => {}
            Message::Assistant(message) if message.content.is_empty() => {
                return Some(format!("{at}: empty message"));
            }
            Message::Assistant(message) => open.extend(message.calls().map(|call| call.id.as_str())),
        }
    }
    (!open.is_empty()).then(|| format!("the end: calls without results: {open:?}"))
}

type Body = Box<dyn Fn(Cx) -> Pin<Box<dyn Future<Output = Result<Output, String>> + Send>> + Send + Sync>;

/// A tool made of a closure.
pub(crate) struct Fake {
    name: &'static str,
    kind: Kind,
    body: Body,
}

impl Fake {
    pub(crate) fn new(
        name: &'static str,
        kind: Kind,
        body: impl Fn(Cx) -> Pin<Box<dyn Future<Output = Result<Output, String>> + Send>> + Send + Sync + 'static,
    ) -> Self {
        Self { name, kind, body: Box::new(body) }
    }

    pub(crate) fn text(name: &'static str, kind: Kind, text: &'static str) -> Self {
        Self::new(name, kind, move |_| Box::pin(async move { Ok(Output::text(text, "")) }))
    }
}

impl Tool for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn description(&self) -> &str {
        "a fake"
    }

    fn schema(&self) -> Value {
        json!({"type": "object", "properties": {}})
    }

    fn access(&self, _: &Value, _: &Cx) -> Access {
        Access {
            kind: self.kind,
            subjects: vec![],
            reads: vec![],
            opaque: false,
            class: format!("every {}", self.name),
        }
    }

    fn title(&self, _: &Value) -> String {
        self.name.into()
    }

    fn run<'a>(&'a self, _: Value, _: Permit, cx: Cx) -> Running<'a> {
        (self.body)(cx)
    }
}

/// A conversation that is not started yet.
pub(crate) struct Chat {
    answers: Vec<Vec<Step>>,
    tools: Vec<Arc<dyn Tool>>,
    gate: Gate,
    secrets: Vec<(String, String)>,
    session: Option<Session>,
    folder: tempfile::TempDir,
    pub(crate) limits: Limits,
    fallback: Vec<Vec<Vec<Step>>>,
}

impl Chat {
    pub(crate) fn new(answers: impl IntoIterator<Item = Vec<Step>>) -> Self {
        Self {
            answers: answers.into_iter().collect(),
            tools: vec![],
            gate: Gate::default(),
            secrets: vec![],
            session: None,
            folder: tempfile::tempdir().unwrap(),
            fallback: vec![],
            limits: Limits::default(),
        }
    }

    pub(crate) fn tool(&mut self, tool: Fake) {
        self.tools.push(Arc::new(tool));
    }

    /// The tools of crab itself.
    pub(crate) fn real_tools(&mut self) {
        self.tools.extend(crab_core::tools::all());
    }

    /// A model to fall back on, with its answers.
    pub(crate) fn spare(&mut self, answers: impl IntoIterator<Item = Vec<Step>>) {
        self.fallback.push(answers.into_iter().collect());
    }

    pub(crate) fn yolo(&mut self) {
        self.gate.yolo = true;
    }

    pub(crate) fn secret(&mut self, name: &str, value: &str) {
        self.secrets.push((name.into(), value.into()));
    }

    /// Keeps the session in a file, whose path it gives.
    pub(crate) fn saved(&mut self) -> PathBuf {
        let home = Home::at(self.folder.path().join("home"));
        let session = Session::create(&home, self.folder.path(), Arc::new(Secrets::default()));
        let file = session.file().unwrap().to_path_buf();
        self.session = Some(session);
        file
    }

    pub(crate) fn start(self) -> Started {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let scripted = |name, answers: Vec<Vec<Step>>| {
            let requests = requests.clone();
            Arc::new(Scripted { name, answers: Mutex::new(answers.into()), requests })
        };
        let provider = scripted("fake", self.answers);
        let other = |answers| Model {
            provider: scripted("spare", answers),
            name: "spare-model".into(),
            max_output: None,
        };
        let model = Model { provider: provider.clone(), name: "fake-model".into(), max_output: None };
        let fallback = self.fallback.into_iter().map(other).collect();
        let secrets = Arc::new(Secrets::new(self.secrets));
        let handle = agent::spawn(Agent {
            model: model.clone(),
            fallback,
            effort: None,
            system: "be brief".into(),
            tools: self.tools,
            gate: self.gate,
            session: self.session.unwrap_or_else(|| Session::ephemeral(self.folder.path(), secrets.clone())),
            limits: self.limits,
            cwd: self.folder.path().to_path_buf(),
            environment: Arc::new(Environment::default()),
            spill: self.folder.path().join("spill"),
            secrets,
            seen: Arc::new(Seen::default()),
            changes: Arc::default(),
        });
        Started { handle, model, requests, log: vec![], lagged: 0, _folder: self.folder }
    }
}

/// A running conversation, seen from its front end.
pub(crate) struct Started {
    handle: Handle,
    model: Model,
    requests: Arc<Mutex<Vec<Request>>>,
    /// Every event so far.
    pub(crate) log: Vec<Event>,
    /// Events missed.
    pub(crate) lagged: u64,
    _folder: tempfile::TempDir,
}

impl Started {
    /// Another model of the same fake service.
    pub(crate) fn model(&self, name: &str) -> Model {
        Model { name: name.into(), ..self.model.clone() }
    }

    pub(crate) async fn send(&self, command: Command) {
        self.handle.commands.send(command).await.unwrap();
    }

    pub(crate) async fn submit(&self, prompt: &str) {
        self.send(Command::Submit(vec![Part::text(prompt)])).await;
    }

    async fn next(&mut self) -> Event {
        loop {
            match self.handle.events.recv().await {
                Ok(event) => {
                    self.log.push(event.clone());
                    return event;
                }
                Err(RecvError::Lagged(missed)) => self.lagged += missed,
                Err(RecvError::Closed) => panic!("the agent is gone; it said {:?}", self.log),
            }
        }
    }

    /// Receives until an event fits.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&Event) -> bool) {
        loop {
            let event = self.next().await;
            if wanted(&event) {
                return;
            }
            if let Event::TurnEnded(end) = event {
                panic!("the turn ended first: {end:?}");
            }
        }
    }

    /// Receives until the turn ends.
    pub(crate) async fn end(&mut self) -> End {
        loop {
            if let Event::TurnEnded(end) = self.next().await {
                return end;
            }
        }
    }

    /// How many events so far fit.
    pub(crate) fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.log.iter().filter(|event| wanted(event)).count()
    }

    /// The nth request, from 1.
    pub(crate) fn request(&self, n: usize) -> Request {
        self.requests.lock().unwrap()[n - 1].clone()
    }

    /// The texts of all results in the nth request.
    pub(crate) fn results(&self, n: usize) -> Vec<String> {
        let results = self.request(n).messages.into_iter().filter_map(|message| match message {
            Message::ToolResult(result) => Some(text_of(&result.content)),
            _ => None,
        });
        results.collect()
    }
}

//! The task that owns a conversation: inbox, queue, one cancellation token a turn.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::CancellationToken;

use crate::changes::Changes;
use crate::gate::Gate;
use crate::message::Part;
use crate::process::Environment;
use crate::protocol::{Change, Command, Event};
use crate::provider::{Effort, Provider};
use crate::redact::Secrets;
use crate::seen::Seen;
use crate::session::{self, Body, Session};
use crate::tools::Tool;
use crate::turn;

/// Events that a slow receiver may fall behind before it misses some.
const EVENTS: usize = 4096;

/// All that a front end holds. Dropping `commands` aborts the running turn and ends the agent.
pub struct Handle {
    /// Commands in.
    pub commands: mpsc::Sender<Command>,
    /// Events out. A receiver can lag: whole messages come in [`Event::MessageDone`] and once more with the turn's end.
    pub events: broadcast::Receiver<Event>,
}

/// What stops an unattended turn.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Model requests in one turn.
    pub requests: Option<u32>,
    /// US dollars in one turn, where the service says what it costs.
    pub cost_usd: Option<f64>,
    /// Time for one turn.
    pub time: Option<Duration>,
}

/// Who answers.
#[derive(Clone)]
pub struct Model {
    /// The service.
    pub provider: Arc<dyn Provider>,
    /// The model's name as the service knows it.
    pub name: String,
    /// At most so many output tokens a request.
    pub max_output: Option<u32>,
}

/// A conversation and all that it runs with.
pub struct Agent {
    /// Who answers.
    pub model: Model,
    /// Who answers, one after the other, for the rest of a turn in which the one before stays overloaded.
    pub fallback: Vec<Model>,
    /// How hard the model thinks.
    pub effort: Option<Effort>,
    /// The system prompt.
    pub system: Arc<str>,
    /// What is on offer, in the order in which the model sees it.
    pub tools: Vec<Arc<dyn Tool>>,
    /// What decides whether a call may run.
    pub gate: Gate,
    /// Where everything is written.
    pub session: Session,
    /// When to stop.
    pub limits: Limits,
    /// The working directory, absolute.
    pub cwd: PathBuf,
    /// What commands find in their environment.
    pub environment: Arc<Environment>,
    /// Where output goes that is too long for a result.
    pub spill: PathBuf,
    /// What must never reach a file, a request or a screen.
    pub secrets: Arc<Secrets>,
    /// What was read in this session.
    pub seen: Arc<Seen>,
    /// What its calls change.
    pub changes: Arc<Changes>,
}

/// Starts the agent's task on the current runtime.
pub fn spawn(agent: Agent) -> Handle {
    let (commands, inbox) = mpsc::channel(64);
    let (events, receiver) = broadcast::channel(EVENTS);
    tokio::spawn(run(agent, inbox, events));
    Handle { commands, events: receiver }
}

/// What waits its turn.
enum Job {
    Prompt(Vec<Part>),
    Change(Change),
}

async fn run(mut agent: Agent, mut inbox: mpsc::Receiver<Command>, events: broadcast::Sender<Event>) {
    let mut queue = VecDeque::new();
    loop {
        let job = match queue.pop_front() {
            Some(job) => job,
            None => match inbox.recv().await {
                Some(Command::Submit(prompt)) => Job::Prompt(prompt),
                Some(Command::Change(change)) => Job::Change(change),
                // Nothing runs and nothing is asked: there is nothing to abort or answer.
                Some(Command::Abort | Command::Answer { .. }) => continue,
                None => return,
            },
        };
        match job {
            Job::Change(Change::Model(model)) => agent.model = model,
            Job::Change(Change::Effort(effort)) => agent.effort = effort,
            Job::Change(Change::Title(text)) => {
                tell(agent.session.append(Body::Title { text }).map(drop), &events);
            }
            Job::Change(Change::GoTo { id, undone }) => tell(agent.session.go_to(&id, undone), &events),
            Job::Prompt(prompt) => {
                if !drive(&mut agent, prompt, &mut inbox, &events, &mut queue).await {
                    return;
                }
            }
        }
    }
}

/// What could not be saved stays with the session as long as it lives.
fn tell(done: Result<(), session::Error>, events: &broadcast::Sender<Event>) {
    if let Err(error) = done {
        // Nobody may be listening.
        let _ = events.send(Event::Warned { message: error.to_string() });
    }
}

/// Runs one turn while commands keep coming. False when the front end has gone.
async fn drive(
    agent: &mut Agent,
    prompt: Vec<Part>,
    inbox: &mut mpsc::Receiver<Command>,
    events: &broadcast::Sender<Event>,
    queue: &mut VecDeque<Job>,
) -> bool {
    let cancel = CancellationToken::new();
    let (answers, answered) = mpsc::channel(8);
    let turn =
        turn::run(agent, prompt, turn::Line { events: events.clone(), answered, cancel: cancel.clone() });
    tokio::pin!(turn);
    let mut attended = true;
    loop {
        tokio::select! {
            biased;
            command = inbox.recv(), if attended => match command {
                Some(Command::Submit(prompt)) => queue.push_back(Job::Prompt(prompt)),
                Some(Command::Change(change)) => queue.push_back(Job::Change(change)),
                Some(Command::Abort) => cancel.cancel(),
                // The turn drops answers to questions that it no longer asks; eight of them unread are more than
                // any front end has reason to send.
                Some(Command::Answer { id, answer }) => drop(answers.try_send((id, answer))),
                None => {
                    attended = false;
                    cancel.cancel();
                }
            },
            end = &mut turn => {
                // Without a receiver there is nobody left to tell.
                let _ = events.send(Event::TurnEnded(end));
                return attended;
            }
        }
    }
}

//! Everything that a front end needs to know: commands in, events out.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::Model;
use crate::message::{Assistant, Part, ToolCall, ToolResult, Usage};
use crate::provider::Effort;
use crate::tools::View;

/// What a front end tells the agent.
#[derive(Clone, Debug)]
pub enum Command {
    /// Run a turn with this prompt, after those that wait already.
    Submit(Vec<Part>),
    /// End the running turn. Prompts that wait stay in the queue.
    Abort,
    /// Answer the open question about the call `id`. An answer to any other call is ignored.
    Answer {
        /// The call's id.
        id: String,
        /// The user's word.
        answer: Answer,
    },
    /// From the next turn on, behind the prompts that wait already.
    Change(Change),
}

/// What can change between two turns.
#[derive(Clone)]
pub enum Change {
    /// Who answers. The history is made to fit.
    Model(Model),
    /// How hard the model thinks.
    Effort(Option<Effort>),
    /// What the session is about.
    Title(String),
    /// What is said next follows this entry of the session.
    GoTo {
        /// The entry.
        id: String,
        /// The one behind which the conversation went on so far, when it is taken back.
        undone: Option<String>,
    },
}

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Model(model) => write!(f, "Model({}/{})", model.provider.name(), model.name),
            Self::Effort(effort) => write!(f, "Effort({effort:?})"),
            Self::Title(title) => write!(f, "Title({title:?})"),
            Self::GoTo { id, .. } => write!(f, "GoTo({id})"),
        }
    }
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Run this call.
    Allow,
    /// Run this call, and ask no more for its class in this session.
    AllowSession,
    /// Put this in the place of the command that was asked about. The gate looks at it again, and may ask again.
    Edit(String),
    /// Do not run it; the reason goes to the model.
    Deny(Option<String>),
    /// There is nobody to ask.
    Unattended,
}

/// May this call run? Asked one at a time, before the call runs.
#[derive(Clone, Debug, Serialize)]
pub struct Question {
    /// The call.
    pub call: ToolCall,
    /// One line that says what the call does.
    pub title: String,
    /// The whole of what will run or change.
    pub view: View,
    /// Why it is asked: the rule or the default.
    pub reason: String,
    /// What the answer "a" allows for the rest of the session.
    pub class: String,
}

/// How a call's permission was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It may run.
    Allow,
    /// It may run, and so may its class for the session.
    AllowSession,
    /// It may not.
    Deny,
}

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The user at the terminal, now or by an earlier "a".
    User,
    /// A rule, or the class default of a tool that only reads.
    Rule,
    /// `--yolo`.
    Yolo,
    /// Nobody could be asked.
    Unattended,
}

/// What went wrong, in a word that scripts can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// No key, or a refused one.
    Auth,
    /// No credit left: waiting does not help.
    Quota,
    /// Too many requests: waiting helps.
    RateLimit,
    /// The service is too busy.
    Overloaded,
    /// The conversation is longer than the model's window.
    Overflow,
    /// No such model or address.
    NotFound,
    /// The service does not accept the request.
    BadRequest,
    /// The service failed.
    Server,
    /// The stream ended in the middle of an answer.
    Cut,
    /// The model or its filter refused.
    Refusal,
    /// The service could not read the tool call that its own model made.
    ToolFailed,
    /// The service could not be reached.
    Network,
    /// The configuration is wrong.
    Config,
    /// The session could not be read or written.
    Session,
    /// Anything else, an empty answer included.
    Internal,
}

/// A failure for people (`message`, with what to do next) and scripts (`kind`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The class.
    pub kind: FailureKind,
    /// What happened, with the service's own words, and what to do next.
    pub message: String,
    /// The HTTP status, when there was one.
    pub status: Option<u16>,
    /// The provider, when it is its fault.
    pub provider: Option<String>,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EndStop {
    /// The model was done.
    End,
    /// The user stopped it.
    Aborted,
    /// A limit stopped it (`--max-turns`, `--max-cost`, `--timeout`, the loop guard).
    Limit,
    /// It failed.
    Error,
}

/// A call that was not allowed to run.
#[derive(Clone, Debug, Serialize)]
pub struct Denied {
    /// The call's id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// One line that says what the call would have done.
    pub title: String,
}

/// The end of a turn.
#[derive(Clone, Debug, Serialize)]
pub struct End {
    /// How it ended.
    pub stop: EndStop,
    /// What went wrong, when `stop` is `error` or `limit`.
    pub error: Option<Failure>,
    /// The model's messages of this turn by request number (from 1), whole, for a reader that lagged.
    #[serde(skip)]
    pub messages: Vec<Arc<Assistant>>,
    /// Requests made in this turn.
    pub requests: u32,
    /// Their usage, added up.
    pub usage: Usage,
    /// Calls that were not allowed.
    pub denied: Vec<Denied>,
}

/// What the agent tells its front ends.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// A turn began.
    TurnStarted {
        /// Its prompt.
        prompt: Arc<Vec<Part>>,
    },
    /// A request was sent; `request` counts from 1 within the turn.
    RequestStarted {
        /// Its number.
        request: u32,
    },
    /// A piece of the answer's text.
    TextDelta {
        /// The request that it belongs to.
        request: u32,
        /// How many bytes of this message's text came before it: a reader that missed some sees a gap.
        offset: usize,
        /// The text.
        delta: Arc<str>,
    },
    /// A piece of the model's reasoning.
    ThinkingDelta {
        /// The text.
        delta: Arc<str>,
    },
    /// The whole message of a request; it is in the session already.
    MessageDone {
        /// The request's number.
        request: u32,
        /// The message.
        message: Arc<Assistant>,
    },
    /// A request is tried again.
    Retried {
        /// The number of the try that follows, from 2.
        attempt: u32,
        /// How long crab waits before it.
        delay_ms: u64,
        /// Why.
        reason: String,
    },
    /// A call is whole and will be run, denied or answered.
    CallStarted {
        /// The call.
        call: ToolCall,
        /// One line for a person.
        title: String,
    },
    /// A call needs the user's word: send [`Command::Answer`].
    QuestionAsked(Question),
    /// A call's permission was decided.
    PermissionDecided {
        /// The call's id.
        id: String,
        /// The tool.
        name: String,
        /// The decision.
        decision: Decision,
        /// Who decided.
        by: By,
    },
    /// Live output of a running call.
    ToolOutput {
        /// The call's id.
        id: String,
        /// The text.
        chunk: String,
    },
    /// A call has its result; it is in the session already.
    CallDone {
        /// What the model gets.
        result: Arc<ToolResult>,
        /// What a person sees.
        view: View,
    },
    /// Something that the user should know.
    Warned {
        /// One line.
        message: String,
    },
    /// The turn is over.
    TurnEnded(End),
}

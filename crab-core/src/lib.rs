//! The loop, sessions, providers and tools of crab, without a terminal.
//!
//! ```text
//!  front end ──Command──▶ agent ─▶ turn ─▶ context ─▶ Provider::stream ─▶ accumulate ─▶ Message
//!            ◀──Event────           │          calls: gate ─▶ Tool::run ─▶ result
//!                                   └─▶ session::append, before the event
//! ```
//!
//! A front end holds a [`agent::Handle`] and nothing else. Start with [`protocol`], then `turn.rs`, then one tool and
//! one provider; everything else is more files of the same kinds.
//!
//! # A tool of one's own
//!
//! ```
//! use crab_core::gate::Permit;
//! use crab_core::tools::{Access, Cx, Kind, Output, Running, Tool};
//! use serde_json::{Value, json};
//!
//! struct Today;
//!
//! impl Tool for Today {
//!     fn name(&self) -> &str {
//!         "today"
//!     }
//!     fn description(&self) -> &str {
//!         "The day's number since 1970-01-01."
//!     }
//!     fn schema(&self) -> Value {
//!         json!({"type": "object", "properties": {}})
//!     }
//!     fn access(&self, _: &Value, _: &Cx) -> Access {
//!         Access { kind: Kind::Read, subjects: vec![], reads: vec![], opaque: false, class: "the date".into() }
//!     }
//!     fn title(&self, _: &Value) -> String {
//!         "today".into()
//!     }
//!     fn run<'a>(&'a self, _: Value, _: Permit, _: Cx) -> Running<'a> {
//!         Box::pin(async {
//!             let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
//!             let days = now.map_err(|err| err.to_string())?.as_secs() / 86_400;
//!             Ok(Output::text(days.to_string(), "one number"))
//!         })
//!     }
//! }
//! ```
//!
//! # A provider of one's own, and an event handler
//!
//! ```
//! use std::sync::Arc;
//!
//! use crab_core::agent::{self, Agent, Limits, Model};
//! use crab_core::message::{Part, Stop};
//! use crab_core::protocol::{Command, Event};
//! use crab_core::provider::{Delta, Deltas, Provider, Request};
//! use crab_core::{gate::Gate, process::Environment, redact::Secrets, seen::Seen, session::Session, tools};
//!
//! /// Answers everything with one word.
//! struct Yes;
//!
//! impl Provider for Yes {
//!     fn name(&self) -> &str {
//!         "yes"
//!     }
//!     fn stream(&self, _: Request) -> Deltas {
//!         let deltas = [Delta::Text("Yes.".into()), Delta::Stop(Stop::End)];
//!         Box::pin(futures_util::stream::iter(deltas.map(Ok)))
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let cwd = std::env::current_dir().unwrap();
//! let secrets = Arc::new(Secrets::default());
//! let mut handle = agent::spawn(Agent {
//!     model: Model { provider: Arc::new(Yes), name: "yes-1".into(), max_output: None },
//!     fallback: vec![],
//!     effort: None,
//!     system: "Be brief.".into(),
//!     tools: tools::all(),
//!     gate: Gate::default(),
//!     session: Session::ephemeral(&cwd, secrets.clone()),
//!     limits: Limits::default(),
//!     spill: std::env::temp_dir(),
//!     environment: Arc::new(Environment::default()),
//!     changes: Arc::default(),
//!     seen: Arc::new(Seen::default()),
//!     cwd,
//!     secrets,
//! });
//! handle.commands.send(Command::Submit(vec![Part::text("Well?")])).await.unwrap();
//! let mut said = String::new();
//! loop {
//!     match handle.events.recv().await.unwrap() {
//!         Event::TextDelta { delta, .. } => said.push_str(&delta),
//!         Event::QuestionAsked(question) => {
//!             let answer = crab_core::protocol::Answer::Deny(None);
//!             handle.commands.send(Command::Answer { id: question.call.id, answer }).await.unwrap();
//!         }
//!         Event::TurnEnded(_) => break,
//!         _ => {}
//!     }
//! }
//! assert_eq!(said, "Yes.");
//! # });
//! ```
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![warn(missing_docs)]

pub mod accumulate;
pub mod agent;
pub mod attach;
mod capture;
pub mod changes;
pub mod clip;
pub mod config;
pub mod context;
mod diff;
pub mod gate;
pub mod home;
pub mod message;
mod nearest;
mod paths;
pub mod process;
mod programs;
pub mod prompt;
pub mod protocol;
pub mod provider;
pub mod redact;
mod replace;
mod search;
pub mod seen;
pub mod session;
mod shell;
pub mod sse;
pub mod stamp;
mod text_file;
pub mod tools;
mod turn;
mod walk;

//! crab-core.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![warn(missing_docs)]

pub mod agent;
pub mod clip;
pub mod config;
pub mod context;
pub mod gate;
pub mod home;
pub mod message;
mod paths;
pub mod process;
pub mod protocol;
pub mod provider;
pub mod redact;
pub mod seen;
pub mod session;
pub mod stamp;
pub mod tools;

//! crab-core.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![warn(missing_docs)]

pub mod agent;
mod capture;
pub mod clip;
pub mod gate;
mod lines;
pub mod message;
mod paths;
pub mod process;
mod programs;
pub mod protocol;
pub mod provider;
pub mod seen;
mod shell;
pub mod tools;
mod walk;

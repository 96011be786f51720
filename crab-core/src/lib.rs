//! crab-core.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![warn(missing_docs)]

pub mod accumulate;
pub mod agent;
pub mod clip;
pub mod gate;
pub mod message;
mod paths;
pub mod process;
pub mod protocol;
pub mod provider;
pub mod seen;
mod sse;
pub mod tools;

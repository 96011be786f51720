//! crab-core.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![warn(missing_docs)]

pub mod agent;
pub mod attach;
pub mod clip;
mod diff;
pub mod gate;
pub mod message;
mod nearest;
mod paths;
pub mod process;
pub mod protocol;
pub mod provider;
mod replace;
pub mod seen;
mod text_file;
pub mod tools;

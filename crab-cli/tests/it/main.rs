//! The program from outside: what scripts, people at a terminal and the documents rely on.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails the test")]

mod crab;
mod format;
mod interactive;
mod pictures;
mod print;
mod screen;
mod server;
mod sessions;
mod survive;
mod terminal;
mod tidy;
mod wire;

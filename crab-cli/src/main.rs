//! Parse, build, run, exit code.
#![allow(dead_code, reason = "the parts are put together by `setup`")]

mod args;
mod caret;
mod confirm;
mod front;
mod input;
mod output;
mod render;
mod signals;
mod stdin;
mod tty;

fn main() {}

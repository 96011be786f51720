#![allow(dead_code, unused_imports)]
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

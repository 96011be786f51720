#![allow(dead_code, unused_imports)]
mod caret;
mod output;
mod render;
mod signals;
mod tty;
fn main() {}

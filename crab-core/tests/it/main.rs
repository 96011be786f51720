//! Integration tests of the core: the loop and the providers, seen from outside.

mod fake;
mod tidy;
mod turns;

//! The integration tests of the core, in one binary: the loop and the providers, seen from outside.
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod fake;
mod provider;
mod tidy;
mod turns;

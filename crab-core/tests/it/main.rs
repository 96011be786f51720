//! The integration tests of the core, in one binary.
#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod provider;

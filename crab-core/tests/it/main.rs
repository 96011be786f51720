//! The integration tests of the core, in one binary.

mod provider;

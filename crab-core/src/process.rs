//! Commands: their environment, their process group, and the guard that ends them with crab.

/// What every command that crab starts finds in its environment.
#[derive(Debug, Default)]
pub struct Environment {
    /// Variables to set.
    pub set: Vec<(String, String)>,
    /// Variables to take out: the keys that crab knows.
    pub remove: Vec<String>,
}

//! The line after a turn: what it changed, ran and cost.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crab_core::message::{ToolResult, Usage};
use crab_core::tools::View;

/// What a turn did so far.
pub(crate) struct Receipt {
    began: Instant,
    files: BTreeSet<String>,
    added: usize,
    removed: usize,
    commands: usize,
}

impl Receipt {
    /// A turn begins.
    pub(crate) fn begin() -> Self {
        Self { began: Instant::now(), files: BTreeSet::new(), added: 0, removed: 0, commands: 0 }
    }

    /// How long the turn has run.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// A call is done.
    pub(crate) fn add(&mut self, result: &ToolResult, view: &View) {
        match view {
            View::Command { .. } => self.commands += 1,
            View::Diff { path, added, removed, .. } if !result.is_error => {
                self.files.insert(path.clone());
                self.added += added;
                self.removed += removed;
            }
            _ => {}
        }
    }

    /// The line; what is nothing or unknown is left out.
    pub(crate) fn line(&self, usage: &Usage, elapsed: Duration) -> String {
        let mut parts = vec![];
        if !self.files.is_empty() {
            let changed = counted(self.files.len(), "file");
            parts.push(format!("{changed} changed (+{} −{})", self.added, self.removed));
        }
        if self.commands > 0 {
            parts.push(format!("{} run", counted(self.commands, "command")));
        }
        parts.extend(tokens(usage));
        parts.extend(usage.cost_usd.map(|cost| format!("${cost:.4}")));
        parts.push(duration(elapsed));
        parts.join(", ")
    }
}

/// Tokens in, from the cache and out, as far as the service said.
pub(crate) fn tokens(usage: &Usage) -> Option<String> {
    let cached = usage.cache_read.filter(|n| *n > 0).map(|n| format!(" ({n} cached)")).unwrap_or_default();
    match (usage.input, usage.output) {
        (Some(input), Some(output)) => Some(format!("{input} tokens in{cached}, {output} out")),
        (Some(input), None) => Some(format!("{input} tokens in{cached}")),
        (None, Some(output)) => Some(format!("{output} tokens out")),
        (None, None) => None,
    }
}

/// A duration for people.
pub(crate) fn duration(time: Duration) -> String {
    match time.as_secs() {
        0 if time.as_millis() < 1000 => format!("{} ms", time.as_millis()),
        secs @ 0..60 => format!("{secs}.{} s", time.subsec_millis() / 100),
        secs => format!("{} min {} s", secs / 60, secs % 60),
    }
}

fn counted(n: usize, thing: &str) -> String {
    if n == 1 { format!("1 {thing}") } else { format!("{n} {thing}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(is_error: bool) -> ToolResult {
        ToolResult { tool_call_id: "1".into(), name: "x".into(), is_error, content: vec![], ms: 1 }
    }

    #[test]
    fn the_receipt_counts_files_once_and_failures_not_at_all() {
        let mut receipt = Receipt::begin();
        let diff = |path: &str| View::Diff { path: path.into(), diff: String::new(), added: 2, removed: 1 };
        receipt.add(&result(false), &diff("a"));
        receipt.add(&result(false), &diff("a"));
        receipt.add(&result(true), &diff("b"));
        receipt.add(&result(false), &View::Command { command: "true".into(), outcome: "exit 0".into() });
        let usage = Usage {
            input: Some(1200),
            output: Some(30),
            cache_read: Some(800),
            cost_usd: Some(0.0125),
            ..Usage::default()
        };
        insta::assert_snapshot!(
            receipt.line(&usage, Duration::from_millis(12_340)),
            @"1 file changed (+4 −2), 1 command run, 1200 tokens in (800 cached), 30 out, $0.0125, 12.3 s"
        );
    }

    #[test]
    fn what_is_unknown_is_left_out() {
        let line = Receipt::begin().line(&Usage::default(), Duration::from_secs(61));
        assert_eq!(line, "1 min 1 s");
        assert_eq!(duration(Duration::from_millis(999)), "999 ms");
    }
}

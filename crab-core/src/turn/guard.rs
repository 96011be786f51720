//! Notices when a turn gets nowhere: the same calls with the same results, answers that are always cut, endless pauses.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::Halt;
use crate::message::{Stop, ToolCall};

/// Rounds of equal calls with equal results after which the loop guard ends the turn.
const EQUAL_ROUNDS: u32 = 8;
/// Answers in a row that the output limit cut in the middle of a call.
const CUT_ROUNDS: u32 = 3;
/// Times in a row that a service may pause a message.
const PAUSES: u32 = 20;

/// Notices a model that goes round in circles.
#[derive(Default)]
pub(super) struct Guard {
    last: Option<u64>,
    equal: u32,
    cut: u32,
    pauses: u32,
}

impl Guard {
    /// Looks at a round of calls and results.
    pub(super) fn check(&mut self, stop: Stop, calls: &[ToolCall], results: &[String]) -> Result<(), Halt> {
        self.pauses = 0;
        self.cut = if stop == Stop::Length { self.cut + 1 } else { 0 };
        if self.cut >= CUT_ROUNDS {
            return Err(Halt::Limit(format!(
                "stopped: the output limit cut {CUT_ROUNDS} answers in a row in the middle of a tool call; \
                 raise `max_output` for this model, or ask for smaller steps"
            )));
        }
        let mut hasher = DefaultHasher::new();
        for call in calls {
            (&call.name, call.arguments.to_string()).hash(&mut hasher);
        }
        for line in results.iter().flat_map(|result| result.lines()) {
            lasting(line).hash(&mut hasher);
        }
        let round = Some(hasher.finish());
        self.equal = if round == self.last { self.equal + 1 } else { 1 };
        self.last = round;
        if self.equal < EQUAL_ROUNDS {
            return Ok(());
        }
        Err(Halt::Limit(format!(
            "stopped: the model made the same calls with the same results {EQUAL_ROUNDS} times in a row; \
             tell it what to do differently"
        )))
    }

    /// Counts a pause of the service.
    pub(super) fn pause(&mut self) -> Result<(), Halt> {
        self.pauses += 1;
        if self.pauses < PAUSES {
            return Ok(());
        }
        Err(Halt::Limit(format!("stopped: the service paused its answer {PAUSES} times in a row")))
    }
}

/// A line of a result without what differs from one run of the same call to the next: in the notes in brackets that
/// tools put behind their output, only how it ended counts, not how long it took and which process it was.
fn lasting(line: &str) -> &str {
    match line.strip_prefix('[') {
        Some(note) => {
            note.split([',', ';']).next().filter(|ended| ended.starts_with("exit")).unwrap_or_default()
        }
        None => line,
    }
}

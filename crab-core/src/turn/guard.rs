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
        for result in results {
            lasting(result).hash(&mut hasher);
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

/// A result without what differs from one run of the same call to the next: of the note in brackets that a tool puts
/// behind its output only how it ended counts, not how long it took. Any other line may be what is being waited for.
fn lasting(result: &str) -> &str {
    let last = result.rfind('\n').map_or(0, |at| at + 1);
    let is_ending = ["[exit ", "[killed by "].iter().any(|ending| result[last..].starts_with(ending));
    let length = result[last..].find([',', ';']).filter(|_| is_ending);
    length.map_or(result, |length| &result[..last + length])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The round at which the guard ends the turn, when each has this result.
    fn stopped_at(result: impl Fn(u32) -> String) -> Option<u32> {
        let call =
            ToolCall { id: "1".into(), name: "x".into(), arguments: serde_json::json!({}), extra: None };
        let mut guard = Guard::default();
        (1..=20).find(|round| {
            guard.check(Stop::ToolCalls, std::slice::from_ref(&call), &[result(*round)]).is_err()
        })
    }

    #[test]
    fn only_the_time_that_a_call_took_makes_no_difference() {
        assert_eq!(stopped_at(|_| "same".into()), Some(EQUAL_ROUNDS));
        assert_eq!(stopped_at(|round| format!("[ 45%] Building\n[exit 0, 0.{round} s]")), Some(EQUAL_ROUNDS));
        assert_eq!(
            stopped_at(|round| format!("x\n[killed by signal 9 (SIGKILL), 0.{round} s]")),
            Some(EQUAL_ROUNDS)
        );
    }

    #[test]
    fn output_that_changes_is_progress_whatever_it_looks_like() {
        for line in ["[ N%] Building", "[INFO] N", "[1, N]", "[exit 0, N s]\nmore", "[exit N, 0.1 s]"] {
            let result = |round: u32| format!("{}\n[exit 0, 0.1 s]", line.replace('N', &round.to_string()));
            assert_eq!(stopped_at(result), None, "{line}");
        }
        assert_eq!(stopped_at(|round| format!("[1, {round}]")), None);
        assert_eq!(stopped_at(|round| format!("x\n[exit {round}, 0.1 s]")), None);
    }
}

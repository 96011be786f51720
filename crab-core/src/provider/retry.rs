//! When a request is tried again: the same rules for services and for the mock.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream::unfold};
use serde::{Deserialize, Serialize};

use super::{Delta, Deltas, Error};
use crate::protocol::FailureKind;

/// A wait longer than this is not slept through: the failure says how long the service asks for.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(120);
/// Waits double up to here.
const LONGEST_BACKOFF: Duration = Duration::from_secs(8);

/// Retries when the configuration does not say.
pub(super) const RETRIES: u32 = 4;

/// How often and how fast.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    /// At most so many retries; some kinds of failure get fewer.
    pub(super) max_retries: u32,
    /// The first wait, which doubles from then on.
    pub(super) first: Duration,
    /// Nobody waits, for all of it has happened already.
    is_instant: bool,
}

impl Policy {
    pub(super) fn new(max_retries: Option<u32>) -> Self {
        Self {
            max_retries: max_retries.unwrap_or(RETRIES),
            first: Duration::from_millis(500),
            is_instant: false,
        }
    }

    /// The same without any wait.
    pub(super) fn without_pauses(self) -> Self {
        Self { is_instant: true, ..self }
    }

    /// The wait before the next try, or nothing when this failure is final. `tries` counts those made.
    fn pause(&self, fault: &Fault, tries: u32) -> Option<Duration> {
        if tries > self.max_retries.min(fault.retries) {
            return None;
        }
        let backoff = self.first.saturating_mul(1 << (tries - 1).min(16)).min(LONGEST_BACKOFF);
        // Three to four quarters of it, so that many clients do not come back in step.
        let share = RandomState::new().build_hasher().finish() % 1000;
        let backoff = backoff.mul_f64(0.75 + share as f64 / 4000.0);
        let wait = fault.error.retry_after.unwrap_or(backoff);
        (wait <= LONGEST_WAIT).then_some(if self.is_instant { Duration::ZERO } else { wait })
    }
}

/// A failed try, and how many retries its cause deserves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Fault {
    pub(super) error: Error,
    pub(super) retries: u32,
}

impl Fault {
    /// The try may be made again at most `retries` times.
    pub(super) fn at_most(retries: u32, error: Error) -> Self {
        Self { error, retries }
    }
}

impl From<Error> for Fault {
    /// A server's fault may be permanent, and whatever was cut or fell silent has cost a whole answer already.
    fn from(error: Error) -> Self {
        let retries = match error.failure.kind {
            FailureKind::RateLimit | FailureKind::Overloaded => u32::MAX,
            FailureKind::Server => 3,
            FailureKind::Cut | FailureKind::Network => 2,
            FailureKind::ToolFailed => 1,
            _ => 0,
        };
        Self { error, retries }
    }
}

/// The deltas of one try.
pub(super) type Attempt = Pin<Box<dyn Stream<Item = Result<Delta, Fault>> + Send>>;

/// Makes tries until one succeeds, has given out text, or fails for good.
pub(super) fn stream(policy: Policy, start: impl FnMut() -> Attempt + Send + 'static) -> Deltas {
    let tries = Tries {
        policy,
        start: Box::new(start),
        current: None,
        made: 0,
        shown: false,
        held: vec![],
        ready: VecDeque::new(),
        pause: None,
        ended: false,
    };
    Box::pin(unfold(Box::new(tries), |mut tries| async move { tries.next().await.map(|item| (item, tries)) }))
}

struct Tries {
    policy: Policy,
    start: Box<dyn FnMut() -> Attempt + Send>,
    current: Option<Attempt>,
    made: u32,
    /// Text has been given out: from here on, a failure is final. Reasoning is no part of the answer, and a person sees
    /// that it begins anew.
    shown: bool,
    /// What nobody sees is held back as long as the try can still be made again.
    held: Vec<Delta>,
    ready: VecDeque<Result<Delta, Error>>,
    pause: Option<Duration>,
    ended: bool,
}

impl Tries {
    async fn next(&mut self) -> Option<Result<Delta, Error>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            if self.ended {
                return None;
            }
            if let Some(pause) = self.pause.take() {
                tokio::time::sleep(pause).await;
            }
            let current = match &mut self.current {
                Some(current) => current,
                None => {
                    self.made += 1;
                    self.current.insert((self.start)())
                }
            };
            match current.next().await {
                Some(Ok(delta)) => self.take(delta),
                Some(Err(fault)) => self.fail(fault),
                None => self.end(None),
            }
        }
    }

    fn take(&mut self, delta: Delta) {
        if matches!(delta, Delta::Warning(_)) {
            return self.ready.push_back(Ok(delta));
        }
        // Models like to begin with line breaks, which nobody takes for an answer.
        let is_text = matches!(&delta, Delta::Text(text) if !text.trim().is_empty());
        let is_thought = matches!(&delta, Delta::Thinking { text, .. } if !text.is_empty())
            && !self.held.iter().any(|held| matches!(held, Delta::Text(_)));
        if !self.shown && !is_text && !is_thought {
            return self.held.push(delta);
        }
        self.shown |= is_text;
        self.ready.extend(self.held.drain(..).chain([delta]).map(Ok));
    }

    fn fail(&mut self, fault: Fault) {
        let pause = if self.shown { None } else { self.policy.pause(&fault, self.made) };
        let Some(delay) = pause else {
            return self.end(Some(told_to_wait(fault.error)));
        };
        self.held.clear();
        self.current = None;
        self.pause = Some(delay);
        let reason = fault.error.failure.message;
        self.ready.push_back(Ok(Delta::Retrying { attempt: self.made + 1, delay, reason }));
    }

    fn end(&mut self, error: Option<Error>) {
        self.ready.extend(self.held.drain(..).map(Ok));
        self.ready.extend(error.map(Err));
        self.current = None;
        self.ended = true;
    }
}

/// A wait that is too long to be slept through is at least told.
fn told_to_wait(mut error: Error) -> Error {
    if let Some(wait) = error.retry_after.filter(|wait| *wait > LONGEST_WAIT) {
        let seconds = wait.as_secs();
        let time = match seconds {
            0..7_200 => format!("{} minutes", seconds.div_ceil(60)),
            7_200..172_800 => format!("{} hours", seconds.div_ceil(3600)),
            _ => format!("{} days", seconds.div_ceil(86_400)),
        };
        error.failure.message.push_str(&format!("; the service asks to wait {time}"));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Stop, Usage};
    use crate::protocol::Failure;
    use futures_util::stream::iter;
    use std::sync::{Arc, Mutex};

    fn error(kind: FailureKind, wait: Option<Duration>) -> Error {
        let failure = Failure { kind, message: "no".into(), status: None, provider: None };
        Error { failure, retry_after: wait }
    }

    type Script = Vec<Vec<Result<Delta, (FailureKind, Option<Duration>)>>>;

    /// Runs the tries of a script, the last of them again and again, and tells what came out.
    async fn run(script: Script) -> (Vec<String>, usize) {
        let made = Arc::new(Mutex::new(0));
        let counter = Arc::clone(&made);
        let policy = Policy { max_retries: 4, first: Duration::from_millis(1), is_instant: false };
        let start = move || -> Attempt {
            let mut made = counter.lock().unwrap();
            let items = script[(*made).min(script.len() - 1)].clone();
            *made += 1;
            Box::pin(iter(items).map(|item| item.map_err(|(kind, wait)| error(kind, wait).into())))
        };
        let items = stream(policy, start).map(|item| match item {
            Ok(Delta::Text(text)) => text,
            Ok(Delta::Retrying { attempt, .. }) => format!("retrying {attempt}"),
            Ok(Delta::Usage(_)) => "usage".into(),
            Ok(Delta::Stop(_)) => "stop".into(),
            Ok(_) => "other".into(),
            Err(error) => format!("{:?}: {}", error.failure.kind, error.failure.message),
        });
        let items = items.collect().await;
        (items, *made.lock().unwrap())
    }

    fn text(text: &str) -> Result<Delta, (FailureKind, Option<Duration>)> {
        Ok(Delta::Text(text.into()))
    }

    #[tokio::test]
    async fn a_try_that_showed_nothing_is_made_again_without_a_trace() {
        let usage = Ok(Delta::Usage(Usage::default()));
        let call = Ok(Delta::Call { index: None, id: None, name: None, arguments: None, extra: None });
        let failed = vec![usage.clone(), call, Err((FailureKind::Overloaded, None))];
        let (items, made) =
            run(vec![failed.clone(), failed, vec![usage, text("a"), Ok(Delta::Stop(Stop::End))]]).await;
        assert_eq!(items, ["retrying 2", "retrying 3", "usage", "a", "stop"]);
        assert_eq!(made, 3);
    }

    #[tokio::test]
    async fn a_failure_behind_text_is_final() {
        let (items, made) = run(vec![vec![text("a"), Err((FailureKind::Cut, None))]]).await;
        assert_eq!((items, made), (vec!["a".into(), "Cut: no".into()], 1));
    }

    #[tokio::test]
    async fn a_failure_behind_reasoning_alone_begins_anew() {
        let thought = || Ok(Delta::Thinking { text: "hm".into(), field: "reasoning" });
        let call = || Ok(Delta::Call { index: None, id: None, name: None, arguments: None, extra: None });
        let script = vec![
            vec![thought(), call(), Err((FailureKind::Cut, None))],
            vec![thought(), text("a"), Ok(Delta::Stop(Stop::End))],
        ];
        let (items, made) = run(script).await;
        assert_eq!(items, ["other", "retrying 2", "other", "a", "stop"]);
        assert_eq!(made, 2);
    }

    #[tokio::test]
    async fn white_space_alone_is_nothing_shown() {
        let failed = vec![text("\n\n"), Err((FailureKind::Cut, None))];
        let (items, made) = run(vec![failed, vec![text("\n"), text("a"), Ok(Delta::Stop(Stop::End))]]).await;
        assert_eq!((items, made), (["retrying 2", "\n", "a", "stop"].map(String::from).into(), 2));
    }

    #[tokio::test]
    async fn each_kind_has_its_number_of_tries() {
        use FailureKind::*;
        let tries = [(RateLimit, 5), (Overloaded, 5), (Server, 4), (Network, 3), (Cut, 3), (ToolFailed, 2)];
        let finals = [Auth, Quota, Overflow, BadRequest, NotFound, Refusal].map(|kind| (kind, 1));
        for (kind, expected) in tries.into_iter().chain(finals) {
            let (items, made) = run(vec![vec![Err((kind, None))]]).await;
            assert_eq!(made, expected, "{kind:?}");
            assert_eq!(items.last().unwrap(), &format!("{kind:?}: no"));
        }
    }

    #[tokio::test]
    async fn a_wait_of_a_day_is_told_and_not_slept_through() {
        let day = Some(Duration::from_secs(86_400));
        let (items, made) = run(vec![vec![Err((FailureKind::RateLimit, day))]]).await;
        assert_eq!((items, made), (vec!["RateLimit: no; the service asks to wait 24 hours".into()], 1));
    }

    #[test]
    fn waits_grow_and_the_service_has_the_last_word() {
        let policy = Policy::new(Some(9));
        let fault = Fault::from(error(FailureKind::RateLimit, None));
        for (tries, most) in [(1, 500), (2, 1000), (3, 2000), (5, 8000), (9, 8000)] {
            let wait = policy.pause(&fault, tries).unwrap().as_millis();
            assert!((most * 3 / 4..=most).contains(&wait), "{tries}: {wait}");
        }
        let asked = Fault::from(error(FailureKind::RateLimit, Some(Duration::from_secs(100))));
        assert_eq!(policy.pause(&asked, 1), Some(Duration::from_secs(100)));
    }
}

//! One turn, as the front end sees it: events to the screen, keys, signals and answers to the agent.

use std::io;
use std::time::Duration;

use crab_core::message::Part;
use crab_core::protocol::{Answer, Command, End, Event};
use crab_core::provider::tape::Tape;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep_until};

use super::Front;
use crate::ahead::{Ahead, Key};
use crate::confirm::{Asking, Reply};
use crate::output::{Broken, Stream};
use crate::signals::Signal;

/// How often the status line is drawn anew.
const TICK: Duration = Duration::from_millis(250);

/// How long an aborted turn may take to end.
const GRACE: Duration = Duration::from_millis(1900);

/// Why a turn was stopped from outside.
#[derive(Debug)]
pub(super) enum Cause {
    Signal(Signal),
    /// Ctrl-C at a question.
    Interrupted,
    Broken(Broken),
}

/// How a turn came to its end, as the front end saw it.
pub(super) struct Turn {
    /// `None`: it did not end in time, or the agent is gone.
    pub(super) end: Option<End>,
    pub(super) cause: Option<Cause>,
}

/// A turn that runs.
struct Run {
    turn: Turn,
    /// Set by the abort: when the turn is waited for no longer.
    deadline: Option<Instant>,
    open: Option<(String, Asking)>,
    ahead: Option<Ahead>,
    tick: tokio::time::Interval,
}

/// What can happen while a turn runs.
enum Happening {
    Signal(Signal),
    Broken(Broken),
    Reply(Reply),
    Late,
    Key(Key),
    Event(Box<Result<Event, RecvError>>),
    Tick,
}

impl Front {
    async fn submit(&mut self, prompt: Vec<Part>) -> bool {
        match &self.tape {
            Some(Tape::Record(recorder)) => recorder.prompt(&prompt),
            Some(Tape::Replay(player)) => player.prompt(),
            None => {}
        }
        self.tell(Command::Submit(prompt)).await
    }

    /// Runs one turn to its end.
    pub(super) async fn turn(&mut self, prompt: Vec<Part>) -> io::Result<Turn> {
        let turn = Turn { end: None, cause: None };
        if !self.submit(prompt).await {
            return Ok(turn);
        }
        let tick = tokio::time::interval(TICK);
        let mut run = Run { turn, deadline: None, open: None, ahead: self.listen()?, tick };
        loop {
            let cause = match self.happens(&mut run).await {
                Happening::Late => {
                    self.owed += 1;
                    break;
                }
                Happening::Event(event) => match self.takes(*event, &mut run).await? {
                    true => break,
                    false => continue,
                },
                other => match self.cause(other, &mut run).await? {
                    Some(cause) => cause,
                    None => continue,
                },
            };
            // The second time the user means now.
            if run.turn.cause.is_some() && matches!(cause, Cause::Signal(_)) {
                self.owed += 1;
                break;
            }
            run.open = None;
            run.turn.cause.get_or_insert(cause);
            if run.deadline.is_none() {
                self.stow(run.ahead.as_ref());
                run.deadline = Some(Instant::now() + GRACE);
                self.tell(Command::Abort).await;
            }
        }
        self.heed(run).await
    }

    async fn happens(&mut self, run: &mut Run) -> Happening {
        tokio::select! {
            biased;
            signal = self.signals.next() => Happening::Signal(signal),
            Some(broken) = self.screen.output.broken.recv() => Happening::Broken(broken),
            reply = replied(&mut run.open) => Happening::Reply(reply),
            () = passed(run.deadline) => Happening::Late,
            key = pressed(&mut run.ahead) => Happening::Key(key),
            event = self.handle.events.recv() => Happening::Event(Box::new(event)),
            _ = run.tick.tick(), if run.open.is_none() => Happening::Tick,
        }
    }

    /// Takes an event. True when the turn is over.
    async fn takes(&mut self, event: Result<Event, RecvError>, run: &mut Run) -> io::Result<bool> {
        match event {
            Ok(event) => {
                if matches!(event, Event::QuestionAsked(_)) {
                    self.notify(run.ahead.as_ref(), "asks you something")?;
                    // Keys are for the question now.
                    self.unlisten(run.ahead.take()).await;
                }
                run.turn.end = self.heard(event, &mut run.open).await?;
            }
            Err(RecvError::Lagged(events)) => self.screen.renderer.lagged(events)?,
            Err(RecvError::Closed) => return Ok(true),
        }
        Ok(run.turn.end.is_some())
    }

    /// What stops the turn in something that happened, if it does.
    async fn cause(&mut self, happening: Happening, run: &mut Run) -> io::Result<Option<Cause>> {
        match happening {
            Happening::Signal(signal) => return Ok(Some(Cause::Signal(signal))),
            Happening::Broken(broken) if broken.stream == Stream::Out => {
                self.has_reader = false;
                return Ok(Some(Cause::Broken(broken)));
            }
            Happening::Reply(reply) => {
                let id = run.open.take().map(|(id, _)| id).unwrap_or_default();
                run.ahead = self.listen()?;
                if !self.answer(id, reply).await {
                    return Ok(Some(Cause::Interrupted));
                }
            }
            Happening::Key(Key::Suspend) => {
                self.screen.renderer.make_room()?;
                self.unlisten(run.ahead.take()).await;
                self.suspend().await?;
                run.ahead = self.listen()?;
            }
            Happening::Key(key) => {
                let stops = self.pressed(key, run.ahead.as_ref())?;
                return Ok(stops.then_some(Cause::Signal(Signal::Interrupt)));
            }
            Happening::Tick => {
                let typed = self.typed_so_far(run.ahead.as_ref());
                self.screen.renderer.tick(&typed)?;
            }
            _ => {}
        }
        Ok(None)
    }

    /// Begins to read keys beside a turn.
    fn listen(&mut self) -> io::Result<Option<Ahead>> {
        if self.is_attended {
            Ahead::start(std::mem::take(&mut self.draft), self.notices.is_on())
        } else {
            Ok(None)
        }
    }

    /// Ends the reading of keys, and keeps what stands there. The terminal is told when all is on the screen, for its
    /// modes must not change in the middle of a line.
    async fn unlisten(&mut self, ahead: Option<Ahead>) {
        if let Some(ahead) = ahead {
            self.screen.output.settled().await;
            let (draft, keys) = ahead.stop();
            self.draft = draft;
            for key in keys {
                match key {
                    Key::Line(line) => self.queue.push_back(line),
                    Key::End => self.is_ending = true,
                    // Taken back before it was seen to wait.
                    Key::Recall if self.draft.is_empty() => {
                        self.draft = self.queue.pop_back().unwrap_or_default()
                    }
                    // There is nothing left to stop, and the prompt shows the draft.
                    Key::Recall | Key::Escape | Key::Suspend | Key::Changed => {}
                }
            }
        }
    }

    /// Crab waits for the user: one who looks elsewhere is told.
    fn notify(&mut self, ahead: Option<&Ahead>, what: &'static str) -> io::Result<()> {
        let Some(ahead) = ahead else { return Ok(()) };
        let notice = self.notices.notice(ahead.focus(), what);
        if notice.is_empty() || !self.screen.output.err_is_terminal() {
            return Ok(());
        }
        self.screen.output.err.write(notice)
    }

    /// The turn is stopped: lines that waited for its end do not run by themselves, but stand in the next prompt.
    fn stow(&mut self, ahead: Option<&Ahead>) {
        let draft = ahead.map(Ahead::draft).unwrap_or_default();
        if let Some(ahead) = ahead {
            ahead.set_draft(String::new());
        }
        self.is_ending = false;
        let lines: Vec<String> = self.queue.drain(..).chain([draft]).collect();
        self.kept = lines.join("\n").trim_end_matches('\n').to_owned();
    }

    /// The end of a turn: what was typed is kept.
    async fn heed(&mut self, run: Run) -> io::Result<Turn> {
        self.screen.renderer.make_room()?;
        let Run { turn, ahead, .. } = run;
        if turn.cause.is_none() && self.queue.is_empty() {
            self.notify(ahead.as_ref(), "is done")?;
        }
        self.unlisten(ahead).await;
        Ok(turn)
    }

    /// Takes a key that was pressed while a turn runs. True when the turn shall stop.
    fn pressed(&mut self, key: Key, ahead: Option<&Ahead>) -> io::Result<bool> {
        match key {
            Key::Escape => return Ok(true),
            Key::Line(line) => self.queue.push_back(line),
            Key::Recall => {
                if let (Some(line), Some(ahead)) = (self.queue.pop_back(), ahead) {
                    ahead.set_draft(line);
                }
            }
            Key::End => self.is_ending = true,
            Key::Suspend | Key::Changed => {}
        }
        let typed = self.typed_so_far(ahead);
        self.screen.renderer.tick(&typed)?;
        Ok(false)
    }

    /// What waits and what is being typed, for the status line.
    fn typed_so_far(&self, ahead: Option<&Ahead>) -> String {
        let queued = self.queue.iter().map(|line| format!("{line} ⏎ "));
        let draft = ahead.map(Ahead::draft).unwrap_or_default();
        queued.chain([draft]).collect()
    }

    /// Shows an event; gives the end of the turn when this was it.
    async fn heard(&mut self, event: Event, open: &mut Option<(String, Asking)>) -> io::Result<Option<End>> {
        self.show(&event, open).await?;
        match event {
            // The end of an earlier turn: this one runs behind it.
            Event::TurnEnded(_) if self.owed > 0 => {
                self.owed -= 1;
                Ok(None)
            }
            Event::TurnEnded(end) => Ok(Some(end)),
            _ => Ok(None),
        }
    }

    async fn show(&mut self, event: &Event, open: &mut Option<(String, Asking)>) -> io::Result<()> {
        // A reader that has seen enough is not told that the rest was stopped.
        if !self.has_reader {
            return Ok(());
        }
        self.screen.renderer.event(event)?;
        if let Event::QuestionAsked(question) = event {
            self.screen.output.settled().await;
            *open = Some((question.call.id.clone(), Asking::open(question, self.screen.paint)?));
        }
        Ok(())
    }

    /// Passes the reply on. False when it means the end of the turn as well.
    async fn answer(&mut self, id: String, reply: Reply) -> bool {
        let (answer, goes_on) = match reply {
            Reply::Answer(answer) => (answer, true),
            Reply::Interrupted => (Answer::Deny(None), false),
        };
        self.tell(Command::Answer { id, answer }).await;
        goes_on
    }
}

async fn replied(open: &mut Option<(String, Asking)>) -> Reply {
    match open {
        Some((_, asking)) => asking.reply().await,
        None => std::future::pending().await,
    }
}

async fn pressed(ahead: &mut Option<Ahead>) -> Key {
    match ahead {
        Some(ahead) => ahead.next().await,
        None => std::future::pending().await,
    }
}

pub(super) async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

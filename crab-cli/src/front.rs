//! The front end: prompts to the agent, and what is done between two turns.

mod turn;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crab_core::agent::Handle;
use crab_core::message::Part;
use crab_core::process::Environment;
use crab_core::protocol::{Command, Event};
use crab_core::provider::tape::Tape;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::caret;
use crate::commands::{self, Desk, Leave, Outcome};
use crate::input::{Input, Typed};
use crate::notify::Notices;
use crate::output::{Broken, Stream};
use crate::render::{Screen, exit_code, last_text};
use crate::shell;
use crate::signals::{Signal, Signals};
use crate::tty;
use turn::{Cause, Turn, passed};

/// How a conversation came to its end.
pub(crate) enum Ended {
    /// Crab ends with this code.
    Exit(u8),
    /// Another conversation begins.
    Leave(Leave),
}

/// What the prompt works with.
pub(crate) struct Table<F> {
    pub(crate) desk: Desk,
    pub(crate) environment: Arc<Environment>,
    /// Makes a prompt of a typed text, or says why not.
    pub(crate) expand: F,
}

/// What a typed line led to.
enum Next {
    Prompt(Vec<Part>),
    Leave(Leave),
    Exit(u8),
    /// Nothing yet: the prompt is shown again.
    Again,
}

/// The agent, the screen and the signals, for as long as crab runs.
pub(crate) struct Front {
    handle: Handle,
    screen: Screen,
    signals: Signals,
    /// False once standard output cannot be written to any more.
    has_reader: bool,
    /// Turns that did not end in time and whose ends are still to come.
    owed: usize,
    /// What is told of each prompt.
    tape: Option<Tape>,
    /// What goes along with the next prompt.
    told: Vec<Part>,
    /// Lines that were typed while a turn ran.
    queue: VecDeque<String>,
    /// What was typed behind them.
    draft: String,
    /// What was typed before a turn was stopped.
    kept: String,
    /// Whether somebody can type while a turn runs.
    is_attended: bool,
    /// Ctrl-D was typed while a turn ran: crab leaves behind the lines that wait.
    is_ending: bool,
    notices: Notices,
}

impl Front {
    /// Puts them together.
    pub(crate) fn new(handle: Handle, screen: Screen, signals: Signals) -> Self {
        Self {
            handle,
            screen,
            signals,
            has_reader: true,
            owed: 0,
            tape: None,
            told: vec![],
            queue: VecDeque::new(),
            draft: String::new(),
            kept: String::new(),
            is_attended: false,
            is_ending: false,
            notices: Notices::default(),
        }
    }

    /// Tells the tape of each prompt.
    pub(crate) fn taped(self, tape: Option<Tape>) -> Self {
        Self { tape, ..self }
    }

    /// Print mode: a turn for each prompt, then the exit code of the last. All output has left crab when it returns.
    pub(crate) async fn print_run(mut self, prompts: Vec<Vec<Part>>) -> io::Result<u8> {
        let mut exit = 0;
        for prompt in prompts {
            let turn = self.turn(prompt).await?;
            exit = self.verdict(&turn)?;
            if turn.cause.is_some() || turn.end.is_none() {
                break;
            }
        }
        self.screen.renderer.close(exit)?;
        Ok(self.finish(exit).await)
    }

    /// Interactive: turn after turn until the user leaves.
    pub(crate) async fn interactive<F>(
        mut self,
        first: Option<Vec<Part>>,
        mut input: Input,
        mut table: Table<F>,
    ) -> io::Result<Ended>
    where
        F: Fn(&str) -> Result<Vec<Part>, String>,
    {
        let mut next = first;
        self.is_attended = true;
        self.notices = Notices::configured(table.desk.config.notify.as_deref());
        let exit = loop {
            let prompt = match next.take() {
                Some(prompt) => prompt,
                None => match self.prompt(&mut input, &mut table).await? {
                    Next::Prompt(prompt) => prompt,
                    Next::Leave(leave) => {
                        input.cancel().await;
                        self.leave().await?;
                        return Ok(Ended::Leave(leave));
                    }
                    Next::Exit(exit) => break exit,
                    Next::Again => continue,
                },
            };
            let turn = self.turn(prompt).await?;
            if let Some(end) = &turn.end {
                table.desk.usage.add(&end.usage);
                table.desk.answer = last_text(&end.messages).unwrap_or(table.desk.answer);
            }
            if turn.end.is_none() && self.handle.events.is_closed() {
                break self.verdict(&turn)?;
            }
            match turn.cause {
                Some(Cause::Signal(signal)) if signal != Signal::Interrupt => break signal.exit(),
                Some(Cause::Broken(_)) => break self.verdict(&turn)?,
                _ if turn.end.is_none() => self.screen.say("the turn did not stop in time")?,
                _ => {}
            }
        };
        input.cancel().await;
        self.screen.renderer.close(exit)?;
        Ok(Ended::Exit(self.finish(exit).await))
    }

    /// Ends this conversation, so that its session is free for another.
    async fn leave(self) -> io::Result<()> {
        let Self { handle, mut screen, .. } = self;
        screen.renderer.close(0)?;
        screen.output.drained().await;
        drop(handle.commands);
        let mut events = handle.events;
        // The agent lets go of the session before its last event channel closes.
        while !matches!(events.recv().await, Err(RecvError::Closed)) {}
        Ok(())
    }

    /// False when the agent is gone, which the closed events say as well.
    async fn tell(&self, command: Command) -> bool {
        self.handle.commands.send(command).await.is_ok()
    }

    /// Ctrl-Z: stops until the shell goes on with it, and does nothing where no shell could.
    async fn suspend(&self) -> io::Result<()> {
        self.screen.output.settled().await;
        // The whole job, with what reads from crab.
        Ok(rustix::process::kill_current_process_group(rustix::process::Signal::TSTP)?)
    }

    /// The exit code of a turn, by what stopped it from outside, else by how it ended.
    fn verdict(&mut self, turn: &Turn) -> io::Result<u8> {
        match (&turn.cause, &turn.end) {
            (Some(Cause::Signal(signal)), _) => Ok(signal.exit()),
            (Some(Cause::Interrupted), _) => Ok(Signal::Interrupt.exit()),
            (Some(Cause::Broken(broken)), _) => self.blame(broken),
            (None, Some(end)) => Ok(exit_code(end)),
            (None, None) => {
                self.screen.say("the agent ended without finishing its turn\nplease report it as a bug")?;
                Ok(1)
            }
        }
    }

    /// A reader that has read enough is no failure; a full disk is.
    fn blame(&self, broken: &Broken) -> io::Result<u8> {
        if broken.error.kind() == io::ErrorKind::BrokenPipe {
            return Ok(0);
        }
        self.screen.say(&format!("cannot write to standard output: {}", plainly(&broken.error)))?;
        Ok(1)
    }

    /// Waits until all bytes are out, or a signal says not to.
    async fn finish(mut self, exit: u8) -> u8 {
        // A question that was just taken back may not have let go of the terminal yet.
        tty::restore();
        let is_stopped = exit >= 128;
        let patience = is_stopped.then(|| Instant::now() + Duration::from_secs(1));
        tokio::select! {
            () = self.screen.output.drained() => {}
            signal = self.signals.next() => return signal.exit(),
            () = passed(patience) => return exit,
        }
        let mut exit = exit;
        while let Ok(broken) = self.screen.output.broken.try_recv() {
            if broken.stream == Stream::Out && exit == 0 {
                // With standard error gone as well, the exit code is all that is left to say it.
                exit = self.blame(&broken).unwrap_or(1);
            }
        }
        self.screen.output.drained().await;
        exit
    }

    /// Waits for a prompt, and does what is asked for in between.
    async fn prompt<F>(&mut self, input: &mut Input, table: &mut Table<F>) -> io::Result<Next>
    where
        F: Fn(&str) -> Result<Vec<Part>, String>,
    {
        let mut is_leaving = false;
        loop {
            if let Some(line) = self.queue.pop_front() {
                self.screen.output.err.write(format!("> {}\n", caret::strict(&line)))?;
                match self.line(&line, input, table).await? {
                    Next::Again => continue,
                    next => return Ok(next),
                }
            }
            if self.is_ending {
                return Ok(Next::Exit(0));
            }
            let draft = std::mem::take(&mut self.kept) + &std::mem::take(&mut self.draft);
            if !draft.is_empty() {
                input.prefill(draft);
            }
            let typed = match self.typed(input).await? {
                Ok(typed) => typed,
                Err(exit) => return Ok(Next::Exit(exit)),
            };
            let was_leaving = std::mem::take(&mut is_leaving);
            match typed {
                Typed::Line(line) => match self.line(&line, input, table).await? {
                    Next::Again => {}
                    next => return Ok(next),
                },
                Typed::Interrupted { had_draft: true } | Typed::Cancelled => {}
                Typed::Interrupted { had_draft: false } if was_leaving => return Ok(Next::Exit(0)),
                Typed::Interrupted { had_draft: false } => {
                    is_leaving = true;
                    self.screen.output.err.write("Ctrl-C again, or Ctrl-D, leaves\n")?;
                }
                Typed::Suspended => self.suspend().await?,
                Typed::End => return Ok(Next::Exit(0)),
                Typed::Failed(err) => {
                    self.screen.say(&format!("cannot read the terminal: {}", plainly(&err)))?;
                    return Ok(Next::Exit(1));
                }
            }
        }
    }

    async fn line<F>(&mut self, line: &str, input: &mut Input, table: &mut Table<F>) -> io::Result<Next>
    where
        F: Fn(&str) -> Result<Vec<Part>, String>,
    {
        match meaning(line) {
            Meaning::Nothing => {}
            Meaning::Shell { command, is_told } => {
                let (ran, signal) = self.shell(command, table).await?;
                if let Some(signal) = signal.filter(|signal| *signal != Signal::Interrupt) {
                    return Ok(Next::Exit(signal.exit()));
                }
                if is_told {
                    self.told.push(Part::text(shell::block(command, &ran)));
                    self.screen.output.err.write("(this goes along with the next prompt)\n")?;
                }
            }
            Meaning::Slash if self.owed > 0 && commands::moves(line) => {
                self.screen.say("a turn that was stopped has not ended yet: try again in a moment")?;
            }
            Meaning::Slash => match table.desk.run(line) {
                Outcome::Say(text) => self.screen.output.err.write(text)?,
                Outcome::Fail(why) => self.screen.say(&why)?,
                Outcome::Draft(text) => input.prefill(text),
                Outcome::Leave(leave) => return Ok(Next::Leave(leave)),
                Outcome::Quit => return Ok(Next::Exit(0)),
                Outcome::Change(change, words) => {
                    self.tell(Command::Change(change)).await;
                    self.screen.output.err.write(format!("{words}\n"))?;
                }
            },
            Meaning::Prompt => match (table.expand)(line) {
                Ok(mut parts) => {
                    parts.append(&mut self.told);
                    return Ok(Next::Prompt(parts));
                }
                Err(why) => {
                    self.screen.say(&why)?;
                    // What was typed is not lost with it.
                    input.prefill(line.to_owned());
                }
            },
        }
        Ok(Next::Again)
    }

    /// Runs a command of the user's; Ctrl-C stops it.
    async fn shell<F>(
        &mut self,
        command: &str,
        table: &Table<F>,
    ) -> io::Result<(shell::Ran, Option<Signal>)> {
        let err = self.screen.output.err.clone();
        let show = move |text: &str| err.write(caret::strict(text));
        let (signals, mut signal) = (&mut self.signals, None);
        let stop = async { signal = Some(signals.next().await) };
        let ran = shell::run(command, &table.desk.facts.cwd, &table.environment, show, stop).await?;
        let fresh = if ran.output.is_empty() || ran.output.ends_with('\n') { "" } else { "\n" };
        self.screen.output.err.write(format!("{fresh}[{}]\n", ran.ended))?;
        Ok((ran, signal))
    }

    /// What is typed next, while events are shown and signals heeded.
    async fn typed(&mut self, input: &mut Input) -> io::Result<Result<Typed, u8>> {
        self.screen.output.settled().await;
        loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => {
                    if signal == Signal::Interrupt {
                        input.refresh().await?;
                        continue;
                    }
                    input.cancel().await;
                    self.screen.output.err.write("\n")?;
                    return Ok(Err(signal.exit()));
                }
                typed = input.next() => return Ok(Ok(typed)),
                event = self.handle.events.recv() => match event {
                    Ok(event) => {
                        self.owed -= usize::from(matches!(event, Event::TurnEnded(_)));
                        self.screen.renderer.event(&event)?;
                    }
                    Err(RecvError::Lagged(events)) => self.screen.renderer.lagged(events)?,
                    Err(RecvError::Closed) => {
                        input.cancel().await;
                        self.screen.say("the agent has ended\nplease report it as a bug")?;
                        return Ok(Err(1));
                    }
                },
            }
        }
    }
}

/// The system's words without the number that Rust puts behind them.
fn plainly(err: &io::Error) -> String {
    let text = err.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text[..end].to_lowercase()
}

#[derive(Debug, PartialEq, Eq)]
enum Meaning<'a> {
    Nothing,
    Slash,
    /// A command of the user's own; whether the model is told of it.
    Shell {
        command: &'a str,
        is_told: bool,
    },
    Prompt,
}

/// A slash and a word is a command, unless it is a path; a `!` begins one of the shell.
fn meaning(line: &str) -> Meaning<'_> {
    let line = line.trim();
    if let Some(rest) = line.strip_prefix('!') {
        let (command, is_told) = rest.strip_prefix('!').map_or((rest, true), |rest| (rest, false));
        let command = command.trim();
        return if command.is_empty() { Meaning::Prompt } else { Meaning::Shell { command, is_told } };
    }
    let Some(rest) = line.strip_prefix('/') else {
        return if line.is_empty() { Meaning::Nothing } else { Meaning::Prompt };
    };
    let word = rest.split_whitespace().next().unwrap_or_default();
    let is_path = word.contains('/') || std::path::Path::new(&format!("/{word}")).exists();
    // A sentence may begin with a slash; a command that nobody has is worth a word only when it stands alone.
    let is_command = commands::knows(&format!("/{word}")) || rest.trim() == word;
    if word.is_empty() || is_path || !is_command { Meaning::Prompt } else { Meaning::Slash }
}

#[cfg(test)]
#[path = "front_tests.rs"]
mod tests;

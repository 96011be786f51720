//! Renderers: what a turn's events look like on the two output streams.

mod answer;
mod highlight;
mod json;
mod look;
mod markdown;
mod plain;
mod receipt;
mod status;
pub(crate) mod terminal;

use std::io;
use std::path::PathBuf;

use crab_core::protocol::{End, EndStop, Event, Failure, FailureKind};
use crab_core::provider::models;

use crate::output::Output;
use terminal::{Color, Paint};

pub(crate) use answer::last_text;
pub(crate) use json::failed;
pub(crate) use plain::diff_lines;

/// Turns events into bytes on standard output and standard error. Must not block and must not fail on any event.
pub(crate) trait Renderer {
    /// Shows what happened.
    fn event(&mut self, event: &Event) -> io::Result<()>;
    /// Events were missed; the text that they carried comes with the whole message.
    fn lagged(&mut self, events: u64) -> io::Result<()>;
    /// Time passes while a turn runs, and the user may be typing.
    fn tick(&mut self, _draft: &str) -> io::Result<()> {
        Ok(())
    }
    /// Takes away what is not to stay, before somebody else writes on the terminal.
    fn make_room(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// Crab ends with this exit code. Called once, after the last event.
    fn close(&mut self, exit: u8) -> io::Result<()>;
}

/// `--output-format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// The `done` object alone.
    Json,
    /// One object a line, as it happens.
    StreamJson,
}

/// How much is said in text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Errors, and the last message.
    Quiet,
    /// What a person wants to see.
    #[default]
    Normal,
    /// Everything.
    Verbose,
}

/// What the command line says about output.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    /// The format of standard output.
    pub(crate) format: Format,
    /// How much is said.
    pub(crate) detail: Detail,
    /// When style is added.
    pub(crate) color: Color,
}

/// The facts of a session's first JSON line.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionFacts {
    /// Crab's version.
    pub(crate) version: String,
    /// The session's id.
    pub(crate) id: String,
    /// Its file; `None` with `--no-session`.
    pub(crate) file: Option<PathBuf>,
    /// The working directory.
    pub(crate) cwd: PathBuf,
    /// The provider's name in the configuration.
    pub(crate) provider: String,
    /// The model.
    pub(crate) model: String,
}

/// The streams with the renderer that writes on them.
pub(crate) struct Screen {
    /// The streams.
    pub(crate) output: Output,
    /// What writes on them.
    pub(crate) renderer: Box<dyn Renderer>,
    /// The style of standard error.
    pub(crate) paint: Paint,
}

impl Screen {
    /// Makes the renderer that the settings ask for.
    pub(crate) fn choose(settings: Settings, output: Output, facts: SessionFacts) -> io::Result<Self> {
        let paint = Paint::for_stream(settings.color, output.err_is_terminal());
        let detail = settings.detail;
        let is_stream = settings.format == Format::StreamJson;
        let renderer: Box<dyn Renderer> = match settings.format {
            Format::Text => {
                let styled = Paint::for_stream(settings.color, output.out_is_terminal()).is_on;
                let text = plain::Text::new(&output, detail, paint).with_style(styled);
                let window = models::find(&facts.provider, &facts.model).and_then(|model| model.context);
                Box::new(text.with_status(paint.is_on && output.err_is_terminal(), window))
            }
            _ => Box::new(json::Json::new(&output, facts, json::Log { detail, paint, is_stream })?),
        };
        Ok(Self { output, renderer, paint })
    }

    /// One `crab: …` line on standard error, from crab itself.
    pub(crate) fn say(&self, text: &str) -> io::Result<()> {
        self.output.err.write(plain::said(text))
    }
}

/// The exit code of a run that ended so.
pub(crate) fn exit_code(end: &End) -> u8 {
    match (end.stop, &end.error) {
        (EndStop::End, _) => 0,
        (EndStop::Aborted, _) => 130,
        (EndStop::Limit, _) => 3,
        (EndStop::Error, Some(failure)) => failure_code(failure),
        (EndStop::Error, None) => 1,
    }
}

/// The exit code of a failure.
pub(crate) fn failure_code(failure: &Failure) -> u8 {
    match failure.kind {
        FailureKind::Session | FailureKind::Internal => 1,
        FailureKind::Config => 2,
        FailureKind::Auth => 5,
        FailureKind::Quota
        | FailureKind::RateLimit
        | FailureKind::Overloaded
        | FailureKind::Overflow
        | FailureKind::NotFound
        | FailureKind::BadRequest
        | FailureKind::Server
        | FailureKind::Cut
        | FailureKind::Refusal
        | FailureKind::ToolFailed
        | FailureKind::Network => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crab_core::message::Usage;

    #[track_caller]
    fn check(stop: EndStop, kind: Option<FailureKind>, expected: u8) {
        let error = kind.map(|kind| Failure { kind, message: "no".into(), status: None, provider: None });
        let end = End { stop, error, messages: vec![], requests: 1, usage: Usage::default(), denied: vec![] };
        assert_eq!(exit_code(&end), expected, "{stop:?} {kind:?}");
    }

    #[test]
    fn exit_codes_are_those_of_the_contract() {
        check(EndStop::End, None, 0);
        check(EndStop::Aborted, None, 130);
        check(EndStop::Limit, Some(FailureKind::Internal), 3);
        check(EndStop::Error, Some(FailureKind::Auth), 5);
        check(EndStop::Error, Some(FailureKind::Config), 2);
        check(EndStop::Error, Some(FailureKind::Session), 1);
        check(EndStop::Error, Some(FailureKind::Internal), 1);
        check(EndStop::Error, Some(FailureKind::Refusal), 4);
        check(EndStop::Error, Some(FailureKind::Network), 4);
        check(EndStop::Error, None, 1);
    }
}

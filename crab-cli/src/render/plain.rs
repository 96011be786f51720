//! Text for people: the answer on standard output, everything else as lines on standard error.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use crab_core::message::{Assistant, Stop, ToolResult, text_of};
use crab_core::protocol::{By, Decision, End, EndStop, Event};
use crab_core::tools::View;

use super::answer::{Answer, last_text};
use super::markdown::Markdown;
use super::receipt::{Receipt, duration, tokens};
use super::status::Status;
use super::terminal::{Paint, Style};
use super::{Detail, Renderer, look};
use crate::caret;
use crate::output::{Output, Sink};

/// Lines of a diff that are shown without `-v`.
const DIFF_LINES: usize = 40;
/// Characters of a title that are shown without `-v`.
const TITLE_CHARS: usize = 200;

/// One `crab: …` line; what follows its first line break stays a line of its own.
pub(super) fn said(text: &str) -> String {
    format!("crab: {}\n", caret::strict(text.trim_end()))
}

/// A unified diff, each line behind two spaces and in its colour, at most `limit` lines.
pub(crate) fn diff_lines(diff: &str, paint: Paint, limit: usize) -> String {
    let mut out = String::new();
    let mut lines = diff.split_terminator('\n');
    for line in lines.by_ref().take(limit) {
        let shown = caret::strict(line);
        let styled = match line.as_bytes().first() {
            Some(b'+') => paint.paint(Style::Green, &shown),
            Some(b'-') => paint.paint(Style::Red, &shown),
            Some(b'@') => paint.paint(Style::Cyan, &shown),
            _ => shown,
        };
        out.push_str(&format!("  {styled}\n"));
    }
    match lines.count() {
        0 => out,
        more => out + &paint.paint(Style::Dim, &format!("  ({more} more lines, `-v` shows them)")) + "\n",
    }
}

#[derive(Default)]
struct Call {
    title: String,
    is_streamed: bool,
    /// The question on this terminal has shown all of it.
    is_known: bool,
    /// The user said no.
    is_denied: bool,
}

/// Renders for people.
pub(super) struct Text {
    out: Sink,
    err: Sink,
    detail: Detail,
    paint: Paint,
    /// Standard output and standard error are one terminal.
    is_shared: bool,
    /// The receipt is for eyes only.
    has_receipt: bool,
    /// False when standard output speaks JSON.
    shows_answer: bool,
    answer: Answer,
    /// Styles the answer, where that is wanted.
    markdown: Option<Markdown>,
    /// The line below everything, where there is one.
    status: Option<Status>,
    /// The request whose text stands on standard output without a final line break.
    open_line: Option<u32>,
    /// That text broke off, and the next message goes on with it.
    is_broken_off: bool,
    /// Live output on standard error stands without a final line break.
    is_err_open: bool,
    calls: HashMap<String, Call>,
    newest_call: String,
    receipt: Receipt,
    request_began: Instant,
}

impl Text {
    /// A renderer on these streams.
    pub(super) fn new(output: &Output, detail: Detail, paint: Paint) -> Self {
        Self {
            out: output.out.clone(),
            err: output.err.clone(),
            detail,
            paint,
            is_shared: output.is_shared,
            has_receipt: output.err_is_terminal(),
            shows_answer: true,
            answer: Answer::default(),
            markdown: None,
            status: None,
            open_line: None,
            is_broken_off: false,
            is_err_open: false,
            calls: HashMap::new(),
            newest_call: String::new(),
            receipt: Receipt::begin(),
            request_began: Instant::now(),
        }
    }

    /// With the answer styled as the Markdown that it is, or not.
    pub(super) fn with_style(self, is_styled: bool) -> Self {
        let theme = look::theme(std::env::var("COLORTERM").ok().as_deref());
        Self { markdown: is_styled.then(|| Markdown::new(theme)), ..self }
    }

    /// With a line that tells what runs, in a model's window of so many tokens.
    pub(super) fn with_status(self, is_wanted: bool, window: Option<u64>) -> Self {
        let is_wanted = is_wanted && self.detail != Detail::Quiet;
        Self { status: is_wanted.then(|| Status::new(window)), ..self }
    }

    fn clear_status(&mut self) -> io::Result<()> {
        match self.status.as_mut().filter(|status| status.is_shown()) {
            Some(status) => self.err.write(status.clear(size().0)),
            None => Ok(()),
        }
    }

    /// The same for standard error alone, beside a renderer that owns standard output.
    pub(super) fn log_only(output: &Output, detail: Detail, paint: Paint) -> Self {
        Self { shows_answer: false, ..Self::new(output, detail, paint) }
    }

    fn text(&mut self, request: u32, text: &str) -> io::Result<()> {
        if text.is_empty() || !self.shows_answer || self.detail == Detail::Quiet {
            return Ok(());
        }
        let mut shown = caret::answer(text).to_string();
        if let Some(markdown) = &mut self.markdown {
            shown = markdown.push(&shown);
        }
        let goes_on = std::mem::take(&mut self.is_broken_off);
        if self.open_line.is_some_and(|open| open != request) && !goes_on {
            shown.insert(0, '\n');
        }
        self.open_line = (!text.ends_with('\n')).then_some(request);
        self.clear_status()?;
        self.out.write(shown)
    }

    /// Ends the answer's open line, so that the next message or the end starts on a fresh one.
    fn close_line(&mut self) -> io::Result<()> {
        self.finish_style()?;
        if self.open_line.take().is_some() {
            self.out.write("\n")?;
        }
        Ok(())
    }

    /// Lets out what the style holds back at the end of a message.
    fn finish_style(&mut self) -> io::Result<()> {
        let rest = self.markdown.as_mut().map(Markdown::finish).unwrap_or_default();
        if rest.is_empty() { Ok(()) } else { self.out.write(rest) }
    }

    /// Whole lines on standard error, on a fresh line where a person can see the difference.
    fn log(&mut self, lines: &str) -> io::Result<()> {
        self.clear_status()?;
        let is_open = std::mem::take(&mut self.is_err_open);
        let fresh = match is_open || (self.is_shared && self.open_line.is_some()) {
            // A style of the line that stands open must not colour the next one.
            true if self.markdown.is_some() => "\x1b[0m\n",
            true => "\n",
            false => "",
        };
        self.err.write(format!("{fresh}{lines}"))
    }

    fn log_unless_quiet(&mut self, style: Style, line: &str) -> io::Result<()> {
        if self.detail == Detail::Quiet {
            return Ok(());
        }
        let line = self.paint.paint(style, &said(line));
        self.log(&line)
    }

    fn message_done(&mut self, request: u32, message: &Assistant) -> io::Result<()> {
        if let Some(rest) = self.answer.done(request, message) {
            self.text(request, &rest)?;
        }
        self.is_broken_off = message.stop == Stop::Cut;
        if !self.is_broken_off {
            self.close_line()?;
        }
        if self.detail == Detail::Verbose {
            let time = duration(self.request_began.elapsed());
            let tokens = tokens(&message.usage).map(|tokens| format!(", {tokens}")).unwrap_or_default();
            self.log_unless_quiet(Style::Dim, &format!("request {request}: {time}{tokens}"))?;
        }
        if message.stop == Stop::Length {
            let line = "warning: the answer was cut by the output limit of the model";
            self.log_unless_quiet(Style::Yellow, line)?;
        }
        Ok(())
    }

    fn call_started(&mut self, id: &str, title: &str) -> io::Result<()> {
        let mut title = caret::line(title);
        let end = title.char_indices().nth(TITLE_CHARS).map(|(at, _)| at);
        if let Some(end) = end.filter(|_| self.detail != Detail::Verbose) {
            title.replace_range(end.., "…");
        }
        self.newest_call = id.to_owned();
        self.calls.insert(id.to_owned(), Call { title: title.clone(), ..Call::default() });
        if self.detail == Detail::Quiet {
            return Ok(());
        }
        let line = self.paint.paint(Style::Bold, &format!("• {title}"));
        self.log(&format!("{line}\n"))
    }

    fn tool_output(&mut self, id: &str, chunk: &str) -> io::Result<()> {
        if self.detail != Detail::Verbose || chunk.is_empty() {
            return Ok(());
        }
        if let Some(call) = self.calls.get_mut(id) {
            call.is_streamed = true;
        }
        self.clear_status()?;
        self.is_err_open = !chunk.ends_with('\n');
        self.err.write(caret::strict(chunk))
    }

    fn decided(&mut self, id: &str, by: By) -> io::Result<()> {
        let title = self.calls.get(id).map(|call| call.title.clone()).unwrap_or_default();
        match by {
            By::Unattended => self.log_unless_quiet(
                Style::Yellow,
                &format!(
                    "denied: {title}\nnobody could be asked: there is no terminal; `--allow RULE` lets such calls \
                     run, `--yolo` lets all run"
                ),
            ),
            By::Rule => self.log_unless_quiet(Style::Yellow, &format!("denied by a rule: {title}")),
            By::User => {
                if let Some(call) = self.calls.get_mut(id) {
                    call.is_denied = true;
                }
                Ok(())
            }
            By::Yolo => Ok(()),
        }
    }

    fn call_done(&mut self, result: &ToolResult, view: &View) -> io::Result<()> {
        self.receipt.add(result, view);
        let call = self.calls.remove(&result.tool_call_id);
        if self.detail == Detail::Quiet {
            return Ok(());
        }
        let of = match &call {
            Some(call) if result.tool_call_id != self.newest_call => format!("{}: ", call.title),
            _ => String::new(),
        };
        if call.as_ref().is_some_and(|call| call.is_denied) {
            // What the model reads is no news to whoever has just said it.
            let line = self.paint.paint(Style::Dim, &format!("  {of}not run\n"));
            return self.log(&line);
        }
        let (word, style) = if result.is_error { ("failed", Style::Red) } else { ("ok", Style::Dim) };
        let time = duration(Duration::from_millis(result.ms));
        // How a command ended says how long it took.
        let ended = match view {
            View::Command { outcome, .. } if !outcome.is_empty() => caret::line(outcome),
            _ => format!("{word}, {time}"),
        };
        let about = match view {
            View::Line { text } => format!(": {}", caret::line(text)),
            View::Diff { path, added, removed, .. } => {
                format!(": {} (+{added} −{removed})", caret::line(path))
            }
            View::Command { .. } => String::new(),
        };
        let mut lines = self.paint.paint(style, &format!("  {of}{ended}{about}\n"));
        let is_known = call.as_ref().is_some_and(|call| call.is_known);
        if let View::Diff { diff, .. } = view
            && !is_known
        {
            let limit = if self.detail == Detail::Verbose { usize::MAX } else { DIFF_LINES };
            lines.push_str(&diff_lines(diff, self.paint, limit));
        }
        if self.detail == Detail::Verbose && !call.is_some_and(|call| call.is_streamed) {
            lines.push_str(&whole(&text_of(&result.content)));
        }
        self.log(&lines)
    }

    fn ended(&mut self, end: &End) -> io::Result<()> {
        for (request, rest) in self.answer.ended(&end.messages) {
            self.text(request, &rest)?;
            self.close_line()?;
        }
        self.close_line()?;
        if self.detail == Detail::Quiet && self.shows_answer {
            self.last_message(end)?;
        }
        if let Some(failure) = &end.error {
            let line = self.paint.paint(Style::Red, &said(&failure.message));
            self.log(&line)?;
        } else if end.stop == EndStop::Aborted {
            self.log_unless_quiet(Style::Dim, "stopped")?;
        }
        if self.has_receipt && self.detail != Detail::Quiet {
            let line = self.receipt.line(&end.usage, self.receipt.elapsed());
            let line = self.paint.paint(Style::Dim, &format!("  {line}\n"));
            self.log(&line)?;
        }
        Ok(())
    }

    fn last_message(&mut self, end: &End) -> io::Result<()> {
        let Some(mut text) = last_text(&end.messages) else { return Ok(()) };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        self.out.write(caret::answer(&text))
    }
}

impl Text {
    /// What the status line learns from an event.
    fn note(&mut self, event: &Event) -> io::Result<()> {
        let Some(status) = &mut self.status else { return Ok(()) };
        match event {
            Event::TurnStarted { .. } => status.begin(),
            Event::CallStarted { call, title } => status.started(&call.id, &caret::line(title)),
            Event::CallDone { result, .. } => status.stopped(&result.tool_call_id),
            Event::ToolOutput { chunk, .. } if self.detail != Detail::Verbose => {
                status.wrote(chunk);
            }
            Event::MessageDone { message, .. } => status.counted(&message.usage),
            Event::QuestionAsked(_) => return self.clear_status(),
            Event::TurnEnded(_) => {
                status.end();
                return self.clear_status();
            }
            _ => {}
        }
        Ok(())
    }
}

impl Renderer for Text {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.note(event)?;
        match event {
            Event::TurnStarted { .. } => {
                self.receipt = Receipt::begin();
                self.calls.clear();
                Ok(())
            }
            Event::RequestStarted { request } => {
                self.request_began = Instant::now();
                match self.detail {
                    Detail::Verbose => self.log_unless_quiet(Style::Dim, &format!("request {request}")),
                    _ => Ok(()),
                }
            }
            Event::TextDelta { request, offset, delta } => {
                let text = self.answer.delta(*request, *offset, delta);
                self.text(*request, text)
            }
            Event::ThinkingDelta { delta } => self.tool_output("", delta),
            Event::MessageDone { request, message } => self.message_done(*request, message),
            Event::Retried { attempt, delay_ms, reason } => {
                let wait = duration(Duration::from_millis(*delay_ms));
                self.log_unless_quiet(
                    Style::Yellow,
                    &format!("trying again in {wait} (attempt {attempt}): {reason}"),
                )
            }
            Event::CallStarted { call, title } => self.call_started(&call.id, title),
            Event::PermissionDecided { id, decision: Decision::Deny, by, .. } => self.decided(id, *by),
            Event::ToolOutput { id, chunk } => self.tool_output(id, chunk),
            Event::CallDone { result, view } => self.call_done(result, view),
            Event::Warned { message } => self.log_unless_quiet(Style::Yellow, &format!("warning: {message}")),
            Event::TurnEnded(end) => self.ended(end),
            Event::QuestionAsked(question) => {
                // The question stands on the terminal. Where standard error goes elsewhere it tells everything.
                if let Some(call) = self.calls.get_mut(&question.call.id) {
                    call.is_known = self.has_receipt;
                }
                Ok(())
            }
            Event::PermissionDecided { .. } => Ok(()),
        }
    }

    fn lagged(&mut self, _: u64) -> io::Result<()> {
        self.answer.lagged();
        Ok(())
    }

    fn tick(&mut self, draft: &str) -> io::Result<()> {
        // Beside text that is not at its line's end there is no place for it.
        let is_busy = self.is_err_open || (self.is_shared && self.open_line.is_some());
        let Some(status) = self.status.as_mut().filter(|_| !is_busy) else { return Ok(()) };
        let news = status.draw(&caret::line(draft), size(), self.paint);
        news.map_or(Ok(()), |news| self.err.write(news))
    }

    fn make_room(&mut self) -> io::Result<()> {
        self.clear_status()
    }

    fn close(&mut self, _: u8) -> io::Result<()> {
        self.clear_status()?;
        self.close_line()
    }
}

/// Columns and rows of the terminal.
fn size() -> (usize, usize) {
    crossterm::terminal::size().map_or((80, 24), |(width, rows)| (width.into(), rows.into()))
}

fn whole(text: &str) -> String {
    let shown = caret::strict(text);
    if shown.ends_with('\n') { shown } else { shown + "\n" }
}

#[cfg(test)]
#[path = "plain_tests.rs"]
mod tests;

//! The question whether a call may run, asked on the controlling terminal.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::thread;

use crab_core::protocol::{Answer, Question};
use crab_core::tools::View;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::sync::oneshot;
use unicode_width::UnicodeWidthStr;

use crate::caret;
use crate::editor::edit;
use crate::render::diff_lines;
use crate::render::terminal::{Paint, Style};
use crate::tty;

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The user's word.
    Answer(Answer),
    /// Ctrl-C: no, and the turn ends.
    Interrupted,
}

/// An open question. Dropping it takes the question back and restores the terminal.
pub(crate) struct Asking {
    reply: oneshot::Receiver<Reply>,
    _wake: PipeWriter,
}

impl Asking {
    /// Asks, on a thread of its own. With no terminal to ask on, the answer is there at once.
    pub(crate) fn open(question: &Question, paint: Paint) -> io::Result<Self> {
        let (send, reply) = oneshot::channel();
        let (woken, wake) = io::pipe()?;
        let Some(tty) = tty::controlling() else {
            // The receiver is in this function.
            let _ = send.send(Reply::Answer(Answer::Unattended));
            return Ok(Self { reply, _wake: wake });
        };
        let question = question.clone();
        thread::Builder::new().name("question".into()).spawn(move || {
            // A terminal that fails in the middle of a question is one with nobody at it. Whoever asked may be gone.
            let reply = hold(&tty, &woken, &question, paint);
            let _ = send.send(reply.unwrap_or(Reply::Answer(Answer::Unattended)));
        })?;
        Ok(Self { reply, _wake: wake })
    }

    /// Waits for the reply.
    pub(crate) async fn reply(&mut self) -> Reply {
        (&mut self.reply).await.unwrap_or(Reply::Answer(Answer::Unattended))
    }
}

/// Asks until there is an answer; in between the user may look at the command in an editor.
fn hold(tty: &File, woken: &PipeReader, question: &Question, paint: Paint) -> io::Result<Reply> {
    let command = match &question.view {
        View::Command { command, .. } => Some(command),
        _ => None,
    };
    let (rows, columns) = size(tty);
    let mut text = text(question, paint, rows, columns);
    loop {
        let reply = ask(tty.try_clone()?, woken, &text, command.is_some())?;
        let (None, Some(command)) = (&reply, command) else {
            return Ok(reply.unwrap_or(Reply::Answer(Answer::Deny(None))));
        };
        let news = match edit(command, "command.sh", Some((tty, woken))) {
            Ok(edited) if edited == command.trim_end() => "the command is as it was".to_owned(),
            Ok(edited) if edited.is_empty() => "no command was left".to_owned(),
            Ok(edited) => return Ok(Reply::Answer(Answer::Edit(edited))),
            Err(why) => caret::line(&why),
        };
        text = format!("{news}\n{KEYS_LINE}");
    }
}

fn size(tty: &File) -> (usize, usize) {
    match tcgetwinsize(tty) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row.into(), size.ws_col.into()),
        _ => (24, 80),
    }
}

/// The last line; short, so that the keys stay in sight on a narrow terminal.
const KEYS_LINE: &str = "run it? [y/n/a] ";

/// What `?` says.
const HELP: &str = "\
y        run it, this once
a        run it, and ask no more for its kind until crab ends
n        do not run it; Enter, or type why and then Enter: the model reads it and goes on
Ctrl-C   do not run it, and stop the turn
any other key is a no
";

/// What it says of what can be edited.
const EDIT_HELP: &str = "e        change it in your editor ($VISUAL or $EDITOR), and be asked again\n";

/// All that is shown. Runs of empty lines are counted instead of shown, since they push what matters off the screen.
fn text(question: &Question, paint: Paint, rows: usize, columns: usize) -> String {
    let body = body(&question.view, paint);
    // A command or a diff says more than its title, and the tool line above has the title already.
    let mut shown = match (&question.view, body.strip_prefix("  ")) {
        (View::Command { .. } | View::Diff { .. }, Some(body)) => format!("\n? {body}"),
        _ => {
            let title = paint.paint(Style::Bold, &format!("? {}", caret::line(&question.title)));
            format!("\n{title}\n{body}")
        }
    };
    let lines = shown.lines().map(|line| line.width().div_ceil(columns).max(1)).sum::<usize>();
    let reason = caret::line(&question.reason);
    let class = caret::line(&question.class);
    let edit = if matches!(question.view, View::Command { .. }) { "e: edit it; " } else { "" };
    let mut rest = format!("asked because: {reason}\n");
    rest.push_str(&format!(
        "y: yes, once; a: for this session, {class}; {edit}n: no, or n and why; ?: more\n"
    ));
    rest = paint.paint(Style::Dim, &rest);
    if lines + 6 > rows {
        let note = format!("this is {lines} lines long: scroll up to see all of it before you answer\n");
        rest.insert_str(0, &paint.paint(Style::Yellow, &note));
    }
    shown.push_str(&rest);
    shown.push_str(KEYS_LINE);
    shown
}

fn body(view: &View, paint: Paint) -> String {
    match view {
        View::Line { text } => indented(text),
        View::Command { command, .. } => indented(command),
        View::Diff { path, diff, added, removed } => {
            let head = format!("  {} (+{added} −{removed})\n", caret::line(path));
            match diff.as_str() {
                "" => head + "  (too large to show)\n",
                diff => head + &diff_lines(diff, paint, usize::MAX),
            }
        }
    }
}

fn indented(text: &str) -> String {
    let shown = caret::strict(text);
    let lines: Vec<&str> = shown.split('\n').collect();
    let mut out = String::new();
    for run in lines.chunk_by(|a, b| a.trim().is_empty() && b.trim().is_empty()) {
        match run {
            [first, ..] if run.len() > 2 && first.trim().is_empty() => {
                out.push_str(&format!("  ({} empty lines)\n", run.len()));
            }
            run => run.iter().for_each(|line| out.push_str(&format!("  {line}\n"))),
        }
    }
    out
}

/// The terminal in a state in which each key is read as it is typed, until it is dropped.
struct Raw {
    tty: File,
    before: Termios,
    is_dumb: bool,
}

impl Raw {
    /// Throws away what was typed so far: it was no answer to a question that was not there.
    fn enter(tty: File) -> io::Result<Self> {
        tty::touch();
        let before = tcgetattr(&tty)?;
        let mut raw = before.clone();
        // Output modes stay, so that "\n" goes on starting a line.
        raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN;
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&tty, OptionalActions::Flush, &raw)?;
        Ok(Self { tty, before, is_dumb: tty::is_dumb() })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        if !self.is_dumb {
            let _ = self.tty.write_all(b"\x1b[?2004l");
        }
        let _ = tcsetattr(&self.tty, OptionalActions::Now, &self.before);
    }
}

/// Asks once. `None`: the user wants to edit what was asked about.
fn ask(tty: File, woken: &PipeReader, text: &str, can_edit: bool) -> io::Result<Option<Reply>> {
    let mut raw = Raw::enter(tty)?;
    // Bracketed paste makes a paste tell itself from typing.
    let paste = if raw.is_dumb { "" } else { "\x1b[?2004h" };
    raw.tty.write_all(format!("{text}{paste}").as_bytes())?;
    let mut keys = Keys { can_edit, ..Keys::default() };
    loop {
        let Some(bytes) = read(&mut raw.tty, woken)? else {
            raw.tty.write_all(b"\n")?;
            return Ok(Some(Reply::Answer(Answer::Deny(None))));
        };
        let (shown, step) = keys.typed(&bytes);
        raw.tty.write_all(shown.as_bytes())?;
        let reply = match step {
            Step::More => continue,
            Step::Edit => None,
            Step::Done(reply) => Some(reply),
        };
        raw.tty.write_all(b"\n")?;
        return Ok(reply);
    }
}

/// What was typed, an escape sequence whole. `None` when the question was taken back or the terminal is gone.
fn read(tty: &mut File, woken: &PipeReader) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![];
    let mut buffer = [0; 4096];
    loop {
        let is_whole = !bytes.is_empty() && !ends_in_escape(&bytes);
        if is_whole || !is_ready(tty, woken, bytes.is_empty())? {
            return Ok((!bytes.is_empty()).then_some(bytes));
        }
        match tty.read(&mut buffer)? {
            0 => return Ok(None),
            n => bytes.extend(&buffer[..n]),
        }
    }
}

/// Waits for input; without `is_patient` only as long as the rest of an escape sequence may take.
fn is_ready(tty: &File, woken: &PipeReader, is_patient: bool) -> io::Result<bool> {
    let moment = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    let timeout = if is_patient { None } else { Some(&moment) };
    loop {
        let mut fds = [PollFd::new(tty, PollFlags::IN), PollFd::new(woken, PollFlags::IN)];
        match poll(&mut fds, timeout) {
            Err(rustix::io::Errno::INTR) => {}
            Err(err) => return Err(err.into()),
            Ok(_) if !fds[1].revents().is_empty() => return Ok(false),
            Ok(n) => return Ok(n > 0),
        }
    }
}

/// Whether the bytes stop inside an escape sequence, or right behind a lone Esc.
fn ends_in_escape(bytes: &[u8]) -> bool {
    let Some(at) = bytes.iter().rposition(|byte| *byte == 0x1b) else { return false };
    match &bytes[at + 1..] {
        [] | [b'[' | b'O'] => true,
        [b'[', rest @ ..] => !rest.iter().any(|byte| (0x40..0x7f).contains(byte)),
        _ => false,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Step {
    More,
    Edit,
    Done(Reply),
}

const PASTE_BEGIN: &[u8] = b"\x1b[200~";
const PASTE_END: &[u8] = b"\x1b[201~";

/// What the keys typed so far mean.
#[derive(Default)]
struct Keys {
    /// Whether there is something that can be edited.
    can_edit: bool,
    /// The reason being typed behind `n`.
    reason: Option<String>,
    is_paste: bool,
    /// Bytes of a character that is not whole yet, or the end of a paste that may be the start of its closing mark.
    pending: Vec<u8>,
}

impl Keys {
    /// Takes what one read gave. Returns what to show and what it means.
    fn typed(&mut self, bytes: &[u8]) -> (String, Step) {
        let mut input = std::mem::take(&mut self.pending);
        input.extend(bytes);
        if self.is_paste || input.starts_with(PASTE_BEGIN) {
            return self.pasted(input);
        }
        let input = without_sequences(&input);
        let edit_help = if self.can_edit { EDIT_HELP } else { "" };
        match (&self.reason, input.as_slice()) {
            (_, []) => (String::new(), Step::More),
            (_, input) if input.contains(&3) => ("^C".into(), Step::Done(Reply::Interrupted)),
            (Some(_), input) => self.explained(input),
            (None, [b'y' | b'Y'] | [b'y' | b'Y', b'\r' | b'\n']) => done("yes", Answer::Allow),
            (None, [b'a' | b'A'] | [b'a' | b'A', b'\r' | b'\n']) => {
                done("yes, for this session", Answer::AllowSession)
            }
            (None, [b'e' | b'E'] | [b'e' | b'E', b'\r' | b'\n']) if self.can_edit => ("e".into(), Step::Edit),
            (None, [b'n' | b'N', rest @ ..]) => {
                self.reason = Some(String::new());
                let (shown, step) = self.explained(rest);
                (format!("n{shown}"), step)
            }
            (None, [b'?'] | [b'?', b'\r' | b'\n']) => {
                (format!("?\n{edit_help}{HELP}{KEYS_LINE}"), Step::More)
            }
            (None, input) if is_one_key(input) => done("no", Answer::Deny(None)),
            // Several characters at once are a paste from a terminal that does not mark it.
            (None, _) => (again(), Step::More),
        }
    }

    fn pasted(&mut self, input: Vec<u8>) -> (String, Step) {
        let end = input.windows(PASTE_END.len()).position(|window| window == PASTE_END);
        self.is_paste = end.is_none();
        if end.is_none() {
            self.pending = input[input.len().saturating_sub(PASTE_END.len() - 1)..].to_vec();
            return (String::new(), Step::More);
        }
        // What follows the paste in the same read was not typed in answer to anything either.
        self.reason = None;
        (again(), Step::More)
    }

    /// The reason behind `n`, up to Enter.
    fn explained(&mut self, input: &[u8]) -> (String, Step) {
        let reason = self.reason.get_or_insert_default();
        let mut shown = String::new();
        let valid = match std::str::from_utf8(input) {
            Ok(text) => text,
            Err(err) if err.error_len().is_none() => {
                self.pending = input[err.valid_up_to()..].to_vec();
                std::str::from_utf8(&input[..err.valid_up_to()]).unwrap_or_default()
            }
            Err(_) => "",
        };
        for c in valid.chars() {
            match c {
                '\r' | '\n' => {
                    let reason = reason.trim().to_owned();
                    let answer = Answer::Deny((!reason.is_empty()).then_some(reason));
                    return (shown, Step::Done(Reply::Answer(answer)));
                }
                '\x1b' | '\x04' => return (shown, Step::Done(Reply::Answer(Answer::Deny(None)))),
                '\x7f' | '\x08' => {
                    let Some(gone) = reason.pop() else { continue };
                    let columns = gone.to_string().width();
                    shown.push_str(&"\x08 \x08".repeat(columns));
                }
                c if c.is_control() => {}
                c => {
                    reason.push(c);
                    shown.push_str(&caret::strict(c.encode_utf8(&mut [0; 4])));
                }
            }
        }
        (shown, Step::More)
    }
}

fn done(shown: &str, answer: Answer) -> (String, Step) {
    (shown.to_owned(), Step::Done(Reply::Answer(answer)))
}

fn again() -> String {
    format!("\na paste is no answer: press one key\n{KEYS_LINE}")
}

/// One key: one byte, a lone Esc, or one character of several bytes.
fn is_one_key(input: &[u8]) -> bool {
    input.len() == 1 || std::str::from_utf8(input).is_ok_and(|text| text.chars().count() == 1)
}

/// Without control sequences: arrow keys, and late answers of the terminal to the line editor's questions.
fn without_sequences(input: &[u8]) -> Vec<u8> {
    let mut out = vec![];
    let mut rest = input;
    while let Some((first, tail)) = rest.split_first() {
        rest = match (first, tail) {
            (0x1b, [b'[', params @ ..]) => {
                let end = params.iter().position(|byte| (0x40..0x7f).contains(byte));
                end.map_or(&[][..], |end| &params[end + 1..])
            }
            (0x1b, [b'O', _, after @ ..]) => after,
            _ => {
                out.push(*first);
                tail
            }
        };
    }
    out
}

#[cfg(test)]
#[path = "confirm_tests.rs"]
mod tests;

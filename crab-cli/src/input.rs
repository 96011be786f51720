//! Typed lines: the line editor on its own thread, one line for each request.

use std::borrow::Cow;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crab_core::redact::Secrets;
use crossterm::event::{KeyCode, KeyModifiers};
use reedline::{
    ColumnarMenu, DefaultHinter, EditCommand, EditMode, Emacs, Highlighter, Keybindings, MenuBuilder, Prompt,
    PromptEditMode, PromptHistorySearch, PromptViMode, Reedline, ReedlineEvent, ReedlineMenu,
    ReedlineRawEvent, Signal, StyledText, ValidationResult, Validator, Vi, default_emacs_keybindings,
    default_vi_insert_keybindings, default_vi_normal_keybindings, default_vi_visual_keybindings,
};
use tokio::sync::mpsc;

use crate::complete::Completions;
use crate::history::Kept;
use crate::tty;

/// What stands before each line; tests and scripts look for it.
const PROMPT: &str = "> ";

/// What stands there while the keys are commands of vi.
const COMMANDS: &str = ": ";

const MENU: &str = "completions";

/// What a request for a line gave.
#[derive(Debug)]
pub(crate) enum Typed {
    /// A line, or several.
    Line(String),
    /// Ctrl-C; whether there was a draft that it cleared.
    Interrupted {
        /// There was one.
        had_draft: bool,
    },
    /// Ctrl-Z; the draft is kept.
    Suspended,
    /// Ctrl-D on an empty line, or the end of the input.
    End,
    /// The request was taken back by [`Input::cancel`].
    Cancelled,
    /// The terminal failed.
    Failed(io::Error),
}

/// How the line editor looks and what it keeps.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    /// The file of the history; `None` keeps it in memory.
    pub(crate) history: Option<PathBuf>,
    /// Whether the prompt is styled.
    pub(crate) is_styled: bool,
    /// Whether the keys are those of vi.
    pub(crate) is_vi: bool,
    /// What the history must not hold.
    pub(crate) secrets: Arc<Secrets>,
    /// Where relative paths begin.
    pub(crate) cwd: PathBuf,
    /// Where a draft lies while an editor of the user's has it.
    pub(crate) scratch: Option<PathBuf>,
}

/// The line editor. It touches the terminal only between a request and its answer.
pub(crate) struct Input {
    requests: Sender<String>,
    lines: mpsc::UnboundedReceiver<Typed>,
    cancel: Arc<AtomicBool>,
    is_open: bool,
    /// What the next line begins with.
    draft: String,
}

impl Input {
    /// Starts its thread. A history that can't be kept is told in the second value and kept in memory.
    pub(crate) fn start(settings: Settings) -> io::Result<(Self, Option<String>)> {
        let (requests, asked) = channel();
        let (send, lines) = mpsc::unbounded_channel();
        let cancel = Arc::new(AtomicBool::new(false));
        let mut warning = None;
        let builder = thread::Builder::new().name("input".into());
        if tty::is_dumb() {
            builder.spawn(move || read_plain(&asked, &send))?;
        } else {
            let editor = Editor::new(settings, cancel.clone(), &mut warning);
            builder.spawn(move || editor.run(&asked, &send))?;
        }
        Ok((Self { requests, lines, cancel, is_open: false, draft: String::new() }, warning))
    }

    /// The next line begins with this text.
    pub(crate) fn prefill(&mut self, draft: String) {
        self.draft = draft;
    }

    /// Shows the prompt, unless it stands already, and waits for what is typed. Cancel safe.
    pub(crate) async fn next(&mut self) -> Typed {
        if !self.is_open {
            self.is_open = true;
            if self.requests.send(std::mem::take(&mut self.draft)).is_err() {
                return Typed::Failed(io::Error::other("the line editor has ended"));
            }
        }
        let typed = self.lines.recv().await;
        self.is_open = false;
        typed.unwrap_or_else(|| Typed::Failed(io::Error::other("the line editor has ended")))
    }

    /// A signal, not a key, asked for a fresh line.
    pub(crate) async fn refresh(&mut self) -> io::Result<()> {
        if self.is_open && tty::is_dumb() {
            // The terminal has dropped the draft already; the thread goes on reading.
            io::stderr().write_all(b"\n")?;
            return show_plain_prompt();
        }
        self.cancel().await;
        Ok(())
    }

    /// Takes the open request back and waits a moment for the editor to let go of the terminal.
    pub(crate) async fn cancel(&mut self) {
        if !self.is_open || tty::is_dumb() {
            return;
        }
        self.cancel.store(true, Ordering::Relaxed);
        // An editor that waits for a terminal's answer takes longer; the terminal is restored without it.
        if tokio::time::timeout(Duration::from_millis(700), self.lines.recv()).await.is_ok() {
            self.is_open = false;
        }
        self.cancel.store(false, Ordering::Relaxed);
    }
}

/// The prompt of a terminal that edits its own lines.
fn show_plain_prompt() -> io::Result<()> {
    io::stderr().write_all(PROMPT.as_bytes())
}

/// Lines as the terminal itself edits them, for one that understands no escape sequences.
fn read_plain(asked: &Receiver<String>, send: &mpsc::UnboundedSender<Typed>) {
    while let Ok(draft) = asked.recv() {
        let typed = read_plain_line(draft).unwrap_or_else(Typed::Failed);
        if send.send(typed).is_err() {
            return;
        }
    }
}

fn read_plain_line(mut text: String) -> io::Result<Typed> {
    show_plain_prompt()?;
    // What stands there already can be gone on with, not changed.
    io::stderr().write_all(text.as_bytes())?;
    loop {
        let mut line = String::new();
        if io::stdin().lock().read_line(&mut line)? == 0 {
            return Ok(if text.is_empty() { Typed::End } else { Typed::Line(text) });
        }
        text.push_str(line.trim_end_matches(['\n', '\r']));
        if !goes_on(&text) {
            return Ok(Typed::Line(text));
        }
        // The backslash said that the line goes on, and is no part of it.
        text.pop();
        text.push('\n');
    }
}

/// A backslash at the end of a line begins another one.
fn goes_on(line: &str) -> bool {
    line.ends_with('\\')
}

struct Editor {
    reedline: Reedline,
    draft: Arc<Mutex<String>>,
    held: Arc<Mutex<Vec<String>>>,
    face: Face,
}

impl Editor {
    fn new(settings: Settings, cancel: Arc<AtomicBool>, warning: &mut Option<String>) -> Self {
        let draft = Arc::new(Mutex::new(String::new()));
        let held = Arc::new(Mutex::new(Vec::new()));
        let mut reedline = Reedline::create()
            .use_bracketed_paste(true)
            .with_ansi_colors(settings.is_styled)
            .disable_auto_pairs()
            .with_break_signal(cancel)
            .with_validator(Box::new(Continuation(held.clone())))
            .with_highlighter(Box::new(Watch(draft.clone())))
            .with_completer(Box::new(Completions { cwd: settings.cwd }))
            .with_menu(ReedlineMenu::EngineCompleter(Box::new(ColumnarMenu::default().with_name(MENU))))
            .with_partial_completions(true)
            .with_quick_completions(true)
            .with_edit_mode(Box::new(Keys {
                inner: mode(settings.is_vi),
                is_vi: settings.is_vi,
                draft: draft.clone(),
            }));
        if settings.is_styled {
            // Without style a hint could not be told from what was typed.
            reedline = reedline.with_hinter(Box::new(DefaultHinter::default().with_min_chars(2)));
        }
        if let Some(file) = &settings.scratch {
            reedline = reedline.with_buffer_editor(crate::editor::command(file), file.clone());
        }
        match settings.history.as_deref().map(|path| Kept::open(path, settings.secrets.clone())) {
            Some(Ok(history)) => reedline = reedline.with_history(Box::new(history)),
            Some(Err(err)) => *warning = Some(format!("the prompt history is not kept: {err}")),
            None => {}
        }
        Self { reedline, draft, held, face: Face }
    }

    fn draft(&self) -> MutexGuard<'_, String> {
        self.draft.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(mut self, asked: &Receiver<String>, send: &mpsc::UnboundedSender<Typed>) {
        while let Ok(draft) = asked.recv() {
            tty::touch();
            if !draft.is_empty() {
                self.reedline.run_edit_commands(&[EditCommand::InsertString(draft)]);
            }
            self.draft().clear();
            self.held.lock().unwrap_or_else(PoisonError::into_inner).clear();
            let typed = match self.reedline.read_line(&self.face) {
                Ok(Signal::Success(line)) => {
                    let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
                    Typed::Line(joined(line, &mut held))
                }
                Ok(Signal::CtrlC) => Typed::Interrupted { had_draft: !self.draft().is_empty() },
                Ok(Signal::HostCommand(_)) => Typed::Suspended,
                Ok(Signal::CtrlD) => Typed::End,
                Ok(_) => {
                    self.reedline.run_edit_commands(&[EditCommand::Clear]);
                    Typed::Cancelled
                }
                Err(err) => Typed::Failed(err),
            };
            if matches!(typed, Typed::Line(_)) {
                // The line counts, its place in the history less so: a full disk must not cost the prompt.
                let _ = self.reedline.sync_history();
            }
            if send.send(typed).is_err() {
                return;
            }
        }
    }
}

fn mode(is_vi: bool) -> Box<dyn EditMode> {
    if is_vi {
        let [insert, normal, visual] = [
            default_vi_insert_keybindings(),
            default_vi_normal_keybindings(),
            default_vi_visual_keybindings(),
        ]
        .map(with_ours);
        Box::new(Vi::new(insert, normal, visual))
    } else {
        Box::new(Emacs::new(with_ours(default_emacs_keybindings())))
    }
}

/// Alt-Enter and Shift-Enter begin a new line. Ctrl-J is what Enter was when a line was typed ahead.
fn with_ours(mut keys: Keybindings) -> Keybindings {
    let newline = || ReedlineEvent::Edit(vec![EditCommand::InsertNewline]);
    keys.add_binding(KeyModifiers::ALT, KeyCode::Enter, newline());
    keys.add_binding(KeyModifiers::SHIFT, KeyCode::Enter, newline());
    keys.add_binding(KeyModifiers::CONTROL, KeyCode::Char('j'), ReedlineEvent::Enter);
    keys.add_binding(KeyModifiers::CONTROL, KeyCode::Char('g'), ReedlineEvent::OpenEditor);
    let suspend = ReedlineEvent::ExecuteHostCommand("suspend".to_owned());
    keys.add_binding(KeyModifiers::CONTROL, KeyCode::Char('z'), suspend);
    let menu = vec![ReedlineEvent::Menu(MENU.to_owned()), ReedlineEvent::MenuNext];
    keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, ReedlineEvent::UntilFound(menu));
    keys.add_binding(KeyModifiers::SHIFT, KeyCode::BackTab, ReedlineEvent::MenuPrevious);
    keys
}

/// The keys of an editor, but Enter behind a backslash puts a new line in its place.
struct Keys {
    inner: Box<dyn EditMode>,
    is_vi: bool,
    draft: Arc<Mutex<String>>,
}

impl EditMode for Keys {
    fn parse_event(&mut self, event: ReedlineRawEvent) -> ReedlineEvent {
        let event = self.inner.parse_event(event);
        if matches!(event, ReedlineEvent::CtrlC) {
            // The next prompt begins with typing, not with commands.
            self.inner = mode(self.is_vi);
        }
        let is_enter = matches!(event, ReedlineEvent::Enter);
        if is_enter && goes_on(&self.draft.lock().unwrap_or_else(PoisonError::into_inner)) {
            let end = EditCommand::MoveToEnd { select: false };
            return ReedlineEvent::Edit(vec![end, EditCommand::Backspace, EditCommand::InsertNewline]);
        }
        event
    }

    fn edit_mode(&self) -> PromptEditMode {
        self.inner.edit_mode()
    }
}

/// Holds back a line that ends in a backslash also when it came too fast to be painted before its Enter, and remembers
/// the texts that it held back: their last backslash is no part of what is sent.
struct Continuation(Arc<Mutex<Vec<String>>>);

impl Validator for Continuation {
    fn validate(&self, line: &str) -> ValidationResult {
        if !goes_on(line) {
            return ValidationResult::Complete;
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
        ValidationResult::Incomplete
    }
}

/// The text without the backslashes that held it back. What was edited since is left as it is.
fn joined(mut line: String, held: &mut Vec<String>) -> String {
    while let Some(beginning) = held.pop() {
        let end = beginning.len();
        if line.starts_with(&beginning) && line[end..].starts_with('\n') {
            line.remove(end - 1);
        }
    }
    line
}

/// Sees each painted draft, since the editor has cleared it by the time it reports Ctrl-C.
struct Watch(Arc<Mutex<String>>);

impl Highlighter for Watch {
    fn highlight(&self, line: &str, _: usize) -> StyledText {
        line.clone_into(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut text = StyledText::new();
        text.push((Default::default(), line.to_owned()));
        text
    }
}

struct Face;

impl Prompt for Face {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        "".into()
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        "".into()
    }

    fn render_prompt_indicator(&self, mode: PromptEditMode) -> Cow<'_, str> {
        match mode {
            PromptEditMode::Vi(PromptViMode::Normal | PromptViMode::Visual) => COMMANDS.into(),
            _ => PROMPT.into(),
        }
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        "  ".into()
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        format!("search `{}` > ", search.term).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backslashes_that_held_a_line_back_are_no_part_of_it() {
        for (line, held, expected) in [
            ("a \\\nb", vec!["a \\"], "a \nb"),
            ("a\\\nb\\\nc", vec!["a\\", "a\\\nb\\"], "a\nb\nc"),
            ("pasted\\\ncode", vec![], "pasted\\\ncode"),
            ("edited\nb", vec!["a\\"], "edited\nb"),
        ] {
            let mut held = held.into_iter().map(str::to_owned).collect();
            assert_eq!(joined(line.into(), &mut held), expected, "{line}");
        }
    }

    #[test]
    fn a_backslash_at_the_end_goes_on() {
        assert!(goes_on("a \\") && goes_on("a\n\\") && !goes_on("a \\ b") && !goes_on(""));
    }
}

//! Slash commands: one table, and what each does at its desk.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine;
use crab_core::agent::Model;
use crab_core::config::{Config, Keys};
use crab_core::home::Home;
use crab_core::message::Usage;
use crab_core::protocol::Change;
use crab_core::provider::{Effort, SERVICES, models};
use crab_core::session::{self, Transcript};

use crate::args::Args;
use crate::caret;
use crate::choice::Choice;
use crate::export;
use crate::render::SessionFacts;
use crate::sessions;
use crate::tree;

/// A command as the table has it.
pub(crate) struct Slash {
    /// Its name, slash included.
    pub(crate) name: &'static str,
    /// Its arguments, for people.
    pub(crate) args: &'static str,
    /// What it does.
    pub(crate) about: &'static str,
    run: fn(&mut Desk, &str) -> Outcome,
}

/// Every command, in the order of the help.
pub(crate) const COMMANDS: &[Slash] = &[
    slash("/help", "", "this text", |_, _| Outcome::Say(help())),
    slash("/model", "[PROVIDER/MODEL]", "show the model, or go on with another one", Desk::model),
    slash("/thinking", "[off|low|medium|high]", "show or set how hard the model thinks", Desk::thinking),
    slash("/sessions", "[ID]", "list the sessions of this directory, or go on with one", Desk::sessions),
    slash("/new", "", "begin a new session", |_, _| Outcome::Leave(Leave::New)),
    slash("/fork", "", "go on in a copy of this session", Desk::fork),
    slash("/tree", "[N]", "show the turns with their branches, or go on behind turn N", Desk::tree),
    slash("/undo", "[N]", "take back the last turn, or N, with what edit and write changed", Desk::undo),
    slash("/redo", "", "put back what was taken back last", Desk::redo),
    slash("/title", "TEXT", "say what this session is about, for the lists of sessions", Desk::title),
    slash("/export", "[FILE]", "write this session to FILE, as .md, .html or .json", Desk::export),
    slash("/cost", "", "tokens and money of this session since crab started", Desk::cost),
    slash("/tools", "", "the tools on offer", Desk::tools),
    slash("/permissions", "", "the rules in force", Desk::permissions),
    slash("/copy", "", "copy the last answer to the clipboard", Desk::copy),
    slash("/edit", "[TEXT]", "write the prompt in $VISUAL or $EDITOR, as Ctrl-G does", Desk::edit),
    slash("/config", "", "what is configured, and where", Desk::config),
    slash("/quit", "", "leave, as do /exit and Ctrl-D", |_, _| Outcome::Quit),
];

const fn slash(
    name: &'static str,
    args: &'static str,
    about: &'static str,
    run: fn(&mut Desk, &str) -> Outcome,
) -> Slash {
    Slash { name, args, about, run }
}

/// Commands whose features are not there yet.
const LATER: [&str; 2] = ["/compact", "/context"];

/// What a command leads to.
pub(crate) enum Outcome {
    /// Lines for standard error.
    Say(String),
    /// One `crab: …` line: it could not be done.
    Fail(String),
    /// The agent is told, and these are the words for the user.
    Change(Change, String),
    /// The next prompt begins with this text.
    Draft(String),
    /// The conversation ends here, and another one begins.
    Leave(Leave),
    /// Crab ends.
    Quit,
}

/// Where to go from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// To a new session.
    New,
    /// To this one.
    Resume(String),
    /// To a copy of this one.
    Fork(String),
}

/// All that commands work with.
pub(crate) struct Desk {
    pub(crate) args: Args,
    pub(crate) config: Config,
    pub(crate) keys: Keys,
    pub(crate) home: Option<Home>,
    pub(crate) facts: SessionFacts,
    pub(crate) effort: Option<Effort>,
    /// The rules, one a line.
    pub(crate) rules: Vec<String>,
    /// The names of the tools.
    pub(crate) tools: Vec<String>,
    /// What the turns so far cost.
    pub(crate) usage: Usage,
    /// What the model said last.
    pub(crate) answer: String,
}

impl Desk {
    /// Runs a line that begins with a slash.
    pub(crate) fn run(&mut self, line: &str) -> Outcome {
        let (word, rest) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
        let name = canonical(word);
        match COMMANDS.iter().find(|command| command.name == name) {
            Some(command) => (command.run)(self, rest.trim()),
            None if LATER.contains(&name) => Outcome::Fail(format!("`{name}` is not there yet")),
            None => Outcome::Fail(format!("no command `{name}`: /help lists them")),
        }
    }

    fn model(&mut self, name: &str) -> Outcome {
        let facts = &self.facts;
        if name.is_empty() {
            let known = models::find(&facts.provider, &facts.model).and_then(|model| model.context);
            let window = known.map(|tokens| format!(", {}k tokens", tokens / 1_000)).unwrap_or_default();
            return Outcome::Say(format!("{}/{}{window}\n", facts.provider, facts.model));
        }
        match self.plan(name) {
            Ok(model) => {
                self.facts.provider = model.provider.name().to_owned();
                self.facts.model.clone_from(&model.name);
                let words = format!("from now on {}/{} answers", self.facts.provider, self.facts.model);
                Outcome::Change(Change::Model(model), words)
            }
            Err(why) => Outcome::Fail(why),
        }
    }

    /// The model of this name; without a provider before it, at the service that answers now.
    fn plan(&mut self, name: &str) -> Result<Model, String> {
        let mut args = self.args.clone();
        // A part of a name is enough where only one model of the service has it.
        let ours: Vec<&str> = models::of(&self.facts.provider).map(|model| model.id.as_str()).collect();
        let parts: Vec<&&str> = ours.iter().filter(|id| id.contains(name)).collect();
        args.model = Some(match parts[..] {
            [only] if !ours.contains(&name) => format!("{}/{only}", self.facts.provider),
            _ => name.to_owned(),
        });
        args.provider = Some(self.facts.provider.clone());
        let mut choice = Choice { args: &args, config: &self.config, keys: &mut self.keys };
        let chosen = choice.model(None).map_err(|stop| stop.failure.message)?;
        let base_url = args.base_url.clone().filter(|_| chosen.provider == self.facts.provider);
        let plan = choice.plan(&chosen, base_url).map_err(|stop| stop.failure.message)?;
        plan.build(None).map_err(|stop| stop.failure.message)
    }

    fn thinking(&mut self, level: &str) -> Outcome {
        let effort = match level {
            "" => {
                let word = self.effort.map_or("as the service has it", word);
                return Outcome::Say(format!("thinking: {word}\n"));
            }
            "off" => Effort::Off,
            "low" => Effort::Low,
            "medium" => Effort::Medium,
            "high" => Effort::High,
            other => {
                return Outcome::Fail(format!("no level `{other}`: there are off, low, medium and high"));
            }
        };
        self.effort = Some(effort);
        Outcome::Change(Change::Effort(Some(effort)), format!("thinking: {}", word(effort)))
    }

    fn sessions(&mut self, id: &str) -> Outcome {
        let Some(home) = &self.home else { return Outcome::Fail("there is no home for sessions".into()) };
        if id.is_empty() {
            return match sessions::list(home, Some(&self.facts.cwd), false) {
                Ok(table) => Outcome::Say(table),
                Err(stop) => Outcome::Fail(stop.failure.message),
            };
        }
        match session::find(home, id) {
            Ok(file) if self.facts.file.as_ref() == Some(&file) => Outcome::Say("this is it\n".into()),
            Ok(_) => Outcome::Leave(Leave::Resume(id.to_owned())),
            Err(err) => Outcome::Fail(err.to_string()),
        }
    }

    fn tree(&mut self, number: &str) -> Outcome {
        let file = self.facts.file.as_ref().filter(|file| file.exists());
        let Some(file) = file else { return Outcome::Fail("nothing was said in this session yet".into()) };
        let turns = match Transcript::read(file) {
            Ok(transcript) => transcript.turns,
            Err(err) => return Outcome::Fail(err.to_string()),
        };
        if number.is_empty() {
            return Outcome::Say(tree::drawn(&turns));
        }
        match turns.iter().find(|turn| number.parse() == Ok(turn.number)) {
            Some(turn) => {
                let words =
                    format!("the conversation goes on behind turn {number}: {}", tree::line(&turn.prompt));
                Outcome::Change(Change::GoTo { id: turn.end.clone(), undone: None }, words)
            }
            None => Outcome::Fail(format!("there is no turn {number}: /tree shows them")),
        }
    }

    fn undo(&mut self, turns: &str) -> Outcome {
        let turns = if turns.is_empty() { Ok(1) } else { turns.parse() };
        match turns {
            Ok(turns) if turns > 0 => self.take("took back", |home, file| session::undo(home, file, turns)),
            _ => Outcome::Fail("say how many turns to take back: `/undo 2`".into()),
        }
    }

    fn redo(&mut self, _: &str) -> Outcome {
        self.take("put back", session::redo)
    }

    /// Carries out a plan, or says what stands in its way.
    fn take(
        &self,
        word: &str,
        plan: impl Fn(&Home, &Path) -> Result<session::Plan, session::Obstacles>,
    ) -> Outcome {
        let file = self.facts.file.as_ref().filter(|file| file.exists());
        let Some((home, file)) = self.home.as_ref().zip(file) else {
            return Outcome::Fail("nothing was said in this session yet".into());
        };
        let done = plan(home, file).and_then(|plan| Ok((plan.apply()?, plan)));
        match done {
            Ok((lines, plan)) => {
                let mut words: Vec<String> =
                    plan.prompts.iter().map(|prompt| format!("{word}: {}", tree::line(prompt))).collect();
                words.extend(lines.iter().map(|line| format!("  {}", caret::line(line))));
                words.extend(others(&plan.others, &self.facts.cwd));
                Outcome::Change(Change::GoTo { id: plan.go_to, undone: plan.undone }, words.join("\n"))
            }
            Err(obstacles) => Outcome::Fail(format!("nothing was changed: {}", obstacles.join("\n"))),
        }
    }

    fn title(&mut self, text: &str) -> Outcome {
        if text.is_empty() {
            return Outcome::Fail("say what this session is about: `/title TEXT`".into());
        }
        Outcome::Change(Change::Title(text.to_owned()), format!("this session is about: {text}"))
    }

    fn export(&mut self, name: &str) -> Outcome {
        let Some(session) = self.facts.file.as_ref().filter(|file| file.exists()) else {
            return Outcome::Fail("there is nothing to export yet".into());
        };
        let name = if name.is_empty() { format!("crab-{}.md", self.facts.id) } else { name.to_owned() };
        match export::to_file(session, &self.facts.cwd.join(&name)) {
            Ok(bytes) => Outcome::Say(format!("wrote {bytes} bytes to `{name}`\n")),
            Err(why) => Outcome::Fail(why),
        }
    }

    fn fork(&mut self, _: &str) -> Outcome {
        match &self.facts.file {
            Some(file) if file.exists() => Outcome::Leave(Leave::Fork(self.facts.id.clone())),
            _ => Outcome::Fail("there is nothing to copy yet".into()),
        }
    }

    fn cost(&mut self, _: &str) -> Outcome {
        let usage = &self.usage;
        let count =
            |tokens: Option<u64>| tokens.map_or_else(|| "unknown".to_owned(), |tokens| tokens.to_string());
        let money = usage
            .cost_usd
            .map_or_else(|| "the service does not say".to_owned(), |cost| format!("${cost:.4}"));
        Outcome::Say(format!(
            "tokens in    {}\n  from cache {}\ntokens out   {}\ncost         {money}\n",
            count(usage.input),
            count(usage.cache_read),
            count(usage.output),
        ))
    }

    fn tools(&mut self, _: &str) -> Outcome {
        Outcome::Say(format!("{}\n", self.tools.join(" ")))
    }

    fn permissions(&mut self, _: &str) -> Outcome {
        let rules = if self.rules.is_empty() { "no rules".to_owned() } else { self.rules.join("\n") };
        let yolo = if self.args.yolo { "\n--yolo: everything else runs without asking" } else { "" };
        Outcome::Say(format!("{rules}{yolo}\n"))
    }

    fn config(&mut self, _: &str) -> Outcome {
        let settings = &self.config.settings;
        if settings.is_empty() {
            return Outcome::Say("nothing is set; README.md lists the keys\n".into());
        }
        let line = |s: &crab_core::config::Setting| format!("{} = {}  # {}\n", s.key, s.value, s.origin);
        Outcome::Say(settings.iter().map(line).collect())
    }

    fn copy(&mut self, _: &str) -> Outcome {
        if self.answer.is_empty() {
            return Outcome::Fail("there is no answer to copy yet".into());
        }
        match copy(&self.answer) {
            Ok(way) => Outcome::Say(format!("copied {} bytes ({way})\n", self.answer.len())),
            Err(why) => Outcome::Fail(why),
        }
    }

    fn edit(&mut self, text: &str) -> Outcome {
        match crate::editor::edit(text, "prompt.md", None) {
            Ok(text) => Outcome::Draft(text),
            Err(why) => Outcome::Fail(why),
        }
    }
}

/// Names the files that were written to meanwhile by something that cannot be taken back.
fn others(files: &[PathBuf], cwd: &Path) -> Option<String> {
    const NAMED: usize = 10;
    let shown = |file: &PathBuf| {
        format!("`{}`", caret::line(&file.strip_prefix(cwd).unwrap_or(file).to_string_lossy()))
    };
    let names: Vec<String> = files.iter().take(NAMED).map(shown).collect();
    let more = files.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!names.is_empty()).then(|| {
        format!("  not taken back, written meanwhile by commands or others: {}{more}", names.join(", "))
    })
}

/// The name of a command, for those that have another one.
fn canonical(name: &str) -> &str {
    match name {
        "/exit" | "/q" => "/quit",
        "/?" => "/help",
        name => name,
    }
}

/// Whether a line moves the conversation or its files, which nothing else may do at the same time.
pub(crate) fn moves(line: &str) -> bool {
    let word = line.split_whitespace().next().unwrap_or_default();
    matches!(canonical(word), "/undo" | "/redo" | "/tree")
}

/// Whether there is such a command, or will be.
pub(crate) fn knows(name: &str) -> bool {
    LATER.contains(&name) || COMMANDS.iter().any(|command| command.name == canonical(name))
}

fn word(effort: Effort) -> &'static str {
    match effort {
        Effort::Off => "off",
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
    }
}

/// The text of `/help`.
pub(crate) fn help() -> String {
    let line = |command: &Slash| {
        let call = format!("{} {}", command.name, command.args);
        format!("{:30}  {}\n", call.trim_end(), command.about)
    };
    let commands: String = COMMANDS.iter().map(line).collect();
    format!(
        "{commands}\
         !COMMAND                        run a command, and send its output along with the next prompt\n\
         !!COMMAND                       run a command\n\
         @PATH                           send a file along; Tab completes it\n\
         Enter                           send; a \\ at the end of a line, or Alt-Enter, begins a new line\n\
         Esc, Ctrl-C                     stop the running turn; Ctrl-C clears the line, twice it leaves\n\
         Ctrl-R, Ctrl-G                  search what was typed before; write the prompt in an editor\n"
    )
}

/// What Tab offers behind a slash command.
pub(crate) fn arguments(command: &str) -> Vec<String> {
    match command {
        "/model" => {
            let all = SERVICES.iter().flat_map(|service| {
                models::of(service.name).map(move |model| format!("{}/{}", service.name, model.id))
            });
            all.collect()
        }
        "/thinking" => ["off", "low", "medium", "high"].map(str::to_owned).into(),
        _ => vec![],
    }
}

/// Puts a text on the clipboard by the first program that can, else by the terminal itself.
fn copy(text: &str) -> Result<&'static str, String> {
    const WAYS: [(&str, &[&str]); 4] = [
        ("pbcopy", &[]),
        ("wl-copy", &[]),
        ("xclip", &["-selection", "clipboard"]),
        ("xsel", &["--clipboard", "--input"]),
    ];
    for (program, args) in WAYS {
        let null = Stdio::null;
        let child =
            Command::new(program).args(args).stdin(Stdio::piped()).stdout(null()).stderr(null()).spawn();
        let Ok(mut child) = child else { continue };
        let written = child.stdin.take().is_some_and(|mut stdin| stdin.write_all(text.as_bytes()).is_ok());
        if written && child.wait().is_ok_and(|status| status.success()) {
            return Ok(program);
        }
    }
    let sequence = format!("\x1b]52;c;{}\x07", base64::engine::general_purpose::STANDARD.encode(text));
    let mut tty = std::fs::File::options()
        .write(true)
        .open("/dev/tty")
        .map_err(|_| "no program of a clipboard was found, and there is no terminal".to_owned())?;
    tty.write_all(sequence.as_bytes()).map_err(|err| format!("the terminal did not take it: {err}"))?;
    Ok("by the terminal, if it lets programs do that")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_command() {
        let help = help();
        for command in COMMANDS {
            assert!(help.contains(command.name), "{}", command.name);
        }
        assert!(help.lines().all(|line| line.len() <= 110), "{help}");
    }

    #[test]
    fn what_moves_the_conversation_is_known_by_its_first_word() {
        assert!(moves("/undo 2") && moves(" /redo") && !moves("/cost") && !moves("say /undo"));
    }

    #[test]
    fn what_takes_words_offers_them() {
        assert!(arguments("/thinking").contains(&"high".to_owned()));
        assert!(arguments("/model").iter().any(|name| name.starts_with("anthropic/")));
        assert!(arguments("/quit").is_empty());
    }
}

//! The command line: what can be said, and what was said.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap_complete::Shell;
use crab_core::provider::Effort;

use crate::commands::Leave;
use crate::render::terminal::Color;
use crate::render::{Detail, Format, Settings};

/// The commands: name, arguments, what each does. Help, completions and the manual come from here.
pub(crate) const COMMANDS: [(&str, &str, &str); 7] = [
    ("sessions", "", "list the sessions of this directory; `crab sessions --help`: search, show, export, rm"),
    ("models", "[P]", "list the services, or the models of the service P and what they take and cost"),
    ("config", "", "show the configuration and where each value comes from"),
    ("doctor", "", "check keys, configuration, files, programs and the terminal"),
    ("trust", "[DIR]", "let the project's own .crab/config.toml set keys, rules and commands"),
    ("completions", "SHELL", "print the completions of bash, zsh or fish"),
    ("man", "", "print the manual page"),
];

const AFTER_COMMANDS: &str = "\
A lone word equal to a command is the command; `crab -- sessions` sends it as a prompt.

Piped standard input is appended to the prompt. An argument `-` waits for it, however long it takes.
`-r` takes the word behind it as the session's id; `crab -r -- PROMPT` chooses from the list and sends PROMPT.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 stopped by a limit, 4 the provider failed,
5 no or refused credentials, 129/130/143 ended by SIGHUP, SIGINT, SIGTERM.";

fn after_help() -> String {
    let line = |(name, args, what): &(&str, &str, &str)| {
        let call = format!("crab {name} {args}");
        format!("  {:24}  {what}\n", call.trim_end())
    };
    format!("Commands:\n{}{AFTER_COMMANDS}", COMMANDS.iter().map(line).collect::<String>())
}

/// A coding agent for people who live in a terminal.
#[derive(Clone, Debug, Default, Parser)]
#[command(name = "crab", version, after_help = after_help(), args_override_self = true, max_term_width = 100)]
pub(crate) struct Args {
    /// What to do; words are joined by spaces
    #[arg(value_name = "PROMPT")]
    words: Vec<String>,
    #[arg(last = true, hide = true)]
    literal: Vec<String>,

    /// Run to the end without an editor, then exit (implied when stdin is not a terminal, or by -o json)
    #[arg(short, long)]
    pub(crate) print: bool,

    /// Go on with the newest session of this directory
    #[arg(short, long = "continue", conflicts_with_all = ["resume", "session", "no_session"])]
    pub(crate) continue_: bool,
    /// Resume a session by id or unique prefix; without ID, choose from a list
    #[arg(short, long, value_name = "ID", num_args = 0..=1, conflicts_with_all = ["session", "no_session"])]
    pub(crate) resume: Option<Option<String>>,
    /// Use exactly this session file (made if missing)
    #[arg(long, value_name = "FILE", conflicts_with = "no_session")]
    pub(crate) session: Option<PathBuf>,
    /// Write no session
    #[arg(long)]
    pub(crate) no_session: bool,
    /// With -c, -r or --session: copy the history into a new session and leave the old one alone
    #[arg(long)]
    pub(crate) fork: bool,

    /// The model; a PROVIDER/ in front wins over --provider
    #[arg(short, long, value_name = "[PROVIDER/]MODEL")]
    pub(crate) model: Option<String>,
    /// A service that `crab models` lists, mock, or a name from the configuration
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// API base, with or without a trailing slash or /v1
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// Reasoning effort, where the model has one: off, low, medium, high
    #[arg(long, alias = "effort", value_name = "LEVEL", value_parser = effort(), hide_possible_values = true)]
    pub(crate) thinking: Option<Effort>,

    /// Run every tool call without asking (deny rules still hold)
    #[arg(short = 'y', long, alias = "dangerously-skip-permissions")]
    pub(crate) yolo: bool,
    /// Let calls run: `tool` or `tool(pattern)`, such as 'bash(cargo *)' (repeatable)
    #[arg(long, value_name = "RULE")]
    pub(crate) allow: Vec<String>,
    /// Refuse calls (repeatable)
    #[arg(long, value_name = "RULE")]
    pub(crate) deny: Vec<String>,
    /// Offer only tools that change nothing
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Offer exactly these tools
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    pub(crate) tools: Option<Vec<String>>,

    /// Work in DIR
    #[arg(short = 'C', long = "cd", value_name = "DIR")]
    pub(crate) cd: Option<PathBuf>,
    /// Append to the system prompt; @FILE reads a file
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) append_system_prompt: Option<String>,
    /// Override one configuration key (repeatable)
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) config: Vec<(String, String)>,

    /// text, json (one object at the end) or stream-json (one object a line, as it happens)
    #[arg(short, long, value_name = "FORMAT", default_value = "text", value_parser = format(),
          hide_possible_values = true)]
    pub(crate) output_format: Format,
    /// On stderr only errors, on stdout only the last message
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Tool output in full, and request and timing lines
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Also write what goes over the wire, without secrets
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub(crate) record: Option<PathBuf>,
    /// Run again what was recorded, without a network; without PROMPT, its own prompts
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "provider", "base_url"])]
    pub(crate) replay: Option<PathBuf>,
    /// auto, always or never
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = color(), hide_possible_values = true)]
    pub(crate) color: Color,

    /// Stop after N model requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_turns: Option<u32>,
    /// Stop when it has cost so many US dollars
    #[arg(long, value_name = "USD", value_parser = positive)]
    pub(crate) max_cost: Option<f64>,
    /// Stop after so many seconds
    #[arg(long, value_name = "SECS", value_parser = positive)]
    pub(crate) timeout: Option<f64>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Send this prompt, or wait for one.
    Prompt(Vec<String>),
    /// `crab sessions`.
    Sessions,
    /// `crab models [PROVIDER]`.
    Models(Option<String>),
    /// `crab config`.
    Config,
    /// `crab doctor`.
    Doctor,
    /// `crab trust [DIR]`.
    Trust(Option<PathBuf>),
    /// `crab completions SHELL`.
    Completions(Shell),
    /// `crab man`.
    Man,
}

/// The end of a command line that is not to be run: text for standard output or an error.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Help or version, for standard output; exit 0.
    Shown(String),
    /// Wrong usage, one line and a hint; exit 2.
    Wrong(String),
}

impl Args {
    /// Reads the command line, program name first.
    pub(crate) fn read(line: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Self, Refused> {
        let mut args = Self::try_parse_from(line).map_err(|err| refused(&err))?;
        // A text with spaces is no id: it is the prompt that stood behind a bare `-r`.
        if let Some(Some(id)) = &args.resume
            && id.contains(char::is_whitespace)
        {
            args.words.insert(0, id.clone());
            args.resume = Some(None);
        }
        if args.fork && !args.continue_ && args.resume.is_none() && args.session.is_none() {
            return Err(wrong("`--fork` needs a session to copy: `-c`, `-r ID` or `--session FILE`"));
        }
        Ok(args)
    }

    /// What the words ask for. `is_dir` says whether a path is a directory.
    pub(crate) fn task(&self, is_dir: impl Fn(&str) -> bool) -> Task {
        let words: Vec<_> = self.words.iter().map(String::as_str).collect();
        match (self.print, self.literal.as_slice(), words.as_slice()) {
            (false, [], ["sessions"]) => Task::Sessions,
            (false, [], ["models"]) => Task::Models(self.provider.clone()),
            (false, [], ["models", name]) if is_name(name) => Task::Models(Some((*name).to_owned())),
            (false, [], ["config"]) => Task::Config,
            (false, [], ["doctor"]) => Task::Doctor,
            (false, [], ["man"]) => Task::Man,
            (false, [], ["completions", shell]) if shell.parse::<Shell>().is_ok() => {
                Task::Completions(shell.parse().unwrap_or(Shell::Bash))
            }
            (false, [], ["trust"]) => Task::Trust(None),
            (false, [], ["trust", dir]) if is_dir(dir) || dir.contains('/') => Task::Trust(Some(dir.into())),
            _ => Task::Prompt(self.words.iter().chain(&self.literal).cloned().collect()),
        }
    }

    /// The same line for the conversation that follows this one.
    pub(crate) fn follow(&mut self, leave: Leave) {
        self.continue_ = false;
        self.session = None;
        self.fork = matches!(leave, Leave::Fork(_));
        self.resume = match leave {
            Leave::New => None,
            Leave::Resume(id) | Leave::Fork(id) => Some(Some(id)),
        };
    }

    /// Whether to run without an editor.
    pub(crate) fn is_print(&self, stdin_is_terminal: bool) -> bool {
        self.print || !stdin_is_terminal || self.output_format != Format::Text || self.replay.is_some()
    }

    /// What is said about output.
    pub(crate) fn settings(&self) -> Settings {
        let detail = match (self.quiet, self.verbose) {
            (true, _) => Detail::Quiet,
            (_, true) => Detail::Verbose,
            _ => Detail::Normal,
        };
        Settings { format: self.output_format, detail, color: self.color }
    }
}

/// The output format that a line asks for, also one that is wrong elsewhere.
pub(crate) fn wanted_format(line: impl Iterator<Item = String>) -> Format {
    let words: Vec<String> = line.collect();
    let follows = |at: usize| matches!(words[at - 1].as_str(), "-o" | "--output-format");
    let found = (1..words.len()).find_map(|at| {
        let word = words[at].as_str();
        let joined = word.strip_prefix("--output-format=").or_else(|| word.strip_prefix("-o"));
        match if follows(at) { Some(word) } else { joined } {
            Some("json") => Some(Format::Json),
            Some("stream-json") => Some(Format::StreamJson),
            _ => None,
        }
    });
    found.unwrap_or_default()
}

/// Whether this can be the name of a provider.
fn is_name(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn effort() -> impl TypedValueParser<Value = Effort> {
    PossibleValuesParser::new(["off", "low", "medium", "high"]).map(|level| match level.as_str() {
        "off" => Effort::Off,
        "low" => Effort::Low,
        "medium" => Effort::Medium,
        _ => Effort::High,
    })
}

fn format() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(["text", "json", "stream-json"]).map(|format| match format.as_str() {
        "json" => Format::Json,
        "stream-json" => Format::StreamJson,
        _ => Format::Text,
    })
}

fn color() -> impl TypedValueParser<Value = Color> {
    PossibleValuesParser::new(["auto", "always", "never"]).map(|when| match when.as_str() {
        "always" => Color::Always,
        "never" => Color::Never,
        _ => Color::Auto,
    })
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE, such as model=openai/gpt-5".to_owned()),
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0".to_owned())
}

fn wrong(text: &str) -> Refused {
    Refused::Wrong(format!("{text}\ntry `crab --help`"))
}

/// Clap's words in the form of all of crab's errors.
fn refused(err: &clap::Error) -> Refused {
    if matches!(err.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Refused::Shown(err.render().to_string());
    }
    let text = err.render().to_string();
    let paragraphs: Vec<&str> = text.split("\n\n").map(str::trim).collect();
    let first = paragraphs.first().copied().unwrap_or_default();
    let first: Vec<&str> = first.trim_start_matches("error: ").lines().map(str::trim).collect();
    let tip =
        paragraphs.iter().find_map(|text| text.strip_prefix("tip: ")).filter(|tip| tip.contains("similar"));
    let tip = tip.and_then(|tip| tip.lines().next()).map(|tip| format!("{tip}\n")).unwrap_or_default();
    let said = format!("{}\n{tip}", first.join(" "));
    wrong(&said.trim_end().replace('\'', "`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &[&str]) -> Result<Args, Refused> {
        Args::read(std::iter::once("crab").chain(line.iter().copied()))
    }

    #[track_caller]
    fn check(line: &[&str], expected: Task) {
        assert_eq!(parse(line).unwrap().task(|dir| dir == "sub"), expected, "{line:?}");
    }

    fn prompt(words: &[&str]) -> Task {
        Task::Prompt(words.iter().map(|word| (*word).to_owned()).collect())
    }

    #[test]
    fn words_are_the_prompt_wherever_the_options_stand() {
        check(&["-p", "sum", "up"], prompt(&["sum", "up"]));
        check(&["--yolo", "-p", "hi"], prompt(&["hi"]));
        check(&["-p", "hi", "--yolo"], prompt(&["hi"]));
        check(&["-m", "fake", "hi", "-q", "there"], prompt(&["hi", "there"]));
        check(&["-p", "hi", "-"], prompt(&["hi", "-"]));
        check(&["--", "-x", "--yolo"], prompt(&["-x", "--yolo"]));
        check(&["fix", "--", "-x"], prompt(&["fix", "-x"]));
        check(&["-p", "hi", "-o", "json"], prompt(&["hi"]));
        assert!(parse(&["-p", "hi", "--yolo"]).unwrap().yolo);
        assert!(parse(&["--dangerously-skip-permissions"]).unwrap().yolo);
    }

    #[test]
    fn a_lone_word_equal_to_a_command_is_the_command() {
        check(&["sessions"], Task::Sessions);
        check(&["config", "-v"], Task::Config);
        check(&["doctor"], Task::Doctor);
        check(&["man"], Task::Man);
        check(&["completions", "zsh"], Task::Completions(Shell::Zsh));
        check(&["completions", "matter"], prompt(&["completions", "matter"]));
        check(&["trust"], Task::Trust(None));
        check(&["trust", "sub"], Task::Trust(Some("sub".into())));
        check(&["trust", "me"], prompt(&["trust", "me"]));
        check(&["--", "sessions"], prompt(&["sessions"]));
        check(&["-p", "sessions"], prompt(&["sessions"]));
        check(&["config", "is", "broken"], prompt(&["config", "is", "broken"]));
        check(&["models"], Task::Models(None));
        check(&["models", "deepseek"], Task::Models(Some("deepseek".into())));
        check(&["models", "in", "use"], prompt(&["models", "in", "use"]));
        check(&["--", "models"], prompt(&["models"]));
    }

    #[test]
    fn resume_takes_the_next_word_unless_it_can_be_no_id() {
        let resume = |line: &[&str]| parse(line).unwrap().resume;
        assert_eq!(resume(&["-r", "abc123", "-p", "go on"]), Some(Some("abc123".into())));
        assert_eq!(resume(&["--resume=abc", "go"]), Some(Some("abc".into())));
        assert_eq!(resume(&["-r"]), Some(None));
        assert_eq!(resume(&["-r", "-p", "go"]), Some(None));
        assert_eq!(resume(&["-r", "--", "go"]), Some(None));
        assert_eq!(resume(&["-r", "fix the bug"]), Some(None));
        check(&["-r", "fix the bug", "now"], prompt(&["fix the bug", "now"]));
        check(&["-r", "--", "go"], prompt(&["go"]));
    }

    #[track_caller]
    fn check_wrong(line: &[&str], expected: &str) {
        let Err(Refused::Wrong(text)) = parse(line) else { panic!("{line:?} was taken") };
        assert_eq!(text, expected);
    }

    #[test]
    fn wrong_usage_is_one_line_and_a_hint() {
        let hint = "try `crab --help`";
        check_wrong(&["--no-such-flag"], &format!("unexpected argument `--no-such-flag` found\n{hint}"));
        check_wrong(
            &["--yollo"],
            &format!("unexpected argument `--yollo` found\na similar argument exists: `--yolo`\n{hint}"),
        );
        check_wrong(
            &["--max-turns", "0"],
            &format!("invalid value `0` for `--max-turns <N>`: 0 is not in 1..=4294967295\n{hint}"),
        );
        check_wrong(&["--timeout", "-1"], &format!("unexpected argument `-1` found\n{hint}"));
        check_wrong(
            &["-o", "xml"],
            &format!(
                "invalid value `xml` for `--output-format <FORMAT>` [possible values: text, json, stream-json]\n{hint}"
            ),
        );
        check_wrong(
            &["-c", "--no-session"],
            &format!("the argument `--continue` cannot be used with `--no-session`\n{hint}"),
        );
        check_wrong(
            &["--fork"],
            &format!("`--fork` needs a session to copy: `-c`, `-r ID` or `--session FILE`\n{hint}"),
        );
    }

    #[test]
    fn later_work_is_not_promised_yet() {
        assert!(matches!(parse(&["--json-schema=x"]), Err(Refused::Wrong(_))));
    }

    #[test]
    fn version_and_help_go_to_standard_output() {
        let version = format!("crab {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(parse(&["-V"]).unwrap_err(), Refused::Shown(version));
        let Err(Refused::Shown(help)) = parse(&["--help"]) else { panic!("no help") };
        assert!(help.contains("--append-system-prompt") && !help.contains("dangerously"));
    }

    #[test]
    fn the_definition_is_sound() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }
}

//! Who wins: the command line, the configuration and the environment become the parts that run.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crab_core::agent::{Agent, Limits, Model};
use crab_core::changes::{Changes, Store};
use crab_core::config::{self, Config, Inputs, Keys};
use crab_core::gate::{Gate, Rule};
use crab_core::home::Home;
use crab_core::message::Usage;
use crab_core::process::Environment;
use crab_core::prompt::{self, Place};
use crab_core::protocol::{Failure, FailureKind};
use crab_core::provider::Effort;
use crab_core::provider::tape::{Header, Player, Recorder, Tape};
use crab_core::redact::Secrets;
use crab_core::session::{self, Session};
use crab_core::tools::{self, Cx, Kind, Tool};
use crab_core::{seen::Seen, stamp};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::args::Args;
use crate::choice::{Choice, Plan};
use crate::commands::Desk;
use crate::pick;
use crate::render::{SessionFacts, failure_code};

/// How the line of a `model` entry begins.
const MODEL_ENTRY: &[u8] = b"{\"type\":\"model\"";

/// Why crab does not start, and how it exits.
#[derive(Debug)]
pub(crate) struct Stop {
    pub(crate) failure: Failure,
    pub(crate) exit: u8,
}

impl Stop {
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        let failure = Failure { kind, message: message.into(), status: None, provider: None };
        Self { exit: failure_code(&failure), failure }
    }

    /// Wrong usage or configuration.
    pub(crate) fn wrong(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Config, message)
    }
}

impl From<config::Error> for Stop {
    fn from(err: config::Error) -> Self {
        let kind = match err {
            config::Error::Invalid(_) => FailureKind::Config,
            config::Error::AuthFile { .. } | config::Error::KeyCommand { .. } => FailureKind::Auth,
            config::Error::TrustFile { .. } => FailureKind::Internal,
        };
        Self::new(kind, err.to_string())
    }
}

impl From<session::Error> for Stop {
    fn from(err: session::Error) -> Self {
        let unknown = matches!(err, session::Error::Unknown { .. } | session::Error::Ambiguous { .. });
        let stop = Self::new(FailureKind::Session, err.to_string());
        // A name that nobody has is wrong usage; a file that cannot be used is a failure.
        if unknown { Self { exit: 2, ..stop } } else { stop }
    }
}

/// The place in which crab runs, and what is configured there.
pub(crate) struct Ground {
    pub(crate) cwd: PathBuf,
    pub(crate) home: Option<Home>,
    pub(crate) config: Config,
}

/// All that a run needs.
pub(crate) struct Parts {
    pub(crate) agent: Agent,
    pub(crate) facts: SessionFacts,
    /// Lines for standard error.
    pub(crate) warnings: Vec<String>,
    /// Where typed prompts are remembered.
    pub(crate) history: Option<PathBuf>,
    /// What becomes of the wire.
    pub(crate) tape: Option<Tape>,
    /// What slash commands work with.
    pub(crate) desk: Desk,
}

pub(crate) fn env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Finds the place and reads its configuration.
pub(crate) fn ground(args: &Args) -> Result<Ground, Stop> {
    // Before the directory changes: a relative home is meant from where crab was started.
    let home = Home::from_env();
    if let Some(dir) = &args.cd {
        std::env::set_current_dir(dir)
            .map_err(|err| Stop::wrong(format!("cannot work in `{}`: {}", dir.display(), plainly(&err))))?;
    }
    let cwd = std::env::current_dir().map_err(|err| {
        Stop::new(
            FailureKind::Internal,
            format!("the working directory cannot be used ({}); cd to another one", plainly(&err)),
        )
    })?;
    let overrides: Vec<String> = args.config.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let config = config::load(&Inputs { home: home.as_ref(), cwd: &cwd, env: &env, overrides: &overrides })?;
    Ok(Ground { cwd, home, config })
}

/// The system's words without the number that Rust puts behind them.
fn plainly(err: &std::io::Error) -> String {
    let text = err.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

/// Puts the parts together. Nothing is sent and no session is written yet.
pub(crate) fn parts(args: &Args, ground: Ground) -> Result<Parts, Stop> {
    let Ground { cwd, home, mut config } = ground;
    let mut warnings = std::mem::take(&mut config.warnings);
    let mut gate = gate(args, &config, &mut warnings)?;
    gate.roots = vec![cwd.clone(), config.project.clone()];
    let mut keys = Keys::load(home.as_ref(), &config, &env);
    let found = find_session(args, home.as_ref(), &cwd)?;
    let mut choice = Choice { args, config: &config, keys: &mut keys };
    let replayed = args.replay.as_deref().map(Player::open).transpose().map_err(Stop::wrong)?;
    let plans = plans(&mut choice, found.last_model(), replayed.as_ref(), &mut warnings)?;
    warnings.extend(keys.warning());
    let secrets = Arc::new(Secrets::new(keys.secrets()));
    let effort = take_over(&mut config, args, replayed.as_ref());
    let header = Header {
        models: plans.iter().map(Plan::asked).collect(),
        effort,
        max_turns: args.max_turns.or(config.max_turns),
        tools: args.tools.clone().or_else(|| config.tools.clone()),
    };
    let tape = tape(args, &plans, replayed, (&header, &secrets))?;
    let (model, fallback) = models(plans, tape.as_ref(), &mut warnings)?;
    let session = begin(found, &cwd, &secrets, &mut warnings)?;
    if args.yolo {
        warnings.push("--yolo: every tool call runs without asking".into());
    }
    let environment = Arc::new(Environment::new(session.id(), keys.key_variables()));
    let spill = match (&home, session.file()) {
        (Some(home), Some(_)) => home.outputs_dir(session.id()),
        _ => std::env::temp_dir().join(format!("crab-{}", session.id())),
    };
    let store = home.as_ref().zip(session.file()).map(|(home, _)| Store::at(home.undo_dir(session.id())));
    let facts = facts(&session, &cwd, &model);
    let system = system(args, (&config, home.as_ref()), &cwd, &mut warnings)?;
    let mut agent = Agent {
        system: secrets.redact(&system).as_ref().into(),
        effort,
        model,
        fallback,
        tools: vec![],
        gate,
        session: session.with_durability(config.durability),
        limits: limits(args, &config),
        cwd,
        environment,
        spill,
        secrets,
        seen: Arc::new(Seen::default()),
        changes: Arc::new(Changes::kept_in(store)),
    };
    agent.tools = offered(args, &config, &agent)?;
    let history = home.as_ref().map(Home::history_file);
    let desk = desk(args, &agent, facts.clone(), (config, keys, home));
    Ok(Parts { agent, facts, warnings, history, tape, desk })
}

/// What slash commands work with.
fn desk(
    args: &Args,
    agent: &Agent,
    facts: SessionFacts,
    (config, keys, home): (Config, Keys, Option<Home>),
) -> Desk {
    Desk {
        args: args.clone(),
        rules: rules(&agent.gate),
        tools: agent.tools.iter().map(|tool| tool.name().to_owned()).collect(),
        effort: agent.effort,
        config,
        keys,
        home,
        facts,
        usage: Usage::default(),
        answer: String::new(),
    }
}

/// The session, with what the user should know of it.
fn begin(
    found: Found,
    cwd: &Path,
    secrets: &Arc<Secrets>,
    warnings: &mut Vec<String>,
) -> Result<Session, Stop> {
    let mut session = found.open(cwd, secrets)?;
    warnings.extend(session.take_warnings());
    if session.cwd() != cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned()) {
        warnings.push(format!(
            "this session began in `{}`; the tools work in `{}`",
            session.cwd().display(),
            cwd.display()
        ));
    }
    Ok(session)
}

fn facts(session: &Session, cwd: &Path, model: &Model) -> SessionFacts {
    SessionFacts {
        version: env!("CARGO_PKG_VERSION").into(),
        id: session.id().to_owned(),
        file: session.file().map(Path::to_path_buf),
        cwd: cwd.to_owned(),
        provider: model.provider.name().to_owned(),
        model: model.name.clone(),
    }
}

/// The rules in force, in the order in which they are looked at.
fn rules(gate: &Gate) -> Vec<String> {
    let kinds = [("deny", &gate.deny), ("ask", &gate.ask), ("allow", &gate.allow)];
    let lines =
        kinds.into_iter().flat_map(|(kind, rules)| rules.iter().map(move |rule| format!("{kind} {rule}")));
    lines.collect()
}

/// Who is asked, and then those that it can fall back on: as chosen, or as recorded.
fn plans(
    choice: &mut Choice<'_>,
    last: Option<(String, String)>,
    replayed: Option<&Player>,
    warnings: &mut Vec<String>,
) -> Result<Vec<Plan>, Stop> {
    if let Some(player) = replayed {
        return player.header().models.iter().map(Plan::recorded).collect();
    }
    let chosen = choice.model(last)?;
    let mut plans = vec![choice.plan(&chosen, choice.args.base_url.clone())?];
    plans.extend(choice.fallback(&chosen, warnings)?);
    Ok(plans)
}

/// What a recorded run was told, where this one is told nothing else; gives the effort.
fn take_over(config: &mut Config, args: &Args, replayed: Option<&Player>) -> Option<Effort> {
    let Some(header) = replayed.map(Player::header) else { return args.thinking.or(config.thinking) };
    config.max_turns = config.max_turns.or(header.max_turns);
    config.tools = config.tools.take().or_else(|| header.tools.clone());
    args.thinking.or(header.effort)
}

/// What becomes of the wire.
fn tape(
    args: &Args,
    plans: &[Plan],
    replayed: Option<Player>,
    (header, secrets): (&Header, &Arc<Secrets>),
) -> Result<Option<Tape>, Stop> {
    match (replayed, &args.record) {
        (Some(player), _) => Ok(Some(Tape::Replay(Arc::new(player)))),
        (None, None) => Ok(None),
        (None, Some(_)) if !plans.iter().any(Plan::has_wire) => {
            Err(Stop::wrong("the mock provider sends nothing that `--record` could write down"))
        }
        (None, Some(file)) => {
            let recorder = Recorder::create(file, header, secrets.clone()).map_err(Stop::wrong)?;
            Ok(Some(Tape::Record(Arc::new(recorder))))
        }
    }
}

/// Who is asked, and those that it can fall back on. One of these that can't be used is left out with a warning.
fn models(
    plans: Vec<Plan>,
    tape: Option<&Tape>,
    warnings: &mut Vec<String>,
) -> Result<(Model, Vec<Model>), Stop> {
    let mut plans = plans.into_iter();
    // There is always one who is asked first.
    let first = plans.next().ok_or_else(|| Stop::wrong("there is no model to ask"))?;
    let model = first.build(tape.cloned())?;
    let mut fallback = vec![];
    for plan in plans {
        let name = plan.name();
        match plan.build(tape.cloned()) {
            Ok(model) => fallback.push(model),
            Err(stop) => {
                warnings.push(format!("`{name}` of `fallback` is left out: {}", stop.failure.message))
            }
        }
    }
    Ok((model, fallback))
}

fn gate(args: &Args, config: &Config, warnings: &mut Vec<String>) -> Result<Gate, Stop> {
    let names: Vec<String> = tools::all().iter().map(|tool| tool.name().to_owned()).collect();
    let mut rules = |said: &[String], more: &[String]| -> Result<Vec<Rule>, Stop> {
        let rules: Result<Vec<Rule>, String> =
            said.iter().chain(more).map(|said| Rule::parse(said)).collect();
        let rules = rules.map_err(Stop::wrong)?;
        for rule in
            rules.iter().filter(|rule| rule.tool() != "*" && !names.iter().any(|name| name == rule.tool()))
        {
            warnings.push(format!(
                "the permission rule `{rule}` names no tool; the tools are {}",
                names.join(", ")
            ));
        }
        Ok(rules)
    };
    let permissions = &config.permissions;
    let mut gate = Gate::default();
    gate.deny = rules(&permissions.deny, &args.deny)?;
    gate.ask = rules(&permissions.ask, &[])?;
    gate.allow = rules(&permissions.allow, &args.allow)?;
    gate.yolo = args.yolo;
    Ok(gate)
}

/// Which session, before it is locked.
enum Found {
    New(Option<Home>),
    /// Go on in this file.
    Open(PathBuf),
    /// Begin a new one with the history of this file.
    Fork(Option<Home>, PathBuf),
}

impl Found {
    fn open(self, cwd: &Path, secrets: &Arc<Secrets>) -> Result<Session, session::Error> {
        let new = |home: Option<Home>| match home {
            Some(home) => Session::create(&home, cwd, secrets.clone()),
            None => Session::ephemeral(cwd, secrets.clone()),
        };
        match self {
            Self::New(home) => Ok(new(home)),
            Self::Open(file) => Session::open(&file, cwd, secrets.clone()),
            Self::Fork(home, file) => new(home).fork_of(&file),
        }
    }

    /// Who was asked last, so that a conversation goes on with the model that it had.
    fn last_model(&self) -> Option<(String, String)> {
        let (Self::Open(file) | Self::Fork(_, file)) = self else { return None };
        // A file that cannot be read is reported when it is opened, and so is a pipe, which would be waited for here.
        std::fs::metadata(file).ok().filter(std::fs::Metadata::is_file)?;
        let mut reader = BufReader::with_capacity(1 << 16, std::fs::File::open(file).ok()?);
        let (mut line, mut last) = (vec![], None);
        let named = |line: &[u8]| {
            let entry: Value = serde_json::from_slice(line).ok()?;
            Some((entry["provider"].as_str()?.to_owned(), entry["model"].as_str()?.to_owned()))
        };
        while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            if line.starts_with(MODEL_ENTRY) {
                last = named(&line).or(last);
            }
            line.clear();
        }
        last
    }
}

fn find_session(args: &Args, home: Option<&Home>, cwd: &Path) -> Result<Found, Stop> {
    let needs_home = || {
        home.ok_or_else(|| {
            Stop::new(FailureKind::Session, "there is no home for sessions: set CRAB_HOME or HOME")
        })
    };
    let own = || if args.no_session { None } else { home.cloned() };
    let file = match (&args.session, args.continue_, &args.resume) {
        (Some(file), ..) => file.clone(),
        (_, true, _) => session::latest(needs_home()?, cwd)?.ok_or_else(|| {
            Stop::new(
                FailureKind::Session,
                format!("nothing to continue: there is no session of `{}` yet", cwd.display()),
            )
        })?,
        (_, _, Some(Some(id))) => session::find(needs_home()?, id)?,
        (_, _, Some(None)) => pick::session(needs_home()?)?,
        _ => return Ok(Found::New(own())),
    };
    Ok(if args.fork { Found::Fork(own(), file) } else { Found::Open(file) })
}

fn limits(args: &Args, config: &Config) -> Limits {
    Limits {
        requests: args.max_turns.or(config.max_turns),
        cost_usd: args.max_cost.or(config.max_cost),
        time: args.timeout.and_then(|secs| Duration::try_from_secs_f64(secs).ok()).or(config.timeout),
    }
}

fn system(
    args: &Args,
    (config, home): (&Config, Option<&Home>),
    cwd: &Path,
    warnings: &mut Vec<String>,
) -> Result<String, Stop> {
    let append = args.append_system_prompt.as_deref().map(|text| match text.strip_prefix('@') {
        Some(file) => std::fs::read_to_string(file).map_err(|err| {
            Stop::wrong(format!("cannot read `{file}` for `--append-system-prompt`: {}", plainly(&err)))
        }),
        None => Ok(text.to_owned()),
    });
    let append: Vec<String> = append.transpose()?.into_iter().collect();
    let user_file = home.map(|home| home.dir().join("AGENTS.md"));
    let date = stamp::rfc3339(SystemTime::now());
    let prompt = prompt::system(&Place {
        cwd,
        root: &config.project,
        user_file: user_file.as_deref(),
        append: &append,
        date: &date[..10],
    });
    warnings.extend(prompt.warnings);
    Ok(prompt.text)
}

/// The tools on offer, in their fixed order.
fn offered(args: &Args, config: &Config, agent: &Agent) -> Result<Vec<Arc<dyn Tool>>, Stop> {
    let mut tools = tools::all();
    if let Some(wanted) = args.tools.as_ref().or(config.tools.as_ref()) {
        let names: Vec<String> = tools.iter().map(|tool| tool.name().to_owned()).collect();
        let wanted: Vec<&str> =
            wanted.iter().map(|name| name.trim()).filter(|name| !name.is_empty()).collect();
        if let Some(unknown) = wanted.iter().find(|name| !names.iter().any(|known| known == *name)) {
            return Err(Stop::wrong(format!(
                "there is no tool `{unknown}`; the tools are {}",
                names.join(", ")
            )));
        }
        tools.retain(|tool| wanted.contains(&tool.name()));
    }
    if args.read_only {
        // What a tool does without any arguments is what it does at most gently: only a pure reader says Read.
        let cx = Cx {
            cwd: agent.cwd.clone(),
            seen: agent.seen.clone(),
            changes: Arc::default(),
            cancel: CancellationToken::new(),
            output: Arc::new(|_| {}),
            environment: agent.environment.clone(),
            spill: agent.spill.clone(),
            hidden: None,
            secrets: agent.secrets.clone(),
        };
        tools.retain(|tool| tool.access(&json!({}), &cx).kind == Kind::Read);
    }
    Ok(tools)
}

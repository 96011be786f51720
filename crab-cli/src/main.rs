//! Parse, build, run, exit code.

mod ahead;
mod args;
mod caret;
mod choice;
mod commands;
mod complete;
mod confirm;
mod doctor;
mod editor;
mod export;
mod front;
mod history;
mod input;
mod local;
mod manual;
mod models;
mod notify;
mod output;
mod pick;
mod render;
mod sessions;
mod setup;
mod shell;
mod signals;
mod stdin;
mod tree;
mod tty;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use crab_core::message::{Part, text_of};
use crab_core::protocol::FailureKind;
use crab_core::provider::tape::{Player, Tape};
use crab_core::session::{Body, Session};
use crab_core::{agent, attach, clip, config};

use args::{Args, Refused, Task};
use front::{Ended, Front, Table};
use input::Input;
use render::terminal::Color;
use render::{Format, Screen, Settings};
use setup::{Ground, Parts, Stop};
use signals::Signals;

fn main() -> ExitCode {
    tty::remember();
    if let Some(line) = sessions::asked(std::env::args_os().skip(1)) {
        return match sessions::run(line) {
            Ok(text) => print(&text),
            Err(stop) => complain(&stop, Format::Text),
        };
    }
    let args = match Args::read(std::env::args_os()) {
        Ok(args) => args,
        Err(Refused::Shown(text)) => return print(&text),
        Err(Refused::Wrong(text)) => {
            let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
            return complain(&Stop::wrong(text), args::wanted_format(words));
        }
    };
    let format = args.output_format;
    let done = match args.task(|dir| PathBuf::from(dir).is_dir()) {
        Task::Prompt(words) => return run(&args, &words).unwrap_or_else(|stop| complain(&stop, format)),
        Task::Sessions => list_sessions(&args),
        Task::Models(provider) => match models::list(&args, provider.as_deref()) {
            Ok((text, exit)) => {
                let printed = print(&text);
                return if exit == 0 { printed } else { ExitCode::from(exit) };
            }
            Err(stop) => Err(stop),
        },
        Task::Config => settings(&args),
        Task::Doctor => {
            let (text, is_well) = doctor::report(&args);
            let printed = print(&text);
            return if is_well { printed } else { ExitCode::FAILURE };
        }
        Task::Completions(shell) => Ok(manual::completions(shell)),
        Task::Man => manual::page(),
        Task::Trust(dir) => trust(&args, dir),
    };
    match done {
        Ok(text) => print(&text),
        Err(stop) => complain(&stop, format),
    }
}

/// Writes a command's text to standard output. A reader that has gone has seen enough. What models, tools and services said
/// reaches a terminal without its control characters, and a pipe as it is.
fn print(text: &str) -> ExitCode {
    let text = if io::stdout().is_terminal() { &caret::answer(text) } else { text };
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(err) if err.kind() != io::ErrorKind::BrokenPipe => {
            let stop = Stop::new(FailureKind::Internal, format!("cannot write to standard output: {err}"));
            complain(&stop, Format::Text)
        }
        _ => ExitCode::SUCCESS,
    }
}

/// The one place that says why crab does not start.
fn complain(stop: &Stop, format: Format) -> ExitCode {
    // Nobody is left to tell when standard error or output is gone; the exit code says it all the same.
    let _ = writeln!(io::stderr(), "crab: {}", caret::answer(&stop.failure.message));
    let _ = io::stdout().write_all(render::failed(&stop.failure, stop.exit, format).as_bytes());
    ExitCode::from(stop.exit)
}

/// One conversation after the other, until one of them is the last.
fn run(args: &Args, words: &[String]) -> Result<ExitCode, Stop> {
    let (mut args, mut words) = (args.clone(), words.to_vec());
    loop {
        match run_once(&args, &words)? {
            Ended::Exit(code) => return Ok(ExitCode::from(code)),
            Ended::Leave(leave) => {
                words.clear();
                args.follow(leave);
            }
        }
    }
}

fn run_once(args: &Args, words: &[String]) -> Result<Ended, Stop> {
    let is_print = args.is_print(io::stdin().is_terminal());
    let ground = setup::ground(args)?;
    let settings = Settings { color: color(args, &ground), ..args.settings() };
    let cwd = ground.cwd.clone();
    let parts = setup::parts(args, ground)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|err| Stop::new(FailureKind::Internal, format!("cannot start: {err}")))?;
    let environment = parts.agent.environment.clone();
    let tape = parts.tape.clone();
    let done = runtime.block_on(async {
        let prompts = match (is_print, &tape) {
            (true, Some(Tape::Replay(player))) if words.is_empty() => recorded_prompts(player)?,
            (true, _) => vec![gather(words, &cwd).await?],
            (false, _) => {
                let text = Some(stdin::words(words)).filter(|text| !text.trim().is_empty());
                text.map(|text| expand(&text, &cwd)).transpose()?.into_iter().collect()
            }
        };
        converse(parts, settings, prompts, is_print).await
    });
    if let Some(Tape::Record(recorder)) = tape
        && let Some(problem) = recorder.problem()
    {
        // The run itself went well; a closed standard error does not change that.
        let _ = writeln!(io::stderr(), "crab: warning: {problem}");
    }
    // What crab started ends before crab does; what hangs in a blocking call is not waited for.
    environment.close();
    runtime.shutdown_background();
    tty::restore();
    done
}

fn recorded_prompts(player: &Player) -> Result<Vec<Vec<Part>>, Stop> {
    let prompts = player.prompts().to_vec();
    if prompts.is_empty() { Err(Stop::wrong("the recording holds no prompt: name one")) } else { Ok(prompts) }
}

/// The prompt of print mode: words, attachments and what came on standard input.
async fn gather(words: &[String], cwd: &std::path::Path) -> Result<Vec<Part>, Stop> {
    let prompt = stdin::gather(words).await.map_err(|err| Stop::wrong(err.to_string()))?;
    if let Some(note) = prompt.note {
        // A closed standard error is no reason not to run.
        let _ = writeln!(io::stderr(), "crab: {note}");
    }
    let mut parts = if prompt.words.is_empty() { vec![] } else { expand(&prompt.words, cwd)? };
    match (parts.first_mut(), prompt.piped) {
        (Some(Part::Text { text }), Some(piped)) => text.push_str(&format!("\n\n{piped}")),
        (_, Some(piped)) => parts.push(Part::text(piped)),
        (_, None) => {}
    }
    Ok(parts)
}

fn expand(text: &str, cwd: &std::path::Path) -> Result<Vec<Part>, Stop> {
    attach::expand(text, cwd).map_err(Stop::wrong)
}

async fn converse(
    parts: Parts,
    settings: Settings,
    mut prompts: Vec<Vec<Part>>,
    is_print: bool,
) -> Result<Ended, Stop> {
    let failed = |err: io::Error| Stop::new(FailureKind::Internal, format!("cannot use the terminal: {err}"));
    let Parts { agent, facts, warnings, history, tape, desk } = parts;
    let signals = Signals::listen().map_err(failed)?;
    let streams = tty::Streams::take().map_err(failed)?;
    if !is_print {
        streams.lend_terminal().map_err(failed)?;
    }
    let (cwd, secrets) = (agent.cwd.clone(), agent.secrets.clone());
    let environment = agent.environment.clone();
    let (model, id) = (format!("{}/{}", facts.provider, facts.model), facts.id.clone());
    let last = last_prompt(&agent.session);
    let mut screen =
        Screen::choose(settings, output::Output::start(streams).map_err(failed)?, facts).map_err(failed)?;
    for message in warnings {
        screen.renderer.event(&crab_core::protocol::Event::Warned { message }).map_err(failed)?;
    }
    let handle = agent::spawn(agent);
    match is_print {
        true => {
            let front = Front::new(handle, screen, signals).taped(tape);
            front.print_run(prompts).await.map(Ended::Exit).map_err(failed)
        }
        false => {
            let (is_styled, is_vi) = (screen.paint.is_on, desk.config.is_vi);
            let scratch = tempfile::tempdir().map_err(failed)?;
            let settings = input::Settings {
                history,
                is_styled,
                is_vi,
                secrets,
                cwd: cwd.clone(),
                scratch: Some(scratch.path().join("prompt.md")),
            };
            let (input, warning) = Input::start(settings).map_err(failed)?;
            let going_on = last.map(|prompt| format!(", going on behind `{prompt}`")).unwrap_or_default();
            screen.say(&format!("{model}, session {id}{going_on}; /help for help")).map_err(failed)?;
            if let Some(warning) = warning {
                screen.say(&warning).map_err(failed)?;
            }
            let expand = move |text: &str| attach::expand(text, &cwd);
            let front = Front::new(handle, screen, signals).taped(tape);
            front.interactive(prompts.pop(), input, Table { desk, environment, expand }).await.map_err(failed)
        }
    }
}

/// The beginning of what was asked last in a session that goes on.
fn last_prompt(session: &Session) -> Option<String> {
    let path = session.path();
    let prompt = path.iter().rev().find_map(|entry| match &entry.body {
        Body::User { content } => Some(text_of(content)),
        _ => None,
    })?;
    let words: Vec<&str> = prompt.split_whitespace().collect();
    Some(caret::line(clip::line(&words.join(" "), 50).as_ref()))
}

/// The flag, or what the configuration says.
fn color(args: &Args, ground: &Ground) -> Color {
    match (args.color, ground.config.color.as_deref()) {
        (Color::Auto, Some("always")) => Color::Always,
        (Color::Auto, Some("never")) => Color::Never,
        (color, _) => color,
    }
}

fn list_sessions(args: &Args) -> Result<String, Stop> {
    let ground = setup::ground(args)?;
    let home = ground.home.ok_or_else(|| {
        Stop::new(FailureKind::Session, "there is no home for sessions: set CRAB_HOME or HOME")
    })?;
    sessions::list(&home, Some(&ground.cwd), false)
}

/// Each setting, its value and where it comes from, as TOML.
fn settings(args: &Args) -> Result<String, Stop> {
    let ground = setup::ground(args)?;
    for warning in &ground.config.warnings {
        let _ = writeln!(io::stderr(), "crab: warning: {warning}");
    }
    let home = ground.home.map_or_else(|| "none".to_owned(), |home| home.dir().display().to_string());
    let mut text = format!("# home: {home}\n");
    for setting in &ground.config.settings {
        text.push_str(&format!("{} = {}  # {}\n", setting.key, setting.value, setting.origin));
    }
    if ground.config.settings.is_empty() {
        text.push_str("# nothing is set; README.md lists the keys\n");
    }
    Ok(text)
}

fn trust(args: &Args, dir: Option<PathBuf>) -> Result<String, Stop> {
    let mut args = args.clone();
    args.cd = dir.or(args.cd);
    let ground = setup::ground(&args)?;
    let home = ground.home.ok_or_else(|| {
        Stop::new(FailureKind::Config, "there is no home to remember it in: set CRAB_HOME or HOME")
    })?;
    let project = ground.config.project;
    config::trust(&home, &project)?;
    Ok(format!("`{}` is trusted: its .crab/config.toml counts in full\n", project.display()))
}

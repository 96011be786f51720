//! `crab models`: the services that crab knows, and the models of one of them, which is asked only here.

use std::io::{self, Write};

use crab_core::clip;
use crab_core::config::Keys;
use crab_core::protocol::FailureKind;
use crab_core::provider::models::{self, Model};
use crab_core::provider::{self, Api, Options, SERVICES};
use serde_json::{Value, json};

use crate::args::Args;
use crate::caret;
use crate::choice::Choice;
use crate::render::{Format, failure_code};
use crate::setup::{self, Ground, Stop, env};

/// Characters of a model's name that are shown; the JSON has all.
const LONGEST_NAME: usize = 80;

/// The list that was asked for, as text or as JSON, and the exit code: a service that can't be asked is a failure, also
/// where crab knows something to show.
pub(crate) fn list(args: &Args, provider: Option<&str>) -> Result<(String, u8), Stop> {
    let ground = setup::ground(args)?;
    for warning in &ground.config.warnings {
        // The list is what was asked for; a closed standard error does not take it away.
        let _ = writeln!(io::stderr(), "crab: warning: {warning}");
    }
    match provider {
        None => services(args, &ground).map(|text| (text, 0)),
        Some(name) => of(args, &ground, name),
    }
}

/// The services, and where each finds its key.
fn services(args: &Args, ground: &Ground) -> Result<String, Stop> {
    let mut keys = Keys::load(ground.home.as_ref(), &ground.config, &env);
    let mut rows = vec![];
    for service in SERVICES.iter().filter(|service| !service.name.is_empty() && service.api != Api::Mock) {
        let own = ground.config.providers.get(service.name);
        // A command that prints a key may ask a person for something, so it is not run for a list.
        let own = own.filter(|own| own.api_key_cmd.is_none());
        let key = match (keys.key_for(service.name, service.key_envs, own), service.key_envs.first()) {
            // What is wrong with a file of keys is said once, below.
            (Err(_), _) => "auth.json is not used".to_owned(),
            (Ok(Some(key)), _) => format!("from {}", key.source.replace('`', "")),
            (Ok(None), Some(name)) if service.needs_key => format!("set {name}"),
            _ => "none needed".to_owned(),
        };
        let default = service.default_model.unwrap_or("-").to_owned();
        rows.push([service.name.to_owned(), default, key]);
    }
    for (name, own) in ground.config.providers.iter().filter(|(name, _)| provider::known(name).is_none()) {
        let key = own
            .api_key_env
            .as_ref()
            .map_or_else(|| "as configured".to_owned(), |name| format!("from {name}"));
        rows.push([name.clone(), "-".to_owned(), key]);
    }
    if let Some(warning) = keys.warning() {
        let _ = writeln!(io::stderr(), "crab: warning: {}", caret::answer(&warning));
    }
    if args.output_format != Format::Text {
        let rows: Vec<Value> = rows
            .iter()
            .map(|[name, default, key]| json!({"provider": name, "default_model": default, "key": key}))
            .collect();
        return Ok(format!("{}\n", Value::Array(rows)));
    }
    let mut text = table(["PROVIDER", "MODEL BY DEFAULT", "KEY"], &rows);
    text.push_str("\n`crab models PROVIDER` asks a service for its models; `-m PROVIDER/MODEL` uses one.\n");
    Ok(text)
}

/// The models of a service: what it says itself, completed by what crab knows.
fn of(args: &Args, ground: &Ground, name: &str) -> Result<(String, u8), Stop> {
    let mut keys = Keys::load(ground.home.as_ref(), &ground.config, &env);
    let mut choice = Choice { args, config: &ground.config, keys: &mut keys };
    let asked = choice.options(name, args.base_url.clone()).and_then(ask);
    let mut exit = 0;
    let mut listed = match asked {
        Ok(listed) => listed,
        Err(stop) if models::of(name).next().is_none() => return Err(stop),
        Err(stop) => {
            exit = stop.exit;
            let _ = writeln!(io::stderr(), "crab: {}", caret::answer(&stop.failure.message));
            let _ = writeln!(io::stderr(), "crab: these are the models that crab knows by itself");
            models::of(name).cloned().collect()
        }
    };
    for model in &mut listed {
        let known = models::find(name, &model.id);
        *model = std::mem::take(model).or(known);
    }
    listed.sort_by(|a, b| a.id.cmp(&b.id));
    if args.output_format != Format::Text {
        let list: Vec<Value> = listed.iter().map(|model| as_json(name, model)).collect();
        return Ok((format!("{}\n", Value::Array(list)), exit));
    }
    let rows: Vec<_> = listed.iter().map(row).collect();
    let head = ["MODEL", "CONTEXT", "OUTPUT", "$/M IN", "$/M OUT", "THINKS", "SEES"];
    Ok((if rows.is_empty() { format!("`{name}` lists no models\n") } else { table(head, &rows) }, exit))
}

/// What a service answers when it is asked for its models.
pub(crate) fn ask(options: Options) -> Result<Vec<Model>, Stop> {
    let provider = provider::by_name(options).map_err(Stop::wrong)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|err| Stop::new(FailureKind::Internal, format!("cannot start: {err}")))?;
    let listed = runtime.block_on(provider.models());
    listed.map_err(|error| Stop { exit: failure_code(&error.failure), failure: error.failure })
}

fn row(model: &Model) -> [String; 7] {
    let tokens = |tokens: Option<u64>| match tokens {
        None => "-".to_owned(),
        Some(tokens) if tokens < 1_000 => tokens.to_string(),
        Some(tokens) if tokens >= 1_000_000 => format!("{:.1}M", tokens as f64 / 1e6),
        Some(tokens) => format!("{}k", tokens / 1_000),
    };
    let dollars = |price: Option<f64>| price.map_or_else(|| "-".to_owned(), |price| format!("{price:.2}"));
    let flag = |flag: Option<bool>| match flag {
        None => "-",
        Some(true) => "yes",
        Some(false) => "no",
    };
    [
        // The names come from a server.
        clip::line(&caret::line(&model.id), LONGEST_NAME).into_owned(),
        tokens(model.context),
        tokens(model.output),
        dollars(model.price.input),
        dollars(model.price.output),
        flag(model.thinking).to_owned(),
        flag(model.images).to_owned(),
    ]
}

fn as_json(provider: &str, model: &Model) -> Value {
    json!({
        "provider": provider, "model": model.id, "context_window": model.context, "max_output": model.output,
        "price": {"input": model.price.input, "output": model.price.output, "cache_read": model.price.cache_read,
            "cache_write": model.price.cache_write},
        "thinking": model.thinking, "images": model.images,
    })
}

/// Columns two blanks apart.
fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let head = head.map(str::to_owned);
    let all: Vec<&[String; N]> = std::iter::once(&head).chain(rows).collect();
    let widths: [usize; N] =
        std::array::from_fn(|at| all.iter().map(|row| row[at].chars().count()).max().unwrap_or(0));
    let line = |row: &&[String; N]| {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    all.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_straight_columns() {
        let rows = [["a".to_owned(), "bb".to_owned()], ["ccc".to_owned(), String::new()]];
        assert_eq!(table(["X", "Y"], &rows), "X    Y\na    bb\nccc\n");
    }

    #[test]
    fn what_is_not_known_is_a_dash_and_a_name_brings_no_control_characters() {
        let model = Model { id: "m\u{1b}[2J".into(), context: Some(1_048_576), ..Model::default() };
        let row = row(&model);
        assert!(!row[0].contains('\u{1b}'));
        assert_eq!((row[1].as_str(), row[2].as_str(), row[3].as_str()), ("1.0M", "-", "-"));
    }
}

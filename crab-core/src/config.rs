//! The configuration: its layers, who wins, and what a project that is not trusted may say.

mod auth;
mod keys;
mod layer;
mod trust;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use crate::home::Home;
use crate::paths;
use crate::provider::Effort;
use crate::session::Durability;
pub use auth::{Key as ApiKey, Keys};
pub use keys::{KEYS, Key, Kind, Untrusted, reference};
use layer::{Item, Layer, Value};
pub use trust::{is_trusted, trust};

/// Why the configuration cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A file, a variable or a flag says something that is no configuration. Names place, key and what is expected.
    #[error("{0}")]
    Invalid(String),
    /// The file of keys cannot be used.
    #[error("`{}` is not used: {why}", file.display())]
    AuthFile {
        /// The file.
        file: PathBuf,
        /// What is wrong, and what to do.
        why: String,
    },
    /// The command that should print a key did not.
    #[error("`api_key_cmd` of `{provider}` gave no key: {why}")]
    KeyCommand {
        /// The provider.
        provider: String,
        /// What happened, with the command's own words.
        why: String,
    },
    /// The list of trusted directories cannot be written.
    #[error("cannot write `{}`: {why}", file.display())]
    TrustFile {
        /// The file.
        file: PathBuf,
        /// The system's words.
        why: String,
    },
}

/// Where the configuration comes from.
pub struct Inputs<'a> {
    /// The home, if there is one.
    pub home: Option<&'a Home>,
    /// The working directory.
    pub cwd: &'a Path,
    /// The environment.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// `KEY=VALUE` of `--config`, in order.
    pub overrides: &'a [String],
}

/// Which root certificates count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    /// Those that are built in.
    #[default]
    Webpki,
    /// The system's too.
    System,
}

/// What is configured for a provider.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProviderConfig {
    /// `openai-chat`, `openai-responses` or `anthropic-messages`.
    pub api: Option<String>,
    /// The API's address.
    pub base_url: Option<String>,
    /// The variable that holds the key.
    pub api_key_env: Option<String>,
    /// A command that prints the key.
    pub api_key_cmd: Option<String>,
    /// Extra request headers.
    pub headers: BTreeMap<String, String>,
    /// How often a request is tried again.
    pub max_retries: Option<u32>,
    /// How long a stream may be silent.
    pub stream_idle_timeout: Option<Duration>,
    /// Fields of [`crate::provider::compat::Compat`].
    pub compat: serde_json::Map<String, serde_json::Value>,
}

/// What is configured for a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelConfig {
    /// Tokens that it takes.
    pub context_window: Option<u32>,
    /// Tokens that it may answer with.
    pub max_output: Option<u32>,
}

/// Permission rules, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// Calls that run unasked.
    pub allow: Vec<String>,
    /// Calls that never run.
    pub deny: Vec<String>,
    /// Calls that are always asked about.
    pub ask: Vec<String>,
}

/// A key that is set, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The key as TOML has it.
    pub key: String,
    /// The value as TOML has it; never a secret.
    pub value: String,
    /// Where it is set; for a list that adds up, all the places.
    pub origin: String,
}

/// The configuration, `None` where nothing is set.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The model, perhaps with its provider in front; see [`split_model`].
    pub model: Option<String>,
    /// The provider.
    pub provider: Option<String>,
    /// Models that answer when the one before stays overloaded.
    pub fallback: Vec<String>,
    /// Reasoning effort.
    pub thinking: Option<Effort>,
    /// The tools on offer.
    pub tools: Option<Vec<String>>,
    /// The most model requests.
    pub max_turns: Option<u32>,
    /// The most US dollars.
    pub max_cost: Option<f64>,
    /// The most time.
    pub timeout: Option<Duration>,
    /// `auto`, `always` or `never`.
    pub color: Option<String>,
    /// The prompt has the keys of vi.
    pub is_vi: bool,
    /// `off`, `bell` or `osc9`.
    pub notify: Option<String>,
    /// When a session is forced to the disk.
    pub durability: Durability,
    /// Which root certificates count.
    pub tls: Tls,
    /// By name.
    pub providers: BTreeMap<String, ProviderConfig>,
    /// By name.
    pub models: BTreeMap<String, ModelConfig>,
    /// Permission rules.
    pub permissions: Permissions,
    /// All that is set and where.
    pub settings: Vec<Setting>,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// The directory that `crab trust` would trust: the git top, or the working directory where there is no git.
    pub project: PathBuf,
}

/// Reads all layers, the later wins key by key: `<home>/config.toml`, the project's `.crab/config.toml`, the
/// environment, `--config`.
pub fn load(inputs: &Inputs<'_>) -> Result<Config, Error> {
    let mut merged = Merged::default();
    if let Some(home) = inputs.home {
        merged.add(layer::read(&home.config_file())?.sound()?);
    }
    let project = paths::project(inputs.cwd);
    let file = project.join(".crab/config.toml");
    if !is_a_home(&project.join(".crab"), inputs) {
        let layer = layer::read(&file)?;
        let trusted = match inputs.home {
            // In doubt it is not trusted, and the user is told why.
            Some(home) if !layer.items.is_empty() => is_trusted(home, &project).unwrap_or_else(|err| {
                merged.warnings.push(err.to_string());
                false
            }),
            _ => false,
        };
        if trusted { merged.add(layer.sound()?) } else { merged.add_untrusted(layer, &file)? }
    }
    merged.add(environment(inputs.env)?);
    for text in inputs.overrides {
        merged.add(layer::parse_override(text)?);
    }
    Ok(merged.into_config(project))
}

/// The provider and the model of `PROVIDER/MODEL`. What stands before the slash is a provider only when it is known as
/// one: some services have slashes in the names of their models.
pub fn split_model<'a>(name: &'a str, known: &dyn Fn(&str) -> bool) -> (Option<&'a str>, &'a str) {
    match name.split_once('/') {
        Some((provider, model)) if !model.is_empty() && known(provider) => (Some(provider), model),
        _ => (None, name),
    }
}

/// In one's home directory the folder of the project is that of the user, which is no project's.
fn is_a_home(dir: &Path, inputs: &Inputs<'_>) -> bool {
    let dir = paths::canonical(dir);
    let user = (inputs.env)("HOME").map(|user| Path::new(&user).join(".crab"));
    let own = inputs.home.map(|home| home.dir().to_path_buf());
    own.into_iter().chain(user).any(|home| paths::canonical(&home) == dir)
}

fn environment(env: &dyn Fn(&str) -> Option<String>) -> Result<Layer, Error> {
    const VARIABLES: &[(&str, &str)] = &[
        ("CRAB_MODEL", "model"),
        ("CRAB_PROVIDER", "provider"),
        ("OPENAI_BASE_URL", "providers.openai.base_url"),
        ("ANTHROPIC_BASE_URL", "providers.anthropic.base_url"),
        ("AZURE_OPENAI_ENDPOINT", "providers.azure.base_url"),
    ];
    let mut layer = Layer::default();
    for (variable, key) in VARIABLES {
        let Some(value) =
            env(variable).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
        else {
            continue;
        };
        let mut set = layer::parse(&format!("{key} = {}", json!(value)), variable)?.sound()?;
        set.items.iter_mut().for_each(|item| item.origin = format!("environment variable `{variable}`"));
        layer.items.append(&mut set.items);
    }
    Ok(layer)
}

#[derive(Default)]
struct Merged {
    items: BTreeMap<Vec<String>, Item>,
    warnings: Vec<String>,
}

impl Merged {
    fn add(&mut self, layer: Layer) {
        self.warnings.extend(layer.warnings);
        for item in layer.items {
            self.set(item);
        }
    }

    fn set(&mut self, mut item: Item) {
        let before = self.items.remove(&item.path);
        if let (Kind::Rules, Some(before)) = (item.key.kind, before)
            && let (Value::List(old), Value::List(new)) = (before.value, &item.value)
        {
            let added = new.iter().filter(|rule| !old.contains(rule));
            item.value = Value::List(old.iter().chain(added).cloned().collect());
            item.origin = format!("{}, {}", before.origin, item.origin);
        }
        self.items.insert(item.path.clone(), item);
    }

    /// Takes from a layer only what makes things tighter.
    fn add_untrusted(&mut self, layer: Layer, file: &Path) -> Result<(), Error> {
        self.warnings.extend(layer.warnings);
        let mut ignored = Vec::new();
        for fault in layer.faults {
            match fault.untrusted {
                Untrusted::Ignored => ignored.push(format!("`{}`", keys::shown(&fault.path))),
                _ => return Err(fault.error),
            }
        }
        for mut item in layer.items {
            if let (Untrusted::Narrows, Value::List(names)) = (item.key.untrusted, &mut item.value) {
                let known: Vec<String> =
                    crate::tools::all().iter().map(|tool| tool.name().to_owned()).collect();
                let (kept, unknown) =
                    std::mem::take(names).into_iter().partition(|name| known.contains(name));
                *names = kept;
                let unknown: Vec<String> = unknown;
                ignored.extend(unknown.iter().map(|name| format!("the unknown tool `{name}`")));
            }
            let before = self.items.get(&item.path).map(|item| &item.value);
            if tighten(item.key.untrusted, &mut item.value, before) {
                self.set(item);
            } else {
                ignored.push(format!("`{}`", keys::shown(&item.path)));
            }
        }
        if !ignored.is_empty() {
            self.warnings.push(format!(
                "`{}` comes with the project, which you have not trusted: ignored {}; if you know who wrote them, run `crab trust`",
                file.display(),
                ignored.join(", ")
            ));
        }
        Ok(())
    }

    fn into_config(self, project: PathBuf) -> Config {
        let mut config = Config { project, warnings: self.warnings, ..Config::default() };
        for item in self.items.into_values() {
            config.settings.push(Setting {
                key: keys::shown(&item.path),
                value: shown_value(&item),
                origin: item.origin.clone(),
            });
            config.apply(&item);
        }
        config
    }
}

/// Makes the value no wider than the one before; `false` when it has no say at all.
fn tighten(may: Untrusted, value: &mut Value, before: Option<&Value>) -> bool {
    match (may, value, before) {
        (Untrusted::Ignored, ..) => false,
        (Untrusted::Sets, ..) | (_, _, None) => true,
        (_, Value::List(new), Some(Value::List(old))) => {
            let all = new.len();
            new.retain(|name| old.contains(name));
            // A list of which nothing is left would take all tools away, which nobody asked for.
            all == 0 || !new.is_empty()
        }
        (_, Value::Count(new), Some(Value::Count(old))) => *new <= *old,
        (_, Value::Number(new), Some(Value::Number(old))) => *new <= *old,
        _ => false,
    }
}

/// The value as TOML has it. Headers often are keys.
fn shown_value(item: &Item) -> String {
    match &item.value {
        Value::Text(_) if item.path.get(2).is_some_and(|name| name == "headers") => "\"(set)\"".into(),
        Value::Text(text) if item.path.last().is_some_and(|name| name == "base_url") => {
            json!(without_login(text)).to_string()
        }
        Value::Text(text) => json!(text).to_string(),
        Value::Count(count) => count.to_string(),
        Value::Flag(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::List(list) => json!(list).to_string(),
    }
}

/// An address without the user and password that can stand in it.
fn without_login(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let host_ends = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..host_ends].rfind('@') {
        Some(at) => format!("{scheme}://***{}", &rest[at..]),
        None => url.to_owned(),
    }
}

impl Config {
    /// The key was checked when it was read, so a value always has the kind that its field needs.
    fn apply(&mut self, item: &Item) {
        let path: Vec<&str> = item.path.iter().map(String::as_str).collect();
        let value = &item.value;
        match path[..] {
            ["model"] => self.model = value.text(),
            ["provider"] => self.provider = value.text(),
            ["fallback"] => self.fallback = value.list().unwrap_or_default(),
            ["thinking"] => self.thinking = value.text().and_then(|word| effort(&word)),
            ["tools"] => self.tools = value.list(),
            ["max_turns"] => self.max_turns = value.count(),
            ["max_cost"] => self.max_cost = value.number(),
            ["timeout"] => self.timeout = value.seconds(),
            ["color"] => self.color = value.text(),
            ["editor"] => self.is_vi = value.text().as_deref() == Some("vi"),
            ["notify"] => self.notify = value.text(),
            ["durability"] => {
                self.durability = value.text().and_then(|word| Durability::named(&word)).unwrap_or_default();
            }
            ["tls"] if value.text().as_deref() == Some("system") => self.tls = Tls::System,
            ["permissions", "allow"] => self.permissions.allow = value.list().unwrap_or_default(),
            ["permissions", "deny"] => self.permissions.deny = value.list().unwrap_or_default(),
            ["permissions", "ask"] => self.permissions.ask = value.list().unwrap_or_default(),
            ["models", name, "context_window"] => self.model_mut(name).context_window = value.count(),
            ["models", name, "max_output"] => self.model_mut(name).max_output = value.count(),
            ["providers", name, ref rest @ ..] => {
                self.providers.entry(name.to_owned()).or_default().apply(rest, value);
            }
            _ => {}
        }
    }

    fn model_mut(&mut self, name: &str) -> &mut ModelConfig {
        self.models.entry(name.to_owned()).or_default()
    }
}

impl ProviderConfig {
    fn apply(&mut self, key: &[&str], value: &Value) {
        match key {
            ["api"] => self.api = value.text(),
            ["base_url"] => self.base_url = value.text(),
            ["api_key_env"] => self.api_key_env = value.text(),
            ["api_key_cmd"] => self.api_key_cmd = value.text(),
            ["max_retries"] => self.max_retries = value.count(),
            ["stream_idle_timeout"] => self.stream_idle_timeout = value.seconds(),
            ["compat", name] => {
                let set = match value {
                    Value::Flag(flag) => json!(flag),
                    value => json!(value.text()),
                };
                self.compat.insert((*name).to_owned(), set);
            }
            ["headers", name] => {
                self.headers.extend(value.text().map(|text| ((*name).to_owned(), text)));
            }
            _ => {}
        }
    }
}

fn effort(word: &str) -> Option<Effort> {
    serde_json::from_value(json!(word)).ok()
}

impl Value {
    fn text(&self) -> Option<String> {
        if let Self::Text(text) = self { Some(text.clone()) } else { None }
    }

    fn count(&self) -> Option<u32> {
        if let Self::Count(count) = self { Some(*count) } else { None }
    }

    fn number(&self) -> Option<f64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }

    fn seconds(&self) -> Option<Duration> {
        self.number().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }

    fn list(&self) -> Option<Vec<String>> {
        if let Self::List(list) = self { Some(list.clone()) } else { None }
    }
}

#[cfg(test)]
mod tests;

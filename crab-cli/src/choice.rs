//! Whom to ask: provider, model and key, out of flags, environment, configuration and session.

use std::time::Duration;

use crab_core::agent::Model;
use crab_core::config::{self, Config, Keys, ProviderConfig, split_model};
use crab_core::protocol::FailureKind;
use crab_core::provider::tape::{Asked, Tape};
use crab_core::provider::{self, Api, Known, Options, SERVICES};

use crate::args::Args;
use crate::setup::{Stop, env};
use crate::{local, models};

/// The services that are looked at first when nobody names one.
const FIRST: [&str; 2] = ["anthropic", "openai"];

/// All that has a say.
pub(crate) struct Choice<'a> {
    pub(crate) args: &'a Args,
    pub(crate) config: &'a Config,
    pub(crate) keys: &'a mut Keys,
}

/// Whom to ask.
pub(crate) struct Chosen {
    pub(crate) provider: String,
    pub(crate) model: String,
}

/// How a model is asked, before anything is made of it.
pub(crate) struct Plan {
    options: Options,
    model: String,
    max_output: Option<u32>,
}

impl Plan {
    /// As a recording remembers it.
    pub(crate) fn asked(&self) -> Asked {
        Asked {
            provider: self.options.name.clone(),
            model: self.model.clone(),
            api: self.options.api.to_string(),
            base_url: self.options.base_url.clone(),
            max_output: self.max_output,
            max_retries: self.options.max_retries,
            key_source: self.options.key.as_ref().map(|key| key.source.clone()),
            stream_idle_timeout: self.options.idle_timeout.map(|limit| limit.as_secs_f64()),
            compat: self.options.compat.clone(),
        }
    }

    /// As it was recorded. Neither a key nor a network is needed for it.
    pub(crate) fn recorded(asked: &Asked) -> Result<Self, Stop> {
        let api = asked.api.parse().map_err(|err| Stop::wrong(format!("the recording: {err}")))?;
        let mut options = Options::new(&asked.provider, api);
        options.base_url = asked.base_url.clone();
        options.max_retries = asked.max_retries;
        options.compat = asked.compat.clone();
        let idle = asked.stream_idle_timeout.and_then(|limit| Duration::try_from_secs_f64(limit).ok());
        options.idle_timeout = idle;
        // Failures name where the key came from; the key itself is neither there nor needed.
        options.key = asked.key_source.clone().map(|source| provider::Key { value: String::new(), source });
        Ok(Self { options, model: asked.model.clone(), max_output: asked.max_output })
    }

    /// The model's name, provider included.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.options.name, self.model)
    }

    /// Whether there is a wire at all.
    pub(crate) fn has_wire(&self) -> bool {
        self.options.api != Api::Mock
    }

    /// The model with its provider. Nothing is sent.
    pub(crate) fn build(mut self, tape: Option<Tape>) -> Result<Model, Stop> {
        self.options.tape = tape;
        let provider = provider::by_name(self.options).map_err(Stop::wrong)?;
        Ok(Model { provider, name: self.model, max_output: self.max_output })
    }
}

type Named = (Option<String>, String);

impl Choice<'_> {
    fn is_known(&self, name: &str) -> bool {
        provider::known(name).is_some() || self.config.providers.contains_key(name)
    }

    fn split(&self, name: &str) -> Named {
        let (provider, model) = split_model(name, &|name| self.is_known(name));
        (provider.map(str::to_owned), model.to_owned())
    }

    /// The provider and the model; `last` is who was asked last in a session that goes on.
    pub(crate) fn model(&mut self, last: Option<(String, String)>) -> Result<Chosen, Stop> {
        let (args, config) = (self.args, self.config);
        let said = args.model.as_deref().map(|name| self.split(name));
        let is_pinned =
            args.provider.is_some() || env("CRAB_MODEL").is_some() || env("CRAB_PROVIDER").is_some();
        let configured = match last {
            Some((provider, model)) if !is_pinned && self.is_known(&provider) => {
                Some((Some(provider), model))
            }
            _ => config.model.as_deref().map(|name| self.split(name)),
        };
        let prefix = |model: &Option<Named>| model.as_ref().and_then(|(provider, _)| provider.clone());
        let named = prefix(&said).or_else(|| args.provider.clone()).or_else(|| self.later_provider());
        let named = named.or_else(|| prefix(&configured)).or_else(|| config.provider.clone());
        let provider = match named {
            Some(provider) => provider,
            // What looks like a provider and is none must not go to another company's service.
            None => {
                match said.as_ref().or(configured.as_ref()).and_then(|(_, model)| model.split_once('/')) {
                    Some((unknown, _)) => return Err(self.unknown(unknown)),
                    None => self.first_with_key()?,
                }
            }
        };
        if !self.is_known(&provider) {
            return Err(self.unknown(&provider));
        }
        // A configured model belongs to the provider before its slash, if it has one.
        let fits = |(prefix, _): &Named| prefix.as_ref().is_none_or(|prefix| *prefix == provider);
        let model = said
            .or_else(|| configured.filter(fits))
            .map(|(_, model)| model)
            .filter(|model| !model.is_empty());
        let known = provider::known(&provider);
        let model = match model.or_else(|| known?.default_model.map(str::to_owned)) {
            None if known.is_some_and(|known| !known.needs_key) => self.first_listed(&provider)?,
            model => model,
        };
        let model = model.ok_or_else(|| {
            let known = provider::known(&provider).is_some_and(|known| known.api != Api::Mock);
            let list = if known { format!("; `crab models {provider}` lists them") } else { String::new() };
            Stop::wrong(format!(
                "no model is chosen for `{provider}`: pass `-m {provider}/MODEL`, or set `model` in config.toml{list}"
            ))
        })?;
        Ok(Chosen { provider, model })
    }

    /// What a server on this machine has to offer: nobody but itself can know.
    fn first_listed(&mut self, provider: &str) -> Result<Option<String>, Stop> {
        let options = self.options(provider, self.args.base_url.clone())?;
        // Servers list what they have for other work as well.
        let can_talk = |id: &str| !["embed", "rerank", "whisper", "tts"].iter().any(|word| id.contains(word));
        Ok(models::ask(options)?.into_iter().map(|model| model.id).find(|id| can_talk(&id.to_lowercase())))
    }

    /// The models to fall back on. One that can't be used is left out with a warning: it may never be needed.
    pub(crate) fn fallback(
        &mut self,
        chosen: &Chosen,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<Plan>, Stop> {
        let mut plans = vec![];
        for name in &self.config.fallback {
            let (provider, model) = self.split(name);
            let Some(provider) = provider else {
                return Err(Stop::wrong(format!(
                    "`fallback` names `{name}`: expected PROVIDER/MODEL with a provider that crab knows"
                )));
            };
            if (&provider, &model) == (&chosen.provider, &chosen.model) {
                continue;
            }
            match self.plan(&Chosen { provider, model }, None) {
                Ok(plan) => plans.push(plan),
                Err(stop) => {
                    warnings.push(format!("`{name}` of `fallback` is left out: {}", stop.failure.message))
                }
            }
        }
        Ok(plans)
    }

    /// The provider that a later layer names than the one that can have set the model.
    fn later_provider(&self) -> Option<String> {
        let on_line = |key: &str| self.args.config.iter().any(|(name, _)| name == key);
        let by_line = on_line("provider") && !on_line("model");
        let by_environment =
            env("CRAB_PROVIDER").is_some() && env("CRAB_MODEL").is_none() && !on_line("model");
        self.config.provider.clone().filter(|_| by_line || by_environment)
    }

    fn first_with_key(&mut self) -> Result<String, Stop> {
        let others = SERVICES.iter().map(|service| service.name).filter(|name| !FIRST.contains(name));
        for name in FIRST.into_iter().chain(others) {
            let Some(known) =
                provider::known(name).filter(|known| known.needs_key && known.default_model.is_some())
            else {
                continue;
            };
            if self.keys.key_for(name, known.key_envs, self.config.providers.get(name))?.is_some() {
                return Ok(name.to_owned());
            }
        }
        let servers = local::servers();
        let local = match servers.first() {
            Some((name, address)) => {
                format!("a model of your own: `{name}` answers on {address}, so `crab --provider {name}` works now")
            }
            None => "a model of your own: none of ollama, lmstudio, llamacpp, vllm and litellm answers on its usual port".into(),
        };
        Err(Stop::new(
            FailureKind::Auth,
            format!(
                "no model is chosen and no key was found\n\
                 a service: set ANTHROPIC_API_KEY or OPENAI_API_KEY, or that of another one, which `crab models` lists\n\
                 {local}\nno model at all: `crab --provider mock` shows how crab works; `crab doctor` checks the rest"
            ),
        ))
    }

    fn unknown(&self, name: &str) -> Stop {
        let known = SERVICES.iter().map(|service| service.name).filter(|name| !name.is_empty());
        let mut names: Vec<&str> = known.chain(self.config.providers.keys().map(String::as_str)).collect();
        names.sort_unstable();
        names.dedup();
        Stop::wrong(format!(
            "there is no provider `{name}`; there are {}\nany other service needs a `[providers.{name}]` with `base_url` in config.toml",
            names.join(", ")
        ))
    }

    /// How the model is asked, at an address of its own or at that of the flag.
    pub(crate) fn plan(&mut self, chosen: &Chosen, base_url: Option<String>) -> Result<Plan, Stop> {
        let full = format!("{}/{}", chosen.provider, chosen.model);
        let model = self.config.models.get(&full).or_else(|| self.config.models.get(&chosen.model));
        let max_output = model.and_then(|model| model.max_output);
        let options = self.options(&chosen.provider, base_url)?;
        Ok(Plan { options, model: chosen.model.clone(), max_output })
    }

    /// What is configured for a provider, its key included. Nothing is sent.
    pub(crate) fn options(&mut self, name: &str, base_url: Option<String>) -> Result<Options, Stop> {
        if !self.is_known(name) {
            return Err(self.unknown(name));
        }
        let own = self.config.providers.get(name);
        let known = provider::known(name);
        let default = ProviderConfig::default();
        let settings = own.unwrap_or(&default);
        let base_url = base_url.or_else(|| settings.base_url.clone());
        let api = match (&settings.api, &known) {
            (Some(api), _) => {
                api.parse::<Api>().map_err(|err| Stop::wrong(format!("`[providers.{name}] api`: {err}")))?
            }
            (None, Some(known)) => known.api_at(base_url.as_deref()),
            (None, None) => Api::OpenaiChat,
        };
        let mut options = Options::new(name, api);
        options.base_url = base_url;
        options.headers = settings.headers.clone().into_iter().collect();
        options.max_retries = settings.max_retries;
        options.idle_timeout = settings.stream_idle_timeout;
        options.compat = settings.compat.clone();
        options.tls = match self.config.tls {
            config::Tls::Webpki => provider::Tls::Bundled,
            config::Tls::System => provider::Tls::System,
        };
        options.key = self.key(name, known.as_ref(), &options)?;
        Ok(options)
    }

    /// The key, or the error that says how to give one. A service on this machine, and one that names no variable, may
    /// do without.
    fn key(
        &mut self,
        name: &str,
        known: Option<&Known>,
        options: &Options,
    ) -> Result<Option<provider::Key>, Stop> {
        if options.api == Api::Mock {
            return Ok(None);
        }
        let own = self.config.providers.get(name);
        let variables = known.map_or(&[][..], |known| known.key_envs);
        if let Some(key) = self.keys.key_for(name, variables, own)? {
            return Ok(Some(provider::Key { value: key.value, source: key.source }));
        }
        let named = own.and_then(|own| own.api_key_env.as_deref());
        let asked = named.or_else(|| variables.first().copied());
        let is_empty = asked.is_some_and(|name| env(name).is_some_and(|value| value.trim().is_empty()));
        let is_local = options.base_url.as_deref().is_some_and(is_loopback);
        let is_due = named.is_some() || known.is_some_and(|known| known.needs_key);
        let has_header = options
            .headers
            .iter()
            .any(|(name, _)| name.to_lowercase().contains("auth") || name.to_lowercase().contains("key"));
        if is_due && (is_empty || !is_local && !has_header) {
            return Err(Stop::new(FailureKind::Auth, self.keys.missing(name, variables, own)));
        }
        Ok(None)
    }
}

fn is_loopback(url: &str) -> bool {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    ["127.", "localhost", "[::1]"].iter().any(|own| host.starts_with(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_local() {
        for (url, expected) in [
            ("http://127.0.0.1:8080/v1", true),
            ("http://localhost:1234", true),
            ("http://[::1]:1", true),
            ("https://api.openai.com/v1", false),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(is_loopback(url), expected, "{url}");
        }
    }
}

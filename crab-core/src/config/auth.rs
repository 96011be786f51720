//! The keys: from the environment, from `auth.json`, from a command; and what must be kept from everybody else.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Config, Error, ProviderConfig};
use crate::home::Home;
use crate::provider::SERVICES;

/// Holds a key of a service of the table, which is not asked for there.
const ANOTHER: &str = "ANTHROPIC_AUTH_TOKEN";

/// How long a command may take to print a key: somebody may have to unlock a store first.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);

/// A key and where it came from.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// The key, without white space around it.
    pub value: String,
    /// Where it came from, for messages.
    pub source: String,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("source", &self.source).finish_non_exhaustive()
    }
}

/// All keys that crab knows.
pub struct Keys {
    /// The variables that are set, trimmed; some are empty.
    variables: BTreeMap<String, String>,
    names: Vec<String>,
    file: Option<PathBuf>,
    /// The providers of `auth.json`, or why it is not used.
    stored: Result<BTreeMap<String, Value>, Error>,
    /// From commands and configured headers.
    others: Vec<(String, String)>,
    /// What the commands printed, so that each is run once.
    printed: BTreeMap<String, String>,
}

impl Keys {
    /// Looks at the environment and at `auth.json`. A file that is refused is an error only when a key is needed from it.
    pub fn load(home: Option<&Home>, config: &Config, env: &dyn Fn(&str) -> Option<String>) -> Self {
        let configured = config.providers.values().filter_map(|provider| provider.api_key_env.clone());
        let well_known = SERVICES.iter().flat_map(|service| service.key_envs).chain([&ANOTHER]);
        let mut names: Vec<String> = well_known.map(|name| (*name).to_owned()).chain(configured).collect();
        names.sort();
        names.dedup();
        let variables =
            names.iter().filter_map(|name| Some((name.clone(), env(name)?.trim().to_owned()))).collect();
        let file = home.map(Home::auth_file);
        let stored = file.as_deref().map_or_else(|| Ok(BTreeMap::new()), read);
        Self { variables, names, file, stored, others: secret_headers(config), printed: BTreeMap::new() }
    }

    /// The key of a provider: from the variable that its configuration names, else from the `variables` of the service,
    /// else from `auth.json`, else from the command. `None` when there is none; see [`Keys::missing`].
    pub fn key_for(
        &mut self,
        provider: &str,
        variables: &[&str],
        config: Option<&ProviderConfig>,
    ) -> Result<Option<Key>, Error> {
        let in_environment = asked(variables, config).into_iter().find_map(|name| {
            let value = self.variables.get(name).filter(|value| !value.is_empty())?;
            Some(Key { value: value.clone(), source: format!("the environment variable `{name}`") })
        });
        if in_environment.is_some() {
            return Ok(in_environment);
        }
        if let Some(key) = self.stored_key(provider)? {
            return Ok(Some(key));
        }
        let Some(command) = config.and_then(|config| config.api_key_cmd.as_deref()) else { return Ok(None) };
        let value = match self.printed.get(command) {
            Some(value) => value.clone(),
            None => printed_key(command, COMMAND_LIMIT)
                .map_err(|why| Error::KeyCommand { provider: provider.to_owned(), why })?,
        };
        self.printed.insert(command.to_owned(), value.clone());
        self.others.push((format!("{provider} key"), value.clone()));
        Ok(Some(Key { value, source: format!("`api_key_cmd` of `{provider}`") }))
    }

    /// What to tell when a provider has no key.
    pub fn missing(&self, provider: &str, variables: &[&str], config: Option<&ProviderConfig>) -> String {
        let asked = asked(variables, config);
        let empty = asked.iter().find(|name| self.variables.get(**name).is_some_and(String::is_empty));
        let why = empty
            .map(|name| format!(": the environment variable `{name}` is set but empty"))
            .unwrap_or_default();
        let mut ways: Vec<String> = asked.first().map(|name| format!("set `{name}`")).into_iter().collect();
        if let Some(file) = &self.file {
            let entry = serde_json::json!({ provider: { "api_key": "…" } });
            ways.push(format!("put `{entry}` into `{}` (mode 0600)", file.display()));
        }
        format!("no key for `{provider}`{why}; {}", ways.join(", or "))
    }

    /// What is wrong with `auth.json`, for a run that got its key from elsewhere.
    pub fn warning(&self) -> Option<String> {
        self.stored.as_ref().err().map(ToString::to_string)
    }

    /// Names and values of all keys known by now, for [`crate::redact::Secrets`]. Ask again after [`Keys::key_for`].
    pub fn secrets(&self) -> Vec<(String, String)> {
        let set = self.variables.iter().map(|(name, value)| (name.clone(), value.clone()));
        let stored = self.stored.iter().flatten().filter_map(|(provider, entry)| {
            let value = entry.get("api_key")?.as_str()?.trim();
            Some((format!("{provider} key"), value.to_owned()))
        });
        set.chain(stored).chain(self.others.iter().cloned()).filter(|(_, value)| !value.is_empty()).collect()
    }

    /// The variables that no command of crab's may see.
    pub fn key_variables(&self) -> Vec<String> {
        self.names.clone()
    }

    fn stored_key(&self, provider: &str) -> Result<Option<Key>, Error> {
        let stored = self.stored.as_ref().map_err(Clone::clone)?;
        let (Some(entry), Some(file)) = (stored.get(provider), &self.file) else { return Ok(None) };
        let value =
            entry.get("api_key").and_then(Value::as_str).map(str::trim).filter(|value| !value.is_empty());
        let Some(value) = value else {
            let why = format!("its entry `{provider}` has no `api_key`, or one that is empty or no string");
            return Err(Error::AuthFile { file: file.clone(), why });
        };
        Ok(Some(Key { value: value.to_owned(), source: format!("`{}`", file.display()) }))
    }
}

/// The variables that may hold a provider's key. The user's word stands alone: a key for the service that the name
/// usually means must not go to the address that the user has set for it.
fn asked<'a>(variables: &[&'a str], config: Option<&'a ProviderConfig>) -> Vec<&'a str> {
    match config.and_then(|config| config.api_key_env.as_deref()) {
        Some(name) => vec![name],
        None => variables.to_vec(),
    }
}

/// Header values that authorise, whole and without the word in front, as in `Bearer KEY`.
fn secret_headers(config: &Config) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (provider, settings) in &config.providers {
        for (header, value) in &settings.headers {
            let lower = header.to_ascii_lowercase();
            if ["auth", "key", "token", "secret", "cookie"].iter().any(|word| lower.contains(word)) {
                let name = format!("{provider} {header}");
                found.extend(value.split_once(' ').map(|(_, key)| (name.clone(), key.trim().to_owned())));
                found.push((name, value.clone()));
            }
        }
    }
    found
}

fn read(file: &Path) -> Result<BTreeMap<String, Value>, Error> {
    let refused = |why: String| Error::AuthFile { file: file.to_path_buf(), why };
    match file.metadata() {
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(err) => return Err(refused(err.to_string())),
        Ok(meta) if !meta.is_file() => return Err(refused("it is not a regular file".into())),
        Ok(_) => {}
    }
    let mut handle = std::fs::File::open(file).map_err(|err| refused(err.to_string()))?;
    // The mode of the very file that is read.
    let mode = handle.metadata().map_err(|err| refused(err.to_string()))?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let shown = file.display();
        return Err(refused(format!(
            "its mode is {mode:04o}, so that others can read your keys; run `chmod 600 {shown}`"
        )));
    }
    let mut text = String::new();
    handle.read_to_string(&mut text).map_err(|err| refused(err.to_string()))?;
    if text.trim().is_empty() {
        return Ok(BTreeMap::new());
    }
    // The parser's own words can hold a piece of the text, which may be a key.
    serde_json::from_str(&text).map_err(|err| {
        let (line, column) = (err.line(), err.column());
        let expected = r#"expected {"PROVIDER": {"api_key": "…"}}"#;
        refused(format!("it is not a JSON object (line {line}, column {column}): {expected}"))
    })
}

/// The first line that a shell command prints.
fn printed_key(command: &str, limit: Duration) -> Result<String, String> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|err| format!("`sh` cannot be started: {err}"))?;
    let output = child.stdout.take().map(collect);
    let errors = child.stderr.take().map(collect);
    let started = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if started.elapsed() < limit => std::thread::sleep(Duration::from_millis(5)),
            Ok(None) => {
                let ended = child.kill().and_then(|()| child.wait());
                let also =
                    ended.err().map(|err| format!(", and could not be ended: {err}")).unwrap_or_default();
                return Err(format!("it took longer than {} s{also}", limit.as_secs()));
            }
            Err(err) => return Err(err.to_string()),
        }
    };
    if !status.success() {
        let words = gathered(errors);
        return Err(format!("it ended with {status}: {}", crate::clip::middle(words.trim(), 500)));
    }
    let text = gathered(output);
    let line = text.trim_start().lines().next().unwrap_or_default().trim();
    if line.is_empty() { Err("it printed nothing".into()) } else { Ok(line.to_owned()) }
}

/// Reads a pipe on a thread of its own, as far as there is something.
fn collect(mut pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length) = pipe.read(&mut buffer)
            && length > 0
            && sender.send(buffer[..length].to_vec()).is_ok()
        {}
    });
    receiver
}

/// What a pipe gave. A background process that keeps it open is not waited for.
fn gathered(pipe: Option<Receiver<Vec<u8>>>) -> String {
    const GRACE: Duration = Duration::from_millis(500);
    const MOST: usize = 64 * 1024;
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        while let Ok(piece) = pipe.recv_timeout(GRACE)
            && bytes.len() < MOST
        {
            bytes.extend(piece);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    struct Place {
        home: Home,
        _temp: tempfile::TempDir,
    }

    fn place(auth: &str, mode: u32) -> Place {
        let temp = tempfile::tempdir().unwrap();
        let home = Home::at(temp.path());
        std::fs::write(home.auth_file(), auth).unwrap();
        std::fs::set_permissions(home.auth_file(), Permissions::from_mode(mode)).unwrap();
        Place { home, _temp: temp }
    }

    fn keys(place: &Place, env: &'static [(&str, &str)]) -> Keys {
        let find =
            |name: &str| env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Keys::load(Some(&place.home), &Config::default(), &find)
    }

    fn command(command: &str) -> ProviderConfig {
        ProviderConfig { api_key_cmd: Some(command.into()), ..ProviderConfig::default() }
    }

    const STORED: &str = r#"{"openai": {"api_key": "sk-padded-1\n"}, "other program": 7}"#;

    #[test]
    fn the_environment_comes_before_the_file_and_the_file_before_the_command() {
        let place = place(STORED, 0o600);
        let config = command("echo sk-printed; echo more");
        let mut both = keys(&place, &[("OPENAI_API_KEY", " sk-env-12 \n")]);
        let key = both.key_for("openai", &["OPENAI_API_KEY"], Some(&config)).unwrap().unwrap();
        assert_eq!((key.value.as_str(), key.source.contains("`OPENAI_API_KEY`")), ("sk-env-12", true));
        let mut stored = keys(&place, &[]);
        let key = stored.key_for("openai", &["OPENAI_API_KEY"], Some(&config)).unwrap().unwrap();
        assert_eq!((key.value.as_str(), key.source.contains("auth.json")), ("sk-padded-1", true));
        let key = stored.key_for("groq", &["GROQ_API_KEY"], Some(&config)).unwrap().unwrap();
        assert_eq!(key.value, "sk-printed");
        assert_eq!(stored.key_for("groq", &["GROQ_API_KEY"], None).unwrap(), None);
        let secrets: Vec<String> = stored.secrets().into_iter().map(|(_, value)| value).collect();
        assert_eq!(secrets, ["sk-padded-1", "sk-printed"]);
    }

    #[test]
    fn an_empty_variable_is_named() {
        let keys = keys(&place("", 0o600), &[("OPENAI_API_KEY", "")]);
        let text = keys.missing("openai", &["OPENAI_API_KEY"], None);
        assert!(text.contains("`OPENAI_API_KEY` is set but empty") && text.contains("auth.json"), "{text}");
        assert!(keys.secrets().is_empty());
    }

    #[test]
    fn a_configured_variable_stands_alone() {
        let config = ProviderConfig { api_key_env: Some("MY_KEY".into()), ..ProviderConfig::default() };
        let mut keys = keys(&place("", 0o600), &[("OPENAI_API_KEY", "sk-env-12")]);
        assert_eq!(keys.key_for("openai", &["OPENAI_API_KEY"], Some(&config)).unwrap(), None);
        assert!(keys.missing("openai", &["OPENAI_API_KEY"], Some(&config)).contains("MY_KEY"));
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_when_it_is_needed() {
        let place = place(STORED, 0o644);
        let mut refused = keys(&place, &[("OPENAI_API_KEY", "sk-env-12")]);
        assert!(refused.key_for("openai", &["OPENAI_API_KEY"], None).unwrap().is_some());
        assert!(refused.warning().unwrap().contains("chmod 600"));
        let err = refused.key_for("openai", &["OTHER"], None).unwrap_err().to_string();
        assert!(err.contains("auth.json") && err.contains("chmod 600"), "{err}");
    }

    #[test]
    fn a_broken_file_is_told_without_its_content() {
        for text in
            [r#"{"openai": sk-CANARY"#, r#"["sk-CANARY"]"#, r#"{"openai": {"api_key": ["sk-CANARY"]}}"#]
        {
            let mut keys = keys(&place(text, 0o600), &[]);
            let err = keys.key_for("openai", &[], None).unwrap_err().to_string();
            assert!(err.contains("auth.json") && !err.contains("CANARY"), "{err}");
        }
    }

    #[test]
    fn a_command_that_gives_no_key_is_told_with_its_own_words() {
        let check = |text: &str, expected: &str| {
            let err = printed_key(text, Duration::from_secs(20)).unwrap_err();
            assert!(err.contains(expected), "{err}");
        };
        check("echo locked >&2; exit 3", "locked");
        check("exit 3", "3");
        check("true", "printed nothing");
        assert_eq!(printed_key("echo; echo ' key '; exec 2>&-", Duration::from_secs(20)).unwrap(), "key");
    }

    #[test]
    fn a_command_that_never_ends_is_ended() {
        let err = printed_key("exec sleep 1000", Duration::ZERO).unwrap_err();
        assert!(err.contains("longer"), "{err}");
    }

    #[test]
    fn headers_that_authorise_are_secrets() {
        let mut config = Config::default();
        let headers = [("Authorization", "Bearer sk-header-1"), ("X-Title", "crab")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        config.providers.insert("p".into(), ProviderConfig { headers, ..ProviderConfig::default() });
        let found: Vec<String> = secret_headers(&config).into_iter().map(|(_, value)| value).collect();
        assert_eq!(found, ["sk-header-1", "Bearer sk-header-1"]);
    }
}

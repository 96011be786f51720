//! Addresses: how a base URL becomes that of an endpoint, and which proxy lies before it.

/// The URL of an endpoint such as `/chat/completions` below `base`, as people spell it: with or without a trailing
/// slash, the version or even the whole endpoint. A bare host gets `/v1`; so does any path without a version when
/// `versioned` says that the endpoint always has one.
pub(super) fn join(base: &str, endpoint: &str, versioned: bool) -> Result<String, String> {
    let base = base.trim();
    let Some((scheme, rest)) =
        base.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https"))
    else {
        return Err(format!("the base URL `{}` must begin with `https://` or `http://`", shown(base)));
    };
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, format!("?{query}")),
        None => (rest, String::new()),
    };
    let mut parts = rest.split('/');
    let host = parts.next().filter(|host| !host.is_empty());
    let host = host.ok_or_else(|| format!("the base URL `{}` names no host", shown(base)))?;
    let path: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
    let path: String = path.iter().flat_map(|part| ["/", part]).collect();
    let path = path.strip_suffix(endpoint).unwrap_or(&path);
    let last = path.rsplit('/').next().unwrap_or_default();
    let has_version =
        last.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let version = if path.is_empty() || versioned && !has_version { "/v1" } else { "" };
    let url = format!("{scheme}://{host}{path}{version}{endpoint}{query}");
    reqwest::Url::parse(&url).map_err(|err| format!("the base URL `{}` is not valid: {err}", shown(base)))?;
    Ok(url)
}

/// An address as it may be shown: some people keep a password or a key in it. Works on what is no URL as well.
pub(super) fn shown(url: &str) -> String {
    let (address, query) = url.split_once('?').map_or((url, ""), |(address, _)| (address, "?…"));
    let (scheme, rest) = address.split_once("://").map_or(("", address), |(scheme, rest)| (scheme, rest));
    let (host, path) = rest.split_once('/').map_or((rest, ""), |(host, path)| (host, path));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let scheme = if scheme.is_empty() { String::new() } else { format!("{scheme}://") };
    let path = if rest.contains('/') { format!("/{path}") } else { String::new() };
    format!("{scheme}{host}{path}{query}")
}

/// What in an address no message may repeat: its password, and parts of its query that are named like a key.
pub(super) fn secrets(url: &str) -> Vec<String> {
    let Ok(url) = reqwest::Url::parse(url) else { return vec![] };
    let named = |name: &str| {
        let name = name.to_lowercase();
        ["key", "token", "sig", "secret", "auth", "pass", "code"].iter().any(|word| name.contains(word))
    };
    let query = url.query_pairs().filter(|(name, _)| named(name)).map(|(_, value)| value.into_owned());
    url.password().map(str::to_owned).into_iter().chain(query).collect()
}

/// The base with `path` behind it when it names nothing but a host.
pub(super) fn with_path(base: &str, path: &str) -> String {
    let base = base.trim().trim_end_matches('/');
    let is_bare = base.split_once("://").is_some_and(|(_, rest)| !rest.contains(['/', '?']));
    if is_bare { format!("{base}{path}") } else { base.to_owned() }
}

/// The URL of another path at the same host.
pub(super) fn beside(url: &str, path: &str) -> String {
    let Ok(mut url) = reqwest::Url::parse(url) else { return String::new() };
    url.set_path(path);
    url.set_query(None);
    url.into()
}

/// Host and port of a URL, as a person reads them.
pub(super) fn host(url: &str) -> String {
    let Ok(url) = reqwest::Url::parse(url) else { return String::new() };
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// The variable that names a proxy for this URL, and the proxy's address without its password.
pub(super) fn proxy(url: &str, env: impl Fn(&str) -> Option<String>) -> Option<(&'static str, String)> {
    let url = reqwest::Url::parse(url).ok()?;
    let host = url.host_str()?;
    let first = |names: &'static [&'static str]| {
        names.iter().find_map(|name| Some((*name, env(name).filter(|value| !value.is_empty())?)))
    };
    if let Some((_, list)) = first(&["NO_PROXY", "no_proxy"]) {
        let hit = |entry: &str| {
            let entry = entry.trim().trim_start_matches('.');
            entry == "*" || entry == host || !entry.is_empty() && host.ends_with(&format!(".{entry}"))
        };
        if list.split(',').any(hit) {
            return None;
        }
    }
    let own =
        if url.scheme() == "https" { &["HTTPS_PROXY", "https_proxy"] } else { &["HTTP_PROXY", "http_proxy"] };
    let (name, value) = first(own).or_else(|| first(&["ALL_PROXY", "all_proxy"]))?;
    let address = value.rsplit_once('@').map_or(value.as_str(), |(_, address)| address).to_owned();
    Some((name, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_chat(base: &str, expected: &str) {
        assert_eq!(join(base, "/chat/completions", false).as_deref(), Ok(expected), "{base}");
    }

    #[track_caller]
    fn check_messages(base: &str, expected: &str) {
        assert_eq!(join(base, "/messages", true).as_deref(), Ok(expected), "{base}");
    }

    #[test]
    fn what_is_secret_in_an_address_is_not_shown() {
        assert_eq!(shown("https://me:pw@x.example/v1?key=s3"), "https://x.example/v1?…");
        assert_eq!(shown("ftp://me:pw@x.example"), "ftp://x.example");
        assert_eq!(shown("me:pw@x.example/a@b"), "x.example/a@b");
        let error = join("ftp://me:s3cret@x.example?key=s3cret", "/models", false).unwrap_err();
        assert!(!error.contains("s3cret"), "{error}");
        assert_eq!(secrets("https://me:pw@x.example/v1?api_key=k&v=1"), ["pw", "k"]);
    }

    #[test]
    fn every_spelling_of_a_base_url_leads_to_the_endpoint() {
        for tail in ["", "/", "/v1", "/v1/", "/v1/chat/completions", "/v1/chat/completions/", "//v1//"] {
            check_chat(&format!("http://127.0.0.1:80{tail}"), "http://127.0.0.1:80/v1/chat/completions");
        }
        check_chat("https://api.z.ai/api/paas/v4", "https://api.z.ai/api/paas/v4/chat/completions");
        check_chat("https://api.groq.com/openai/v1/", "https://api.groq.com/openai/v1/chat/completions");
        check_chat("https://g.example/v1beta/openai/", "https://g.example/v1beta/openai/chat/completions");
        check_chat(
            "https://x.example/models?api-version=1",
            "https://x.example/models/chat/completions?api-version=1",
        );
        for tail in ["", "/", "/v1", "/v1/", "/v1/messages"] {
            check_messages(
                &format!("https://api.anthropic.com{tail}"),
                "https://api.anthropic.com/v1/messages",
            );
        }
        check_messages(
            "https://api.deepseek.com/anthropic",
            "https://api.deepseek.com/anthropic/v1/messages",
        );
        check_messages("https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1/messages");
    }

    #[test]
    fn a_bare_host_gets_the_path_of_its_service() {
        assert_eq!(
            with_path("https://me.openai.azure.com/", "/openai/v1"),
            "https://me.openai.azure.com/openai/v1"
        );
        assert_eq!(with_path("https://me.openai.azure.com/x", "/openai/v1"), "https://me.openai.azure.com/x");
        assert_eq!(with_path("http://127.0.0.1:1", ""), "http://127.0.0.1:1");
        assert_eq!(
            beside("http://h:1/v1/chat/completions?x=1", "/api/v0/models"),
            "http://h:1/api/v0/models"
        );
    }

    #[test]
    fn what_is_no_base_url_is_said_to_be_none() {
        for base in ["localhost:1234", "ftp://x", "", "http://", "http://a b/"] {
            assert!(join(base, "/messages", true).is_err_and(|err| err.contains("base URL")), "{base}");
        }
    }

    #[test]
    fn the_proxy_is_named_without_its_password() {
        let env = |name: &str| match name {
            "HTTPS_PROXY" => Some("http://me:pw@proxy:3128".to_owned()),
            "NO_PROXY" => Some("localhost, .inside.example".to_owned()),
            _ => None,
        };
        assert_eq!(proxy("https://api.example/", env), Some(("HTTPS_PROXY", "proxy:3128".into())));
        assert_eq!(proxy("https://a.inside.example/", env), None);
        assert_eq!(proxy("http://api.example/", env), None);
    }
}

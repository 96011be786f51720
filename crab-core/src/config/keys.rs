//! The one table of configuration keys: checks, warnings, `crab config` and the manual come from it.

use std::fmt::Write;

/// What a value must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any string.
    Text,
    /// One of these strings.
    Choice(&'static [&'static str]),
    /// True or false.
    Flag,
    /// A whole number, at least this one.
    Count(u32),
    /// A number above zero.
    Seconds,
    /// A number, zero or above.
    Dollars,
    /// A list of names.
    Names,
    /// A list of permission rules. The lists of several places add up.
    Rules,
}

impl Kind {
    /// What is expected, for an error message.
    pub fn expected(self) -> String {
        match self {
            Self::Text => "a string".into(),
            Self::Choice(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
                format!("a string, one of {}", words.join(", "))
            }
            Self::Flag => "true or false".into(),
            Self::Count(least) => format!("an integer, {least} or more"),
            Self::Seconds => "a number of seconds above 0".into(),
            Self::Dollars => "a number of dollars, 0 or more".into(),
            Self::Names | Self::Rules => "an array of strings".into(),
        }
    }
}

/// What the configuration of a project may do that the user has not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untrusted {
    /// Nothing.
    Ignored,
    /// Set it.
    Sets,
    /// Take names away.
    Narrows,
    /// Make it smaller.
    Lowers,
}

/// A key of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its path; `*` is any name.
    pub pattern: &'static str,
    /// What its value must look like.
    pub kind: Kind,
    /// What a project may do with it.
    pub untrusted: Untrusted,
    /// What it is for.
    pub doc: &'static str,
}

const fn key(pattern: &'static str, kind: Kind, untrusted: Untrusted, doc: &'static str) -> Key {
    Key { pattern, kind, untrusted, doc }
}

/// All keys.
pub const KEYS: &[Key] = {
    use Kind::*;
    use Untrusted::*;
    const APIS: &[&str] = &["openai-chat", "openai-responses", "anthropic-messages"];
    &[
        key("model", Text, Sets, "the model, as `PROVIDER/MODEL` or alone"),
        key("provider", Text, Ignored, "the provider of a model that names none"),
        key(
            "fallback",
            Names,
            Ignored,
            "models, as `PROVIDER/MODEL`, that answer for the rest of a turn when the one before stays overloaded",
        ),
        key(
            "thinking",
            Choice(&["off", "low", "medium", "high"]),
            Ignored,
            "reasoning effort, where the model has one",
        ),
        key("tools", Names, Narrows, "the tools on offer; all when it is not set"),
        key("max_turns", Count(1), Lowers, "stop after so many model requests"),
        key("max_cost", Dollars, Lowers, "stop when the run has cost so many US dollars"),
        key("timeout", Seconds, Lowers, "stop after so many seconds"),
        key("color", Choice(&["auto", "always", "never"]), Ignored, "colours; `auto` looks at the terminal"),
        key("editor", Choice(&["emacs", "vi"]), Ignored, "the keys of the prompt"),
        key(
            "notify",
            Choice(&["off", "bell", "osc9"]),
            Ignored,
            "how crab tells that it waits for you while its terminal is not in front",
        ),
        key(
            "durability",
            Choice(&["turn", "entry", "none"]),
            Ignored,
            "when a session is forced to the disk: at the end of a turn and before a change, each line, or never",
        ),
        key(
            "tls",
            Choice(&["webpki", "system"]),
            Ignored,
            "which root certificates count: built-in ones or the system's",
        ),
        key("providers.*.api", Choice(APIS), Ignored, "the protocol that the service speaks"),
        key("providers.*.base_url", Text, Ignored, "the address of its API"),
        key("providers.*.api_key_env", Text, Ignored, "the environment variable that holds its key"),
        key("providers.*.api_key_cmd", Text, Ignored, "a shell command whose first line is its key"),
        key("providers.*.headers.*", Text, Ignored, "an extra request header"),
        key("providers.*.max_retries", Count(0), Ignored, "how often a failed request is tried again"),
        key(
            "providers.*.stream_idle_timeout",
            Seconds,
            Ignored,
            "seconds without an event after which a stream is given up",
        ),
        key(
            "providers.*.compat.max_tokens_field",
            Choice(&["max_tokens", "max_completion_tokens"]),
            Ignored,
            "the name of the output limit",
        ),
        key("providers.*.compat.stream_options", Flag, Ignored, "whether it takes `stream_options`"),
        key(
            "providers.*.compat.reasoning",
            Choice(&[
                "none",
                "effort",
                "effort_none",
                "high_none",
                "thinking",
                "thinking_effort",
                "thinking_kept",
                "enable_thinking",
                "template",
                "object",
                "enabled",
                "enabled_effort",
            ]),
            Ignored,
            "how it is asked to think",
        ),
        key(
            "providers.*.compat.reasoning_echo",
            Choice(&[
                "same_field",
                "never",
                "every_message",
                "call_messages",
                "tool_loop",
                "content_part",
                "think_tags",
            ]),
            Ignored,
            "how its reasoning goes back",
        ),
        key(
            "providers.*.compat.tool_ids",
            Choice(&["any", "plain40", "plain64", "alnum9"]),
            Ignored,
            "which call ids it takes",
        ),
        key(
            "providers.*.compat.empty_content",
            Flag,
            Ignored,
            "whether a message that only calls tools carries an empty `content`",
        ),
        key("providers.*.compat.images", Flag, Ignored, "whether it takes images"),
        key(
            "providers.*.compat.user_after_tool",
            Flag,
            Ignored,
            "whether a user's message may follow a tool's result",
        ),
        key(
            "providers.*.compat.cache",
            Choice(&["none", "key", "parts"]),
            Ignored,
            "how it is told what to cache",
        ),
        key(
            "providers.*.compat.think_tags",
            Flag,
            Ignored,
            "whether `<think>` at the beginning of an answer begins reasoning",
        ),
        key(
            "providers.*.compat.call_signature",
            Flag,
            Ignored,
            "whether calls of other models need a stand-in for a signature",
        ),
        key(
            "providers.*.compat.adaptive_thinking",
            Flag,
            Ignored,
            "Messages: whether thinking is asked for by a word instead of a number of tokens",
        ),
        key(
            "providers.*.compat.thinking_display",
            Flag,
            Ignored,
            "Messages: whether a summary of the thinking is asked for",
        ),
        key(
            "providers.*.compat.mute_overflow",
            Flag,
            Ignored,
            "whether a 400 without a word means that the conversation is too long",
        ),
        key(
            "providers.*.compat.encrypted_reasoning",
            Flag,
            Ignored,
            "Responses: whether reasoning is asked for in a form that can go back",
        ),
        key(
            "providers.*.compat.reasoning_summary",
            Flag,
            Ignored,
            "Responses: whether a summary of the reasoning is asked for",
        ),
        key("models.*.context_window", Count(1), Ignored, "tokens that the model takes"),
        key("models.*.max_output", Count(1), Ignored, "tokens that the model may answer with"),
        key("permissions.allow", Rules, Ignored, "calls that run unasked"),
        key("permissions.deny", Rules, Sets, "calls that never run"),
        key("permissions.ask", Rules, Sets, "calls that are always asked about"),
    ]
};

/// What a path means.
pub(super) enum Found {
    Key(&'static Key),
    /// The beginning of longer keys.
    Table,
    Unknown,
}

pub(super) fn find(path: &[String]) -> Found {
    let mut beginning = false;
    for key in KEYS {
        let pattern: Vec<&str> = key.pattern.split('.').collect();
        let fits = path.iter().zip(&pattern).all(|(name, part)| *part == "*" || name == part);
        if !fits || path.len() > pattern.len() {
            continue;
        }
        if path.len() == pattern.len() {
            return Found::Key(key);
        }
        beginning = true;
    }
    if beginning { Found::Table } else { Found::Unknown }
}

/// What an untrusted project may do below a table: nothing, when that holds for every key in it.
pub(super) fn below(path: &[String]) -> Untrusted {
    let is_below = |key: &&Key| {
        let mut parts = key.pattern.split('.');
        path.iter().all(|name| parts.next().is_some_and(|part| part == "*" || part == name))
    };
    let has_say = KEYS.iter().filter(is_below).any(|key| key.untrusted != Untrusted::Ignored);
    if has_say { Untrusted::Sets } else { Untrusted::Ignored }
}

/// The known key that an unknown one was probably meant to be, as far as both go.
pub(super) fn nearest(path: &[String]) -> Option<String> {
    let (last, before) = path.split_last()?;
    let mut best: Option<(usize, String)> = None;
    for key in KEYS {
        let pattern: Vec<&str> = key.pattern.split('.').collect();
        let Some(part) = pattern.get(before.len()).filter(|part| **part != "*") else { continue };
        let fits = before.iter().zip(&pattern).all(|(name, part)| *part == "*" || name == part);
        let distance = distance(last, part);
        let near = distance <= 2.max(last.chars().count() / 3);
        if fits && near && best.as_ref().is_none_or(|(least, _)| distance < *least) {
            let mut meant = before.to_vec();
            meant.push((*part).to_owned());
            best = Some((distance, shown(&meant)));
        }
    }
    // The right name in the wrong table.
    let elsewhere = || {
        KEYS.iter().find(|key| key.pattern.rsplit('.').next() == Some(last)).map(|key| key.pattern.to_owned())
    };
    best.map(|(_, meant)| meant).or_else(elsewhere)
}

/// How many letters must be put in, taken out, changed or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = change.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// A path as TOML has it, names in quotes where they need them.
pub(super) fn shown(path: &[String]) -> String {
    let bare = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
    };
    let name = |name: &String| if bare(name) { name.clone() } else { format!("{name:?}") };
    path.iter().map(name).collect::<Vec<_>>().join(".")
}

/// The table of keys for the manual, in Markdown.
pub fn reference() -> String {
    let mut table =
        "| key | value | meaning | in a project that is not trusted |\n|---|---|---|---|\n".to_owned();
    for key in KEYS {
        let project = match key.untrusted {
            Untrusted::Ignored => "ignored",
            Untrusted::Sets if key.kind == Kind::Rules => "adds",
            Untrusted::Sets => "sets",
            Untrusted::Narrows => "narrows",
            Untrusted::Lowers => "lowers",
        };
        let pattern = key.pattern.replace('*', "NAME");
        // Writing to a string cannot fail.
        let _ = writeln!(table, "| `{pattern}` | {} | {} | {project} |", key.kind.expected(), key.doc);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<String> {
        text.split('.').map(Into::into).collect()
    }

    #[track_caller]
    fn check(unknown: &str, meant: Option<&str>) {
        assert!(matches!(find(&path(unknown)), Found::Unknown), "{unknown} is known");
        assert_eq!(nearest(&path(unknown)).as_deref(), meant);
    }

    #[test]
    fn a_slip_is_answered_with_the_key_that_was_meant() {
        check("modle", Some("model"));
        check("permisions", Some("permissions"));
        check("permissions.alow", Some("permissions.allow"));
        check("providers.x.baseurl", Some("providers.x.base_url"));
        check("providers.x.headrs", Some("providers.x.headers"));
        check("deny", Some("permissions.deny"));
        check("flux_capacitor", None);
    }

    #[test]
    fn names_with_dots_and_slashes_are_shown_in_quotes() {
        assert_eq!(
            shown(&["models".into(), "openai/gpt-4.1".into(), "max_output".into()]),
            "models.\"openai/gpt-4.1\".max_output"
        );
    }

    #[test]
    fn the_manual_has_every_key() {
        let table = reference();
        assert_eq!(table.lines().count(), KEYS.len() + 2);
    }
}

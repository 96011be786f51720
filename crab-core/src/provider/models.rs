//! What is known about models: a table that comes with crab, and what services say when they are asked.

use std::sync::LazyLock;

use serde_json::Value;

/// What is known about a model; `None` where it is not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    /// Its name, as the service takes it.
    pub id: String,
    /// Tokens that it takes, prompt and answer together.
    pub context: Option<u64>,
    /// Tokens that it can answer with.
    pub output: Option<u64>,
    /// What a million tokens cost.
    pub price: Price,
    /// Whether it can think before it answers.
    pub thinking: Option<bool>,
    /// Whether it sees images.
    pub images: Option<bool>,
}

/// US dollars a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Price {
    /// Of the prompt.
    pub input: Option<f64>,
    /// Of the answer.
    pub output: Option<f64>,
    /// Of the prompt's part that is read from the cache.
    pub cache_read: Option<f64>,
    /// Of the prompt's part that is written to the cache.
    pub cache_write: Option<f64>,
}

impl Model {
    /// What this one leaves open, from the other.
    #[must_use]
    pub fn or(self, other: Option<&Self>) -> Self {
        let Some(other) = other else { return self };
        let price = Price {
            input: self.price.input.or(other.price.input),
            output: self.price.output.or(other.price.output),
            cache_read: self.price.cache_read.or(other.price.cache_read),
            cache_write: self.price.cache_write.or(other.price.cache_write),
        };
        Self {
            id: self.id,
            context: self.context.or(other.context),
            output: self.output.or(other.output),
            price,
            thinking: self.thinking.or(other.thinking),
            images: self.images.or(other.images),
        }
    }
}

/// What a service says that a request cost, in US dollars.
pub(super) fn cost(usage: &Value) -> Option<f64> {
    let dollars = ["/cost", "/cost/usd", "/cost/total_cost"];
    let ticks = || usage.get("cost_in_usd_ticks")?.as_f64().map(|ticks| ticks / 1e10);
    dollars.iter().find_map(|path| usage.pointer(path)?.as_f64()).or_else(ticks)
}

/// Lines of service, model, context, output, four prices, thinking and images, parted by tabs. From the public database
/// at models.dev.
const TABLE: &str = include_str!("models.tsv");

static KNOWN: LazyLock<Vec<(&'static str, Model)>> =
    LazyLock::new(|| TABLE.lines().filter_map(line).collect());

fn line(line: &'static str) -> Option<(&'static str, Model)> {
    let mut cells = line.split('\t');
    let service = cells.next()?;
    let id = cells.next()?.to_owned();
    let (context, output) = (cells.next()?.parse().ok(), cells.next()?.parse().ok());
    let mut price = || cells.next()?.parse().ok();
    let price = Price { input: price(), output: price(), cache_read: price(), cache_write: price() };
    let mut flag = || cells.next().map(|cell| cell == "y");
    Some((service, Model { id, context, output, price, thinking: flag(), images: flag() }))
}

/// The models of a service that crab knows by itself.
pub fn of(service: &str) -> impl Iterator<Item = &'static Model> {
    KNOWN.iter().filter(move |(name, _)| *name == service).map(|(_, model)| model)
}

/// What is known about a model of a service. A date at the end of its name makes no difference.
pub fn find(service: &str, model: &str) -> Option<&'static Model> {
    let undated = |name: &'_ str| {
        let date = name
            .rsplit_once('-')
            .filter(|(_, date)| date.len() == 8 && date.bytes().all(|b| b.is_ascii_digit()));
        date.map_or_else(|| name.to_owned(), |(name, _)| name.to_owned())
    };
    of(service)
        .find(|known| known.id == model)
        .or_else(|| of(service).find(|known| undated(&known.id) == undated(model)))
}

/// Reads the answer of a service that was asked for its models, in the many shapes of these; `None` when it is no list.
pub(super) fn read(body: &Value) -> Option<Vec<Model>> {
    let places = [body.get("data"), body.get("models"), Some(body)];
    let list = places.into_iter().flatten().find_map(Value::as_array)?;
    let mut models: Vec<Model> = list.iter().filter_map(model).collect();
    models.sort_by(|a, b| a.id.cmp(&b.id));
    models.dedup_by(|a, b| a.id == b.id);
    Some(models)
}

fn model(entry: &Value) -> Option<Model> {
    let named = ["id", "name", "model"].iter().find_map(|key| entry.get(key)?.as_str());
    let id = named.filter(|id| !id.trim().is_empty())?;
    let number = |paths: &[&str]| paths.iter().find_map(|path| entry.pointer(path)?.as_u64());
    let has = |path: &str, word: &str| {
        let list = entry.pointer(path)?.as_array()?;
        Some(list.iter().any(|item| item.as_str() == Some(word)))
    };
    let flag = |paths: &[&str]| paths.iter().find_map(|path| entry.pointer(path)?.as_bool());
    Some(Model {
        id: id.strip_prefix("models/").unwrap_or(id).to_owned(),
        context: number(&[
            "/context_length",
            "/context_window",
            "/loaded_context_length",
            "/max_context_length",
            "/max_model_len",
            "/max_input_tokens",
            "/inputTokenLimit",
            "/meta/n_ctx",
            "/meta/n_ctx_train",
            "/top_provider/context_length",
            "/capabilities/limits/max_context_window_tokens",
            "/model_spec/availableContextTokens",
        ]),
        output: number(&[
            "/top_provider/max_completion_tokens",
            "/max_completion_tokens",
            "/max_output_tokens",
            "/outputTokenLimit",
            "/max_tokens",
            "/capabilities/limits/max_output_tokens",
        ]),
        price: Price {
            input: price(entry, &["/pricing/prompt", "/pricing/input"]),
            output: price(entry, &["/pricing/completion", "/pricing/output"]),
            cache_read: price(entry, &["/pricing/input_cache_read", "/pricing/cached_input"]),
            cache_write: price(entry, &["/pricing/input_cache_write"]),
        },
        thinking: has("/supported_parameters", "reasoning").or(flag(&[
            "/thinking",
            "/capabilities/reasoning",
            "/capabilities/thinking/supported",
        ])),
        images: has("/architecture/input_modalities", "image").or(flag(&[
            "/capabilities/vision",
            "/capabilities/image_input/supported",
            "/model_spec/capabilities/supportsVision",
        ])),
    })
}

/// Some services count in dollars a token, others in dollars a million of them; a token that costs a cent does not exist.
fn price(entry: &Value, paths: &[&str]) -> Option<f64> {
    let value = paths.iter().find_map(|path| entry.pointer(path))?;
    let price = value
        .as_f64()
        .or_else(|| value.as_str()?.parse().ok())
        .filter(|price| price.is_finite() && *price >= 0.0)?;
    // Minus nothing is nothing.
    Some(if price < 0.005 { price.abs() * 1e6 } else { price })
}

/// The word of OpenAI's models for no reasoning at all, or for the least that they can do.
pub(super) fn effort_off(model: &str) -> &'static str {
    let name = model.rsplit('/').next().unwrap_or(model);
    match name.strip_prefix("gpt-5") {
        Some(rest) if rest.contains("codex") => "low",
        Some(rest) if rest.starts_with('.') => "none",
        Some(_) => "minimal",
        None => "low",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_cost_has_many_names() {
        let is = |usage: Value| cost(&usage);
        assert_eq!(is(serde_json::json!({"cost": 0.5})), Some(0.5));
        assert_eq!(is(serde_json::json!({"cost": {"usd": 0.25}})), Some(0.25));
        assert_eq!(is(serde_json::json!({"cost_in_usd_ticks": 37_756_000})), Some(0.003_775_6));
        assert_eq!(is(serde_json::json!({"prompt_tokens": 1})), None);
    }

    #[test]
    fn the_table_is_sound() {
        assert_eq!(KNOWN.len(), TABLE.lines().count());
        for (service, model) in KNOWN.iter() {
            assert!(super::super::services::known(service).is_some(), "no service `{service}`");
            assert!(model.context.is_none_or(|tokens| tokens >= 8_000), "{model:?}");
        }
        // A default that crab knows nothing about is one that nobody looked at.
        for service in super::super::services::SERVICES {
            let own = of(service.name).next().is_some();
            let Some(default) = service.default_model.filter(|_| own) else { continue };
            let is_alias = default.ends_with("-latest");
            assert!(is_alias || find(service.name, default).is_some(), "`{default}` of `{}`", service.name);
        }
    }

    #[test]
    fn a_date_in_a_name_makes_no_difference() {
        let known = find("anthropic", "claude-sonnet-4-5").unwrap();
        assert_eq!(
            find("anthropic", "claude-sonnet-4-5-20250929").map(|model| model.context),
            Some(known.context)
        );
        assert_eq!(find("anthropic", "claude-sonnet"), None);
    }

    #[test]
    fn lists_are_read_in_every_shape() {
        let openrouter = json!({"data": [{"id": "a/b", "context_length": 1000, "top_provider": {"max_completion_tokens": 10},
            "pricing": {"prompt": "0.000003", "completion": "0.000015", "input_cache_read": "0.0000003"},
            "supported_parameters": ["tools", "reasoning"], "architecture": {"input_modalities": ["text", "image"]}}]});
        let [model] = &read(&openrouter).unwrap()[..] else { panic!("not one model") };
        assert_eq!((model.id.as_str(), model.context, model.output), ("a/b", Some(1000), Some(10)));
        assert_eq!((model.thinking, model.images), (Some(true), Some(true)));
        assert!(
            (model.price.input.unwrap() - 3.0).abs() < 1e-9
                && (model.price.cache_read.unwrap() - 0.3).abs() < 1e-9
        );
        let gemini = json!({"models": [{"name": "models/g", "inputTokenLimit": 5, "outputTokenLimit": 2, "thinking": true}]});
        assert_eq!(read(&gemini).unwrap()[0].id, "g");
        let together = json!([{"id": "t", "pricing": {"input": 0.6, "output": 1.2}}, {"nothing": 1}, 3]);
        assert_eq!(
            (read(&together).unwrap().len(), read(&together).unwrap()[0].price.output),
            (1, Some(1.2))
        );
        assert_eq!(
            read(&json!({"data": [{"id": "plain", "max_model_len": 32768}]})).unwrap()[0].context,
            Some(32_768)
        );
        assert_eq!(read(&json!("nonsense")), None);
        assert_eq!(read(&json!({"data": [{"id": " "}, {"id": "a"}, {"id": "a"}]})).unwrap().len(), 1);
    }

    #[test]
    fn no_reasoning_has_its_word() {
        let words = [
            ("gpt-5", "minimal"),
            ("gpt-5-mini", "minimal"),
            ("gpt-5.1", "none"),
            ("gpt-5.6-x", "none"),
            ("gpt-5.3-codex", "low"),
            ("o3", "low"),
            ("gpt-6-a", "low"),
        ];
        for (model, word) in words {
            assert_eq!(effort_off(model), word, "{model}");
        }
    }
}

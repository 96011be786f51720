//! The services that crab knows: name, protocol, address, key, and in what each differs from the rest. All of it is data;
//! where each fact comes from is said in DESIGN.md.

use super::Api;
use super::compat::{Ask, Cache, Compat, Echo, IdRule, TokensField};

/// A service that needs nothing but a key, or not even that.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// What it speaks at its own address.
    pub api: Api,
    /// Its address; empty where each customer has one, and for the mock.
    pub base_url: &'static str,
    /// What belongs behind the host of an address that is a bare host.
    pub path: &'static str,
    /// Its hosts; one that begins with a dot is the end of a host's name.
    pub hosts: &'static [&'static str],
    /// The variables in which its key is looked for.
    pub key_envs: &'static [&'static str],
    /// Whether it refuses those who come without a key.
    pub needs_key: bool,
    /// The model when none is named; the list of the service tells the others.
    pub default_model: Option<&'static str>,
    /// Where it lists its models with their sizes, when that is not `models` below the address.
    pub models_path: Option<&'static str>,
    /// What its requests carry beside the key, at its own address.
    pub headers: &'static [(&'static str, &'static str)],
    /// In what it differs.
    pub compat: Compat,
}

const CHAT: Compat = Compat::UNKNOWN;

const NOTHING: Known = Known {
    name: "",
    api: Api::OpenaiChat,
    base_url: "",
    path: "",
    hosts: &[],
    key_envs: &[],
    needs_key: true,
    default_model: None,
    models_path: None,
    headers: &[],
    compat: CHAT,
};

const LOCAL: Known = Known { needs_key: false, ..NOTHING };

/// Every service, by name.
pub const SERVICES: &[Known] = &[
    Known {
        name: "anthropic",
        api: Api::AnthropicMessages,
        base_url: "https://api.anthropic.com",
        hosts: &["api.anthropic.com"],
        key_envs: &["ANTHROPIC_API_KEY"],
        default_model: Some("claude-sonnet-5-5"),
        // Models from 4.0 to 4.5 think between calls only with this; the others take no notice of it.
        headers: &[("anthropic-beta", "interleaved-thinking-2025-05-14")],
        compat: Compat { tool_ids: IdRule::Plain64, ..CHAT },
        ..NOTHING
    },
    Known {
        name: "azure",
        path: "/openai/v1",
        hosts: &[".openai.azure.com"],
        key_envs: &["AZURE_OPENAI_API_KEY"],
        compat: Compat { max_tokens_field: TokensField::MaxCompletionTokens, think_tags: false, ..CHAT },
        ..NOTHING
    },
    Known {
        name: "cerebras",
        base_url: "https://api.cerebras.ai/v1",
        hosts: &["api.cerebras.ai"],
        key_envs: &["CEREBRAS_API_KEY"],
        default_model: Some("gpt-oss-120b"),
        compat: Compat {
            max_tokens_field: TokensField::MaxCompletionTokens,
            reasoning: Ask::EffortNone,
            reasoning_echo: Echo::ThinkTags,
            mute_overflow: true,
            ..CHAT
        },
        ..NOTHING
    },
    Known {
        name: "deepseek",
        base_url: "https://api.deepseek.com",
        hosts: &["api.deepseek.com"],
        key_envs: &["DEEPSEEK_API_KEY"],
        default_model: Some("deepseek-flash"),
        compat: Compat {
            reasoning: Ask::ThinkingEffort,
            reasoning_echo: Echo::EveryMessage,
            empty_content: true,
            images: false,
            ..CHAT
        },
        ..NOTHING
    },
    Known {
        name: "fireworks",
        base_url: "https://api.fireworks.ai/inference/v1",
        hosts: &["api.fireworks.ai"],
        key_envs: &["FIREWORKS_API_KEY"],
        default_model: Some("accounts/fireworks/models/glm-5p3"),
        ..NOTHING
    },
    Known {
        name: "gemini",
        base_url: "https://generativelanguage.googleapis.com/v1beta/openai",
        hosts: &["generativelanguage.googleapis.com"],
        key_envs: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        default_model: Some("gemini-3.8-flash"),
        compat: Compat { reasoning: Ask::EffortNone, tool_ids: IdRule::Any, ..CHAT },
        ..NOTHING
    },
    Known {
        name: "groq",
        base_url: "https://api.groq.com/openai/v1",
        hosts: &["api.groq.com"],
        key_envs: &["GROQ_API_KEY"],
        default_model: Some("openai/gpt-oss-120b"),
        compat: Compat { tool_ids: IdRule::Any, ..CHAT },
        ..NOTHING
    },
    Known {
        name: "huggingface",
        base_url: "https://router.huggingface.co/v1",
        hosts: &["router.huggingface.co"],
        key_envs: &["HF_TOKEN", "HUGGINGFACE_API_KEY"],
        default_model: Some("openai/gpt-oss-120b"),
        compat: Compat { tool_ids: IdRule::Any, ..CHAT },
        ..NOTHING
    },
    Known { name: "litellm", base_url: "http://127.0.0.1:4000/v1", key_envs: &["LITELLM_API_KEY"], ..LOCAL },
    Known {
        name: "llamacpp",
        base_url: "http://127.0.0.1:8080/v1",
        compat: Compat { reasoning: Ask::Template, tool_ids: IdRule::Any, ..CHAT },
        ..LOCAL
    },
    Known {
        name: "lmstudio",
        base_url: "http://127.0.0.1:1234/v1",
        key_envs: &["LMSTUDIO_API_KEY"],
        models_path: Some("/api/v0/models"),
        compat: Compat { tool_ids: IdRule::Any, ..CHAT },
        ..LOCAL
    },
    Known {
        name: "minimax",
        base_url: "https://api.minimax.io/v1",
        hosts: &["api.minimax.io", "api.minimaxi.com"],
        key_envs: &["MINIMAX_API_KEY"],
        default_model: Some("MiniMax-M3"),
        compat: Compat {
            reasoning: Ask::None,
            reasoning_echo: Echo::ThinkTags,
            tool_ids: IdRule::Any,
            ..CHAT
        },
        ..NOTHING
    },
    Known {
        name: "mistral",
        base_url: "https://api.mistral.ai/v1",
        hosts: &["api.mistral.ai"],
        key_envs: &["MISTRAL_API_KEY"],
        default_model: Some("mistral-medium-latest"),
        compat: Compat {
            stream_options: false,
            reasoning: Ask::HighNone,
            reasoning_echo: Echo::ContentPart,
            tool_ids: IdRule::Alnum9,
            user_after_tool: false,
            cache: Cache::Key,
            ..CHAT
        },
        ..NOTHING
    },
    Known { name: "mock", api: Api::Mock, needs_key: false, default_model: Some("mock"), ..NOTHING },
    Known {
        name: "moonshot",
        base_url: "https://api.moonshot.ai/v1",
        hosts: &["api.moonshot.ai", "api.moonshot.cn"],
        key_envs: &["MOONSHOT_API_KEY", "KIMI_API_KEY"],
        default_model: Some("kimi-k2.7-code"),
        compat: Compat {
            reasoning: Ask::Thinking,
            reasoning_echo: Echo::CallMessages,
            tool_ids: IdRule::Any,
            empty_content: true,
            ..CHAT
        },
        ..NOTHING
    },
    Known {
        name: "nvidia",
        base_url: "https://integrate.api.nvidia.com/v1",
        hosts: &["integrate.api.nvidia.com"],
        key_envs: &["NVIDIA_API_KEY"],
        default_model: Some("openai/gpt-oss-120b"),
        ..NOTHING
    },
    Known {
        name: "ollama",
        base_url: "http://127.0.0.1:11434/v1",
        hosts: &["ollama.com"],
        key_envs: &["OLLAMA_API_KEY"],
        compat: Compat { reasoning: Ask::EffortNone, tool_ids: IdRule::Any, ..CHAT },
        ..LOCAL
    },
    Known {
        name: "openai",
        api: Api::OpenaiResponses,
        base_url: "https://api.openai.com/v1",
        hosts: &["api.openai.com"],
        key_envs: &["OPENAI_API_KEY"],
        default_model: Some("gpt-5.6"),
        compat: Compat {
            max_tokens_field: TokensField::MaxCompletionTokens,
            tool_ids: IdRule::Plain40,
            cache: Cache::Key,
            think_tags: false,
            ..CHAT
        },
        ..NOTHING
    },
    Known {
        name: "openrouter",
        base_url: "https://openrouter.ai/api/v1",
        hosts: &["openrouter.ai"],
        key_envs: &["OPENROUTER_API_KEY"],
        default_model: Some("openrouter/auto"),
        compat: Compat { reasoning: Ask::Object, cache: Cache::Parts, think_tags: false, ..CHAT },
        ..NOTHING
    },
    Known {
        name: "qwen",
        base_url: "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        hosts: &["dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", "dashscope-us.aliyuncs.com"],
        key_envs: &["DASHSCOPE_API_KEY"],
        default_model: Some("qwen3.7-plus"),
        compat: Compat {
            reasoning: Ask::EnableThinking,
            reasoning_echo: Echo::Never,
            tool_ids: IdRule::Any,
            cache: Cache::Parts,
            ..CHAT
        },
        ..NOTHING
    },
    Known {
        name: "together",
        base_url: "https://api.together.xyz/v1",
        hosts: &["api.together.xyz", "api.together.ai"],
        key_envs: &["TOGETHER_API_KEY"],
        default_model: Some("zai-org/GLM-5.3"),
        compat: Compat { reasoning: Ask::EnabledEffort, ..CHAT },
        ..NOTHING
    },
    Known {
        name: "venice",
        base_url: "https://api.venice.ai/api/v1",
        hosts: &["api.venice.ai"],
        key_envs: &["VENICE_API_KEY"],
        ..NOTHING
    },
    Known {
        name: "vercel",
        base_url: "https://ai-gateway.vercel.sh/v1",
        hosts: &["ai-gateway.vercel.sh"],
        key_envs: &["AI_GATEWAY_API_KEY"],
        default_model: Some("openai/gpt-oss-120b"),
        compat: Compat { reasoning: Ask::Enabled, cache: Cache::Parts, think_tags: false, ..CHAT },
        ..NOTHING
    },
    Known {
        name: "vllm",
        base_url: "http://127.0.0.1:8000/v1",
        key_envs: &["VLLM_API_KEY"],
        compat: Compat { reasoning: Ask::Template, tool_ids: IdRule::Any, ..CHAT },
        ..LOCAL
    },
    Known {
        name: "xai",
        base_url: "https://api.x.ai/v1",
        hosts: &["api.x.ai"],
        key_envs: &["XAI_API_KEY"],
        default_model: Some("grok-4.7"),
        compat: Compat { think_tags: false, ..CHAT },
        ..NOTHING
    },
    Known {
        name: "zai",
        base_url: "https://api.z.ai/api/paas/v4",
        hosts: &["api.z.ai", "open.bigmodel.cn"],
        key_envs: &["ZAI_API_KEY", "ZHIPU_API_KEY"],
        default_model: Some("glm-5.3"),
        compat: Compat { reasoning: Ask::ThinkingKept, tool_ids: IdRule::Any, ..CHAT },
        ..NOTHING
    },
    // Hosts whose habits are known, but which crab does not offer by name.
    Known {
        name: "",
        hosts: &[".snowflakecomputing.com"],
        compat: Compat { reasoning: Ask::Object, think_tags: false, ..CHAT },
        ..NOTHING
    },
    Known {
        name: "",
        hosts: &["api.perplexity.ai", "api.cohere.com", "api.cohere.ai"],
        compat: Compat { reasoning_echo: Echo::Never, ..CHAT },
        ..NOTHING
    },
];

/// The service of this name, when crab knows it by itself.
pub fn known(name: &str) -> Option<Known> {
    SERVICES.iter().copied().find(|service| !service.name.is_empty() && service.name == name)
}

/// The habits of whoever answers at this host, or else of the service of this name behind somebody's gateway. Under the
/// name of OpenAI's own API all the world is spoken to, so that there only its host counts.
pub(super) fn compat(name: &str, host: &str) -> Compat {
    let host = host.split(':').next().unwrap_or(host);
    let is_at = |own: &&str| if own.starts_with('.') { host.ends_with(own) } else { host == *own };
    let at_host = SERVICES.iter().find(|service| service.hosts.iter().any(&is_at));
    let by_name = || {
        SERVICES
            .iter()
            .find(|service| !name.is_empty() && service.name == name && service.api != Api::OpenaiResponses)
    };
    at_host.or_else(by_name).map_or(Compat::UNKNOWN, |service| service.compat)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_whole() {
        let names: Vec<_> =
            SERVICES.iter().map(|service| service.name).filter(|name| !name.is_empty()).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
        for service in SERVICES.iter().filter(|service| !service.name.is_empty() && service.api != Api::Mock)
        {
            let Known { name, base_url, path, key_envs, needs_key, .. } = service;
            assert!(!base_url.is_empty() || !path.is_empty(), "`{name}` has no address");
            assert!(!needs_key || !key_envs.is_empty(), "`{name}` needs a key from nowhere");
        }
    }

    #[test]
    fn habits_go_with_the_host() {
        assert_eq!(compat("mine", "api.mistral.ai").tool_ids, IdRule::Alnum9);
        assert_eq!(
            compat("mine", "me.openai.azure.com:443").max_tokens_field,
            TokensField::MaxCompletionTokens
        );
        assert_eq!(compat("llamacpp", "127.0.0.1:9").reasoning, Ask::Template);
        assert_eq!(compat("mistral", "gateway.example").tool_ids, IdRule::Alnum9);
        assert_eq!(compat("openai", "gateway.example"), Compat::UNKNOWN);
        assert_eq!(compat("x", "notapi.mistral.ai"), Compat::UNKNOWN);
    }
}

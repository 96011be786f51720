//! The provider without a service: it echoes, calls what the prompt says, or follows a script.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, stream::iter};
use serde::Deserialize;
use serde_json::Value;

use super::failure::{Said, Service};
use super::retry::{self, Attempt, Fault, Policy};
use super::{Delta, Deltas, Provider, Request};
use crate::message::{Message, Stop, Usage, text_of};
use crate::protocol::FailureKind;

/// Characters a delta when nothing says otherwise.
const CHUNK: usize = 8;

/// One response, as a line of a script has it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Response {
    thinking: Option<String>,
    text: Option<String>,
    tool_calls: Vec<Call>,
    usage: Option<Figures>,
    /// Characters a delta.
    chunk: Option<usize>,
    /// The pause before each delta.
    delay_ms: u64,
    /// The connection breaks where the message would end.
    disconnect: bool,
    error: Option<Refusal>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Call {
    id: Option<String>,
    name: String,
    arguments: Option<Value>,
    /// Arguments as a broken stream leaves them.
    arguments_raw: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Figures {
    input: Option<u64>,
    output: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    reasoning: Option<u64>,
    cost_usd: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Refusal {
    status: Option<u16>,
    message: String,
    retry_after_ms: Option<u64>,
}

/// The mock provider.
pub struct Mock {
    /// What is left of the script; `None`: there is none.
    script: Option<Arc<Mutex<VecDeque<Response>>>>,
    policy: Policy,
}

impl Mock {
    /// With the script that `CRAB_MOCK_SCRIPT` names, if any.
    ///
    /// # Errors
    /// As [`Mock::new`].
    pub fn from_env() -> Result<Self, String> {
        let script = std::env::var_os("CRAB_MOCK_SCRIPT").filter(|script| !script.is_empty());
        Self::new(script.as_deref().map(Path::new))
    }

    /// Without a script it echoes.
    ///
    /// # Errors
    /// Names the file, the line and what is wrong with it.
    pub fn new(script: Option<&Path>) -> Result<Self, String> {
        let script = script.map(read).transpose()?;
        Ok(Self { script: script.map(|lines| Arc::new(Mutex::new(lines))), policy: Policy::new(None) })
    }

    /// Sets what the configuration may say.
    pub(super) fn with(mut self, max_retries: Option<u32>) -> Self {
        self.policy = Policy::new(max_retries);
        self
    }
}

impl Provider for Mock {
    fn name(&self) -> &str {
        "mock"
    }

    fn stream(&self, request: Request) -> Deltas {
        let script = self.script.clone();
        retry::stream(self.policy, move || {
            let response = match &script {
                Some(script) => {
                    script.lock().unwrap_or_else(PoisonError::into_inner).pop_front().unwrap_or_else(ended)
                }
                None => echo(&request),
            };
            attempt(response)
        })
    }
}

fn read(path: &Path) -> Result<VecDeque<Response>, String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|err| format!("the mock script `{shown}` can't be read: {err}"))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parse = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|err| {
            let err = err.to_string();
            // The parser sees one line only, so its own line number would mislead.
            let what = err.rsplit_once(" at line ").map_or(err.as_str(), |(what, _)| what);
            format!("the mock script `{shown}`, line {}: {what}", number + 1)
        })
    };
    lines.map(parse).collect()
}

fn ended() -> Response {
    Response { text: Some("mock: script ended".into()), ..Response::default() }
}

/// Reports the results of the calls that it made; makes the calls that the prompt asks for; or says the prompt again.
fn echo(request: &Request) -> Response {
    let results = request.messages.iter().rev().map_while(|message| match message {
        Message::ToolResult(result) => Some(format!("{}: {}", result.name, text_of(&result.content))),
        _ => None,
    });
    let mut results: Vec<_> = results.collect();
    if !results.is_empty() {
        results.reverse();
        return Response { text: Some(results.join("\n")), ..Response::default() };
    }
    let prompt = request.messages.iter().rev().find_map(|message| match message {
        Message::User(parts) => Some(text_of(parts)),
        _ => None,
    });
    let prompt = prompt.unwrap_or_default();
    let tool_calls: Vec<_> = prompt.lines().filter_map(call).collect();
    let text = tool_calls.is_empty().then_some(prompt);
    Response { text, tool_calls, ..Response::default() }
}

/// `call NAME {json}`. JSON that is broken is sent on as it is: that is a case to try, too.
fn call(line: &str) -> Option<Call> {
    let (name, arguments) =
        line.trim().strip_prefix("call ")?.trim_start().split_once(char::is_whitespace)?;
    let arguments = arguments.trim();
    arguments.starts_with('{').then(|| Call {
        name: name.to_owned(),
        arguments_raw: Some(arguments.to_owned()),
        ..Call::default()
    })
}

fn attempt(response: Response) -> Attempt {
    let delay = Duration::from_millis(response.delay_ms);
    let items = iter(items(response)).then(move |item| async move {
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        item
    });
    Box::pin(items)
}

fn items(response: Response) -> Vec<Result<Delta, Fault>> {
    let service = Service { name: "mock".into(), host: "script".into(), ..Service::default() };
    if let Some(refusal) = response.error {
        let mut said = Said::text(refusal.message, refusal.status.or(Some(500)));
        said.wait = refusal.retry_after_ms.filter(|ms| *ms > 0).map(Duration::from_millis);
        return vec![Err(service.refused(&said).into())];
    }
    let size = response.chunk.unwrap_or(CHUNK).max(1);
    let thinking = pieces(response.thinking.as_deref(), size);
    let thinking = thinking.into_iter().map(|text| Delta::Thinking { text, field: "" });
    let text = pieces(response.text.as_deref(), size).into_iter().map(Delta::Text);
    let has_calls = !response.tool_calls.is_empty();
    let calls = (0..).zip(response.tool_calls).flat_map(|(index, call)| call_deltas(index, call, size));
    let usage = response.usage.map(|figures| {
        let Figures { input, output, cache_read, cache_write, reasoning, cost_usd } = figures;
        Delta::Usage(Usage { input, output, cache_read, cache_write, reasoning, cost_usd })
    });
    let mut items: Vec<_> = thinking.chain(text).chain(calls).chain(usage).map(Ok).collect();
    if response.disconnect {
        let said = Said::text("the stream ended before the answer was finished", None);
        items.push(Err(service.failed(FailureKind::Cut, &said).into()));
    } else {
        items.push(Ok(Delta::Stop(if has_calls { Stop::ToolCalls } else { Stop::End })));
    }
    items
}

fn pieces(text: Option<&str>, size: usize) -> Vec<String> {
    let chars: Vec<char> = text.unwrap_or_default().chars().collect();
    chars.chunks(size).map(|piece| piece.iter().collect()).collect()
}

/// The name first, then the arguments in pieces, as services do it.
fn call_deltas(index: u64, call: Call, size: usize) -> Vec<Delta> {
    let raw = call.arguments_raw.or_else(|| call.arguments.map(|value| value.to_string()));
    let head =
        Delta::Call { index: Some(index), id: call.id, name: Some(call.name), arguments: None, extra: None };
    let more = pieces(raw.as_deref(), size.max(CHUNK)).into_iter().map(move |piece| Delta::Call {
        index: Some(index),
        id: None,
        name: None,
        arguments: Some(piece),
        extra: None,
    });
    std::iter::once(head).chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accumulate::Accumulator;
    use crate::message::{Assistant, Part, ToolResult};
    use serde_json::json;

    fn request(messages: Vec<Message>) -> Request {
        Request {
            model: "mock".into(),
            system: "".into(),
            messages,
            tools: Arc::new([]),
            effort: None,
            max_output: None,
            session: String::new(),
        }
    }

    fn user(text: &str) -> Message {
        Message::User(vec![Part::text(text)])
    }

    fn scripted(lines: &str) -> Result<Mock, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), lines).unwrap();
        let mut mock = Mock::new(Some(file.path()))?;
        mock.policy.first = Duration::from_millis(1);
        Ok(mock)
    }

    /// The message or the error of one request, and how many deltas and retries it took.
    async fn ask(mock: &Mock, messages: Vec<Message>) -> (Result<Assistant, String>, usize, usize) {
        let mut stream = mock.stream(request(messages));
        let mut message = Accumulator::new("mock", "mock");
        let (mut deltas, mut retries) = (0, 0);
        while let Some(item) = stream.next().await {
            match item {
                Ok(Delta::Retrying { .. }) => retries += 1,
                Ok(delta) => {
                    deltas += 1;
                    message.push(delta);
                }
                Err(error) => return (Err(format!("{:?}: {error}", error.failure.kind)), deltas, retries),
            }
        }
        (Ok(message.finish()), deltas, retries)
    }

    #[tokio::test]
    async fn without_a_script_it_echoes_the_prompt() {
        let (message, deltas, _) = ask(&Mock::new(None).unwrap(), vec![user("hello, you there")]).await;
        assert_eq!(message.unwrap().text(), "hello, you there");
        assert!(deltas > 2);
    }

    #[tokio::test]
    async fn lines_that_ask_for_calls_are_called_and_reported() {
        let mock = Mock::new(None).unwrap();
        let prompt = user("please\ncall read {\"path\": \"a\"}\ncall me maybe\n  call bash {\"x\"");
        let message = ask(&mock, vec![prompt.clone()]).await.0.unwrap();
        let calls: Vec<_> = message.calls().map(|call| (call.name.clone(), call.arguments.clone())).collect();
        assert_eq!(calls, [("read".into(), json!({"path": "a"})), ("bash".into(), json!("{\"x\""))]);
        assert_eq!((message.stop, message.text().as_str()), (Stop::ToolCalls, ""));
        let result = |name: &str| {
            let (name, content) = (name.into(), vec![Part::text("done")]);
            Message::ToolResult(ToolResult {
                tool_call_id: "i".into(),
                name,
                is_error: false,
                content,
                ms: 0,
            })
        };
        let report =
            ask(&mock, vec![prompt, Message::Assistant(message), result("read"), result("bash")]).await.0;
        assert_eq!(report.unwrap().text(), "read: done\nbash: done");
    }

    #[tokio::test]
    async fn a_script_is_followed_line_by_line() {
        let mock = scripted(concat!(
            r#"{"thinking":"hm","text":"Reading it.","tool_calls":[{"name":"read","arguments":{"path":"a.txt"}}],"usage":{"input":12,"output":5}}"#,
            "\n\n",
            r#"{"text":"Done.","chunk":3,"delay_ms":1}"#,
            "\n",
            r#"{"tool_calls":[{"id":"x1","name":"edit","arguments_raw":"{\"path\": \"a"}]}"#,
        ));
        let mock = mock.unwrap();
        let first = ask(&mock, vec![]).await.0.unwrap();
        assert_eq!(
            (first.text().as_str(), first.usage.input, first.stop),
            ("Reading it.", Some(12), Stop::ToolCalls)
        );
        assert_eq!(first.content.len(), 3);
        let (second, deltas, _) = ask(&mock, vec![]).await;
        assert_eq!((second.unwrap().text().as_str(), deltas), ("Done.", 3));
        let third = ask(&mock, vec![]).await.0.unwrap();
        let call = third.calls().next().unwrap();
        assert_eq!((call.id.as_str(), &call.arguments), ("x1", &json!("{\"path\": \"a")));
        for _ in 0..2 {
            assert_eq!(ask(&mock, vec![]).await.0.unwrap().text(), "mock: script ended");
        }
    }

    #[tokio::test]
    async fn scripted_failures_are_retried_like_those_of_a_service() {
        let slow = r#"{"error":{"status":429,"message":"slow down","retry_after_ms":2}}"#;
        let mock = scripted(&format!("{slow}\n{slow}\n{{\"text\":\"ok\"}}")).unwrap();
        let (message, _, retries) = ask(&mock, vec![]).await;
        assert_eq!((message.unwrap().text().as_str(), retries), ("ok", 2));
        let mock = scripted(r#"{"error":{"status":401,"message":"no such key"}}"#).unwrap();
        let (error, _, retries) = ask(&mock, vec![]).await;
        assert!(error.unwrap_err().starts_with("Auth: ") && retries == 0);
        let mock = scripted(r#"{"text":"half an ans","disconnect":true}"#).unwrap();
        let (error, deltas, _) = ask(&mock, vec![]).await;
        assert!(error.unwrap_err().starts_with("Cut: ") && deltas == 2);
    }

    #[test]
    fn a_bad_line_is_named() {
        let err = scripted("{}\n{\"txt\":1}").err().unwrap();
        assert!(err.contains("line 2: unknown field `txt`"), "{err}");
        let err = scripted("{\"usage\":{\"in\":1}}").err().unwrap();
        assert!(err.contains("line 1: unknown field `in`"), "{err}");
        let err = Mock::new(Some(Path::new("/no/such/script"))).err().unwrap();
        assert!(err.contains("`/no/such/script`"), "{err}");
    }
}

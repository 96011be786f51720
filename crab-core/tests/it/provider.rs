//! Providers against real connections: a well-behaved server, and one that cuts, stalls and resets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crab_core::accumulate::Accumulator;
use crab_core::message::{Assistant, Message, Part, Stop};
use crab_core::protocol::{Failure, FailureKind};
use crab_core::provider::{Api, Delta, Key, Options, Provider, Request, by_name};
use futures_util::StreamExt;
use serde_json::{Value, json};
use wiremock::matchers::{header, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

const HELLO: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const PART: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"part one\"}}]}\n\n";
const ROLE: &str = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";

fn request() -> Request {
    Request {
        model: "fake".into(),
        system: "be good".into(),
        messages: vec![Message::User(vec![Part::text("hi")])],
        tools: vec![].into(),
        effort: None,
        max_output: None,
        session: "s".into(),
    }
}

fn options(api: Api, base: &str) -> Options {
    let name = if api == Api::OpenaiChat { "openai" } else { "anthropic" };
    let mut options = Options::new(name, api);
    options.base_url = Some(base.into());
    options.key = Some(Key { value: "sk-000111222333".into(), source: "THE_KEY".into() });
    options
}

#[derive(Debug)]
struct Outcome {
    message: Assistant,
    retries: usize,
    warnings: Vec<String>,
    failure: Option<Failure>,
}

async fn ask_for(provider: &dyn Provider, request: Request) -> Outcome {
    let mut stream = provider.stream(request);
    let mut message = Accumulator::new(provider.name(), "fake");
    let (mut retries, mut warnings) = (0, vec![]);
    while let Some(item) = stream.next().await {
        match item {
            Ok(Delta::Warning(words)) => warnings.push(words),
            Ok(delta) => {
                retries += usize::from(matches!(delta, Delta::Retrying { .. }));
                message.push(delta);
            }
            Err(error) => {
                let (message, failure) = (message.cut(Stop::Cut), Some(error.failure));
                return Outcome { message, retries, warnings, failure };
            }
        }
    }
    Outcome { message: message.finish(), retries, warnings, failure: None }
}

async fn ask(options: Options) -> Outcome {
    ask_for(by_name(options).unwrap().as_ref(), request()).await
}

/// What a server does with one connection.
#[derive(Clone, Copy)]
enum Act {
    /// Sends the text as a stream and ends it properly.
    Send(&'static str),
    /// Sends the text and closes in the middle of the body.
    Reset(&'static str),
    /// Sends the text and then nothing.
    Hang(&'static str),
    /// Sends the text, then comments for ever.
    Comments(&'static str),
    /// Closes without a response.
    Close,
}

/// A server that follows a list, its last act again and again, and tells when each connection came and went.
fn server(acts: Vec<Act>) -> (String, mpsc::Receiver<&'static str>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let (act, sender) = (acts[number.min(acts.len() - 1)], sender.clone());
            std::thread::spawn(move || {
                let _ = sender.send("came");
                let _ = play(act, &mut stream.unwrap());
                let _ = sender.send("gone");
            });
        }
    });
    (base, receiver)
}

fn play(act: Act, stream: &mut TcpStream) -> std::io::Result<()> {
    read_request(stream)?;
    let (text, head) = match act {
        Act::Close => return Ok(()),
        Act::Send(text) => (text, format!("Content-Length: {}", text.len())),
        Act::Reset(text) | Act::Hang(text) | Act::Comments(text) => (text, "Content-Length: 9999999".into()),
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n{head}\r\n\r\n{text}"
    )?;
    match act {
        Act::Hang(_) => drop(stream.read(&mut [0])?),
        Act::Comments(_) => loop {
            stream.write_all(b": still here\n\n")?;
            std::thread::sleep(Duration::from_millis(20));
        },
        _ => {}
    }
    Ok(())
}

fn read_request(stream: &TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    reader.read_exact(&mut vec![0; length])
}

fn failed(outcome: &Outcome, kind: FailureKind, words: &[&str]) {
    let failure = outcome.failure.as_ref().unwrap();
    assert_eq!(failure.kind, kind, "{failure:?}");
    for word in words {
        assert!(failure.message.contains(word), "`{word}` is not in: {}", failure.message);
    }
}

#[tokio::test]
async fn a_stream_becomes_a_message_and_the_headers_are_right() {
    let server = MockServer::start().await;
    let stream = |body: &str| ResponseTemplate::new(200).set_body_raw(body.as_bytes().to_vec(), "text/plain");
    let chat = Mock::given(method("POST")).and(path("/v1/chat/completions"));
    let chat = chat.and(header("authorization", "Bearer sk-000111222333")).and(header("x-team", "a"));
    chat.and(header("user-agent", concat!("crab/", env!("CARGO_PKG_VERSION"))))
        .respond_with(stream(HELLO))
        .mount(&server)
        .await;
    let messages = Mock::given(path("/v1/messages")).and(header("x-api-key", "sk-000111222333"));
    let whole =
        r#"{"content":[{"type":"text","text":"whole"}],"stop_reason":"end_turn","usage":{"input_tokens":1}}"#;
    messages.and(header("anthropic-version", "2023-06-01")).respond_with(stream(whole)).mount(&server).await;

    let mut options_with = options(Api::OpenaiChat, &server.uri());
    options_with.headers = vec![("x-team".into(), "a".into())];
    let outcome = ask(options_with).await;
    assert_eq!((outcome.message.text().as_str(), outcome.message.stop), ("hello", Stop::End), "{outcome:?}");
    let outcome = ask(options(Api::AnthropicMessages, &server.uri())).await;
    assert_eq!(
        (outcome.message.text().as_str(), outcome.message.usage.input),
        ("whole", Some(1)),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn what_the_service_asks_to_wait_is_waited() {
    let server = MockServer::start().await;
    let slow = ResponseTemplate::new(429).insert_header("retry-after-ms", "300").set_body_string("slow down");
    Mock::given(method("POST")).respond_with(slow).up_to_n_times(1).mount(&server).await;
    Mock::given(method("POST"))
        .respond_with(ResponseTemplate::new(200).set_body_string(HELLO))
        .mount(&server)
        .await;
    let began = Instant::now();
    let outcome = ask(options(Api::OpenaiChat, &server.uri())).await;
    assert_eq!((outcome.message.text().as_str(), outcome.retries), ("hello", 1));
    assert!(began.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn a_refused_key_is_final_names_its_source_and_is_not_shown() {
    for api in [Api::OpenaiChat, Api::AnthropicMessages] {
        let server = MockServer::start().await;
        let body = json!({"error": {"message": "Incorrect API key provided: sk-000111222333"}});
        Mock::given(method("POST"))
            .respond_with(ResponseTemplate::new(401).set_body_json(body))
            .expect(1)
            .mount(&server)
            .await;
        let outcome = ask(options(api, &server.uri())).await;
        failed(&outcome, FailureKind::Auth, &["THE_KEY", "Incorrect API key", "127.0.0.1", "[redacted]"]);
        assert!(!outcome.failure.unwrap().message.contains("000111222333"));
    }
}

#[tokio::test]
async fn a_key_that_http_cannot_carry_fails_with_its_source() {
    for value in ["", "sk-\u{e9}", "a\nb"] {
        let mut options = options(Api::OpenaiChat, "http://127.0.0.1:1");
        options.key = Some(Key { value: value.into(), source: "THE_KEY".into() });
        failed(&ask(options).await, FailureKind::Auth, &["THE_KEY"]);
    }
}

#[tokio::test]
async fn a_known_service_without_a_key_is_not_even_asked() {
    let outcome = ask(Options::new("openai", Api::OpenaiChat)).await;
    failed(&outcome, FailureKind::Auth, &["OPENAI_API_KEY"]);
    let outcome = ask(Options::new("anthropic", Api::AnthropicMessages)).await;
    failed(&outcome, FailureKind::Auth, &["ANTHROPIC_API_KEY"]);
}

#[tokio::test]
async fn parameters_that_are_refused_are_left_out_and_the_lesson_is_kept() {
    let server = MockServer::start().await;
    let respond = |request: &wiremock::Request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let refused = ["stream_options", "max_tokens", "reasoning_effort"]
            .into_iter()
            .find(|name| body.get(*name).is_some());
        match refused {
            Some(name) => ResponseTemplate::new(400).set_body_json(
                json!({"error": {"message": format!("Unsupported parameter: '{name}' is not supported")}}),
            ),
            None => ResponseTemplate::new(200).set_body_string(HELLO),
        }
    };
    Mock::given(method("POST")).respond_with(respond).mount(&server).await;
    let provider = by_name(options(Api::OpenaiChat, &server.uri())).unwrap();
    let mut request = request();
    request.max_output = Some(9);
    request.effort = Some(crab_core::provider::Effort::High);
    for (requests, warned) in [(4, 1), (5, 0)] {
        let outcome = ask_for(provider.as_ref(), request.clone()).await;
        assert_eq!((outcome.message.text().as_str(), outcome.retries), ("hello", 0), "{outcome:?}");
        assert_eq!(outcome.warnings.len(), warned, "{outcome:?}");
        let received = server.received_requests().await.unwrap();
        assert_eq!(received.len(), requests);
        let last: Value = serde_json::from_slice(&received[requests - 1].body).unwrap();
        assert_eq!(last["max_completion_tokens"], json!(9));
    }
}

#[tokio::test]
async fn words_in_passing_teach_nothing_that_lasts() {
    let server = MockServer::start().await;
    let words = "the schema of the function `reasoning_effort` is not valid";
    let refusal = ResponseTemplate::new(400).set_body_json(json!({"error": {"message": words}}));
    Mock::given(method("POST")).respond_with(refusal).mount(&server).await;
    let provider = by_name(options(Api::OpenaiChat, &server.uri())).unwrap();
    let mut request = request();
    request.effort = Some(crab_core::provider::Effort::High);
    for _ in 0..2 {
        let outcome = ask_for(provider.as_ref(), request.clone()).await;
        failed(&outcome, FailureKind::BadRequest, &[words]);
        assert_eq!(outcome.warnings, [""; 0]);
    }
    let received = server.received_requests().await.unwrap();
    let asks =
        |request: &wiremock::Request| String::from_utf8_lossy(&request.body).contains("reasoning_effort");
    assert_eq!(received.iter().map(asks).collect::<Vec<_>>(), [true, false, true, false]);
}

#[tokio::test]
async fn a_service_without_eyes_gets_the_conversation_without_its_images() {
    for (status, words) in
        [(404, "No endpoints found that support image input"), (500, "image input is not supported")]
    {
        let server = MockServer::start().await;
        let respond = move |request: &wiremock::Request| {
            if String::from_utf8_lossy(&request.body).contains("image_url") {
                ResponseTemplate::new(status).set_body_json(json!({"error": {"message": words}}))
            } else {
                ResponseTemplate::new(200).set_body_string(HELLO)
            }
        };
        Mock::given(method("POST")).respond_with(respond).mount(&server).await;
        let image = Part::Image { media_type: "image/png".into(), data: "QUJD".into() };
        let mut request = request();
        request.messages = vec![Message::User(vec![Part::text("see"), image])];
        let outcome =
            ask_for(by_name(options(Api::OpenaiChat, &server.uri())).unwrap().as_ref(), request).await;
        assert_eq!((outcome.message.text().as_str(), outcome.retries), ("hello", 0), "{outcome:?}");
        assert!(outcome.warnings[0].contains("no images"), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_limit_that_is_refused_under_both_names_ends_the_request() {
    for (words, requests) in
        [("is not supported with this model", 2), ("is too large: this model takes at most 4096", 1)]
    {
        let server = MockServer::start().await;
        let respond = move |request: &wiremock::Request| {
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            let name = if body.get("max_tokens").is_some() { "max_tokens" } else { "max_completion_tokens" };
            let message = format!("'{name}' {words}");
            ResponseTemplate::new(400).set_body_json(json!({"error": {"message": message}}))
        };
        Mock::given(method("POST")).respond_with(respond).mount(&server).await;
        let mut request = request();
        request.max_output = Some(9);
        let provider = by_name(options(Api::OpenaiChat, &server.uri())).unwrap();
        failed(&ask_for(provider.as_ref(), request).await, FailureKind::BadRequest, &[words]);
        assert_eq!(server.received_requests().await.unwrap().len(), requests, "{words}");
    }
}

#[tokio::test]
async fn each_refusal_has_its_kind_and_its_words() {
    let overflow = "prompt is too long: 214676 tokens > 200000 maximum";
    let table = [
        (400, json!({"error": {"message": overflow}}), FailureKind::Overflow, overflow),
        (413, json!({"error": {"message": "Request too large"}}), FailureKind::Overflow, "new session"),
        (
            404,
            json!({"error": {"message": "model 'fake' not found"}}),
            FailureKind::NotFound,
            "model 'fake' not found",
        ),
        (
            402,
            json!({"error": {"message": "Insufficient Balance"}}),
            FailureKind::Quota,
            "Insufficient Balance",
        ),
        (
            200,
            json!({"error": {"message": "quota used up 5521"}}),
            FailureKind::BadRequest,
            "quota used up 5521",
        ),
        (307, json!({}), FailureKind::NotFound, "base URL"),
        (422, json!({"detail": "no"}), FailureKind::BadRequest, "status 422"),
    ];
    for (status, body, kind, words) in table {
        let server = MockServer::start().await;
        let response = ResponseTemplate::new(status).set_body_json(body);
        Mock::given(method("POST")).respond_with(response).expect(1).mount(&server).await;
        failed(&ask(options(Api::OpenaiChat, &server.uri())).await, kind, &[words, "`openai`", "127.0.0.1"]);
    }
}

#[tokio::test]
async fn a_page_instead_of_an_answer_is_named_as_one() {
    let server = MockServer::start().await;
    let page = ResponseTemplate::new(200).set_body_string("<html><title>Sign in</title></html>");
    Mock::given(method("POST")).respond_with(page).mount(&server).await;
    failed(
        &ask(options(Api::OpenaiChat, &server.uri())).await,
        FailureKind::BadRequest,
        &["Sign in", "base URL"],
    );
}

#[tokio::test]
async fn a_cut_before_any_text_is_tried_again_and_leaves_no_trace() {
    let call = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"i\",\"function\":{\"name\":\"write\",\"arguments\":\"{\\\"pa\"}}]}}]}\n\n";
    for first in [Act::Close, Act::Send(ROLE), Act::Send(""), Act::Reset(ROLE), Act::Send(call)] {
        let (base, _) = server(vec![first, Act::Send(HELLO)]);
        let outcome = ask(options(Api::OpenaiChat, &base)).await;
        assert_eq!((outcome.message.text().as_str(), outcome.retries), ("hello", 1), "{outcome:?}");
        assert_eq!(outcome.message.calls().count(), 0);
    }
}

#[tokio::test]
async fn a_cut_behind_reasoning_alone_begins_the_answer_anew() {
    const THOUGHT: &str = "data: {\"choices\":[{\"delta\":{\"reasoning\":\"hm\"}}]}\n\n";
    const CALL: &str = "data: {\"choices\":[{\"delta\":{\"reasoning\":\"hm\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"i\",\"function\":{\"name\":\"write\",\"arguments\":\"{\"}}]}}]}\n\n";
    const OVER: &str = "data: {\"choices\":[{\"delta\":{\"reasoning\":\"hm\"}}]}\n\ndata: {\"error\":{\"code\":529,\"message\":\"overloaded\"}}\n\n";
    for first in [THOUGHT, CALL, OVER] {
        let (base, _) = server(vec![Act::Send(first), Act::Send(HELLO)]);
        let outcome = ask(options(Api::OpenaiChat, &base)).await;
        assert_eq!((outcome.message.text().as_str(), outcome.retries), ("hello", 1), "{outcome:?}");
        assert_eq!(outcome.message.content.len(), 1, "{outcome:?}");
    }
}

#[tokio::test]
async fn a_cut_behind_text_is_final_and_the_text_is_kept() {
    for act in [Act::Send(PART), Act::Reset(PART)] {
        let (base, _) = server(vec![act]);
        let outcome = ask(options(Api::OpenaiChat, &base)).await;
        failed(&outcome, FailureKind::Cut, &["before the answer was finished"]);
        assert_eq!((outcome.message.text().as_str(), outcome.retries), ("part one", 0));
    }
}

#[tokio::test]
async fn a_finished_answer_needs_no_proper_end_of_its_connection() {
    for act in [
        Act::Reset(HELLO),
        Act::Hang("data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}]}\n\ndata:[DONE]\n\n"),
    ] {
        let (base, _) = server(vec![act]);
        let outcome = ask(options(Api::OpenaiChat, &base)).await;
        assert_eq!((outcome.message.text().as_str(), outcome.failure.is_none()), ("hello", true));
    }
}

#[tokio::test]
async fn silence_ends_at_the_idle_limit_whatever_comments_come() {
    for act in [Act::Hang(PART), Act::Comments(PART)] {
        let (base, _) = server(vec![act]);
        let mut options = options(Api::OpenaiChat, &base);
        options.idle_timeout = Some(Duration::from_millis(200));
        let outcome = ask(options).await;
        failed(&outcome, FailureKind::Network, &["idle limit of 0.2 seconds", "stream_idle_timeout"]);
        assert_eq!(outcome.message.text(), "part one");
    }
}

#[tokio::test]
async fn silence_before_any_text_is_tried_again() {
    for act in [Act::Hang(""), Act::Comments(""), Act::Hang(ROLE)] {
        let (base, _) = server(vec![act, Act::Send(HELLO)]);
        let mut options = options(Api::OpenaiChat, &base);
        options.idle_timeout = Some(Duration::from_millis(200));
        let outcome = ask(options).await;
        assert_eq!((outcome.message.text().as_str(), outcome.retries), ("hello", 1), "{outcome:?}");
    }
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection() {
    let (base, events) = server(vec![Act::Hang(PART)]);
    let provider = by_name(options(Api::OpenaiChat, &base)).unwrap();
    let mut stream = provider.stream(request());
    assert_eq!(stream.next().await.unwrap().unwrap(), Delta::Text("part one".into()));
    drop(stream);
    assert_eq!(events.recv(), Ok("came"));
    // The runtime has to run for the connection's own task to end.
    let gone = tokio::task::spawn_blocking(move || events.recv_timeout(Duration::from_secs(20)));
    assert_eq!(gone.await.unwrap(), Ok("gone"));
}

#[tokio::test]
async fn an_address_where_nobody_listens_is_named() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let host = format!("127.0.0.1:{port}");
    let outcome = ask(options(Api::OpenaiChat, &format!("http://{host}/v1"))).await;
    failed(&outcome, FailureKind::Network, &[&host, "connection refused", "base URL"]);
    assert_eq!(outcome.retries, 1);
}

#[tokio::test]
async fn the_number_of_retries_is_the_configurations() {
    let (base, _) = server(vec![Act::Close]);
    let mut options = options(Api::OpenaiChat, &base);
    options.max_retries = Some(0);
    let outcome = ask(options).await;
    failed(&outcome, FailureKind::Network, &["`openai`"]);
    assert_eq!(outcome.retries, 0);
}

#[test]
fn a_bad_address_is_an_error_of_the_configuration() {
    let message = |options| by_name(options).err().unwrap();
    assert!(message(options(Api::OpenaiChat, "localhost:8080")).contains("`localhost:8080`"));
    assert!(message(Options::new("mine", Api::OpenaiChat)).contains("[providers.mine]"));
    let mut bad = options(Api::OpenaiChat, "http://127.0.0.1");
    bad.headers = vec![("x y".into(), "a".into())];
    assert!(message(bad).contains("`x y`"));
}

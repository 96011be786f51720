//! A service on this machine that gives prepared answers, also to those who take it for their proxy.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// One answer of the service.
#[derive(Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    /// The connection breaks where the body ends, which promises more.
    pub(crate) breaks: bool,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The first line.
    pub(crate) line: String,
    pub(crate) body: String,
}

pub(crate) struct Server {
    pub(crate) port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// A stream of chat completions that says these pieces and ends.
pub(crate) fn says(pieces: &[&str]) -> Answer {
    chunks(pieces.iter().map(|piece| serde_json::json!({"content": piece})).collect(), "stop")
}

/// One that calls a tool.
pub(crate) fn calls(name: &str, arguments: &str) -> Answer {
    let function = serde_json::json!({"name": name, "arguments": arguments});
    let call = serde_json::json!({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]});
    chunks(vec![call], "tool_calls")
}

/// A stream of these deltas, ended by this word.
pub(crate) fn chunks(deltas: Vec<serde_json::Value>, finish: &str) -> Answer {
    let mut body = String::new();
    for delta in deltas {
        let chunk = serde_json::json!({"choices": [{"index": 0, "delta": delta}]});
        body.push_str(&format!("data: {chunk}\n\n"));
    }
    let end = serde_json::json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]});
    body.push_str(&format!("data: {end}\n\ndata: [DONE]\n\n"));
    Answer { status: 200, body: body.into_bytes(), breaks: false }
}

pub(crate) fn fails(status: u16, message: &str) -> Answer {
    let body = serde_json::json!({"error": {"message": message}}).to_string().into_bytes();
    Answer { status, body, breaks: false }
}

impl Server {
    /// Gives the answers in order, and behind the last one nothing but failures.
    pub(crate) fn start(answers: Vec<Answer>) -> Self {
        let mut answers = answers.into_iter();
        Self::answering(move |_| answers.next().unwrap_or_else(|| fails(500, "no more answers")))
    }

    /// Makes an answer for each request.
    pub(crate) fn answering(mut answer: impl FnMut(&Asked) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(vec![]));
        let log = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // A client that has gone away wants no answer.
                let _ = serve(stream.unwrap(), &log, &mut answer);
            }
        });
        Self { port, asked }
    }

    pub(crate) fn base(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(
    stream: TcpStream,
    log: &Mutex<Vec<Asked>>,
    answer: &mut impl FnMut(&Asked) -> Answer,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut line, mut length) = (String::new(), 0);
    if reader.read_line(&mut line)? == 0 {
        // Whoever came was killed before it asked.
        return Ok(());
    }
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 || header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let asked = Asked { line: line.trim().to_owned(), body: String::from_utf8_lossy(&body).into_owned() };
    let answer = answer(&asked);
    log.lock().unwrap().push(asked);
    let length = answer.body.len() + if answer.breaks { 9 } else { 0 };
    let head = format!(
        "HTTP/1.1 {} X\r\ncontent-type: text/event-stream\r\nset-cookie: session=c00kie\r\nopenai-organization: acme-inc\r\n\
         x-request-id: req_1\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n",
        answer.status
    );
    let mut stream = stream;
    stream.write_all(head.as_bytes())?;
    stream.write_all(&answer.body)
}

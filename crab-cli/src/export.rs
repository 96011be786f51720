//! A session as a document: Markdown, a page, or its own entries.

use std::io::Write;
use std::path::Path;

use crab_core::message::{Assistant, Block, Part, ToolResult};
use crab_core::protocol::FailureKind;
use crab_core::session::{Body, Transcript};
use serde_json::json;

use crate::sessions::Form;
use crate::setup::Stop;

/// The session in a form.
pub(crate) fn whole(transcript: &Transcript, form: Form) -> Result<String, Stop> {
    match form {
        Form::Md => Ok(markdown(transcript)),
        Form::Html => Ok(html(transcript)),
        Form::Json => {
            let entries = transcript.to_json();
            let entries =
                entries.map_err(|err| Stop::new(FailureKind::Internal, format!("cannot write it: {err}")))?;
            let Transcript { id, cwd, created, totals, .. } = transcript;
            let value = json!({"id": id, "cwd": cwd, "created": created, "title": transcript.title(),
                "turns": totals.turns, "usage": totals.usage, "entries": entries});
            Ok(format!("{value:#}\n"))
        }
    }
}

/// Writes a session to a file that is not there yet, in the form that its name tells. Gives its size.
pub(crate) fn to_file(session: &Path, file: &Path) -> Result<usize, String> {
    let form = match file.extension().and_then(std::ffi::OsStr::to_str) {
        Some("md") => Form::Md,
        Some("html") => Form::Html,
        Some("json") => Form::Json,
        _ => return Err(format!("the name `{}` must end in .md, .html or .json", file.display())),
    };
    let transcript = Transcript::read(session).map_err(|err| err.to_string())?;
    let text = whole(&transcript, form).map_err(|stop| stop.failure.message)?;
    let failed = |err: std::io::Error| match err.kind() {
        std::io::ErrorKind::AlreadyExists => {
            format!("`{}` is there already: give another name", file.display())
        }
        _ => format!("cannot write `{}`: {err}", file.display()),
    };
    let mut handle = std::fs::File::create_new(file).map_err(failed)?;
    handle.write_all(text.as_bytes()).map_err(failed)?;
    Ok(text.len())
}

/// A part of the document.
enum Piece {
    /// What the user said.
    Asked(String),
    /// What the model said.
    Said(String),
    /// What the model thought.
    Thought(String),
    /// A call: the tool and its arguments.
    Called(String, String),
    /// What came of it.
    Result { name: String, is_error: bool, text: String },
    /// Another model answers from here on.
    Model(String),
}

fn pieces(transcript: &Transcript) -> Vec<Piece> {
    let mut pieces = vec![];
    for entry in &transcript.entries {
        match &entry.body {
            Body::User { content } => pieces.push(Piece::Asked(parts(content))),
            Body::Assistant(message) => said(message, &mut pieces),
            Body::ToolResult(ToolResult { name, is_error, content, .. }) => {
                pieces.push(Piece::Result { name: name.clone(), is_error: *is_error, text: parts(content) });
            }
            Body::Model { provider, model } => pieces.push(Piece::Model(format!("{provider}/{model}"))),
            _ => {}
        }
    }
    pieces
}

fn said(message: &Assistant, pieces: &mut Vec<Piece>) {
    for block in &message.content {
        pieces.push(match block {
            Block::Text { text, .. } => Piece::Said(text.clone()),
            Block::Thinking(thinking) if thinking.text.trim().is_empty() => continue,
            Block::Thinking(thinking) => Piece::Thought(thinking.text.clone()),
            Block::ToolCall(call) => {
                let arguments = serde_json::to_string_pretty(&call.arguments).unwrap_or_default();
                Piece::Called(call.name.clone(), arguments)
            }
        });
    }
}

fn parts(parts: &[Part]) -> String {
    let texts: Vec<String> = parts
        .iter()
        .map(|part| match part {
            Part::Text { text } => text.clone(),
            Part::Image { media_type, data } => {
                format!("(an image, {media_type}, {} bytes)", data.len() / 4 * 3)
            }
        })
        .collect();
    texts.join("\n")
}

/// As Markdown, in which what tools said cannot be taken for what the model said.
pub(crate) fn markdown(transcript: &Transcript) -> String {
    let Transcript { id, cwd, created, .. } = transcript;
    let mut out =
        format!("# {}\n\nSession {id}, begun {created} in `{cwd}`.\n", one_line(&transcript.title()));
    for piece in pieces(transcript) {
        out.push_str(&match piece {
            Piece::Asked(text) => format!("\n## You\n\n{}\n", text.trim_end()),
            Piece::Said(text) => format!("\n{}\n", text.trim_end()),
            Piece::Thought(text) => {
                let lines: Vec<String> = text.trim_end().lines().map(|line| format!("> {line}")).collect();
                format!("\n{}\n", lines.join("\n"))
            }
            Piece::Called(name, arguments) => format!("\n**`{name}`**\n\n{}", fenced("json", &arguments)),
            Piece::Result { name, is_error, text } => {
                let word = if is_error { "failed" } else { "gave" };
                format!("\n`{name}` {word}\n\n{}", fenced("", &text))
            }
            Piece::Model(name) => format!("\n*{name}*\n"),
        });
    }
    out
}

/// A block of code whose fence is longer than any in it.
fn fenced(language: &str, text: &str) -> String {
    let longest = text.lines().map(|line| line.trim_start().chars().take_while(|c| *c == '`').count()).max();
    let fence = "`".repeat(longest.unwrap_or(0).max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}\n", text.trim_end_matches('\n'))
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line: String = words.join(" ").chars().take(80).collect();
    if line.is_empty() { "A session of crab".into() } else { line }
}

const STYLE: &str = "\
:root{color-scheme:light dark}body{max-width:52rem;margin:2rem auto;padding:0 1rem;font:16px/1.5 system-ui,sans-serif}\
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.4rem 0;font:14px/1.45 ui-monospace,monospace}\
.you{border-left:3px solid #cf5c36;padding-left:.8rem;margin-top:2rem}.thought,.model{opacity:.65}\
details{border:1px solid #8884;border-radius:6px;padding:.3rem .7rem;margin:.5rem 0}.failed summary{color:#c0392b}";

/// As a page without scripts, fonts or anything else from elsewhere.
fn html(transcript: &Transcript) -> String {
    let Transcript { id, cwd, created, .. } = transcript;
    let title = escaped(&one_line(&transcript.title()));
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title><style>{STYLE}</style>\n<h1>{title}</h1>\n<p>Session {}, begun {} in <code>{}</code>.</p>\n",
        escaped(id),
        escaped(created),
        escaped(cwd)
    );
    for piece in pieces(transcript) {
        out.push_str(&match piece {
            Piece::Asked(text) => format!("<section class=\"you\"><pre>{}</pre></section>\n", escaped(&text)),
            Piece::Said(text) => format!("<pre>{}</pre>\n", escaped(text.trim_end())),
            Piece::Thought(text) => folded("thought", "thinking", &text),
            Piece::Called(name, arguments) => folded("call", &name, &arguments),
            Piece::Result { name, is_error: true, text } => {
                folded("failed", &format!("{name} failed"), &text)
            }
            Piece::Result { name, text, .. } => folded("result", &format!("{name} gave"), &text),
            Piece::Model(name) => format!("<p class=\"model\">{}</p>\n", escaped(&name)),
        });
    }
    out + "</html>\n"
}

fn folded(class: &str, head: &str, text: &str) -> String {
    let (head, text) = (escaped(head), escaped(text.trim_end()));
    format!("<details class=\"{class}\"><summary>{head}</summary><pre>{text}</pre></details>\n")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_longer_than_what_stands_in_it() {
        assert_eq!(fenced("", "a\n```\nb"), "````\na\n```\nb\n````\n");
        assert_eq!(fenced("json", "{}"), "```json\n{}\n```\n");
    }

    #[test]
    fn nothing_in_a_page_is_markup_but_its_own() {
        assert_eq!(escaped("<script>\"a\" & b"), "&lt;script&gt;&quot;a&quot; &amp; b");
    }
}

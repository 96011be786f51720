//! The answer to a request as bytes: from the network, perhaps into a recording, or out of one.

use std::collections::VecDeque;

use reqwest::Response;
use serde_json::Value;

use super::tape::{Lost, Track};

/// An answer whose head is there.
pub(super) struct Reply {
    pub(super) status: u16,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    /// What the user should know before the answer.
    pub(super) warning: Option<String>,
    body: Body,
}

enum Body {
    Network { response: Response, track: Option<Track> },
    Tape { pieces: VecDeque<Vec<u8>>, end: Option<Option<Lost>> },
}

/// Why a body is not whole.
#[derive(Debug)]
pub(super) enum Gap {
    /// The connection broke, for this reason.
    Broke(String),
    /// It was silent for too long when it was recorded.
    Silent,
    /// The recorded run was stopped here.
    Stopped,
}

impl Reply {
    pub(super) fn from_network(response: Response, mut track: Option<Track>) -> Self {
        let status = response.status().as_u16();
        if let Some(track) = &mut track {
            track.response(status, response.headers());
        }
        let header = |(name, value): (&reqwest::header::HeaderName, &reqwest::header::HeaderValue)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let headers = response.headers().iter().map(header).collect();
        Self { status, headers, warning: None, body: Body::Network { response, track } }
    }

    pub(super) fn from_tape(exchange: super::tape::Exchange, warning: Option<String>) -> Self {
        let super::tape::Exchange { status, headers, pieces, end, .. } = exchange;
        let text = |value: Value| value.as_str().unwrap_or_default().to_owned();
        let headers = headers.into_iter().map(|(name, value)| (name, text(value))).collect();
        Self { status, headers, warning, body: Body::Tape { pieces, end } }
    }

    pub(super) fn header(&self, name: &str) -> Option<String> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.clone())
    }

    /// The next piece of the body.
    pub(super) async fn chunk(&mut self) -> Result<Option<Vec<u8>>, Gap> {
        match &mut self.body {
            Body::Network { response, track } => match response.chunk().await {
                Ok(Some(piece)) => {
                    track.iter_mut().for_each(|track| track.data(&piece));
                    Ok(Some(piece.to_vec()))
                }
                Ok(None) => {
                    end(track, None);
                    Ok(None)
                }
                Err(err) => {
                    let cause = super::http::cause(&err);
                    end(track, Some(Lost::Broke(cause.clone())));
                    Err(Gap::Broke(cause))
                }
            },
            Body::Tape { pieces, end } => match (pieces.pop_front(), end.take()) {
                (Some(piece), rest) => {
                    *end = rest;
                    Ok(Some(piece))
                }
                (None, Some(None)) => Ok(None),
                (None, Some(Some(Lost::Silent))) => Err(Gap::Silent),
                (None, Some(Some(Lost::Broke(cause)))) => Err(Gap::Broke(cause)),
                (None, _) => Err(Gap::Stopped),
            },
        }
    }

    /// Notes that nothing more was waited for: enough has come, or nothing for too long.
    pub(super) fn give_up(mut self, is_silent: bool) {
        if let Body::Network { track, .. } = &mut self.body {
            end(track, is_silent.then_some(Lost::Silent));
        }
    }
}

fn end(track: &mut Option<Track>, failure: Option<Lost>) {
    if let Some(track) = track.take() {
        track.end(failure);
    }
}

//! Asking a service for the list of its models.

use std::time::Duration;

use serde_json::Value;

use super::Error;
use super::answer::Broken;
use super::failure::{Said, foreign};
use super::http::Http;
use super::reply::Reply;
use crate::protocol::FailureKind;

/// A list of models should be there at once.
const LISTING: Duration = Duration::from_secs(30);
/// The longest known list has a megabyte.
const LONGEST_LIST: usize = 32 << 20;

impl Http {
    /// The service's list of models, as it gives it: from the first of its addresses that exists.
    pub(super) async fn models(&self) -> Result<Value, Error> {
        let mut failure = None;
        for url in &self.urls.models {
            match tokio::time::timeout(LISTING, self.list(url)).await {
                Ok(Ok(list)) => return Ok(list),
                Ok(Err(error)) if error.failure.status == Some(404) => failure = Some(error),
                Ok(Err(error)) => return Err(error),
                Err(_) => {
                    let words = format!("it gave no whole list within {} seconds", LISTING.as_secs());
                    return Err(self.service.failed(FailureKind::Network, &Said::text(words, None)));
                }
            }
        }
        Err(failure.unwrap_or_else(|| self.service.told(FailureKind::Config, "there is no list of models")))
    }

    async fn list(&self, url: &str) -> Result<Value, Error> {
        let client = &self.built()?.client;
        let response = client.get(url).headers(self.headers.clone()?).send().await;
        let mut reply = Reply::from_network(response.map_err(|err| self.unreachable(&err).error)?, None);
        if (300..400).contains(&reply.status) {
            return Err(self.redirected(reply.status, reply.header("location")));
        }
        if !(200..300).contains(&reply.status) {
            return Err(self.service.refused(&self.error_body(&mut reply).await));
        }
        let mut body = vec![];
        loop {
            match reply.chunk().await {
                Ok(Some(piece)) => body.extend_from_slice(&piece),
                Ok(None) => break,
                Err(gap) => {
                    let words = format!("the list broke off: {gap:?}");
                    return Err(self.service.failed(FailureKind::Cut, &Said::text(words, None)));
                }
            }
            if body.len() > LONGEST_LIST {
                return Err(self
                    .service
                    .failed(FailureKind::BadRequest, &Said::text("its list is endless", None)));
            }
        }
        serde_json::from_slice(&body).map_err(|_| self.broken(Broken::Foreign(foreign(&body))))
    }
}

//! The client of every service that is spoken to over HTTP; an API is a [`Dialect`] of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::answer::Decode;
use super::compat::Compat;
use super::failure::Said;
use super::fitted::fitted;
use super::http::{Amended, Exchange, Http};
use super::learn::learn;
use super::models;
use super::retry::{self, Policy};
use super::{Deltas, Provider, Request};

/// What an API makes of requests and answers.
#[derive(Clone, Copy)]
pub(super) struct Dialect {
    /// Where requests go, below the base URL.
    pub(super) endpoint: &'static str,
    /// The body of a request to the provider of this name. Equal requests give equal bytes.
    pub(super) body: fn(&Request, &Compat, &str) -> Value,
    /// Reads one answer.
    pub(super) decoder: fn(&Compat) -> Box<dyn Decode>,
}

/// So often a body is amended in one try; each amendment teaches something, so that more would mean going in circles.
const AMENDMENTS: usize = 5;

/// A service.
pub(super) struct Client {
    http: Arc<Http>,
    policy: Policy,
    dialect: Dialect,
    compat: Compat,
    /// What refusals taught, by model.
    learnt: Arc<Mutex<HashMap<String, Compat>>>,
}

impl Client {
    pub(super) fn new(http: Http, policy: Policy, dialect: Dialect, compat: Compat) -> Self {
        Self { http: Arc::new(http), policy, dialect, compat, learnt: Arc::default() }
    }
}

impl Provider for Client {
    fn name(&self) -> &str {
        &self.http.service.name
    }

    fn stream(&self, request: Request) -> Deltas {
        let (http, dialect, start) = (Arc::clone(&self.http), self.dialect, self.compat);
        let (learnt, request) = (Arc::clone(&self.learnt), Arc::new(request));
        retry::stream(self.policy, move || {
            let known = learnt.lock().unwrap_or_else(PoisonError::into_inner).get(&request.model).copied();
            let compat = known.unwrap_or(start);
            let decoder = (dialect.decoder)(&compat);
            let name = http.service.name.clone();
            let body = (dialect.body)(&fitted(&request, &compat), &compat, &name);
            let bytes = body.to_string().into_bytes();
            let (learnt, request) = (Arc::clone(&learnt), Arc::clone(&request));
            let (mut tried, mut body) = (vec![compat], body);
            let amend = move |said: &Said| {
                let lesson = learn(tried.last()?, said, &body, request.messages.len())?;
                let new = lesson.compat;
                if tried.contains(&new) || tried.len() > AMENDMENTS {
                    return None;
                }
                let amended = (dialect.body)(&fitted(&request, &new), &new, &name);
                // What changes nothing here would only be refused again.
                if amended == body {
                    return None;
                }
                body = amended;
                tried.push(new);
                learnt.lock().unwrap_or_else(PoisonError::into_inner).insert(request.model.clone(), new);
                let told = lesson.told.map(|told| format!("`{name}` ({}) {told}", request.model));
                Some(Amended { body: body.to_string().into_bytes(), told })
            };
            http.attempt(Exchange { body: bytes, decoder, amend: Box::new(amend) })
        })
    }

    fn models(&self) -> super::Listing {
        let http = Arc::clone(&self.http);
        Box::pin(async move {
            let body = http.models().await?;
            models::read(&body).ok_or_else(|| http.service.refused(&Said::read(&body, None)))
        })
    }
}

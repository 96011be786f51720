//! The client of every service that is spoken to over HTTP; an API is a [`Dialect`] of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::answer::Decode;
use super::compat::Compat;
use super::failure::Said;
use super::fitted::fitted;
use super::http::{Amend, Exchange, Http};
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

/// What is learnt within one try. It counts for later ones when the service takes what came of it: words in passing can
/// look like a refusal of something that the request holds.
struct Lessons {
    learnt: Arc<Mutex<HashMap<String, Compat>>>,
    request: Arc<Request>,
    dialect: Dialect,
    service: String,
    /// What goes out.
    body: Value,
    /// How the service was taken to be so far, the last one the present.
    tried: Vec<Compat>,
    within: Arc<Mutex<Within>>,
}

/// What was learnt in all tries of one request.
#[derive(Default)]
struct Within {
    compat: Option<Compat>,
    told: Vec<String>,
}

impl Lessons {
    fn begun(mut self) -> Self {
        self.body = self.tried.last().map_or(Value::Null, |compat| self.made(compat));
        self
    }

    fn made(&self, compat: &Compat) -> Value {
        (self.dialect.body)(&fitted(&self.request, compat), compat, &self.service)
    }
}

impl Amend for Lessons {
    fn body(&self) -> Vec<u8> {
        self.body.to_string().into_bytes()
    }

    fn amend(&mut self, said: &Said) -> bool {
        let messages = self.request.messages.len();
        let Some(lesson) = self.tried.last().and_then(|compat| learn(compat, said, &self.body, messages))
        else {
            return false;
        };
        if self.tried.contains(&lesson.compat) || self.tried.len() > AMENDMENTS {
            return false;
        }
        let amended = self.made(&lesson.compat);
        // What changes nothing here would only be refused again.
        if amended == self.body {
            return false;
        }
        self.body = amended;
        self.tried.push(lesson.compat);
        let (service, model) = (&self.service, &self.request.model);
        let mut within = self.within.lock().unwrap_or_else(PoisonError::into_inner);
        within.compat = Some(lesson.compat);
        within.told.extend(lesson.told.map(|told| format!("`{service}` ({model}) {told}")));
        drop(within);
        true
    }

    fn accepted(&mut self) -> Vec<String> {
        let mut within = self.within.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compat) = within.compat {
            let mut learnt = self.learnt.lock().unwrap_or_else(PoisonError::into_inner);
            learnt.insert(self.request.model.clone(), compat);
        }
        std::mem::take(&mut within.told)
    }
}

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
        let within = Arc::new(Mutex::new(Within::default()));
        retry::stream(self.policy, move || {
            let before = within.lock().unwrap_or_else(PoisonError::into_inner).compat;
            let known = learnt.lock().unwrap_or_else(PoisonError::into_inner).get(&request.model).copied();
            let compat = before.or(known).unwrap_or(start);
            let lessons = Lessons {
                learnt: Arc::clone(&learnt),
                request: Arc::clone(&request),
                dialect,
                service: http.service.name.clone(),
                body: Value::Null,
                tried: vec![compat],
                within: Arc::clone(&within),
            };
            let decoder = (dialect.decoder)(&compat);
            http.attempt(Exchange { decoder, amend: Box::new(lessons.begun()) })
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

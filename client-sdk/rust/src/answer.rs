//! What the application answered.

use bytes::Bytes;
use onceward_api::Outcome;
use reqwest::header::HeaderMap;
use reqwest::{Response, StatusCode};
use serde::de::DeserializeOwned;

use crate::refusal::outcome;

/// An answer of the application, be it a success or a failure of its own. Up to a limit it was read to its end before it was
/// handed over, so that it can no longer break off.
#[derive(Debug)]
pub struct Answer {
    response: Response,
    tries: u32,
}

impl Answer {
    pub(crate) fn new(response: Response, tries: u32) -> Self {
        Self { response, tries }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// The headers.
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// What became of the submission; `None` if no guard has said so, and the route may not be protected.
    pub fn outcome(&self) -> Option<Outcome> {
        outcome(self.headers())
    }

    /// Whether this is the first answer again.
    pub fn is_replayed(&self) -> bool {
        let replayed = self.headers().get(onceward_api::header::IDEMPOTENT_REPLAYED);
        self.outcome() == Some(Outcome::Replayed) || replayed.is_some_and(|value| value == "true")
    }

    /// How often it was sent, or tried to be.
    pub fn tries(&self) -> u32 {
        self.tries
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// If it is not, or not of this form.
    pub async fn json<T: DeserializeOwned>(self) -> reqwest::Result<T> {
        self.response.json().await
    }

    /// The body as text.
    ///
    /// # Errors
    /// If it is streamed and breaks off.
    pub async fn text(self) -> reqwest::Result<String> {
        self.response.text().await
    }

    /// The body.
    ///
    /// # Errors
    /// If it is streamed and breaks off.
    pub async fn bytes(self) -> reqwest::Result<Bytes> {
        self.response.bytes().await
    }

    /// The answer as reqwest has it.
    pub fn into_response(self) -> Response {
        self.response
    }
}

impl AsRef<Response> for Answer {
    fn as_ref(&self) -> &Response {
        &self.response
    }
}

impl From<Answer> for Response {
    fn from(answer: Answer) -> Self {
        answer.response
    }
}

//! What the application answered.

use std::fmt;

use bytes::Bytes;
use onceward_api::Outcome;
use reqwest::header::HeaderMap;
use reqwest::{Response, StatusCode, Url};
use serde::de::DeserializeOwned;

use crate::attempt::Answered;
use crate::rejection::Read;

/// An answer of the application, be it a success or a failure of its own. Up to a limit it was read to its end before it was
/// handed over, so that it can no longer break off.
pub struct Answer {
    response: Response,
    /// What was read of its body already.
    read: Option<Read>,
    outcome: Option<Outcome>,
    tries: u32,
}

impl Answer {
    pub(crate) fn new(Answered { response, read, outcome, .. }: Answered, tries: u32) -> Self {
        Self { response, read, outcome, tries }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Where it came from in the end.
    pub fn url(&self) -> &Url {
        self.response.url()
    }

    /// The headers.
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// What became of the submission, also if this is the result that its answer has led to; `None` if no guard has said so,
    /// and the route may not be protected.
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome
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
        self.into_response().json().await
    }

    /// The body as text.
    ///
    /// # Errors
    /// If it is streamed and breaks off.
    pub async fn text(self) -> reqwest::Result<String> {
        self.into_response().text().await
    }

    /// The body.
    ///
    /// # Errors
    /// If it is streamed and breaks off.
    pub async fn bytes(self) -> reqwest::Result<Bytes> {
        match self.read {
            Some(read) if read.is_whole() => Ok(read.into_bytes()),
            Some(read) => read.back_into(self.response).bytes().await,
            None => self.response.bytes().await,
        }
    }

    /// The answer as reqwest has it.
    pub fn into_response(self) -> Response {
        match self.read {
            Some(read) => read.back_into(self.response),
            None => self.response,
        }
    }
}

impl fmt::Debug for Answer {
    /// Without address, headers and body: a query, a next token or a cookie may be in them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("status", &self.status())
            .field("outcome", &self.outcome)
            .field("tries", &self.tries)
            .finish_non_exhaustive()
    }
}

impl From<Answer> for Response {
    fn from(answer: Answer) -> Self {
        answer.into_response()
    }
}

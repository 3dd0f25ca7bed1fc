//! What the application answered.

use bytes::Bytes;
use onceward_api::Outcome;
use reqwest::header::HeaderMap;
use reqwest::{Response, StatusCode, Url};
use serde::de::DeserializeOwned;

use crate::refusal::{Read, outcome};

/// An answer of the application, be it a success or a failure of its own. Up to a limit it was read to its end before it was
/// handed over, so that it can no longer break off.
#[derive(Debug)]
pub struct Answer {
    response: Response,
    /// What was read of its body already.
    read: Option<Read>,
    tries: u32,
}

impl Answer {
    pub(crate) fn new(response: Response, read: Option<Read>, tries: u32) -> Self {
        Self { response, read, tries }
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

impl From<Answer> for Response {
    fn from(answer: Answer) -> Self {
        answer.into_response()
    }
}

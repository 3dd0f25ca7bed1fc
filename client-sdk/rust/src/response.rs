//! The response of the application.

use std::fmt;

use bytes::Bytes;
use onceward_api::Outcome;
use reqwest::header::HeaderMap;
use reqwest::{StatusCode, Url};
use serde::de::DeserializeOwned;

use crate::attempt::AttemptResponse;
use crate::buffered_body::BufferedBody;

/// A response of the application, with any status. The client buffers the body up to a limit
/// ([`response_limit`](crate::ClientBuilder::response_limit)) before it returns the response, so that reading it cannot fail.
pub struct Response {
    response: reqwest::Response,
    /// The part of the body that was read.
    buffered: Option<BufferedBody>,
    outcome: Option<Outcome>,
    attempts: u32,
}

impl Response {
    pub(crate) fn new(AttemptResponse { response, buffered, outcome, .. }: AttemptResponse, attempts: u32) -> Self {
        Self { response, buffered, outcome, attempts }
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// The URL of the response, after redirects.
    pub fn url(&self) -> &Url {
        self.response.url()
    }

    /// The headers.
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The outcome of the submission, also after a redirect. `None` if no guard reported one: the route may not be protected.
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// True if this is the stored response of an earlier attempt.
    pub fn is_replayed(&self) -> bool {
        let replayed = self.headers().get(onceward_api::header::IDEMPOTENT_REPLAYED);
        self.outcome() == Some(Outcome::Replayed) || replayed.is_some_and(|value| value == "true")
    }

    /// The number of attempts.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Parses the body as JSON.
    ///
    /// # Errors
    /// If the body is not JSON of this type, or is streamed and cut off.
    pub async fn json<T: DeserializeOwned>(self) -> reqwest::Result<T> {
        self.into_response().json().await
    }

    /// Returns the body as text.
    ///
    /// # Errors
    /// If the body is streamed and cut off.
    pub async fn text(self) -> reqwest::Result<String> {
        self.into_response().text().await
    }

    /// Returns the body.
    ///
    /// # Errors
    /// If the body is streamed and cut off.
    pub async fn bytes(self) -> reqwest::Result<Bytes> {
        match self.buffered {
            Some(body) if body.is_whole() => Ok(body.into_bytes()),
            Some(body) => body.put_back(self.response).bytes().await,
            None => self.response.bytes().await,
        }
    }

    /// Converts the response into reqwest's type.
    pub fn into_response(self) -> reqwest::Response {
        match self.buffered {
            Some(body) => body.put_back(self.response),
            None => self.response,
        }
    }
}

impl fmt::Debug for Response {
    /// Omits URL, headers and body, which may contain secrets: a query, the next token, a cookie.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status())
            .field("outcome", &self.outcome)
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}

impl From<Response> for reqwest::Response {
    fn from(response: Response) -> Self {
        response.into_response()
    }
}

//! A response of the blocking client.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use onceward_api::Outcome;
use reqwest::header::HeaderMap;
use reqwest::{StatusCode, Url};
use serde::de::DeserializeOwned;

use super::runtime_thread::RuntimeThread;

/// A response of the application, with any status. Its body is buffered like that of the async [`Response`](crate::Response).
pub struct Response {
    response: crate::Response,
    thread: Arc<RuntimeThread>,
}

impl Response {
    pub(super) fn new(response: crate::Response, thread: Arc<RuntimeThread>) -> Self {
        Self { response, thread }
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

    /// The outcome of the submission. `None` if no guard reported one: the route may not be protected.
    pub fn outcome(&self) -> Option<Outcome> {
        self.response.outcome()
    }

    /// True if this is the stored response of an earlier attempt.
    pub fn is_replayed(&self) -> bool {
        self.response.is_replayed()
    }

    /// The number of attempts.
    pub fn attempts(&self) -> u32 {
        self.response.attempts()
    }

    /// Parses the body as JSON.
    ///
    /// # Errors
    /// If the body is not JSON of this type, or is streamed and cut off.
    ///
    /// # Panics
    /// Inside an async runtime.
    #[track_caller]
    pub fn json<T: DeserializeOwned + Send + 'static>(self) -> reqwest::Result<T> {
        self.thread.run(self.response.json())
    }

    /// Returns the body as text.
    ///
    /// # Errors
    /// If the body is streamed and cut off.
    ///
    /// # Panics
    /// Inside an async runtime.
    #[track_caller]
    pub fn text(self) -> reqwest::Result<String> {
        self.thread.run(self.response.text())
    }

    /// Returns the body.
    ///
    /// # Errors
    /// If the body is streamed and cut off.
    ///
    /// # Panics
    /// Inside an async runtime.
    #[track_caller]
    pub fn bytes(self) -> reqwest::Result<Bytes> {
        self.thread.run(self.response.bytes())
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.response.fmt(f)
    }
}

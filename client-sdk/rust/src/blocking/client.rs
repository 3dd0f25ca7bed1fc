//! The blocking client.

use std::fmt;
use std::sync::Arc;

use reqwest::Method;

use super::runtime_thread::RuntimeThread;
use super::submission::Submission;
use crate::error::Error;

/// A client that blocks, with the same submissions as the async [`Client`](crate::Client). Cheap to clone; clones share the thread, the tokens
/// and the connection pool.
///
/// [`ClientBuilder::build_blocking`](crate::ClientBuilder::build_blocking) builds one with settings.
#[derive(Clone)]
pub struct Client {
    client: crate::Client,
    thread: Arc<RuntimeThread>,
}

impl Client {
    /// Creates a client that fetches its tokens from the origin that it submits to, and starts its thread.
    ///
    /// # Errors
    /// If reqwest cannot build the HTTP client, or no thread can be started.
    pub fn new() -> Result<Self, Error> {
        crate::Client::builder().build_blocking()
    }

    pub(crate) fn with(client: crate::Client) -> Result<Self, Error> {
        let failed = |error: std::io::Error| {
            Error::misuse("the thread of the blocking client could not be started").with_source(Some(error.into()))
        };
        Ok(Self { client, thread: Arc::new(RuntimeThread::start().map_err(failed)?) })
    }

    /// Starts a submission with `POST`.
    pub fn post(&self, url: impl AsRef<str>) -> Submission {
        self.submit(Method::POST, url)
    }

    /// Starts a submission with `PUT`.
    pub fn put(&self, url: impl AsRef<str>) -> Submission {
        self.submit(Method::PUT, url)
    }

    /// Starts a submission with `PATCH`.
    pub fn patch(&self, url: impl AsRef<str>) -> Submission {
        self.submit(Method::PATCH, url)
    }

    /// Starts a submission with `DELETE`.
    pub fn delete(&self, url: impl AsRef<str>) -> Submission {
        self.submit(Method::DELETE, url)
    }

    /// Starts a submission with any method.
    pub fn submit(&self, method: Method, url: impl AsRef<str>) -> Submission {
        Submission::new(self.client.submit(method, url), Arc::clone(&self.thread))
    }

    /// Fetches tokens ahead of time, like [`Client::warm_up`](crate::Client::warm_up).
    ///
    /// # Errors
    /// If the URL is invalid, or no token can be fetched.
    ///
    /// # Panics
    /// Inside an async runtime.
    #[track_caller]
    pub fn warm_up(&self, url: impl AsRef<str>, count: u32) -> Result<(), Error> {
        let (client, url) = (self.client.clone(), url.as_ref().to_owned());
        self.thread.run(async move { client.warm_up(url, count).await })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.fmt(f)
    }
}

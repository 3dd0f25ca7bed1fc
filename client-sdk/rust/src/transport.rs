//! Sends a request, and tells what is certain if that fails.

use std::future::Future;

use reqwest::{Client, Request, Response};

use crate::error::BoxError;

/// Sends requests, without following redirects.
pub(crate) trait Transport: Send {
    /// Sends a request and waits for the head of the response.
    fn send(&mut self, request: Request) -> impl Future<Output = Result<Response, TransportError>> + Send;
}

/// Why there is no response.
#[derive(Debug)]
pub(crate) enum TransportError {
    /// The request is invalid.
    Misuse(BoxError),
    /// No connection could be made.
    NotSent(BoxError),
    /// The request may have arrived.
    Lost(BoxError),
}

impl From<reqwest::Error> for TransportError {
    fn from(error: reqwest::Error) -> Self {
        let error = error.without_url();
        if error.is_builder() {
            Self::Misuse(error.into())
        } else if error.is_connect() {
            Self::NotSent(error.into())
        } else {
            Self::Lost(error.into())
        }
    }
}

/// A plain reqwest client.
pub(crate) struct ReqwestTransport(pub(crate) Client);

impl Transport for ReqwestTransport {
    async fn send(&mut self, request: Request) -> Result<Response, TransportError> {
        self.0.execute(request).await.map_err(TransportError::from)
    }
}

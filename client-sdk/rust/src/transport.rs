//! Sends a request, and classifies the error if that fails.

use std::error::Error as StdError;
use std::future::Future;
use std::{io, iter};

use futures_util::TryFutureExt as _;
use reqwest::{Client, Request, Response};

use crate::error::BoxError;

/// Sends requests, without following redirects.
pub(crate) trait Transport: Send {
    /// Sends a request and waits for the headers of the response.
    fn send(&mut self, request: Request) -> impl Future<Output = Result<Response, TransportError>> + Send;
}

/// The reason why there is no response.
#[derive(Debug)]
pub(crate) enum TransportError {
    /// The request is invalid.
    Misuse(BoxError),
    /// The client could not connect.
    NotSent(BoxError),
    /// The server refused the connection, for example during a restart.
    Refused(BoxError),
    /// The request may have arrived.
    Lost(BoxError),
}

impl From<reqwest::Error> for TransportError {
    fn from(error: reqwest::Error) -> Self {
        let error = error.without_url();
        if error.is_builder() {
            Self::Misuse(error.into())
        } else if is_refused(&error) {
            Self::Refused(error.into())
        } else if error.is_connect() {
            Self::NotSent(error.into())
        } else {
            Self::Lost(error.into())
        }
    }
}

/// Returns true if the server refused the connection, so that nothing was sent.
pub(crate) fn is_refused(error: &reqwest::Error) -> bool {
    let mut causes = iter::successors(Some(error as &(dyn StdError + 'static)), |&cause| cause.source());
    let refused = |cause: &io::Error| cause.kind() == io::ErrorKind::ConnectionRefused;
    error.is_connect() && causes.any(|cause| cause.downcast_ref().is_some_and(refused))
}

/// A plain reqwest client.
pub(crate) struct ReqwestTransport<'a>(pub(crate) &'a Client);

impl Transport for ReqwestTransport<'_> {
    // Not an `async fn`, whose future would contain the whole request.
    fn send(&mut self, request: Request) -> impl Future<Output = Result<Response, TransportError>> + Send {
        self.0.execute(request).map_err(TransportError::from)
    }
}

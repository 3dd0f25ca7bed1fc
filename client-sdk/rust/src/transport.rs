//! What carries a request, and what may be known if it does not come back.

use std::future::Future;

use reqwest::{Client, Request, Response};

use crate::error::BoxError;

/// Carries requests, without following redirects.
pub(crate) trait Transport: Send {
    /// Sends a request and waits for the head of its answer.
    fn carry(&mut self, request: Request) -> impl Future<Output = Result<Response, Failed>> + Send;
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failed {
    /// It cannot be sent as it is.
    Misuse(BoxError),
    /// No connection could be made.
    NotSent(BoxError),
    /// It may have arrived.
    Lost(BoxError),
}

impl From<reqwest::Error> for Failed {
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

/// Plain reqwest.
pub(crate) struct Plain(pub(crate) Client);

impl Transport for Plain {
    async fn carry(&mut self, request: Request) -> Result<Response, Failed> {
        self.0.execute(request).await.map_err(Failed::from)
    }
}

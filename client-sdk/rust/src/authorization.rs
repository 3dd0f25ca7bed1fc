//! Credentials of the caller that are fetched when they are needed, and refreshed when they are no longer good.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use reqwest::header::HeaderValue;
use tokio::time::timeout;

use crate::error::BoxError;

type Fetch = dyn Fn(bool) -> BoxFuture<'static, Result<HeaderValue, BoxError>> + Send + Sync;

/// Gives the value of the `Authorization` header.
#[derive(Clone)]
pub(crate) struct Authorization(Arc<Fetch>);

impl Authorization {
    pub(crate) fn new<F, R>(fetch: F) -> Self
    where
        F: Fn(bool) -> R + Send + Sync + 'static,
        R: Future<Output = Result<String, BoxError>> + Send + 'static,
    {
        Self(Arc::new(move |again| {
            let fetched = fetch(again);
            Box::pin(async move {
                let mut value = HeaderValue::try_from(fetched.await?)?;
                value.set_sensitive(true);
                Ok(value)
            })
        }))
    }

    /// The value to send, if it is there in time; `again` if the last one was refused.
    pub(crate) async fn value(&self, again: bool, limit: Duration) -> Result<HeaderValue, BoxError> {
        let late = |_| format!("there were none within {limit:?}");
        timeout(limit, (self.0)(again)).await.map_err(late)?
    }
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorization(…)")
    }
}

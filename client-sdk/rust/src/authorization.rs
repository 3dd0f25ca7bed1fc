//! The `Authorization` header: fetched before each attempt, and refreshed after a 401.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use reqwest::header::HeaderValue;
use tokio::time::timeout;

use crate::error::BoxError;

type Fetch = dyn Fn(bool) -> BoxFuture<'static, Result<HeaderValue, BoxError>> + Send + Sync;

/// Fetches the value of the `Authorization` header.
#[derive(Clone)]
pub(crate) struct Authorization(Arc<Fetch>);

impl Authorization {
    pub(crate) fn new<F, R>(fetch: F) -> Self
    where
        F: Fn(bool) -> R + Send + Sync + 'static,
        R: Future<Output = Result<String, BoxError>> + Send + 'static,
    {
        Self(Arc::new(move |is_rejected| {
            let fetched = fetch(is_rejected);
            Box::pin(async move {
                let mut value = HeaderValue::try_from(fetched.await?)?;
                value.set_sensitive(true);
                Ok(value)
            })
        }))
    }

    /// Fetches the value to send. `is_rejected` is true after a 401.
    ///
    /// # Errors
    /// If the fetch fails or takes longer than `limit`, or if the value is not valid in a header.
    pub(crate) async fn value(&self, is_rejected: bool, limit: Duration) -> Result<HeaderValue, BoxError> {
        let late = |_| format!("no value within {limit:?}");
        timeout(limit, (self.0)(is_rejected)).await.map_err(late)?
    }
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorization(…)")
    }
}

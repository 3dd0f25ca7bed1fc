//! Clients that retry lost requests, each with the one flaw of a row of the museum.

use std::time::Duration;

use onceward_api::{Code, header};
use reqwest::RequestBuilder;
use tokio::time::sleep;

use crate::client::{http, token};
use crate::shop::ORDER;

/// The flaw of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientFlaw {
    /// Reuses the key of an operation for the next one.
    KeyLeak,
    /// Creates a new key for each retry.
    RotatedId,
    /// Fetches a new token for every `token_expired`, even if an earlier try may have run.
    RetokenedRetry,
    /// Retries a duplicate until the interval has expired.
    PatientClient,
}

/// A client with a flaw.
pub struct CarelessClient {
    flaw: ClientFlaw,
    http: reqwest::Client,
    kept: Option<String>,
}

impl CarelessClient {
    /// A client with this flaw.
    pub fn with(flaw: ClientFlaw) -> Self {
        Self { flaw, http: http(), kept: None }
    }

    /// Submits an order, with up to five tries, under a key if the path starts with `/keyed`. Returns true on a 2xx response.
    pub async fn submit(&mut self, url: &str, path: &str, order: &str) -> bool {
        let by_key = path.starts_with("/keyed");
        let mut credential = if by_key { self.key() } else { token(url).await };
        for _ in 0..5 {
            let request = self.http.post(format!("{url}{path}")).header(ORDER, order).body(order.to_owned());
            let name = if by_key { header::IDEMPOTENCY_KEY } else { header::TOKEN };
            match said(request.header(name, &credential)).await {
                None if self.flaw == ClientFlaw::RotatedId => credential = self.key(),
                None => {}
                Some((_, outcome)) if outcome == Code::TokenExpired.as_str() => credential = token(url).await,
                Some((_, outcome)) if self.flaw == ClientFlaw::PatientClient && outcome == Code::TooSoon.as_str() => {
                    // It ignores `Retry-After`.
                    sleep(Duration::from_millis(20)).await;
                }
                Some((is_success, _)) => return is_success,
            }
        }
        false
    }

    fn key(&mut self) -> String {
        let new = || uuid::Uuid::new_v4().to_string();
        match self.flaw {
            ClientFlaw::KeyLeak => self.kept.get_or_insert_with(new).clone(),
            _ => new(),
        }
    }
}

/// Returns true for a 2xx response, and the outcome; `None` if there was no response.
async fn said(request: RequestBuilder) -> Option<(bool, String)> {
    let response = request.send().await.ok()?;
    let outcome = response.headers().get(header::OUTCOME).and_then(|value| value.to_str().ok()).unwrap_or_default();
    Some((response.status().is_success(), outcome.to_owned()))
}

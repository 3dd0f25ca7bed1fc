//! Clients that repeat what was lost, each with the one flaw that its row of the museum tells of.

use std::time::Duration;

use onceward_api::{Code, header};
use reqwest::RequestBuilder;
use tokio::time::sleep;

use crate::client::{http, token};
use crate::shop::ORDER;

/// What is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientFlaw {
    /// It keeps the key of an operation for the next.
    KeyLeak,
    /// It makes a new key for each try.
    RotatedId,
    /// It fetches a new token whenever it is told to, whatever came before.
    RetokenedRetry,
    /// It waits until a duplicate is no longer refused, and sends it again.
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

    /// Submits an order, up to five times, by a key if its path says so. Says whether it was answered well.
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
                    // As long as it is told to, or as long as it thinks good.
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

/// Whether it went well, and what became of it; `None` if there was no answer.
async fn said(request: RequestBuilder) -> Option<(bool, String)> {
    let response = request.send().await.ok()?;
    let outcome = response.headers().get(header::OUTCOME).and_then(|value| value.to_str().ok()).unwrap_or_default();
    Some((response.status().is_success(), outcome.to_owned()))
}

//! The token or key that a submission holds during its attempts.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onceward_api::header;
use reqwest::header::{HeaderMap, HeaderName};
use tokio::time::Instant;

use crate::client::{Client, no_token};
use crate::credential::Credential;
use crate::error::Error;
use crate::key::{Key, generate_key};
use crate::retry_decision::CredentialKind;
use crate::submission::Plan;
use crate::token::Token;
use crate::token_pool::TokenPool;

static TOKEN: HeaderName = HeaderName::from_static(header::TOKEN);
static NEXT_TOKEN: HeaderName = HeaderName::from_static(header::NEXT_TOKEN);

/// The token or key in use.
pub(crate) enum CredentialState {
    Token { token: Token, pool: Arc<TokenPool> },
    Key(Key),
}

impl CredentialState {
    /// Acquires the token or key of the plan, for a submission that starts now.
    ///
    /// # Errors
    /// If no token can be fetched before the deadline, or the key is invalid.
    pub(crate) async fn acquire(client: &Client, plan: &Plan, now: Instant) -> Result<Self, Error> {
        let wrong = |error| Error::misuse(format!("invalid key: {error}"));
        match &plan.credential {
            Credential::Key(key) | Credential::ResumedKey(key) => Ok(Self::Key(key.clone())),
            Credential::GeneratedKey(application) => generate_key(application.as_deref()).map(Self::Key).map_err(wrong),
            Credential::Token => {
                let url = plan.url.as_ref().ok_or_else(|| Error::misuse("the submission has no URL"))?;
                let pool = client.pool(url, &plan.binding, &plan.identity)?;
                let token = match pool.take_from_stock(now) {
                    Some(token) => token,
                    // Boxed, since its future contains a timer.
                    None => Box::pin(pool.take(plan.limits.deadline)).await.map_err(no_token)?,
                };
                Ok(Self::Token { token, pool })
            }
        }
    }

    /// Replaces the rejected token.
    pub(crate) async fn replace_token(&mut self, limit: Duration) -> Result<(), Error> {
        if let Self::Token { token, pool } = self {
            *token = pool.take(limit).await.map_err(no_token)?;
        }
        Ok(())
    }

    /// Writes the token or key into a request's headers.
    pub(crate) fn write_to(&self, headers: &mut HeaderMap, key_header: &HeaderName) -> Result<(), Error> {
        match self {
            Self::Token { token, .. } => headers.insert(&TOKEN, token.header()),
            Self::Key(key) => {
                let value = key.header().map_err(|error| Error::misuse(error.to_string()))?;
                headers.insert(key_header, value)
            }
        };
        Ok(())
    }

    pub(crate) fn kind(&self) -> CredentialKind {
        match self {
            Self::Token { .. } => CredentialKind::Token,
            Self::Key(_) => CredentialKind::Key,
        }
    }

    pub(crate) fn key(&self) -> Option<&Key> {
        match self {
            Self::Token { .. } => None,
            Self::Key(key) => Some(key),
        }
    }

    /// The text of the token, if it is one.
    pub(crate) fn token(&self) -> Option<String> {
        match self {
            Self::Token { token, .. } => token.header().to_str().ok().map(str::to_owned),
            Self::Key(_) => None,
        }
    }

    /// Adds the next token in a response to the pool.
    pub(crate) fn store_next_token(&self, headers: &HeaderMap) {
        // A copy: the header's value keeps the whole buffer of the connection in memory.
        let next = headers.get(&NEXT_TOKEN).and_then(|value| Token::new(Bytes::copy_from_slice(value.as_bytes())));
        if let (Self::Token { pool, .. }, Some(next)) = (self, next) {
            pool.add(next);
        }
    }

    /// Discards the tokens in the pool: they would be rejected for the same reason.
    pub(crate) fn discard_pooled_tokens(&self) {
        if let Self::Token { pool, .. } = self {
            pool.clear();
        }
    }
}

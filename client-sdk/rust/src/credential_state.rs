//! The token or key that a submission holds, over all its tries.

use std::sync::Arc;

use onceward_api::header;
use reqwest::header::{HeaderMap, HeaderName};

use crate::client::{Client, no_token};
use crate::credential::Credential;
use crate::error::Error;
use crate::key::{Key, generate_key};
use crate::retry_decision::Carries;
use crate::submission::Plan;
use crate::token::Token;
use crate::token_pool::Pool;

static TOKEN: HeaderName = HeaderName::from_static(header::TOKEN);

/// What a submission is known by.
pub(crate) enum Held {
    Token { token: Token, pool: Arc<Pool> },
    Key(Key),
}

impl Held {
    /// Gets hold of what the plan wants.
    ///
    /// # Errors
    /// If there is no token, or the key is none.
    pub(crate) async fn get(client: &Client, plan: &Plan) -> Result<Self, Error> {
        let wrong = |error| Error::misuse(format!("the key cannot be used: {error}"));
        match &plan.credential {
            Credential::Key(key) | Credential::Resumed(key) => Ok(Self::Key(key.clone())),
            Credential::AnyKey(application) => generate_key(application.as_deref()).map(Self::Key).map_err(wrong),
            Credential::Token => {
                let url = plan.url.as_ref().ok_or_else(|| Error::misuse("there is no address"))?;
                let pool = client.pool(url, &plan.binding, &plan.identity)?;
                let token = pool.take().await.map_err(no_token)?;
                Ok(Self::Token { token, pool })
            }
        }
    }

    /// Another token in place of the one that was refused.
    pub(crate) async fn renew(&mut self) -> Result<(), Error> {
        if let Self::Token { token, pool } = self {
            *token = pool.take().await.map_err(no_token)?;
        }
        Ok(())
    }

    /// Puts it into a request.
    pub(crate) fn put_into(&self, headers: &mut HeaderMap, key_header: &HeaderName) -> Result<(), Error> {
        match self {
            Self::Token { token, .. } => headers.insert(&TOKEN, token.header()),
            Self::Key(key) => {
                let value = key.header().map_err(|error| Error::misuse(error.to_string()))?;
                headers.insert(key_header, value)
            }
        };
        Ok(())
    }

    pub(crate) fn carries(&self) -> Carries {
        match self {
            Self::Token { .. } => Carries::Token,
            Self::Key(_) => Carries::Key,
        }
    }

    pub(crate) fn key(&self) -> Option<&Key> {
        match self {
            Self::Token { .. } => None,
            Self::Key(key) => Some(key),
        }
    }

    /// Keeps a token that came with an answer.
    pub(crate) fn take_in(&self, headers: &HeaderMap) {
        let next = headers.get(header::NEXT_TOKEN).and_then(|value| Token::new(value.as_bytes()));
        if let (Self::Token { pool, .. }, Some(next)) = (self, next) {
            pool.give(next);
        }
    }

    /// Forgets the others in stock: what is wrong with this one is wrong with them.
    pub(crate) fn distrust(&self) {
        if let Self::Token { pool, .. } = self {
            pool.clear();
        }
    }
}

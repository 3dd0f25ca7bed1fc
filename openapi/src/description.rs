//! The description of an application's rules, which `GET /.well-known/onceward` returns.

#[cfg(feature = "utoipa")]
mod document;
mod limits;
#[cfg(feature = "utoipa")]
mod rejection_schema;
mod route;

use std::time::Duration;

use serde::{Deserialize, Serialize};

#[cfg(feature = "utoipa")]
pub use self::document::NotDocumented;
pub use self::limits::{ClaimLimits, DurationLimits, TokenLimits};
pub use self::route::{DescribedPolicy, DescribedRoute, KeyPlace};
use crate::header;

/// The rules of an application, a service or a proxy: header names, limits, and the policy of each route. It contains no secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Description {
    /// The names of the headers and of the form field.
    pub headers: HeaderNames,
    /// The limits of tokens; absent where none are issued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokenLimits>,
    /// The limits of claims by backends; absent where none are made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims: Option<ClaimLimits>,
    /// The protected routes. The first whose path and method match a request, and for which the request has what it requires, applies.
    #[serde(default)]
    pub routes: Vec<DescribedRoute>,
}

impl Description {
    /// The path at which clients look for it.
    pub const PATH: &str = "/.well-known/onceward";

    /// Creates a description without routes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the time to live of tokens that a client does not choose, which is also the longest that it may choose.
    #[must_use]
    pub fn token_ttl(mut self, ttl: Duration) -> Self {
        self.tokens = Some(TokenLimits { ttl, max_ttl: ttl, per_request: 1 });
        self
    }

    /// Adds a route.
    #[must_use]
    pub fn route(mut self, route: DescribedRoute) -> Self {
        self.routes.push(route);
        self
    }
}

/// The names of headers and of the form field, in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct HeaderNames {
    /// Request: a token.
    pub token: String,
    /// The form field, multipart part and query parameter that carries a token.
    pub token_field: String,
    /// Request: a key.
    pub key: String,
    /// Request: `true` returns the recorded outcome, and nothing runs.
    pub look: String,
    /// Response: the outcome.
    pub outcome: String,
    /// Response: `true` if it is a stored one.
    pub replayed: String,
    /// Response: the next step after a rejection.
    pub retry: String,
    /// Response: whole seconds to wait before that.
    pub retry_after: String,
    /// Response: a token for the next submission.
    pub next_token: String,
}

impl Default for HeaderNames {
    fn default() -> Self {
        let name = str::to_owned;
        Self {
            token: name(header::TOKEN),
            token_field: name(header::FIELD),
            key: name(header::IDEMPOTENCY_KEY),
            look: name(header::LOOK),
            outcome: name(header::OUTCOME),
            replayed: name(header::IDEMPOTENT_REPLAYED),
            retry: name(header::RETRY),
            retry_after: name(header::RETRY_AFTER),
            next_token: name(header::NEXT_TOKEN),
        }
    }
}

//! Why no token could be fetched, and what to do about it.

use std::error::Error as _;
use std::time::Duration;

use onceward_api::{Code, Problem, Retry};
use reqwest::{StatusCode, Url};

use crate::error::BoxError;
use crate::rejection::Rejection;
use crate::transport::is_refused;

/// The advice if the server may not be Onceward's.
const ADVICE: &str = "Is Onceward there? An application needs `token_route`; if its tokens come from elsewhere, name that \
    address with `tokens_from`; if it goes by keys, use `with_keys`.";

/// The advice if the server wants to know the caller.
const IDENTIFY: &str = " Say who is asking, with `authorization` or `identity`.";

/// Why no token could be fetched.
#[derive(Debug, Clone, Default)]
pub(crate) struct TokenError {
    pub(crate) message: String,
    /// Whether a retry may succeed.
    pub(crate) is_transient: bool,
    /// Whether the server refused the connection, as it does while it restarts.
    pub(crate) is_refused: bool,
    pub(crate) rejection: Option<Box<Rejection>>,
}

impl TokenError {
    fn permanent(message: String) -> Self {
        Self { message, is_transient: false, is_refused: false, rejection: None }
    }

    /// The server's `Retry-After`.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.rejection.as_ref()?.retry_after
    }
}

/// The server does not respond.
pub(super) fn unreachable(url: &Url, error: reqwest::Error) -> TokenError {
    let is_refused = is_refused(&error);
    let error = error.without_url();
    let mut why = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        why = format!("{why}: {cause}");
        source = cause.source();
    }
    let message = format!("{} does not answer ({why}). Is it running, and is the address right?", redacted(url));
    TokenError { message, is_transient: !error.is_builder(), is_refused, rejection: None }
}

/// There was no token within the deadline. `last` is the error of the last fetch, if one has failed.
pub(super) fn too_late(last: Option<TokenError>) -> TokenError {
    let reason = last.as_ref().map_or("is `/token` slow, or its rate limit low?", |last| &last.message);
    TokenError { message: format!("no token within the deadline: {reason}"), ..last.clone().unwrap_or_default() }
}

/// A guard or the service rejected the request.
pub(super) fn rejected(url: &Url, rejection: Rejection) -> TokenError {
    let problem = &rejection.problem;
    let next = match problem.code {
        Code::RateLimited => " Ask for fewer at a time (`pool_size`), or have `rate_limit` raised.",
        Code::Unauthorized => IDENTIFY,
        Code::NotFound => ADVICE,
        _ => "",
    };
    let message = format!("{} rejected the request ({}): {}{next}", redacted(url), problem.code, problem.detail);
    TokenError {
        message,
        is_transient: problem.retry == Retry::Same,
        is_refused: false,
        rejection: Some(Box::new(rejection)),
    }
}

/// The response is an error, but not of Onceward.
pub(super) fn unexpected_status(url: &Url, status: StatusCode, retry_after: Option<Duration>) -> TokenError {
    let is_transient = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
    let message = match status {
        _ if status.is_redirection() => {
            format!("{} leads elsewhere ({status}). Name the address it leads to with `tokens_from`.", redacted(url))
        }
        _ if is_transient => format!("{} answered {status}. Try again in a moment.", redacted(url)),
        StatusCode::UNAUTHORIZED => format!("{} answered {status}.{IDENTIFY}", redacted(url)),
        _ => format!("{} answered {status}. {ADVICE}", redacted(url)),
    };
    let code = if status == StatusCode::TOO_MANY_REQUESTS { Code::RateLimited } else { Code::Overloaded };
    let wait = |after| Box::new(Rejection { problem: Problem::new(code), retry_after: Some(after) });
    TokenError { message, is_transient, is_refused: false, rejection: retry_after.filter(|_| is_transient).map(wait) }
}

/// The response has no token in it.
pub(super) fn no_token_in_body(url: &Url, status: StatusCode, kind: &str) -> TokenError {
    TokenError::permanent(format!("{} answered {status} with {kind}, and no token is in it. {ADVICE}", redacted(url)))
}

/// The response has a token that cannot be used.
pub(super) fn unusable_token(url: &Url, what: &str) -> TokenError {
    TokenError::permanent(format!("{} answered with {what}. Is Onceward there?", redacted(url)))
}

/// The caller's credentials could not be fetched.
pub(super) fn without_credentials(url: &Url, error: &BoxError) -> TokenError {
    TokenError::permanent(format!("the credentials for {} could not be had: {error}", redacted(url)))
}

/// The request for error messages: without parts of the address that may be secret.
fn redacted(url: &Url) -> String {
    format!("POST {}{}", url.origin().ascii_serialization(), url.path())
}

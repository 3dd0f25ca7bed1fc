//! Errors of fetching a token, with advice.

use std::error::Error as _;
use std::time::Duration;

use onceward_api::{Code, Problem, Retry};
use reqwest::{StatusCode, Url};

use crate::error::BoxError;
use crate::rejection::Rejection;
use crate::transport::is_refused;

/// The advice if the server may not be an Onceward server.
const ADVICE: &str = "Is this an Onceward server? An application needs `token_route`; if another server issues the tokens, set its \
    URL with `tokens_from`; if the route expects keys, use `with_keys`.";

/// The advice if the server requires an identity.
const IDENTIFY: &str = " Identify the client with `authorization` or `identity`.";

/// The error of fetching a token.
#[derive(Debug, Clone, Default)]
pub(crate) struct TokenError {
    pub(crate) message: String,
    /// True if a retry may succeed.
    pub(crate) is_transient: bool,
    /// True if the server refused the connection, for example during a restart.
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

/// The server did not respond.
pub(super) fn unreachable(url: &Url, error: reqwest::Error) -> TokenError {
    let is_refused = is_refused(&error);
    let error = error.without_url();
    let mut why = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        why = format!("{why}: {cause}");
        source = cause.source();
    }
    let message = format!("{} failed ({why}). Is the server running, and is the URL correct?", redacted(url));
    TokenError { message, is_transient: !error.is_builder(), is_refused, rejection: None }
}

/// No token arrived before the deadline. `last` is the error of the last fetch, if it failed.
pub(super) fn too_late(last: Option<TokenError>) -> TokenError {
    let reason = last.as_ref().map_or("is `/token` slow, or its rate limit low?", |last| &last.message);
    TokenError { message: format!("no token within the deadline: {reason}"), ..last.clone().unwrap_or_default() }
}

/// The server rejected the request with a problem.
pub(super) fn rejected(url: &Url, rejection: Rejection) -> TokenError {
    let problem = &rejection.problem;
    let next = match problem.code {
        Code::RateLimited => " Fetch fewer tokens at a time (`pool_size`), or raise `rate_limit` on the server.",
        Code::Unauthorized => IDENTIFY,
        Code::NotFound => ADVICE,
        _ => "",
    };
    let message = format!("{} was rejected ({}): {}{next}", redacted(url), problem.code, problem.detail);
    TokenError {
        message,
        is_transient: problem.retry == Retry::Same,
        is_refused: false,
        rejection: Some(Box::new(rejection)),
    }
}

/// The response has an error status and no problem.
pub(super) fn unexpected_status(url: &Url, status: StatusCode, retry_after: Option<Duration>) -> TokenError {
    let is_transient = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
    let message = match status {
        _ if status.is_redirection() => {
            format!("{} was redirected ({status}). Set the target URL with `tokens_from`.", redacted(url))
        }
        _ if is_transient => format!("{} returned {status}. Try again in a moment.", redacted(url)),
        StatusCode::UNAUTHORIZED => format!("{} returned {status}.{IDENTIFY}", redacted(url)),
        _ => format!("{} returned {status}. {ADVICE}", redacted(url)),
    };
    let code = if status == StatusCode::TOO_MANY_REQUESTS { Code::RateLimited } else { Code::Overloaded };
    let wait = |after| Box::new(Rejection { problem: Problem::new(code), retry_after: Some(after) });
    TokenError { message, is_transient, is_refused: false, rejection: retry_after.filter(|_| is_transient).map(wait) }
}

/// The response contains no token.
pub(super) fn no_token_in_body(url: &Url, status: StatusCode, kind: &str) -> TokenError {
    TokenError::permanent(format!("{} returned {status} ({kind}) without a token. {ADVICE}", redacted(url)))
}

/// The response contains an unusable token.
pub(super) fn unusable_token(url: &Url, what: &str) -> TokenError {
    TokenError::permanent(format!("{} returned {what}. Is this an Onceward server?", redacted(url)))
}

/// The `Authorization` value could not be fetched.
pub(super) fn without_credentials(url: &Url, error: &BoxError) -> TokenError {
    TokenError::permanent(format!("the `Authorization` value for {} could not be fetched: {error}", redacted(url)))
}

/// The request for error messages: without the parts of the URL that may be secret.
fn redacted(url: &Url) -> String {
    format!("POST {}{}", url.origin().ascii_serialization(), url.path())
}

//! Why there is no token, in words that say what to do.

use std::error::Error as _;
use std::time::Duration;

use onceward_api::{Code, Problem, Retry};
use reqwest::{StatusCode, Url};

use crate::error::BoxError;
use crate::rejection::Refusal;

/// What to do about a server that is another one.
const ADVICE: &str = "Is Onceward there? An application needs `token_route`; if its tokens come from elsewhere, name that \
    address with `tokens_from`; if it goes by keys, use `with_keys`.";

/// What to do about one that wants to know who is asking.
const IDENTIFY: &str = " Say who is asking, with `authorization` or `identity`.";

/// Why there is no token.
#[derive(Debug, Clone)]
pub(crate) struct NoToken {
    pub(crate) says: String,
    /// Whether it may be otherwise in a moment.
    pub(crate) is_passing: bool,
    pub(crate) refusal: Option<Box<Refusal>>,
}

impl NoToken {
    fn lasting(says: String) -> Self {
        Self { says, is_passing: false, refusal: None }
    }

    /// How long the server asks to wait.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.refusal.as_ref()?.retry_after
    }
}

/// Nobody answers there.
pub(super) fn unreachable(url: &Url, error: reqwest::Error) -> NoToken {
    let error = error.without_url();
    let mut why = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        why = format!("{why}: {cause}");
        source = cause.source();
    }
    let says = format!("{} does not answer ({why}). Is it running, and is the address right?", named(url));
    NoToken { says, is_passing: !error.is_builder(), refusal: None }
}

/// A guard or the service refuses.
pub(super) fn refused(url: &Url, refusal: Refusal) -> NoToken {
    let problem = &refusal.problem;
    let next = match problem.code {
        Code::RateLimited => " Ask for fewer at a time (`pool_size`), or have `rate_limit` raised.",
        Code::Unauthorized => IDENTIFY,
        Code::NotFound => ADVICE,
        _ => "",
    };
    let says = format!("{} refused ({}): {}{next}", named(url), problem.code, problem.detail);
    NoToken { says, is_passing: problem.retry == Retry::Same, refusal: Some(Box::new(refusal)) }
}

/// Somebody else answers.
pub(super) fn other_status(url: &Url, status: StatusCode, retry_after: Option<Duration>) -> NoToken {
    let is_passing = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
    let says = match status {
        _ if status.is_redirection() => {
            format!("{} leads elsewhere ({status}). Name the address it leads to with `tokens_from`.", named(url))
        }
        _ if is_passing => format!("{} answered {status}. Try again in a moment.", named(url)),
        StatusCode::UNAUTHORIZED => format!("{} answered {status}.{IDENTIFY}", named(url)),
        _ => format!("{} answered {status}. {ADVICE}", named(url)),
    };
    let code = if status == StatusCode::TOO_MANY_REQUESTS { Code::RateLimited } else { Code::Overloaded };
    let wait = |after| Box::new(Refusal { problem: Problem::new(code), retry_after: Some(after) });
    NoToken { says, is_passing, refusal: retry_after.filter(|_| is_passing).map(wait) }
}

/// There is an answer, and no token in it.
pub(super) fn of_another_kind(url: &Url, status: StatusCode, kind: &str) -> NoToken {
    NoToken::lasting(format!("{} answered {status} with {kind}, and no token is in it. {ADVICE}", named(url)))
}

/// There is a token that nobody can use.
pub(super) fn of_no_use(url: &Url, what: &str) -> NoToken {
    NoToken::lasting(format!("{} answered with {what}. Is Onceward there?", named(url)))
}

/// The caller cannot say who it is.
pub(super) fn without_credentials(url: &Url, error: &BoxError) -> NoToken {
    NoToken::lasting(format!("the credentials for {} could not be had: {error}", named(url)))
}

/// An address as it may be shown: without what may be secret.
fn named(url: &Url) -> String {
    format!("POST {}{}", url.origin().ascii_serialization(), url.path())
}

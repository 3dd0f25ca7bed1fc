//! The error of a submission: an opaque type with one method per property.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use onceward_api::{Code, Problem};

use crate::key::Key;
use crate::rejection::Rejection;
use crate::retry_decision::CredentialKind;

/// A boxed error of any type.
pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

/// The error of a submission that has no response of the application. Its text contains no token and no key; [`key`](Self::key) returns the
/// key.
///
/// Check [`is_unknown`](Self::is_unknown) before [`is_in_progress`](Self::is_in_progress): both are true if an attempt had no response and
/// the last one was rejected because the submission is in progress. The unknown outcome then decides what you may do. The order of the
/// other checks does not matter.
///
/// ```no_run
/// # async fn example(client: onceward_client::Client) {
/// match client.post("https://shop.example/orders").body("tea").send().await {
///     Ok(response) => println!("the shop responded with {}", response.status()),
///     Err(error) if error.is_unknown() => println!("outcome unknown; resume with {:?}", error.key()),
///     Err(error) if error.is_in_progress() => println!("in progress; retry in {:?}", error.retry_after()),
///     Err(error) if error.is_duplicate() => println!("duplicate of an earlier order"),
///     Err(error) => println!("not ordered: {error}"),
/// }
/// # }
/// ```
pub struct Error(Box<ErrorInner>);

struct ErrorInner {
    kind: ErrorKind,
    message: String,
    key: Option<Key>,
    rejection: Option<Rejection>,
    attempts: u32,
    source: Option<BoxError>,
}

/// The state of the submission when it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// The call is invalid; nothing was sent.
    Misuse,
    /// No token could be fetched; nothing was sent.
    NoToken,
    /// The client could not connect; nothing was sent.
    NotSent,
    /// A guard rejected the submission.
    Rejected,
    /// The submission may have run.
    Unknown,
    /// The response was a redirect, and its target could not be read.
    Redirect,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(ErrorInner {
            kind,
            message: message.into(),
            key: None,
            rejection: None,
            attempts: 0,
            source: None,
        }))
    }

    pub(crate) fn misuse(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Misuse, message)
    }

    /// The error of a rejected submission that carried `credential`.
    pub(crate) fn rejected(rejection: Rejection, credential: CredentialKind) -> Self {
        Self::new(ErrorKind::Rejected, rejection_message(&rejection, credential)).with_rejection(Some(rejection))
    }

    /// Turns an error that claims that nothing ran into an unknown outcome, since an earlier attempt had no response.
    pub(crate) fn in_doubt(mut self) -> Self {
        if matches!(self.0.kind, ErrorKind::Misuse | ErrorKind::NoToken) {
            self.0.message =
                format!("the outcome is unknown, since an earlier attempt had no response: {}", self.0.message);
            self.0.kind = ErrorKind::Unknown;
        }
        self
    }

    pub(crate) fn with_key(mut self, key: Option<&Key>) -> Self {
        self.0.key = key.cloned();
        self
    }

    pub(crate) fn with_rejection(mut self, rejection: Option<Rejection>) -> Self {
        self.0.rejection = rejection;
        self
    }

    pub(crate) fn with_attempts(mut self, attempts: u32) -> Self {
        self.0.attempts = attempts;
        self
    }

    pub(crate) fn with_source(mut self, source: Option<BoxError>) -> Self {
        self.0.source = source;
        self
    }

    /// True if the server has received the submission before and cannot replay the response: another request used the token, no response
    /// was stored, or the same content arrived within the interval of the route. The SDK does not retry it.
    pub fn is_duplicate(&self) -> bool {
        self.0.kind == ErrorKind::Rejected
            && matches!(self.code(), Some(Code::TokenUsed | Code::ReplyNotKept | Code::TooSoon))
    }

    /// True if the last response was that the same submission is in progress. Check [`is_unknown`](Self::is_unknown) first, which may be
    /// true too. If it is false, every attempt had a response, and another request with this key or token is in flight. Send the submission
    /// again with the same [`key`](Self::key) after [`retry_after`](Self::retry_after) to receive that request's response.
    pub fn is_in_progress(&self) -> bool {
        self.code() == Some(Code::InProgress)
    }

    /// True if the outcome is unknown: the submission may have taken effect, or may still do so. Send it again only with the same
    /// [`key`](Self::key), with [`resume`](crate::Submission::resume). Check this first: it does not depend on the last response.
    pub fn is_unknown(&self) -> bool {
        self.0.kind == ErrorKind::Unknown
    }

    /// True if the call is invalid, such as a malformed URL. A retry fails again.
    pub fn is_misuse(&self) -> bool {
        self.0.kind == ErrorKind::Misuse
    }

    /// True if no token could be fetched, so that nothing was sent.
    pub fn is_without_token(&self) -> bool {
        self.0.kind == ErrorKind::NoToken
    }

    /// True if it is certain that no attempt of this submission ran the handler, and that none will.
    pub fn ran_nothing(&self) -> bool {
        let is_certain =
            matches!(self.0.kind, ErrorKind::Misuse | ErrorKind::NoToken | ErrorKind::NotSent | ErrorKind::Rejected);
        // A duplicate may be this submission itself: a proxy may have sent it twice.
        is_certain && !self.is_duplicate() && self.code() != Some(Code::InProgress)
    }

    /// True if the response was a redirect, and its target could not be read.
    pub fn is_redirect(&self) -> bool {
        self.0.kind == ErrorKind::Redirect
    }

    /// The server's `Retry-After`: the time to wait before the next attempt.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.rejection.as_ref()?.retry_after
    }

    /// The key of this submission, if it had one. Save it to [`resume`](crate::Submission::resume) the submission later.
    pub fn key(&self) -> Option<&Key> {
        self.0.key.as_ref()
    }

    /// The last problem that the server returned, if any.
    pub fn problem(&self) -> Option<&Problem> {
        self.0.rejection.as_ref().map(|rejection| &rejection.problem)
    }

    /// The code of the [`problem`](Self::problem).
    pub fn code(&self) -> Option<Code> {
        self.problem().map(|problem| problem.code)
    }

    /// The number of attempts.
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }
}

/// The text of a rejection: the problem, and what to change.
fn rejection_message(rejection: &Rejection, credential: CredentialKind) -> String {
    let Problem { code, title, detail, .. } = &rejection.problem;
    let advice = match (code, credential) {
        (Code::TokenExpired | Code::TokenStale, _) => {
            " A new token was rejected too: check that issuer and guard share the secret and the store, and that their clocks agree."
        }
        (Code::TokenInvalid, _) => {
            " Fetch tokens from the application itself or from the service that shares its store (`tokens_from`), and for the same subject and action."
        }
        (Code::TokenMissing, CredentialKind::Key) => {
            " This route expects a token: use `with_tokens()`, or `with_token()` for one submission."
        }
        (Code::TokenMissing, _) => {
            " The token did not arrive: a proxy removed the header, or the request was redirected to another origin."
        }
        (Code::KeyMissing, CredentialKind::Token) => {
            " This route expects a key: use `with_keys()`, or `with_key()` for one submission."
        }
        (Code::KeyMissing, _) => {
            " The key did not arrive: the route reads another header (`key_header`), a proxy removed the header, or the request was redirected to another origin."
        }
        _ => "",
    };
    format!("rejected ({code}): {title}. {detail}{advice}")
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("code", &self.code())
            .field("retry_after", &self.retry_after())
            .field("attempts", &self.0.attempts)
            .field("source", &self.0.source)
            .finish_non_exhaustive()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(code: Code) -> Error {
        rejected_with(code, CredentialKind::Token)
    }

    fn rejected_with(code: Code, credential: CredentialKind) -> Error {
        let rejection = Rejection { problem: Problem::new(code), retry_after: Some(Duration::from_secs(2)) };
        Error::rejected(rejection, credential)
    }

    #[test]
    fn wrong_credential_kind_is_named_with_the_setting() {
        let says = |code, credential, advice: &str| {
            let text = rejected_with(code, credential).to_string();
            assert!(text.contains(advice), "`{advice}` is not in: {text}");
        };
        says(Code::TokenMissing, CredentialKind::Key, "expects a token: use `with_tokens()`");
        says(Code::KeyMissing, CredentialKind::Token, "expects a key: use `with_keys()`");
        // The right kind was sent, and did not arrive.
        says(Code::TokenMissing, CredentialKind::Token, "a proxy removed the header");
        says(Code::TokenMissing, CredentialKind::Nothing, "redirected to another origin");
        says(Code::KeyMissing, CredentialKind::Key, "`key_header`");
    }

    #[test]
    fn error_has_its_key_but_does_not_print_it() {
        let key = Key::new("secret-key").unwrap();
        let error = rejected(Code::InProgress).with_key(Some(&key)).with_attempts(3);
        assert!(error.is_in_progress() && !error.is_unknown() && !error.is_duplicate() && !error.ran_nothing());
        assert_eq!((error.retry_after(), error.attempts()), (Some(Duration::from_secs(2)), 3));
        assert_eq!(error.key().map(Key::as_str), Some("secret-key"));
        assert!(!format!("{error} {error:?}").contains("secret-key"));
    }

    #[test]
    fn later_misuse_leaves_an_earlier_attempt_unknown() {
        let later = Error::misuse("no credentials").in_doubt();
        assert!(later.is_unknown() && !later.ran_nothing() && later.to_string().ends_with("no credentials"));
        assert!(Error::new(ErrorKind::Redirect, "").in_doubt().is_redirect());
    }

    #[test]
    fn unknown_error_may_also_be_in_progress() {
        let rejection = Rejection { problem: Problem::new(Code::InProgress), retry_after: None };
        let both = Error::new(ErrorKind::Unknown, "").with_rejection(Some(rejection));
        assert!(both.is_unknown() && both.is_in_progress());
        assert!(!both.is_duplicate() && !both.is_redirect() && !both.is_without_token() && !both.is_misuse());
        assert!(!both.ran_nothing());
    }

    #[test]
    fn duplicate_in_doubt_is_unknown() {
        let rejection = Rejection { problem: Problem::new(Code::TokenUsed), retry_after: None };
        let unknown = Error::new(ErrorKind::Unknown, "").with_rejection(Some(rejection));
        assert!(unknown.is_unknown() && !unknown.is_duplicate() && !unknown.ran_nothing());
        assert!(rejected(Code::TokenExpired).ran_nothing() && Error::misuse("").ran_nothing());
        for code in [Code::TokenUsed, Code::ReplyNotKept, Code::TooSoon] {
            assert!(rejected(code).is_duplicate() && !rejected(code).ran_nothing(), "{code}: it may have been our own");
        }
        assert!(!rejected(Code::Locked).is_duplicate() && rejected(Code::Locked).ran_nothing());
    }
}

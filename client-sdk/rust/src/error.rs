//! The error of a submission: opaque, with a method for each question a caller asks.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use onceward_api::{Code, Problem};

use crate::key::Key;
use crate::rejection::Rejection;

/// Any error.
pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

/// Why a submission has no response of the application. No token and no key is in its text; the key is given by
/// [`key`](Self::key).
///
/// Ask [`is_unknown`](Self::is_unknown) before [`is_in_progress`](Self::is_in_progress): both are true if an attempt had no response and the
/// last one was rejected because the submission is in progress. *Unknown* then says what you may do. The order of the other questions
/// does not matter.
///
/// ```no_run
/// # async fn example(client: onceward_client::Client) {
/// match client.post("https://shop.example/orders").body("tea").send().await {
///     Ok(response) => println!("ordered, or refused by the shop itself: {}", response.status()),
///     Err(error) if error.is_unknown() => println!("unknown; find out about {:?}", error.key()),
///     Err(error) if error.is_in_progress() => println!("being ordered; ask again in {:?}", error.retry_after()),
///     Err(error) if error.is_duplicate() => println!("it was ordered before"),
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

/// What is certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// The call itself is wrong; nothing was sent.
    Misuse,
    /// There is no token; nothing was sent.
    NoToken,
    /// No connection could be made; nothing was sent.
    NotSent,
    /// A guard rejected it.
    Rejected,
    /// It may have run.
    Unknown,
    /// The submission was answered with a redirect, whose target could not be read.
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

    pub(crate) fn rejected(rejection: Rejection) -> Self {
        Self::new(ErrorKind::Rejected, hint(&rejection)).with_rejection(Some(rejection))
    }

    /// The same error after an attempt without a response, about which it says nothing.
    pub(crate) fn in_doubt(mut self) -> Self {
        if matches!(self.0.kind, ErrorKind::Misuse | ErrorKind::NoToken) {
            self.0.message = format!(
                "it is not known whether it happened, since an earlier attempt had no response: {}",
                self.0.message
            );
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

    /// Whether it was received before, as far as the server says, and its response is not to be had: another request used the token, no
    /// response was stored, or the same content came within the interval of the route. The SDK does not send it again by itself.
    pub fn is_duplicate(&self) -> bool {
        self.0.kind == ErrorKind::Rejected
            && matches!(self.code(), Some(Code::TokenUsed | Code::ReplyNotKept | Code::TooSoon))
    }

    /// Whether the last response was that the same submission is being carried out. Ask [`is_unknown`](Self::is_unknown) first, which may be
    /// true too. If it is not, every attempt was answered: another request runs under this key or token. Send it again under the same
    /// [`key`](Self::key) after [`retry_after`](Self::retry_after), and it receives that request's response.
    pub fn is_in_progress(&self) -> bool {
        self.code() == Some(Code::InProgress)
    }

    /// Whether the outcome is unknown: it may have taken effect, or may still. Send it again only under the same
    /// [`key`](Self::key), with [`resume`](crate::Submission::resume). Ask this first: it is true whatever the last response was.
    pub fn is_unknown(&self) -> bool {
        self.0.kind == ErrorKind::Unknown
    }

    /// Whether the call itself is wrong, such as an address that is none. A retry changes nothing.
    pub fn is_misuse(&self) -> bool {
        self.0.kind == ErrorKind::Misuse
    }

    /// Whether there was no token to be had, so that nothing was sent.
    pub fn is_without_token(&self) -> bool {
        self.0.kind == ErrorKind::NoToken
    }

    /// Whether it is certain that no try of this submission ran anything, and that none will.
    pub fn ran_nothing(&self) -> bool {
        let is_certain =
            matches!(self.0.kind, ErrorKind::Misuse | ErrorKind::NoToken | ErrorKind::NotSent | ErrorKind::Rejected);
        // In progress it runs. And whose the first one was is not said of a duplicate: a proxy may have sent ours twice.
        is_certain && !self.is_duplicate() && self.code() != Some(Code::InProgress)
    }

    /// Whether the submission was answered with a redirect, whose target could not be read.
    pub fn is_redirect(&self) -> bool {
        self.0.kind == ErrorKind::Redirect
    }

    /// How long the server asks to wait before the same is sent again.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.rejection.as_ref()?.retry_after
    }

    /// The key of this submission, if it had one: save it, and resume under it.
    pub fn key(&self) -> Option<&Key> {
        self.0.key.as_ref()
    }

    /// What the server said last, if it said anything.
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

/// The meaning of a rejection, and the client's reaction.
fn hint(rejection: &Rejection) -> String {
    let Problem { code, title, detail, .. } = &rejection.problem;
    let next = match code {
        Code::TokenExpired | Code::TokenStale => {
            " A fresh token was rejected too: do the clocks, the secret and the store of who issues and who takes tokens agree?"
        }
        Code::TokenInvalid => {
            " Fetch tokens from the application itself or from the service it shares its store with (`tokens_from`), and for the same caller and action."
        }
        Code::TokenMissing => {
            " The token did not arrive: is it taken away on the way, or by a redirect to another origin?"
        }
        Code::KeyMissing => " This route goes by a key: use `with_key`.",
        _ => "",
    };
    format!("it was rejected ({code}): {title}. {detail}{next}")
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
        Error::rejected(Rejection { problem: Problem::new(code), retry_after: Some(Duration::from_secs(2)) })
    }

    #[test]
    fn an_error_answers_what_it_is_asked_and_nothing_else_is_in_its_text() {
        let key = Key::new("secret-key").unwrap();
        let error = rejected(Code::InProgress).with_key(Some(&key)).with_attempts(3);
        assert!(error.is_in_progress() && !error.is_unknown() && !error.is_duplicate() && !error.ran_nothing());
        assert_eq!((error.retry_after(), error.attempts()), (Some(Duration::from_secs(2)), 3));
        assert_eq!(error.key().map(Key::as_str), Some("secret-key"));
        assert!(!format!("{error} {error:?}").contains("secret-key"));
    }

    #[test]
    fn what_is_wrong_with_a_later_try_says_nothing_of_an_earlier_one() {
        let later = Error::misuse("no credentials").in_doubt();
        assert!(later.is_unknown() && !later.ran_nothing() && later.to_string().ends_with("no credentials"));
        assert!(Error::new(ErrorKind::Redirect, "").in_doubt().is_redirect());
    }

    #[test]
    fn unknown_error_may_be_in_progress_too_and_nothing_else() {
        let rejection = Rejection { problem: Problem::new(Code::InProgress), retry_after: None };
        let both = Error::new(ErrorKind::Unknown, "").with_rejection(Some(rejection));
        assert!(both.is_unknown() && both.is_in_progress());
        assert!(!both.is_duplicate() && !both.is_redirect() && !both.is_without_token() && !both.is_misuse());
        assert!(!both.ran_nothing());
    }

    #[test]
    fn a_duplicate_is_one_only_if_nobody_doubts_it() {
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

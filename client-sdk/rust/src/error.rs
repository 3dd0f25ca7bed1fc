//! Why there is no answer: one opaque error, and the questions it answers.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use onceward_api::{Code, Problem};

use crate::key::Key;
use crate::rejection::Refusal;

/// Any error.
pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

/// Why a submission has no answer of the application. No token and no key is in its text; the key is given by
/// [`key`](Self::key).
///
/// ```no_run
/// # async fn example(client: onceward_client::Client) {
/// match client.post("https://shop.example/orders").body("tea").send().await {
///     Ok(answer) => println!("ordered, or refused by the shop itself: {}", answer.status()),
///     Err(error) if error.is_unknown() => println!("nobody knows; ask for {:?}", error.key()),
///     Err(error) if error.is_duplicate() => println!("it was ordered before"),
///     Err(error) => println!("not ordered: {error}"),
/// }
/// # }
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: Kind,
    says: String,
    key: Option<Key>,
    refusal: Option<Refusal>,
    tries: u32,
    source: Option<BoxError>,
}

/// What is certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The call itself is wrong; nothing was sent.
    Misuse,
    /// There is no token; nothing was sent.
    NoToken,
    /// No connection could be made; nothing was sent.
    NotSent,
    /// A guard refused it.
    Refused,
    /// Nobody can tell whether it ran.
    Unknown,
    /// It was answered, and what the answer leads to could not be read.
    Followed,
}

impl Error {
    pub(crate) fn new(kind: Kind, says: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, says: says.into(), key: None, refusal: None, tries: 0, source: None }))
    }

    pub(crate) fn misuse(says: impl Into<String>) -> Self {
        Self::new(Kind::Misuse, says)
    }

    pub(crate) fn refused(refusal: Refusal) -> Self {
        Self::new(Kind::Refused, hint(&refusal)).with_refusal(Some(refusal))
    }

    /// The same after a try without an answer: what is wrong now says nothing of that one.
    pub(crate) fn in_doubt(mut self) -> Self {
        if matches!(self.0.kind, Kind::Misuse | Kind::NoToken) {
            self.0.says =
                format!("it is not known whether it happened, since an earlier try had no answer: {}", self.0.says);
            self.0.kind = Kind::Unknown;
        }
        self
    }

    pub(crate) fn with_key(mut self, key: Option<&Key>) -> Self {
        self.0.key = key.cloned();
        self
    }

    pub(crate) fn with_refusal(mut self, refusal: Option<Refusal>) -> Self {
        self.0.refusal = refusal;
        self
    }

    pub(crate) fn with_tries(mut self, tries: u32) -> Self {
        self.0.tries = tries;
        self
    }

    pub(crate) fn with_source(mut self, source: Option<BoxError>) -> Self {
        self.0.source = source;
        self
    }

    /// Whether it was received before, as far as the server says, and its response is not to be had: another request used the token, no
    /// response was stored, or the same content came within the interval of the route. The SDK does not send it again by itself.
    pub fn is_duplicate(&self) -> bool {
        self.0.kind == Kind::Refused
            && matches!(self.code(), Some(Code::TokenUsed | Code::ReplyNotKept | Code::TooSoon))
    }

    /// Whether the same submission was still being carried out when last asked.
    pub fn is_in_progress(&self) -> bool {
        self.code() == Some(Code::InProgress)
    }

    /// Whether nobody can tell if it happened: it may have, and may still. Send it again only under the same
    /// [`key`](Self::key), with [`resume`](crate::Submission::resume).
    pub fn is_unknown(&self) -> bool {
        self.0.kind == Kind::Unknown
    }

    /// Whether the call itself is wrong, such as an address that is none. Sending it again changes nothing.
    pub fn is_misuse(&self) -> bool {
        self.0.kind == Kind::Misuse
    }

    /// Whether there was no token to be had, so that nothing was sent.
    pub fn is_without_token(&self) -> bool {
        self.0.kind == Kind::NoToken
    }

    /// Whether it is certain that no try of this submission ran anything, and that none will.
    pub fn ran_nothing(&self) -> bool {
        let is_certain = matches!(self.0.kind, Kind::Misuse | Kind::NoToken | Kind::NotSent | Kind::Refused);
        // In progress it runs. And whose the first one was is not said of a duplicate: a proxy may have sent ours twice.
        is_certain && !self.is_duplicate() && self.code() != Some(Code::InProgress)
    }

    /// Whether it was answered, and only what its answer leads to could not be read.
    pub fn is_answered(&self) -> bool {
        self.0.kind == Kind::Followed
    }

    /// How long the server asks to wait before the same is sent again.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.refusal.as_ref()?.retry_after
    }

    /// The key of this submission, if it had one: save it, and resume under it.
    pub fn key(&self) -> Option<&Key> {
        self.0.key.as_ref()
    }

    /// What the server said last, if it said anything.
    pub fn problem(&self) -> Option<&Problem> {
        self.0.refusal.as_ref().map(|refusal| &refusal.problem)
    }

    /// The code of the [`problem`](Self::problem).
    pub fn code(&self) -> Option<Code> {
        self.problem().map(|problem| problem.code)
    }

    /// How often it was sent, or tried to be.
    pub fn tries(&self) -> u32 {
        self.0.tries
    }
}

/// What a refusal means, and what to do.
fn hint(refusal: &Refusal) -> String {
    let Problem { code, title, detail, .. } = &refusal.problem;
    let next = match code {
        Code::TokenExpired | Code::TokenStale => {
            " A fresh token was refused too: do the clocks, the secret and the store of who issues and who takes tokens agree?"
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
    format!("it was refused ({code}): {title}. {detail}{next}")
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.says)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("says", &self.0.says)
            .field("code", &self.code())
            .field("retry_after", &self.retry_after())
            .field("tries", &self.0.tries)
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

    fn refused(code: Code) -> Error {
        Error::refused(Refusal { problem: Problem::new(code), retry_after: Some(Duration::from_secs(2)) })
    }

    #[test]
    fn an_error_answers_what_it_is_asked_and_nothing_else_is_in_its_text() {
        let key = Key::new("secret-key").unwrap();
        let error = refused(Code::InProgress).with_key(Some(&key)).with_tries(3);
        assert!(error.is_in_progress() && !error.is_unknown() && !error.is_duplicate() && !error.ran_nothing());
        assert_eq!((error.retry_after(), error.tries()), (Some(Duration::from_secs(2)), 3));
        assert_eq!(error.key().map(Key::as_str), Some("secret-key"));
        assert!(!format!("{error} {error:?}").contains("secret-key"));
    }

    #[test]
    fn what_is_wrong_with_a_later_try_says_nothing_of_an_earlier_one() {
        let later = Error::misuse("no credentials").in_doubt();
        assert!(later.is_unknown() && !later.ran_nothing() && later.to_string().ends_with("no credentials"));
        assert!(Error::new(Kind::Followed, "").in_doubt().is_answered());
    }

    #[test]
    fn a_duplicate_is_one_only_if_nobody_doubts_it() {
        let refusal = Refusal { problem: Problem::new(Code::TokenUsed), retry_after: None };
        let unknown = Error::new(Kind::Unknown, "").with_refusal(Some(refusal));
        assert!(unknown.is_unknown() && !unknown.is_duplicate() && !unknown.ran_nothing());
        assert!(refused(Code::TokenExpired).ran_nothing() && Error::misuse("").ran_nothing());
        for code in [Code::TokenUsed, Code::ReplyNotKept, Code::TooSoon] {
            assert!(refused(code).is_duplicate() && !refused(code).ran_nothing(), "{code}: it may have been our own");
        }
        assert!(!refused(Code::Locked).is_duplicate() && refused(Code::Locked).ran_nothing());
    }
}

//! The intent of a request, independent of any framework.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use onceward_api::path::canonical_action;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::attempt::Attempt;
use crate::digest;
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::run_id::RunId;

/// The intent of a request: the action, the subject, and the token or key that it presents.
#[derive(Clone)]
pub struct Intent<'a> {
    pub(crate) action: Cow<'a, str>,
    pub(crate) subject: Subject<'a>,
    pub(crate) credential: Option<&'a str>,
    pub(crate) attempt: Option<&'a Attempt>,
    /// True if the sender uses the same attempt when it retries.
    pub(crate) repeats_attempt: bool,
    pub(crate) key: Option<&'a Key>,
    pub(crate) fingerprint: Option<Fingerprint>,
    /// The run of a guard around the handler, if this intent is checked inside of one.
    pub(crate) within: Option<RunId>,
}

impl<'a> Intent<'a> {
    /// Creates an intent of `subject` for `action` that presents nothing yet. An action that is a method and a path is compared by its
    /// [canonical path](canonical_action).
    pub fn new(action: &'a str, subject: Subject<'a>) -> Self {
        Self {
            action: canonical_action(action),
            subject,
            credential: None,
            attempt: None,
            repeats_attempt: false,
            key: None,
            fingerprint: None,
            within: None,
        }
    }

    /// Presents a token.
    #[must_use]
    pub fn credential(mut self, token: &'a str) -> Self {
        self.credential = Some(token);
        self
    }

    /// Presents a key.
    #[must_use]
    pub fn key(mut self, key: &'a Key) -> Self {
        self.key = Some(key);
        self
    }

    /// Adds the fingerprint of the content, so that a key that is reused with other content is rejected as `key_reused`. Without it, all
    /// requests under a key count as duplicates.
    #[must_use]
    pub fn fingerprint(mut self, fingerprint: Fingerprint) -> Self {
        self.fingerprint = Some(fingerprint);
        self
    }

    /// Names this attempt, so that a caller may check again if it lost the verdict.
    ///
    /// A plain token is accepted again for the same attempt, for a minute. Under a key, with a remembered token and in an interval, the
    /// same attempt receives the verdict to run again, for the same run and with a full lease, until the lease expires.
    ///
    /// Two concurrent checks with the same attempt both receive the verdict to run. So accept the name only from a caller that you trust
    /// and that runs the work once per attempt, such as your own gateway; never use a request id that a client chooses.
    #[must_use]
    pub fn attempt(mut self, attempt: &'a Attempt) -> Self {
        (self.attempt, self.repeats_attempt) = (Some(attempt), true);
        self
    }

    /// Like [`attempt`](Self::attempt), for a gateway that uses another name for each request of its clients. A rejected client retries
    /// under another attempt, so if the store's reply is lost, the client receives `redeem_unknown` and has to fetch a new token.
    #[must_use]
    pub fn gateway_attempt(mut self, attempt: &'a Attempt) -> Self {
        (self.attempt, self.repeats_attempt) = (Some(attempt), false);
        self
    }

    /// Returns the digest of subject and action that the store holds for a token. A reader of the store without the token cannot test
    /// guessed names against it.
    pub(crate) fn asker(&self, token: Uuid) -> [u8; 16] {
        let mut asker = Sha256::new().chain_update(token.as_bytes());
        digest::feed(&mut asker, [self.subject.to_bytes().as_slice(), self.action.as_bytes()]);
        digest::half(asker.finalize().into())
    }
}

impl fmt::Debug for Intent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intent").field("action", &self.action).field("subject", &self.subject).finish_non_exhaustive()
    }
}

/// The identity that an action, token or key belongs to. An anonymous subject has to be stated explicitly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject<'a>(SubjectKind<'a>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum SubjectKind<'a> {
    Anonymous,
    Named(Cow<'a, str>),
    Address(IpAddr),
}

impl<'a> Subject<'a> {
    /// Returns the subject of clients that are not identified.
    pub fn anonymous() -> Self {
        Self(SubjectKind::Anonymous)
    }

    /// Returns a subject by the name that the application uses for it, such as a user id. Do not use an access token: it changes when it is
    /// refreshed, although the user is the same.
    pub fn named(name: impl Into<Cow<'a, str>>) -> Self {
        Self(SubjectKind::Named(name.into()))
    }

    /// Returns the subject of all clients at this address; several people may share it.
    pub fn client_address(address: IpAddr) -> Self {
        Self(SubjectKind::Address(address.to_canonical()))
    }

    /// Returns whether the subject is not identified.
    pub fn is_anonymous(&self) -> bool {
        self.0 == SubjectKind::Anonymous
    }

    /// Returns the same subject without a copy of its name.
    pub(crate) fn borrowed(&self) -> Subject<'_> {
        Subject(match &self.0 {
            SubjectKind::Anonymous => SubjectKind::Anonymous,
            SubjectKind::Named(name) => SubjectKind::Named(Cow::Borrowed(name)),
            SubjectKind::Address(address) => SubjectKind::Address(*address),
        })
    }

    /// Returns bytes that no other subject has: a name that looks like an address differs from that address.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let (tag, text) = match &self.0 {
            SubjectKind::Anonymous => (0, Cow::Borrowed("")),
            SubjectKind::Named(name) => (1, Cow::Borrowed(name.as_ref())),
            SubjectKind::Address(address) => (2, Cow::Owned(address.to_string())),
        };
        [&[tag], text.as_bytes()].concat()
    }
}

/// The action and the subject that a token is valid for. An unbound token is valid on every route that does not require a bound one.
#[derive(Debug, Clone, Default)]
pub struct Binding<'a> {
    pub(crate) action: Option<Cow<'a, str>>,
    pub(crate) subject: Option<Subject<'a>>,
}

impl<'a> Binding<'a> {
    /// Returns a binding that allows every action and every subject.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns a binding to this action, if there is one, and to this subject, as a client requests it.
    pub fn to(action: Option<&'a str>, subject: Subject<'a>) -> Self {
        Self { action: action.map(canonical_action), ..Self::default() }.subject(subject)
    }

    /// Restricts the token to this action. An action that is a method and a path is compared by its [canonical path](canonical_action).
    #[must_use]
    pub fn action(mut self, action: &'a str) -> Self {
        self.action = Some(canonical_action(action));
        self
    }

    /// Restricts the token to this subject. An anonymous subject does not restrict it.
    #[must_use]
    pub fn subject(mut self, subject: Subject<'a>) -> Self {
        self.subject = (!subject.is_anonymous()).then_some(subject);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binding_to_anonymous_subject_restricts_no_subject() {
        let bound = Binding::to(Some("POST /orders"), Subject::named("alice"));
        assert_eq!((bound.action.as_deref(), bound.subject), (Some("POST /orders"), Some(Subject::named("alice"))));
        let free = Binding::to(None, Subject::anonymous());
        assert_eq!((free.action, free.subject), (None, None));
    }

    #[test]
    fn action_is_compared_by_its_canonical_path() {
        for action in ["POST /%6frders", "POST /orders"] {
            assert_eq!(Intent::new(action, Subject::anonymous()).action, "POST /orders");
            assert_eq!(Binding::none().action(action).action.as_deref(), Some("POST /orders"));
            assert_eq!(Binding::to(Some(action), Subject::anonymous()).action.as_deref(), Some("POST /orders"));
        }
    }
}

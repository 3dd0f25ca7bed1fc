//! The intent of a request, independent of any framework.

use std::borrow::Cow;
use std::fmt;

use onceward_api::path::canonical_action;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::attempt::Attempt;
use crate::digest;
use crate::fingerprint::Fingerprint;
use crate::key::Key;
use crate::run_id::RunId;
use crate::subject::Subject;
use crate::token::Credential;

/// The intent of a request: the action, the subject, and the token or key that it presents.
#[derive(Clone)]
pub struct Intent<'a> {
    pub(crate) action: Cow<'a, str>,
    pub(crate) subject: Subject<'a>,
    pub(crate) credential: Credential,
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
        Self::of_canonical(canonical_action(action), subject)
    }

    /// Like [`new`](Self::new), for an action that is canonical already.
    pub(crate) fn of_canonical(action: impl Into<Cow<'a, str>>, subject: Subject<'a>) -> Self {
        Self {
            action: action.into(),
            subject,
            credential: Credential::Missing,
            attempt: None,
            repeats_attempt: false,
            key: None,
            fingerprint: None,
            within: None,
        }
    }

    /// Presents a token.
    #[must_use]
    pub fn credential(mut self, token: &str) -> Self {
        self.credential = Credential::of(token);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn action_is_compared_by_its_canonical_path() {
        for action in ["POST /%6frders", "POST /orders"] {
            assert_eq!(Intent::new(action, Subject::anonymous()).action, "POST /orders");
        }
    }
}

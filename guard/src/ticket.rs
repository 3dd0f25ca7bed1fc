//! Tickets: the names of records in the store.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use onceward_api::path::canonical_action;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::digest;
use crate::key::Key;
use crate::subject::Subject;

/// Prefix of a ticket in a log.
const PRINTED: &str = "ticket";

/// The kind of a ticket. Each kind has its own names in the store, and its own share of a memory store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A token that a guard issued.
    Token,
    /// A key that the client chose.
    Key,
    /// An interval in which equivalent requests run at most once.
    Interval,
    /// Data that guards share: the signing secret, and the salt of intervals.
    Secret,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Token, Self::Key, Self::Interval, Self::Secret];

    /// Returns the name of the kind in the store.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Key => "key",
            Self::Interval => "interval",
            Self::Secret => "secret",
        }
    }
}

/// The name of a record in the store: a digest, which does not reveal what a client sent, and which no client can choose.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    kind: Kind,
    digest: [u8; 32],
}

impl Ticket {
    /// Returns the ticket of this kind for these bytes.
    pub fn of(kind: Kind, bytes: &[u8]) -> Self {
        Self { kind, digest: Sha256::digest(bytes).into() }
    }

    /// Returns the ticket of a token, which depends on its id alone.
    pub(crate) fn of_token(id: Uuid) -> Self {
        Self::of(Kind::Token, id.as_bytes())
    }

    /// Returns the ticket of a key: a digest of subject, action and key. Each is prefixed with its length, so that no client can reach the
    /// record of another subject by moving characters between them. An action that is a method and a path is compared by its [canonical
    /// path](canonical_action).
    pub fn of_key(subject: &Subject<'_>, action: &str, key: &Key) -> Self {
        let action = canonical_action(action);
        let digest = digest::of([subject.to_bytes().as_slice(), action.as_bytes(), key.as_bytes()]);
        Self { kind: Kind::Key, digest }
    }

    /// Returns the ticket of a named interval. It is derived as for a key, so that it does not depend on the signing secret of a process.
    pub(crate) fn of_name(subject: &Subject<'_>, action: &str, name: &Key) -> Self {
        Self { kind: Kind::Interval, ..Self::of_key(subject, action, name) }
    }

    /// Returns the ticket of any other interval, from a digest that is keyed with the store's salt: without a salt, most content could be
    /// guessed.
    pub(crate) fn of_interval(keyed: [u8; 32]) -> Self {
        Self { kind: Kind::Interval, digest: keyed }
    }

    /// Returns the ticket with this digest.
    pub(crate) fn from_digest(kind: Kind, digest: [u8; 32]) -> Self {
        Self { kind, digest }
    }

    /// Returns the ticket of the signing secret.
    pub(crate) fn of_secret() -> Self {
        Self::of(Kind::Secret, b"signing")
    }

    /// Returns the ticket of the salt of intervals.
    pub(crate) fn of_salt() -> Self {
        Self::of(Kind::Secret, b"intervals")
    }

    /// Returns the ticket for health checks of the store, which write and remove a record under it.
    pub(crate) fn of_ping() -> Self {
        Self::of(Kind::Token, b"ping")
    }

    /// Returns the kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the digest.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Returns the name of the record in a store that other applications may share: `<prefix>:<kind>:<digest>`.
    pub fn name(&self, prefix: &str) -> String {
        let kind = self.kind.as_str();
        // Two colons, and the digest in base64url.
        let mut name = String::with_capacity(prefix.len() + kind.len() + 2 + 43);
        [prefix, ":", kind, ":"].into_iter().for_each(|part| name.push_str(part));
        URL_SAFE_NO_PAD.encode_string(self.digest, &mut name);
        name
    }
}

/// Hashes a part of the digest, which is uniformly distributed. The random key of the map prevents a client from choosing tickets that
/// collide.
impl Hash for Ticket {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (_, part) = self.digest.split_at(24);
        state.write(part);
    }
}

/// Writes the ticket as in a log: `ticket:<kind>:<digest>`.
impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name(PRINTED))
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Parses a ticket from a log, so that an operator can look it up. Each ticket has one spelling only.
impl FromStr for Ticket {
    type Err = BadTicket;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, digest) = text
            .strip_prefix(PRINTED)
            .and_then(|rest| rest.strip_prefix(':'))
            .and_then(|rest| rest.split_once(':'))
            .ok_or(BadTicket)?;
        let kind = Kind::ALL.into_iter().find(|known| known.as_str() == kind).ok_or(BadTicket)?;
        let digest = URL_SAFE_NO_PAD.decode(digest).map_err(|_| BadTicket)?;
        Ok(Self { kind, digest: digest.try_into().map_err(|_| BadTicket)? })
    }
}

/// The error for a text that is not a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a ticket is written as in the log: `ticket:key:`, for example, followed by 43 letters, digits, `-` or `_`")]
pub struct BadTicket;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ticket_separates_subject_action_and_key() {
        let texts = ["a", "ab", "abc", "b", "bc", "c", "\u{1}a", "a\u{1}", "127.0.0.1"];
        let named = texts.map(Subject::named);
        let others = [Subject::anonymous(), Subject::named(""), Subject::client_address([127, 0, 0, 1].into())];
        let mut tickets = HashSet::new();
        for subject in named.iter().chain(&others) {
            for action in texts.iter().chain(&[""]) {
                for key in texts.iter().filter_map(|text| Key::new(*text).ok()) {
                    let ticket = Ticket::of_key(subject, action, &key);
                    assert_eq!(ticket.kind(), Kind::Key);
                    assert!(tickets.insert(ticket), "{subject:?} {action:?}");
                }
            }
        }
        assert_eq!(tickets.len(), 12 * 10 * 7);
    }

    #[test]
    fn same_subject_action_and_key_give_the_same_ticket() {
        let ticket = |key| Ticket::of_key(&Subject::named("alice"), "POST /pay", &key);
        assert_eq!(ticket(Key::new("k").unwrap()), ticket(Key::from_header(b"\"k\"").unwrap()));
        let spelled = Ticket::of_key(&Subject::named("alice"), "POST /%70ay", &Key::new("k").unwrap());
        assert_eq!(spelled, ticket(Key::new("k").unwrap()));
        assert_ne!(ticket(Key::of_parts(["a", "bc"]).unwrap()), ticket(Key::of_parts(["ab", "c"]).unwrap()));
    }

    #[test]
    fn printed_ticket_parses_and_other_spellings_do_not() {
        for kind in Kind::ALL {
            let ticket = Ticket::of(kind, b"anything");
            assert_eq!(ticket.to_string().parse(), Ok(ticket));
            assert_eq!(format!("{ticket:?}"), ticket.to_string());
        }
        let printed = Ticket::of(Kind::Key, b"anything").to_string();
        let digest = printed.rsplit(':').next().unwrap();
        let others = [
            String::new(),
            digest.to_owned(),
            format!("key:{digest}"),
            format!("onceward:key:{digest}"),
            format!("ticket:keys:{digest}"),
            format!("ticket:key:{digest}="),
            format!("ticket:key:{digest}A"),
            format!("ticket:key:{}", &digest[1..]),
            format!(" {printed}"),
            "ticket:key:".to_owned(),
        ];
        for other in others {
            assert_eq!(other.parse::<Ticket>(), Err(BadTicket), "{other}");
        }
    }
}

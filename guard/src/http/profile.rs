//! Profiles: the rejections and rules of a published idempotency contract.

mod agentic_commerce;
mod stripe;
mod universal_commerce;

use std::fmt;
use std::time::Duration;

use super::rejection_format::{RejectedRequest, RejectionFormat, RejectionResponse};
use crate::fingerprint::Fields;
use crate::policy::{KeyRules, StoredFailures};

/// The shortest retention that the profiles other than the IETF draft require.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A published contract for idempotency keys, by which a route with a key answers. Set it with
/// [`Protect::profile`](super::Protect::profile).
///
/// A profile also converts into a [`RejectionFormat`], for a route with a token or an interval that only has to look the same.
///
/// | profile | missing key | request in flight | key with other content | body of a rejection | besides |
/// |---|---|---|---|---|---|
/// | `Ietf` | 400 | 409 | 422 | problem (RFC 9457) | the default |
/// | `AgenticCommerce` | 400 `idempotency_key_required` | 409 `idempotency_in_flight` | 422 `idempotency_conflict` | `type`, `code`, `message` | sends `Idempotency-Key` back; stores for 24 hours at least |
/// | `UniversalCommerce` | 400 | 409 | **409** | `code`, `content` | compares bodies byte by byte; stores for 24 hours at least |
/// | `Stripe` | 400 | 409 `idempotency_key_in_use` | **400** `idempotency_error` | `error` with `type`, `code`, `message` | stores and replays failures too, also a 500, but not 401, 429, 502 and 504; `Stripe-Should-Retry`; stores for 24 hours at least |
///
/// Onceward is stricter than these texts on purpose: after a 502 or 504, or a crash under [at most once](KeyRules::at_most_once), the
/// outcome is unknown and the request does not run again by itself. Agentic Commerce asks that a retry after any 5xx runs:
/// [`KeyRules::retryable`] does that after 500, 501 and 503, and after the lease (15 seconds) for the others. Stripe stores every response
/// of an endpoint that has begun to execute. Here a 401 or 429 is not applied, so that the client can log in or wait and send the same key
/// again, and a 502 or 504 is unknown; [`KeyRules::replay_everything`] stores these too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Profile {
    /// The IETF draft of the `Idempotency-Key` header: the default.
    #[default]
    Ietf,
    /// The Agentic Commerce Protocol (ACP).
    AgenticCommerce,
    /// The Universal Commerce Protocol (UCP).
    UniversalCommerce,
    /// The API of Stripe, version 1.
    Stripe,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Self; 4] = [Self::Ietf, Self::AgenticCommerce, Self::UniversalCommerce, Self::Stripe];

    /// Returns the name, as in settings: `ietf`, `acp`, `ucp` or `stripe`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ietf => "ietf",
            Self::AgenticCommerce => "acp",
            Self::UniversalCommerce => "ucp",
            Self::Stripe => "stripe",
        }
    }

    /// Returns the profile with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.as_str() == name)
    }

    /// Returns true if every response sends the key back.
    pub(super) fn echoes_key(self) -> bool {
        self == Self::AgenticCommerce
    }

    /// Returns the shortest time for which a key and its response are stored.
    pub const fn least_retention(self) -> Duration {
        match self {
            Self::Ietf => Duration::ZERO,
            Self::AgenticCommerce | Self::UniversalCommerce | Self::Stripe => DAY,
        }
    }

    /// Returns true if two requests are the same only if their bodies are, byte by byte.
    pub const fn compares_bytes(self) -> bool {
        matches!(self, Self::UniversalCommerce)
    }

    /// Returns true if a POST without a key is rejected, also on a route with an optional key.
    pub const fn requires_key(self) -> bool {
        matches!(self, Self::AgenticCommerce)
    }

    /// Returns the fields that a fingerprint includes, if the profile demands other ones than the route's.
    pub(super) fn fields(self) -> Option<Fields> {
        self.compares_bytes().then(Fields::raw)
    }

    /// Returns the rules of a key, with what the profile demands.
    pub(super) fn rules(self, mut rules: KeyRules) -> KeyRules {
        rules.retain = rules.retain.max(self.least_retention());
        if self == Self::Stripe {
            rules.stored_failures = rules.stored_failures.max(StoredFailures::Certain);
        }
        rules
    }

    fn write(self, rejected: &RejectedRequest<'_>) -> Option<RejectionResponse> {
        if rejected.prefers_html() {
            return None;
        }
        match self {
            Self::Ietf => None,
            Self::AgenticCommerce => Some(agentic_commerce::write(rejected)),
            Self::UniversalCommerce => Some(universal_commerce::write(rejected)),
            Self::Stripe => Some(stripe::write(rejected)),
        }
    }
}

impl From<Profile> for RejectionFormat {
    fn from(profile: Profile) -> Self {
        match profile {
            Profile::Ietf => Self::problem(),
            other => Self::new(move |rejected| other.write(rejected)).named(other.as_str()),
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

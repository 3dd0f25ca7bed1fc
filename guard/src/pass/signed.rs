//! Signed passes: another process runs the handler, and settles the run with the pass.
//!
//! A signed pass names its claim. This process keeps no state for it: any process with the same store and secret accepts it.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::claim::{Claim, Origin, Terms};
use crate::engine::Engine;
use crate::policy::{IntervalRules, KeyRules};
use crate::record::{ClaimRecord, Record};
use crate::reply::Reply;
use crate::settled::Settled;
use crate::store::StoreError;
use crate::ticket::{Kind, Ticket};
use crate::token::mint::Mint;
use crate::token::{TAG, TokenFields};

/// Prefix of a signed pass on a key.
const KEY_PREFIX: &str = "owp1_";
/// Prefix of a signed pass on a remembered token or an interval. It has its own prefix because earlier versions would read such a pass as
/// one on a key.
const OTHER_PREFIX: &str = "owp2_";

/// A pass for a run in another process, created by [`Pass::into_signed`](crate::Pass::into_signed) and opened by
/// [`Guard::open_pass`](crate::Guard::open_pass).
pub struct SignedPass {
    claim: Claim,
}

impl SignedPass {
    /// Returns the ticket: the name of the claim's record in the store.
    pub fn ticket(&self) -> Ticket {
        *self.claim.ticket()
    }

    /// Records that the run took effect. A duplicate receives `reply`, or `reply_not_kept` without one. An interval that is not
    /// [remembered](IntervalRules::remember) stores no reply: its claim is left to expire, and a lock is released.
    ///
    /// This call is idempotent. It returns [`Settled::Lost`] if another request has claimed the ticket since.
    ///
    /// # Errors
    /// If the store could not be reached, or if its reply was lost. Retry the call in both cases.
    pub async fn complete(&self, reply: Option<Reply>) -> Result<Settled, StoreError> {
        let completed = self.claim.complete_remotely(reply).await;
        self.claim.engine().noted(completed)
    }

    /// Releases the claim of a run that did not take effect: the next request runs. A token is valid again until it expires.
    ///
    /// This call is idempotent. It returns [`Settled::Lost`] if another request has claimed the ticket since, or if the run was completed.
    /// Make sure that no renewal is in flight: a renewal that arrives afterwards claims the key again, for a lease in which no request
    /// runs.
    ///
    /// # Errors
    /// If the store could not be reached, or if its reply was lost. Retry the call in both cases.
    pub async fn release(&self) -> Result<Settled, StoreError> {
        let released = self.claim.release_remotely().await;
        self.claim.engine().noted(released)
    }

    /// Renews the claim for another lease. An expired claim is inserted again, if no other request has claimed the ticket since.
    ///
    /// Returns `false` if another request has claimed the ticket, or if the run was completed or its token released.
    ///
    /// # Errors
    /// If the store could not be reached, or if its reply was lost. Retry the call in both cases.
    pub async fn renew(&self) -> Result<bool, StoreError> {
        let renewed = self.claim.renew_remotely().await;
        self.claim.engine().noted(renewed)
    }
}

impl fmt::Debug for SignedPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignedPass").field("ticket", self.claim.ticket()).finish_non_exhaustive()
    }
}

/// Opens a signed pass. Returns `None` if it was not signed with a secret of this guard.
pub(crate) async fn open(engine: &Arc<Engine>, text: &str) -> Result<Option<SignedPass>, StoreError> {
    let Some((bytes, tag)) = split(text) else { return Ok(None) };
    // If the store has lost its shared secret, another process may have created a new one a moment ago and signed the pass with it.
    if !engine.mint().await?.is_pass(&bytes, &tag) && !engine.current_mint().await?.is_pass(&bytes, &tag) {
        return Ok(None);
    }
    let fields = PassFields::read(&bytes).filter(|fields| text.starts_with(fields.origin.prefix()));
    Ok(fields.map(|fields| SignedPass { claim: fields.into_claim(engine) }))
}

/// Signs a pass for this claim.
pub(super) fn sign(mint: &Mint, claim: &Claim) -> String {
    let fields = PassFields::of(claim);
    let mut bytes = fields.write();
    bytes.extend_from_slice(&mint.sign_pass(&bytes));
    format!("{}{}", fields.origin.prefix(), URL_SAFE_NO_PAD.encode(bytes))
}

/// The contents of a signed pass.
struct PassFields {
    origin: SignedOrigin,
    retain: Duration,
    ticket: Ticket,
    claimed: ClaimRecord,
    /// For the audit log.
    action: String,
}

/// The origin of a claim, as a signed pass encodes it: its number is the first byte of the pass.
enum SignedOrigin {
    RetryableKey,
    AtMostOnceKey,
    Token(TokenFields),
    Interval,
    Lock,
    RememberedInterval,
}

impl SignedOrigin {
    fn of(terms: &Terms) -> Self {
        match &terms.origin {
            Origin::Key if terms.rules.at_most_once => Self::AtMostOnceKey,
            Origin::Key => Self::RetryableKey,
            Origin::Token(token, _) => Self::Token(*token),
            Origin::Interval(rules) if rules.is_lock => Self::Lock,
            Origin::Interval(rules) if rules.remember.is_some() => Self::RememberedInterval,
            Origin::Interval(_) => Self::Interval,
        }
    }

    fn number(&self) -> u8 {
        match self {
            Self::RetryableKey => 0,
            Self::AtMostOnceKey => 1,
            Self::Token(_) => 2,
            Self::Interval => 3,
            Self::Lock => 4,
            Self::RememberedInterval => 5,
        }
    }

    fn prefix(&self) -> &'static str {
        match self {
            Self::RetryableKey | Self::AtMostOnceKey => KEY_PREFIX,
            Self::Token(_) | Self::Interval | Self::Lock | Self::RememberedInterval => OTHER_PREFIX,
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::RetryableKey | Self::AtMostOnceKey => Kind::Key,
            Self::Token(_) => Kind::Token,
            Self::Interval | Self::Lock | Self::RememberedInterval => Kind::Interval,
        }
    }

    /// Returns the origin with this number, and the bytes behind the fields of its token.
    fn read(number: u8, bytes: &[u8]) -> Option<(Self, &[u8])> {
        Some(match number {
            0 => (Self::RetryableKey, bytes),
            1 => (Self::AtMostOnceKey, bytes),
            2 => TokenFields::read(bytes).map(|(token, rest)| (Self::Token(token), rest))?,
            3 => (Self::Interval, bytes),
            4 => (Self::Lock, bytes),
            5 => (Self::RememberedInterval, bytes),
            _ => return None,
        })
    }

    /// Returns the rules under which the holder of the pass renews and settles the claim, and its origin.
    fn terms(&self, claimed: &ClaimRecord, retain: Duration) -> (KeyRules, Origin) {
        let lease = Duration::from_millis(claimed.lease);
        let every = IntervalRules { every: lease, ..IntervalRules::new() };
        let (rules, origin) = match self {
            Self::RetryableKey => (KeyRules::retryable(), Origin::Key),
            Self::AtMostOnceKey => (KeyRules::at_most_once(), Origin::Key),
            // The record of a token's claim always contains its sender.
            Self::Token(token) => (KeyRules::at_most_once(), Origin::Token(*token, claimed.asker.unwrap_or_default())),
            Self::Interval => (KeyRules::retryable(), Origin::Interval(every)),
            Self::Lock => (KeyRules::retryable(), Origin::Interval(every.release_always())),
            // The pass contains the interval as the retention, as the lease of a short interval is longer.
            Self::RememberedInterval => {
                (KeyRules::retryable(), Origin::Interval(IntervalRules { every: retain, ..every }.remember()))
            }
        };
        (KeyRules { lease, retain, ..rules }, origin)
    }
}

impl PassFields {
    fn of(claim: &Claim) -> Self {
        let (terms, claimed) = claim.to_sign();
        let (origin, action) = (SignedOrigin::of(terms), terms.action.clone());
        Self { origin, retain: terms.rules.retain, ticket: terms.ticket, claimed: claimed.clone(), action }
    }

    fn into_claim(self, engine: &Arc<Engine>) -> Claim {
        let Self { origin, retain, ticket, claimed, action } = self;
        let (rules, origin) = origin.terms(&claimed, retain);
        let (engine, fingerprint, attempt) = (Arc::clone(engine), claimed.fingerprint, claimed.attempt);
        Claim::remote(Terms { engine, rules, origin, action, ticket, fingerprint, attempt }, claimed)
    }

    fn write(&self) -> Vec<u8> {
        let mut bytes = vec![self.origin.number()];
        if let SignedOrigin::Token(token) = &self.origin {
            token.write(&mut bytes);
        }
        bytes.extend_from_slice(&(self.retain.as_millis() as u64).to_be_bytes());
        bytes.extend_from_slice(self.ticket.digest());
        let claimed = self.claimed.encode();
        bytes.extend_from_slice(&(claimed.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&claimed);
        bytes.extend_from_slice(self.action.as_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (&[number], rest) = bytes.split_first_chunk()?;
        let (origin, rest) = SignedOrigin::read(number, rest)?;
        let (retain, rest) = rest.split_first_chunk()?;
        let (digest, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (claimed, action) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        let Ok(Record::Claimed(claimed)) = Record::decode(claimed) else { return None };
        let (retain, action) = (Duration::from_millis(u64::from_be_bytes(*retain)), str::from_utf8(action).ok()?);
        let ticket = Ticket::from_digest(origin.kind(), *digest);
        Some(Self { origin, retain, ticket, claimed, action: action.to_owned() })
    }
}

/// Splits a pass into the signed bytes and the signature.
fn split(text: &str) -> Option<(Vec<u8>, [u8; TAG])> {
    let encoded = text.strip_prefix(KEY_PREFIX).or_else(|| text.strip_prefix(OTHER_PREFIX))?;
    let mut bytes = URL_SAFE_NO_PAD.decode(encoded).ok()?;
    let signed = bytes.len().checked_sub(TAG)?;
    let tag = bytes.split_off(signed);
    Some((bytes, tag.try_into().ok()?))
}

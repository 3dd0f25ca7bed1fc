//! Lets a duplicate of a run in flight wait for its reply.

use std::pin::{Pin, pin};
use std::sync::Arc;

use onceward_api::Code;

use super::check::{decide, waiting_terms};
use crate::claim::Terms;
use crate::engine::Engine;
use crate::intent::Intent;
use crate::metrics::WaitResult;
use crate::policy::Policy;
use crate::rejection::{Duplicate, Rejection};
use crate::store::StoreError;
use crate::verdict::Verdict;
use crate::waiters::{RunEnd, Seat};

/// Waits if the rejection is `in_progress`: the request is a duplicate of a run in flight.
///
/// # Cancel safety
///
/// Cancel safe only after `idle(true)` and before `idle(false)`: at every other moment the future may hold a claim.
pub(super) async fn wait_after(
    engine: &Arc<Engine>,
    rejection: Rejection,
    policy: &Policy,
    intent: &Intent<'_>,
    enough: impl Future<Output = ()>,
    idle: impl Fn(bool),
) -> Result<Verdict, StoreError> {
    if rejection.code() != Code::InProgress {
        return Ok(rejection.into());
    }
    let Some(terms) = waiting_terms(engine, policy, intent).await? else { return Ok(rejection.into()) };
    let waited = match engine.waiters.seat(&terms.ticket) {
        Some(seat) => wait_in(engine, &seat, &terms, policy, intent, pin!(enough), idle).await?,
        None => None,
    };
    engine.metrics.waited(match &waited {
        Some(Verdict::Run(_)) => WaitResult::Ran,
        Some(Verdict::Replay(_) | Verdict::Reject(_)) => WaitResult::Answered,
        None => WaitResult::TimedOut,
    });
    Ok(waited.unwrap_or_else(|| Verdict::Reject(Rejection::new(Code::InProgress))))
}

/// Returns the verdict after the wait, or `None` if the wait ended without one.
async fn wait_in(
    engine: &Arc<Engine>,
    seat: &Seat,
    terms: &Terms,
    policy: &Policy,
    intent: &Intent<'_>,
    mut enough: Pin<&mut impl Future<Output = ()>>,
    idle: impl Fn(bool),
) -> Result<Option<Verdict>, StoreError> {
    let mut end = async || {
        idle(true);
        let ended = seat.ended(&engine.store, &engine.clock, enough.as_mut()).await;
        idle(false);
        ended
    };
    let Some(first) = end().await else { return Ok(None) };
    // By now, the key may belong to a request with other content.
    if let Some(duplicate) = duplicate_at_end(terms, &first)? {
        return Ok(Some(duplicate.into()));
    }
    if first.is_doubtful() {
        return Ok(None);
    }
    match decide(engine, policy, intent).await? {
        Verdict::Reject(rejection) if rejection.code() == Code::InProgress => match end().await {
            Some(second) => Ok(duplicate_at_end(terms, &second)?.map(Verdict::from)),
            None => Ok(None),
        },
        verdict => Ok(Some(verdict)),
    }
}

/// Returns the verdict for a waiter after this end of the run, or `None` if the record does not show that the token or key was used.
fn duplicate_at_end(terms: &Terms, ended: &RunEnd) -> Result<Option<Duplicate>, StoreError> {
    match ended {
        RunEnd::Found(Some(found)) => terms.duplicate_for(found),
        RunEnd::Found(None) | RunEnd::Released => Ok(None),
    }
}

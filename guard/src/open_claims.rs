//! At-most-once claims whose runs are in flight in other processes, so that an operator sees claims that no backend settles.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::renewal::QueuePosition;
use crate::run_id::RunId;

/// Maximum number of claims that one guard watches; about 10 MB. Further claims are not counted.
const MOST: usize = 65_536;

/// The claims that this process has handed to backends, and that have not ended as far as it knows.
#[derive(Default)]
pub(crate) struct OpenClaims(Mutex<Claims>);

#[derive(Default)]
struct Claims {
    open: HashMap<RunId, OpenClaim>,
    overdue: usize,
}

struct OpenClaim {
    /// Expiry of the lease, in milliseconds of the monotonic clock.
    due: u64,
    is_overdue: bool,
    /// Position of the next lookup in the renewal queue.
    place: Option<QueuePosition>,
}

/// The numbers of claims for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClaimCounts {
    /// All claims that have not ended.
    pub(crate) open: usize,
    /// Those whose lease has expired, so that a duplicate receives `outcome_unknown`.
    pub(crate) overdue: usize,
}

impl OpenClaims {
    /// Adds a claim whose lease lasts until `due`. Returns whether it is new and counted.
    pub(crate) fn add(&self, run: RunId, due: u64) -> bool {
        let mut claims = self.claims();
        if claims.extend(run, due) || claims.open.len() >= MOST {
            return false;
        }
        claims.open.insert(run, OpenClaim { due, is_overdue: false, place: None });
        true
    }

    /// Records that the lease of this claim lasts until `due`, if the claim is counted here.
    pub(crate) fn extend(&self, run: RunId, due: u64) {
        self.claims().extend(run, due);
    }

    /// Records that the lease of this claim has expired, unless it was renewed meanwhile. Returns whether the claim became overdue now.
    pub(crate) fn mark_overdue(&self, run: RunId, now: u64) -> bool {
        let mut claims = self.claims();
        let Some(claim) = claims.open.get_mut(&run).filter(|claim| claim.due <= now && !claim.is_overdue) else {
            return false;
        };
        claim.is_overdue = true;
        claims.overdue += 1;
        true
    }

    /// Records the queue position of the next lookup of this claim. Returns the position if the run has ended meanwhile.
    pub(crate) fn place(&self, run: RunId, place: QueuePosition) -> Option<QueuePosition> {
        match self.claims().open.get_mut(&run) {
            Some(claim) => {
                claim.place = Some(place);
                None
            }
            None => Some(place),
        }
    }

    /// Records that the run of this claim has ended. Returns the queue position of its next lookup.
    pub(crate) fn end(&self, run: RunId) -> Option<QueuePosition> {
        let mut claims = self.claims();
        let ended = claims.open.remove(&run)?;
        claims.overdue -= usize::from(ended.is_overdue);
        ended.place
    }

    /// Returns when the lease of this claim expires, or `None` if the run has ended.
    pub(crate) fn due(&self, run: RunId) -> Option<u64> {
        self.claims().open.get(&run).map(|claim| claim.due)
    }

    pub(crate) fn counts(&self) -> ClaimCounts {
        let claims = self.claims();
        ClaimCounts { open: claims.open.len(), overdue: claims.overdue }
    }

    fn claims(&self) -> MutexGuard<'_, Claims> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claims {
    /// Sets the end of a lease. Returns whether the claim is known.
    fn extend(&mut self, run: RunId, due: u64) -> bool {
        let Some(claim) = self.open.get_mut(&run) else { return false };
        claim.due = due;
        self.overdue -= usize::from(std::mem::replace(&mut claim.is_overdue, false));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_beyond_the_limit_are_not_counted() {
        let claims = OpenClaims::default();
        let first = RunId::new();
        assert!(claims.add(first, 1));
        for _ in 1..MOST {
            assert!(claims.add(RunId::new(), 1));
        }
        let late = RunId::new();
        assert!(!claims.add(late, 1) && !claims.add(first, 2), "the first is beyond the limit, the second is known");
        assert!(!claims.mark_overdue(late, 2) && claims.mark_overdue(first, 2) && !claims.mark_overdue(first, 2));
        assert_eq!((claims.counts(), claims.due(first)), (ClaimCounts { open: MOST, overdue: 1 }, Some(2)));
        claims.end(first);
        assert!(claims.add(late, 1), "there is room again");
        assert_eq!(claims.counts(), ClaimCounts { open: MOST, overdue: 0 });
    }

    #[test]
    fn claim_renewed_during_a_read_is_not_overdue() {
        let (claims, run) = (OpenClaims::default(), RunId::new());
        claims.add(run, 10);
        claims.extend(run, 20);
        assert!(!claims.mark_overdue(run, 10));
        assert_eq!(claims.counts(), ClaimCounts { open: 1, overdue: 0 });
    }
}

//! Claims whose runs are in other processes and have not ended, so that an operator sees the ones that no backend ends.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::run_id::RunId;

/// Maximum number of claims that one guard watches; about 10 MB. Further claims are not counted.
const MOST: usize = 65_536;

/// The claims that this process has handed to backends, or renewed for them, and that have not ended as far as it knows.
#[derive(Default)]
pub(crate) struct OpenClaims(Mutex<HashMap<RunId, OpenClaim>>);

#[derive(Clone, Copy)]
struct OpenClaim {
    /// When its lease expires, by the steady clock.
    due: u64,
    is_overdue: bool,
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
    /// Records that the lease of this claim lasts until `due`. Returns whether the claim is new.
    pub(crate) fn renew(&self, run: RunId, due: u64) -> bool {
        let mut claims = self.claims();
        if claims.len() >= MOST && !claims.contains_key(&run) {
            return false;
        }
        claims.insert(run, OpenClaim { due, is_overdue: false }).is_none()
    }

    /// Records that the lease of this claim has expired. Returns whether that is new.
    pub(crate) fn mark_overdue(&self, run: RunId) -> bool {
        let mut claims = self.claims();
        let Some(claim) = claims.get_mut(&run) else { return false };
        !std::mem::replace(&mut claim.is_overdue, true)
    }

    /// Records that the run of this claim has ended.
    pub(crate) fn end(&self, run: RunId) {
        self.claims().remove(&run);
    }

    /// Returns when the lease of this claim expires, or `None` if the run has ended.
    pub(crate) fn due(&self, run: RunId) -> Option<u64> {
        self.claims().get(&run).map(|claim| claim.due)
    }

    pub(crate) fn counts(&self) -> ClaimCounts {
        let claims = self.claims();
        ClaimCounts { open: claims.len(), overdue: claims.values().filter(|claim| claim.is_overdue).count() }
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<RunId, OpenClaim>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_beyond_the_limit_are_not_counted_and_known_ones_still_are() {
        let claims = OpenClaims::default();
        let first = RunId::new();
        assert!(claims.renew(first, 1));
        for _ in 1..MOST {
            assert!(claims.renew(RunId::new(), 1));
        }
        let late = RunId::new();
        assert!(!claims.renew(late, 1) && !claims.renew(first, 2), "one is not counted, one is known");
        assert!(!claims.mark_overdue(late) && claims.mark_overdue(first) && !claims.mark_overdue(first));
        assert_eq!((claims.counts(), claims.due(first)), (ClaimCounts { open: MOST, overdue: 1 }, Some(2)));
        claims.end(first);
        assert!(claims.renew(late, 1), "there is room again");
        assert_eq!(claims.counts(), ClaimCounts { open: MOST, overdue: 0 });
    }
}

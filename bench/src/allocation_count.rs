//! The number of allocations of a process, counted by its global allocator.

use std::fmt;

use stats_alloc::INSTRUMENTED_SYSTEM;

use crate::allocation_cost::AllocationCost;

/// Allocations since the start of a process, or between two moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AllocationCount {
    /// Calls of the allocator for new or resized memory.
    allocations: u64,
    /// Bytes requested. A reallocation counts the bytes that it adds.
    bytes: u64,
}

impl AllocationCount {
    /// Returns the allocations of this process. Zero in a program whose allocator does not count.
    pub(crate) fn now() -> Self {
        let stats = INSTRUMENTED_SYSTEM.stats();
        Self { allocations: (stats.allocations + stats.reallocations) as u64, bytes: stats.bytes_allocated as u64 }
    }

    /// Parses what [`Display`](fmt::Display) writes. Returns `None` if the process does not count.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let (allocations, bytes) = line.strip_prefix("allocations=")?.split_once(" bytes=")?;
        let count = Self { allocations: allocations.parse().ok()?, bytes: bytes.parse().ok()? };
        (count.allocations > 0).then_some(count)
    }

    /// Returns the allocations per request since `then`.
    pub(crate) fn per_request(self, then: Self, requests: usize) -> AllocationCost {
        let each = |now: u64, then: u64| now.saturating_sub(then) as f64 / requests as f64;
        AllocationCost { allocations: each(self.allocations, then.allocations), bytes: each(self.bytes, then.bytes) }
    }
}

impl fmt::Display for AllocationCount {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "allocations={} bytes={}", self.allocations, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_is_parsed_as_printed() {
        let count = AllocationCount { allocations: 12, bytes: 3456 };
        assert_eq!(AllocationCount::read(&count.to_string()), Some(count));
        assert_eq!(AllocationCount::read("allocations=12"), None);
        assert_eq!(AllocationCount::read(""), None);
    }

    #[test]
    fn program_that_does_not_count_is_detected() {
        // The allocator of the tests does not count.
        assert_eq!(AllocationCount::read(&AllocationCount::now().to_string()), None);
    }

    #[test]
    fn cost_is_the_difference_per_request() {
        let [then, now] = [(100, 1000), (150, 7000)].map(|(allocations, bytes)| AllocationCount { allocations, bytes });
        assert_eq!(now.per_request(then, 20), AllocationCost { allocations: 2.5, bytes: 300.0 });
    }
}

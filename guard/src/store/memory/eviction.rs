//! Eviction of responses from a full memory store.

use std::collections::hash_map::Entry;

use super::Memory;
use super::quota::Shortage;
use crate::store::{StoreError, StoreFull};
use crate::ticket::{Kind, Ticket};

impl Memory {
    /// Writes a value. If there is no room, evicts the oldest responses, and if that is not enough, drops the response in this value.
    pub(super) fn fit<T>(
        &self,
        kind: Kind,
        value: &[u8],
        write: &dyn Fn(&[u8]) -> Result<T, Shortage>,
    ) -> Result<T, StoreError> {
        loop {
            match write(value) {
                Ok(done) => return Ok(done),
                Err(shortage) if self.make_room(kind, shortage) => {}
                Err(_) => break,
            }
        }
        match (self.stub)(value) {
            Some(stub) => {
                self.quotas.count_dropped(kind);
                self.fit(kind, &stub, write)
            }
            None => Err(StoreError::not_executed(StoreFull::new(format!(
                "the memory store has no room for another {}: raise its limit or shorten their lifetime",
                kind.as_str()
            )))),
        }
    }

    /// Evicts the oldest responses if they free enough bytes; otherwise removes expired records. Returns whether another attempt is
    /// worthwhile.
    fn make_room(&self, kind: Kind, Shortage(shortage): Shortage) -> bool {
        if shortage > self.quotas.responses(kind) {
            return self.sweep_all();
        }
        let (mut freed, mut is_any) = (0, false);
        while freed < shortage
            && let Some((eviction_seq, ticket)) = self.quotas.oldest(kind)
        {
            freed += self.drop_response(eviction_seq, &ticket);
            is_any = true;
        }
        is_any
    }

    /// Drops the response of a record, if it is still stored, and returns the number of bytes freed.
    fn drop_response(&self, eviction_seq: u64, ticket: &Ticket) -> usize {
        let mut shard = self.shard(ticket);
        let Entry::Occupied(mut place) = shard.records.entry(*ticket) else { return 0 };
        if !place.get().is_live(self.clock.steady()) {
            return self.evacuate(place).weight().cost();
        }
        let there = place.get_mut();
        let Some(stub) = (self.stub)(&there.value).filter(|_| there.eviction_seq == Some(eviction_seq)) else {
            return 0;
        };
        let weight = there.weight();
        self.quotas.release_response(ticket.kind(), weight);
        (there.value, there.eviction_seq) = (stub.into(), None);
        self.quotas.count_dropped(ticket.kind());
        weight.response()
    }
}

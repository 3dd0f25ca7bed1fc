//! Eviction of responses from a full memory store.

use std::num::NonZeroU64;

use super::Memory;
use super::entry::EntryWeight;
use super::quota::{RecordAddress, Shortage};
use super::value::StoredValue;
use crate::store::{StoreError, StoreFull};
use crate::ticket::Kind;

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
            return self.reclaim(kind, shortage);
        }
        let (mut freed, mut is_any) = (0, false);
        while freed < shortage
            && let Some((eviction_seq, address)) = self.quotas.oldest(kind)
        {
            freed += self.drop_response(eviction_seq, address);
            is_any = true;
        }
        is_any
    }

    /// Drops the response of a record, if it is still stored, and returns the number of bytes freed.
    fn drop_response(&self, eviction_seq: NonZeroU64, address: RecordAddress) -> usize {
        let (now, mut shard) = (self.clock.steady(), self.lock_shard(address.shard as usize));
        // Since it was queued, the record may have been replaced, or removed and its slot reused.
        let Some(there) = shard.entry_mut(address.slot).filter(|there| there.eviction_seq == Some(eviction_seq)) else {
            return 0;
        };
        if !there.is_live(now) {
            return self.remove_slot(&mut shard, address.slot).map_or(0, EntryWeight::cost);
        }
        let Some(stub) = (self.stub)(&there.value) else { return 0 };
        let (kind, weight) = (there.ticket.kind(), there.weight());
        (there.value, there.eviction_seq) = (StoredValue::new(&stub), None);
        self.quotas.release_response(kind, weight);
        self.quotas.count_dropped(kind);
        weight.response()
    }
}

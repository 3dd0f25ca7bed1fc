//! The commands of a queue whose callers wait, in slots that are used again.

use std::task::Waker;

use redis::Value;
use tokio::time::Instant;

use super::deadline::Deadline;
use super::error::TransportError;
use super::transport::Response;

/// A command whose caller waits for its response.
pub(super) struct QueueEntry {
    pub(super) state: EntryState,
    pub(super) wants_epoch: bool,
    pub(super) deadline: Deadline,
    /// The end of the extra time, once the deadline has passed.
    extra: Option<Instant>,
    /// The length of the command in bytes.
    pub(super) length: usize,
    /// `None` if the command has not been sent.
    pub(super) sent: Option<Instant>,
    pub(super) waker: Option<Waker>,
}

#[derive(Debug)]
pub(super) enum EntryState {
    /// Not replied to, and perhaps not even sent.
    Waiting,
    /// Replied to; the epoch is still missing.
    Replied(Value),
    Answered(Result<Response, TransportError>),
    /// The caller has received the response.
    Done,
}

impl QueueEntry {
    /// Creates an entry for a command of this length.
    pub(super) fn new(deadline: Deadline, wants_epoch: bool, length: usize) -> Self {
        Self { state: EntryState::Waiting, wants_epoch, deadline, extra: None, length, sent: None, waker: None }
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.state, EntryState::Waiting | EntryState::Replied(_))
    }

    /// Returns when the command is due, if that is after `now`. The extra time begins when the deadline is found to have passed.
    pub(super) fn due_after(&mut self, now: Instant) -> Option<Instant> {
        if now < self.deadline.at {
            return Some(self.deadline.at);
        }
        let until = *self.extra.get_or_insert_with(|| now + self.deadline.beyond());
        (now < until).then_some(until)
    }

    /// Takes the reply that waits for the epoch. An entry that has timed out meanwhile keeps its error.
    pub(super) fn take_reply(&mut self) -> Option<Value> {
        match &mut self.state {
            EntryState::Replied(value) => Some(std::mem::replace(value, Value::Nil)),
            _ => None,
        }
    }

    /// Stores the response for the caller, whose waker it adds to `wakers`.
    pub(super) fn answer(&mut self, answer: Result<Response, TransportError>, wakers: &mut Vec<Waker>) {
        self.state = EntryState::Answered(answer);
        wakers.extend(self.waker.take());
    }
}

/// The identity of an entry. A slot has a new generation each time it is used, so the late reply to a command that its caller has given up
/// on is never taken for the reply to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryId {
    slot: u32,
    generation: u32,
}

/// The entries of a queue.
#[derive(Default)]
pub(super) struct QueueEntries {
    slots: Vec<EntrySlot>,
    free: Vec<u32>,
}

struct EntrySlot {
    generation: u32,
    entry: Option<QueueEntry>,
}

impl QueueEntries {
    pub(super) fn add(&mut self, entry: QueueEntry) -> EntryId {
        if let Some(slot) = self.free.pop() {
            let used = &mut self.slots[slot as usize];
            used.entry = Some(entry);
            return EntryId { slot, generation: used.generation };
        }
        self.slots.push(EntrySlot { generation: 0, entry: Some(entry) });
        EntryId { slot: (self.slots.len() - 1) as u32, generation: 0 }
    }

    /// Returns the entry, unless it has been removed.
    pub(super) fn get(&mut self, id: EntryId) -> Option<&mut QueueEntry> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        if slot.generation == id.generation { slot.entry.as_mut() } else { None }
    }

    pub(super) fn remove(&mut self, id: EntryId) {
        if let Some(slot) = self.slots.get_mut(id.slot as usize)
            && slot.generation == id.generation
            && slot.entry.take().is_some()
        {
            slot.generation = slot.generation.wrapping_add(1);
            self.free.push(id.slot);
        }
    }

    /// Returns the entries without a response.
    pub(super) fn waiting(&mut self) -> impl Iterator<Item = (EntryId, &mut QueueEntry)> {
        self.slots.iter_mut().enumerate().filter_map(|(at, slot)| {
            let id = EntryId { slot: at as u32, generation: slot.generation };
            slot.entry.as_mut().filter(|entry| entry.is_waiting()).map(|entry| (id, entry))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn entry() -> QueueEntry {
        QueueEntry::new(Deadline::after(Duration::from_secs(1)), false, 7)
    }

    #[test]
    fn removed_entry_is_not_found_in_a_slot_that_is_used_again() {
        let mut entries = QueueEntries::default();
        let (first, second) = (entries.add(entry()), entries.add(entry()));
        entries.remove(first);
        entries.remove(first);
        let third = entries.add(entry());
        assert_eq!((third.slot, entries.slots.len()), (first.slot, 2));
        assert!(entries.get(first).is_none() && entries.get(second).is_some() && entries.get(third).is_some());
        entries.remove(first);
        assert!(entries.get(third).is_some());
    }

    #[test]
    fn command_is_due_after_its_deadline_and_extra_time() {
        let (mut entry, begun) = (entry(), Instant::now());
        let after = |seconds: u64| begun + Duration::from_secs(seconds);
        assert_eq!(entry.due_after(begun), Some(entry.deadline.at));
        let due = entry.due_after(after(2)).expect("some extra time");
        assert!(due > after(2) && due < after(3));
        assert_eq!((entry.due_after(after(2)), entry.due_after(due)), (Some(due), None));
    }

    #[test]
    fn only_entries_without_a_response_wait() {
        let mut entries = QueueEntries::default();
        let ids = [entries.add(entry()), entries.add(entry()), entries.add(entry())];
        entries.get(ids[0]).unwrap().answer(Err(TransportError::TooMany), &mut Vec::new());
        entries.get(ids[1]).unwrap().state = EntryState::Replied(Value::Nil);
        assert_eq!(entries.waiting().map(|(id, _)| id).collect::<Vec<_>>(), ids[1..]);
    }
}

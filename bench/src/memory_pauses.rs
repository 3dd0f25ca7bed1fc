//! The longest call of a verb of the memory store: while it grows, when it is full, and while expired records are removed.

use std::hint::black_box;
use std::process::Command;
use std::time::Duration;

use futures_util::FutureExt as _;
use onceward::store::{Bytes, Memory, Room, Store, StoreError};
use onceward::{Kind, ManualClock};
use tokio::runtime::Builder;

use crate::Failure;
use crate::longest_verb::{LongestVerb, VerbTimes};
use crate::record_samples::RecordSamples;
use crate::store_filler::RecordFill;

/// The command that measures in its own process, so that no memory of another size is reused.
pub(crate) const PAUSES: &str = "memory-pauses";
/// Longer than all searches of a full store.
const TTL: Duration = Duration::from_secs(600);
/// The number of bytes that a token counts, and that the store allows for each: half of the limit is for tokens.
const LIMIT_PER_TOKEN: usize = 2 * 256;
/// Number of rejected inserts, and the time between two: after a search that frees nothing, a full store searches again
/// 100 ms later.
const REJECTED: u64 = 300;
const SEARCH_EVERY: Duration = Duration::from_millis(100);
/// Maximum number of inserts while expired records are removed.
const SWEEPS: u64 = 2_000_000;
/// Number of bytes by which a reply exceeds the sample: such a reply can be evicted, and is in the eviction queue.
const LARGER: usize = 200;

/// The longest calls in a store of one size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MemoryPauses {
    pub(crate) growth: LongestVerb,
    /// Writes that are rejected, each after a search for expired records: among all of them, or among some if the store is large.
    pub(crate) full: LongestVerb,
    pub(crate) sweep: LongestVerb,
    /// As many calls that do nothing: a pause of this length is one of the machine.
    pub(crate) nothing: LongestVerb,
}

impl MemoryPauses {
    /// Measures in another process.
    pub(crate) fn of(size: u64) -> Result<Self, Failure> {
        let output = Command::new(std::env::current_exe()?).args([PAUSES, &size.to_string()]).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        Ok(Self::parse(&said).ok_or_else(|| format!("{said}{}", String::from_utf8_lossy(&output.stderr)))?)
    }

    /// Measures in this process, and prints the figures for the parent.
    pub(crate) fn print(size: u64) -> Result<(), Failure> {
        println!("{}", Self::measured(size)?.line());
        Ok(())
    }

    fn line(self) -> String {
        let phases = [self.growth, self.full, self.sweep, self.nothing];
        let nanos = phases.map(|longest| [longest.elapsed, longest.cpu, longest.usual]);
        let nanos: Vec<_> = nanos.as_flattened().iter().map(|time| time.as_nanos().to_string()).collect();
        format!("pauses {}", nanos.join(" "))
    }

    fn parse(said: &str) -> Option<Self> {
        let line = said.lines().find_map(|line| line.strip_prefix("pauses "))?;
        let nanos = line.split(' ').map(|nanos| nanos.parse().map(Duration::from_nanos));
        let nanos: Vec<Duration> = nanos.collect::<Result<_, _>>().ok()?;
        let phases = nanos.as_chunks().0.iter().map(|&[elapsed, cpu, usual]| LongestVerb { elapsed, cpu, usual });
        let [growth, full, sweep, nothing] = phases.collect::<Vec<_>>()[..] else { return None };
        Some(Self { growth, full, sweep, nothing })
    }

    fn measured(size: u64) -> Result<Self, Failure> {
        let samples = Builder::new_current_thread().build()?.block_on(RecordSamples::taken())?;
        let tokens = RecordFill { kind: Kind::Token, value: samples.issued, ttl: TTL };
        let larger: Bytes = [&samples.reply[..], &[b' '; LARGER]].concat().into();
        let keys = RecordFill { kind: Kind::Key, value: larger, ttl: TTL };
        let tokens = GrowingStore::new(tokens, LIMIT_PER_TOKEN * size as usize);
        let full = tokens.measured(size, true)?;
        drop(tokens);
        let keys = GrowingStore::new(keys, usize::MAX / 8).measured(size, false)?;
        let mut nothing = VerbTimes::new();
        (0..size).for_each(|number| nothing.time(|| _ = black_box(number)));
        Ok(Self {
            growth: full.growth.max(keys.growth),
            sweep: full.sweep.max(keys.sweep),
            nothing: nothing.longest(),
            ..full
        })
    }
}

/// A store whose verbs are timed.
struct GrowingStore {
    store: Memory,
    clock: ManualClock,
    fill: RecordFill,
}

impl GrowingStore {
    fn new(fill: RecordFill, limit: usize) -> Self {
        let clock = ManualClock::new();
        Self { store: Memory::with_clock((&clock).into()).limit(limit), clock, fill }
    }

    /// Inserts `size` records, has them all expire at once, and inserts further ones.
    fn measured(&self, size: u64, is_full: bool) -> Result<MemoryPauses, Failure> {
        let [mut growth, mut full, mut sweep] = [(); 3].map(|()| VerbTimes::new());
        for number in 0..size {
            self.insert(number, &mut growth)?.map_err(|error| format!("{number}: {error}"))?;
        }
        for _ in 0..if is_full { REJECTED } else { 0 } {
            if self.insert(size, &mut full)?.is_ok() {
                return Err("a full store accepted a record".into());
            }
            self.clock.advance(SEARCH_EVERY);
        }
        self.clock.advance(TTL);
        for number in size..size + size.min(SWEEPS) {
            self.insert(number, &mut sweep)?.map_err(|error| format!("{number}: {error}"))?;
        }
        let [growth, full, sweep] = [growth, full, sweep].map(|times| times.longest());
        Ok(MemoryPauses { growth, full, sweep, ..MemoryPauses::default() })
    }

    fn insert(&self, number: u64, times: &mut VerbTimes) -> Result<Result<(), StoreError>, Failure> {
        let ticket = self.fill.ticket(number);
        let insert = || self.store.insert(&ticket, &self.fill.value, self.fill.ttl, Room::Free).now_or_never();
        match times.time(insert).ok_or("a memory store does not wait")? {
            Ok(Some(_)) => Err("a new record was there before".into()),
            Ok(None) => Ok(Ok(())),
            Err(error) => Ok(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_is_measured_and_printed_figures_are_read_back() {
        let pauses = MemoryPauses::measured(5_000).unwrap();
        let phases = [pauses.growth, pauses.full, pauses.sweep, pauses.nothing];
        assert!(phases.iter().all(|longest| longest.elapsed > Duration::ZERO));
        assert_eq!(MemoryPauses::parse(&format!("other\n{}\n", pauses.line())), Some(pauses));
        assert_eq!(MemoryPauses::parse("pauses 1 2 3"), None);
    }
}

//! CPU time and instructions per verb of the memory store, in this process and without a guard: a few records, and a million.

use std::hint::black_box;
use std::process::Command;
use std::time::Duration;

use futures_util::FutureExt as _;
use onceward::store::{Compared, Memory, Room, Store};
use onceward::{Kind, Ticket};
use tokio::runtime::Builder;

use crate::longest_verb::cpu_of_thread;
use crate::markdown_table::MarkdownTable;
use crate::record_samples::RecordSamples;
use crate::statistics::Spread;
use crate::{Failure, machine};

/// The command that runs one verb, for callgrind.
pub(crate) const ONE: &str = "memory-verb";
/// Number of other records in the store.
const SIZES: [usize; 2] = [1_000, 1_000_000];
/// Number of verbs in a round.
const VERBS: usize = 20_000;
/// The measured function, as callgrind names it.
const MEASURED: &str = "*memory_verbs*run_all*";

/// The measured verbs, as a guard calls them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryVerb {
    Issue,
    Redeem,
    Claim,
    Complete,
    Replay,
    Look,
}

impl MemoryVerb {
    const ALL: [Self; 6] = [Self::Issue, Self::Redeem, Self::Claim, Self::Complete, Self::Replay, Self::Look];

    fn name(self) -> &'static str {
        match self {
            Self::Issue => "issue",
            Self::Redeem => "redeem",
            Self::Claim => "claim",
            Self::Complete => "complete",
            Self::Replay => "replay",
            Self::Look => "look",
        }
    }

    /// Returns the verb with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.name() == name)
    }

    fn call(self) -> &'static str {
        match self {
            Self::Issue => "insert of a token",
            Self::Redeem => "remove of a token",
            Self::Claim => "insert of a claim",
            Self::Complete => "swap of a claim for a reply",
            Self::Replay => "insert that finds a reply",
            Self::Look => "look at a reply",
        }
    }
}

/// Prints the table: the median of some rounds, and the instructions if `valgrind` is installed.
pub(crate) fn measure(rounds: u64) -> Result<(), Failure> {
    let [few, many] = SIZES.map(|size| format!("ns, {size} records"));
    let mut table = MarkdownTable::new(["verb", "call", &few, &many, "instructions"]);
    for verb in MemoryVerb::ALL {
        let [few, many] = SIZES.map(|size| nanos(verb, size, rounds));
        let count = instructions(verb)?.map_or_else(|| "valgrind is missing".to_owned(), |count| format!("{count:.0}"));
        table.push([verb.name().to_owned(), verb.call().to_owned(), few?.cell(0), many?.cell(0), count]);
    }
    println!("{}", machine::line(&[]));
    println!("\nCPU time per verb, medians of {rounds} rounds (least–most)\n\n{table}");
    Ok(())
}

/// CPU time per verb, in nanoseconds.
fn nanos(verb: MemoryVerb, size: usize, rounds: u64) -> Result<Spread, Failure> {
    let nanos = (0..rounds).map(|_| Ok(VerbRun::prepared(verb, size)?.timed()?.as_nanos() as f64 / VERBS as f64));
    Ok(Spread::of(nanos.collect::<Result<Vec<_>, Failure>>()?).ok_or("no rounds")?)
}

/// Runs one verb on a small store, for callgrind.
pub(crate) fn run_once(verb: MemoryVerb) -> Result<(), Failure> {
    VerbRun::prepared(verb, SIZES[0])?.call_all()
}

/// Counts the instructions per call in a process under callgrind. Returns `None` without callgrind.
fn instructions(verb: MemoryVerb) -> Result<Option<f64>, Failure> {
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", &format!("--toggle-collect={MEASURED}")])
        .arg(std::env::current_exe()?)
        .args([ONE, verb.name()])
        .output();
    let Ok(output) = run else { return Ok(None) };
    let said = String::from_utf8_lossy(&output.stderr);
    let count = collected(&said).ok_or_else(|| format!("callgrind counted nothing: {said}"))?;
    Ok(Some(count as f64 / VERBS as f64))
}

/// Parses the number of instructions that callgrind prints at its end.
fn collected(said: &str) -> Option<u64> {
    let line = said.lines().find_map(|line| line.split_once("Collected :"))?.1;
    line.trim().parse().ok().filter(|count| *count > 0)
}

/// A verb that is called for some tickets, and a store with other records.
struct VerbRun {
    verb: MemoryVerb,
    store: Memory,
    samples: RecordSamples,
    tickets: Vec<Ticket>,
}

impl VerbRun {
    /// Fills a store with the records that the verb expects, and `size` others.
    fn prepared(verb: MemoryVerb, size: usize) -> Result<Self, Failure> {
        Builder::new_current_thread().build()?.block_on(async {
            let (samples, store) = (RecordSamples::taken().await?, Memory::new().limit(16 * Memory::DEFAULT_LIMIT));
            let kind = if matches!(verb, MemoryVerb::Issue | MemoryVerb::Redeem) { Kind::Token } else { Kind::Key };
            let ticket = |number: usize| Ticket::of(kind, &number.to_be_bytes());
            let (record, ttl) = match verb {
                MemoryVerb::Issue | MemoryVerb::Redeem => (&samples.issued, RecordSamples::TOKEN_TTL),
                MemoryVerb::Claim | MemoryVerb::Replay | MemoryVerb::Look => (&samples.reply, RecordSamples::RETENTION),
                MemoryVerb::Complete => (&samples.claim, RecordSamples::RETENTION),
            };
            let is_first = matches!(verb, MemoryVerb::Issue | MemoryVerb::Claim);
            for number in if is_first { VERBS } else { 0 }..VERBS + size {
                store.insert(&ticket(number), record, ttl, Room::Free).await?;
            }
            Ok(Self { verb, store, samples, tickets: (0..VERBS).map(ticket).collect() })
        })
    }

    fn call_all(&self) -> Result<(), Failure> {
        let done = run_all(self.verb, &self.store, &self.samples, &self.tickets);
        if done == VERBS { Ok(()) } else { Err(format!("{}: {done} of {VERBS}", self.verb.name()).into()) }
    }

    fn timed(&self) -> Result<Duration, Failure> {
        let begun = cpu_of_thread();
        self.call_all()?;
        Ok(cpu_of_thread().saturating_sub(begun))
    }
}

/// Calls the verb for each ticket, and returns how many calls had the expected result. Callgrind counts what runs inside.
#[inline(never)]
fn run_all(verb: MemoryVerb, store: &dyn Store, samples: &RecordSamples, tickets: &[Ticket]) -> usize {
    tickets.iter().filter(|ticket| call(verb, store, samples, ticket).now_or_never().unwrap_or_default()).count()
}

/// Returns whether the call had the expected result. A memory store never waits.
async fn call(verb: MemoryVerb, store: &dyn Store, samples: &RecordSamples, ticket: &Ticket) -> bool {
    let (epoch, ttl, lease) = (store.epoch(ticket), RecordSamples::RETENTION, Duration::from_secs(15));
    match verb {
        MemoryVerb::Issue => matches!(store.insert(ticket, &samples.issued, ttl, Room::Free).await, Ok(None)),
        MemoryVerb::Redeem => matches!(store.remove(ticket, &samples.issued, epoch).await, Ok(Compared::Done)),
        MemoryVerb::Claim => matches!(store.insert(ticket, &samples.claim, lease, Room::Free).await, Ok(None)),
        MemoryVerb::Complete => {
            let swapped = store.swap(ticket, &samples.claim, &samples.reply, ttl, Room::Free, epoch).await;
            matches!(swapped, Ok(Compared::Done))
        }
        MemoryVerb::Replay => {
            matches!(black_box(store.insert(ticket, &samples.claim, lease, Room::Free).await), Ok(Some(_)))
        }
        MemoryVerb::Look => matches!(black_box(store.look(ticket).await), Ok(Some(_))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instruction_count_is_parsed_and_zero_is_not_one() {
        let said = "==7== Callgrind\n==7== Events    : Ir\n==7== Collected : 123456\n==7==\n";
        assert_eq!(collected(said), Some(123_456));
        assert_eq!(collected(&said.replace("123456", "0")), None);
        assert_eq!(collected("==7== no summary"), None);
    }

    #[test]
    fn every_verb_has_its_expected_result() {
        for verb in MemoryVerb::ALL {
            assert_eq!(MemoryVerb::named(verb.name()), Some(verb));
            VerbRun::prepared(verb, 10).unwrap().timed().unwrap();
        }
    }
}

//! Growth: CPU per request, bytes per record and the longest pause, while the store holds up to ten million tokens and as many keys.

use std::path::Path;

use tokio::runtime::Builder;

use crate::growth_run::{GrowthRun, GrowthRunner, ROUNDS, SECONDS};
use crate::memory_pauses::MemoryPauses;
use crate::redis_pauses::RedisPauses;
use crate::scaled_store::StoreKind;
use crate::wrk::Wrk;
use crate::{Failure, growth_chart, growth_report};

/// The smallest number of records.
const SMALLEST: u64 = 10_000;
/// The default largest number of records.
pub(crate) const LARGEST: u64 = 10_000_000;
/// Bytes of memory that a store needs for each token and its key at most, with what the measuring processes need.
const NEEDED: u64 = 800;
/// How often per second Redis does its background work: its default, and its recommended maximum.
const HZ: [u32; 2] = [10, 100];

/// Measures every store up to this size, prints the tables, and draws the chart.
pub(crate) fn measure(largest: u64, chart: Option<&Path>) -> Result<(), Failure> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let folder = tempfile::tempdir()?;
    let generator = Wrk::in_folder(folder.path())?;
    let available = available()?;
    println!("{:.1} GiB of memory are available", available as f64 / f64::from(1 << 30));
    let largest = largest.min(available / NEEDED);
    let mut runs = Vec::new();
    for store in StoreKind::ALL {
        let mut runner = GrowthRunner::new(store, &generator, folder.path());
        for size in sizes(largest.min(store.largest())) {
            let run = runtime.block_on(runner.run(size))?;
            runs.push(run);
            let table = growth_report::costs(&runs);
            table.lines().rev().take(2).collect::<Vec<_>>().iter().rev().for_each(|line| println!("{line}"));
        }
    }
    let (mut memory, mut redis) = (Vec::new(), Vec::new());
    for size in sizes(largest) {
        memory.push((size, MemoryPauses::of(size)?));
        for hz in HZ {
            redis.push((size, hz, runtime.block_on(RedisPauses::of(size, hz))?));
        }
        println!("pauses with {} records measured", growth_report::count(size));
    }
    report(&runs, &memory, &redis);
    chart.map_or(Ok(()), |chart| Ok(std::fs::write(chart, growth_chart::draw(&runs))?))
}

fn report(runs: &[GrowthRun], memory: &[(u64, MemoryPauses)], redis: &[(u64, u32, RedisPauses)]) {
    println!("\nCPU per request, medians of {ROUNDS} rounds of {SECONDS} s\n\n{}", growth_report::costs(runs));
    println!("\nBytes per record\n\n{}", growth_report::bytes(runs));
    println!("\nLongest verb\n\n{}", growth_report::pauses(memory, redis));
    println!("\n{}", growth_report::goals(runs, memory, redis));
}

/// The powers of ten up to the largest size.
fn sizes(largest: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(SMALLEST), |size| size.checked_mul(10)).take_while(move |size| *size <= largest)
}

/// The memory that processes can use, in bytes.
fn available() -> Result<u64, Failure> {
    let info = std::fs::read_to_string("/proc/meminfo")?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| "no MemAvailable in /proc/meminfo".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_ten_up_to_the_largest() {
        assert_eq!(sizes(LARGEST).collect::<Vec<_>>(), [10_000, 100_000, 1_000_000, 10_000_000]);
        assert_eq!(sizes(999_999).collect::<Vec<_>>(), [10_000, 100_000]);
        assert_eq!(sizes(9_999).count(), 0);
    }

    #[test]
    fn available_memory_is_read() {
        assert!(available().unwrap() > 1 << 20);
    }
}

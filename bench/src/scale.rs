//! Growth: CPU per request, bytes per record and the longest pause, while the store holds up to ten million tokens and as many keys.

use std::path::Path;

use tokio::runtime::Builder;

use crate::growth_run::{GrowthRun, LOADS, ROUNDS};
use crate::memory_pauses::MemoryPauses;
use crate::redis_pauses::RedisPauses;
use crate::scaled_store::{ScaledStore, StoreKind};
use crate::{Failure, growth_chart, growth_report, growth_run, machine};

/// The smallest number of records.
pub(crate) const SMALLEST: u64 = 10_000;
/// The default largest number of records.
pub(crate) const LARGEST: u64 = 10_000_000;
/// Bytes of memory that all sizes of a store need for each token and its key of the largest one at most, with what the measuring processes
/// need.
const NEEDED: u64 = 800;
/// How often per second Redis does its background work: its default, and its recommended maximum.
pub(crate) const HZ: [u32; 2] = [10, 100];

/// Measures every store up to this size, prints the tables, and draws the chart. With too little memory, it measures smaller sizes only, and
/// does not draw.
pub(crate) fn measure(wanted: u64, chart: Option<&Path>) -> Result<(), Failure> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let folder = tempfile::tempdir()?;
    let available = available()?;
    let (largest, shortage) = (wanted.min(available / NEEDED), shortage(wanted, available));
    if let Some(shortage) = &shortage {
        println!("{shortage}");
    }
    let (mut runs, mut versions) = (Vec::new(), Vec::new());
    for store in StoreKind::ALL {
        versions.extend(runtime.block_on(async { ScaledStore::start(store).await?.version().await })?);
        let sizes: Vec<_> = sizes(largest.min(store.largest())).collect();
        runs.extend(runtime.block_on(growth_run::measure(store, &sizes, folder.path()))?);
    }
    let (mut memory, mut redis) = (Vec::new(), Vec::new());
    for size in sizes(largest) {
        memory.push((size, MemoryPauses::of(size)?));
        for hz in HZ {
            redis.push((size, hz, runtime.block_on(RedisPauses::of(size, hz))?));
        }
        println!("pauses with {} records measured", growth_report::count(size));
    }
    println!("\n{}", machine::line(&versions));
    report(&runs, &memory, &redis);
    match (chart, shortage) {
        (Some(_), Some(shortage)) => println!("\nThe chart is not written: {shortage}"),
        (Some(chart), None) => std::fs::write(chart, growth_chart::draw(&runs))?,
        (None, _) => {}
    }
    Ok(())
}

/// Says which memory is missing for stores of this size, if any.
fn shortage(wanted: u64, available: u64) -> Option<String> {
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
    let needed = wanted.saturating_mul(NEEDED);
    let text = || format!("{} of memory are available, and {wanted} records need {}", gib(available), gib(needed));
    (needed > available).then(text)
}

fn report(runs: &[GrowthRun], memory: &[(u64, MemoryPauses)], redis: &[(u64, u32, RedisPauses)]) {
    let [some, few] = [StoreKind::Memory, StoreKind::Sqlite].map(|store| LOADS * store.requests());
    println!("\nCPU per request, medians of {ROUNDS} rounds (least–most) of {some} requests per route ({few} for SQL)");
    println!("The store holds this many tokens and as many keys; a load never leaves more than twice as many");
    println!("\n{}", growth_report::costs(runs));
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
    fn shortage_of_memory_is_reported() {
        assert_eq!(shortage(10_000_000, 8_000_000_000), None);
        let text = shortage(10_000_000, 4 << 30).unwrap();
        assert_eq!(text, "4.0 GiB of memory are available, and 10000000 records need 7.5 GiB");
    }

    #[test]
    fn available_memory_is_read() {
        assert!(available().unwrap() > 1 << 20);
    }
}

//! The tables of growth.

use std::time::Duration;

use crate::goal::Goal;
use crate::growth_run::{GrowthRun, LoadedRoute, RouteCost};
use crate::longest_verb::LongestVerb;
use crate::markdown_table::{MarkdownTable, NONE};
use crate::memory_pauses::MemoryPauses;
use crate::redis_pauses::{RedisPause, RedisPauses};
use crate::scale::{HZ, LARGEST, SMALLEST};
use crate::scaled_store::StoreKind;
use crate::statistics::Spread;

/// The goal for the cost at the largest size, relative to that at the smallest.
pub(crate) const RATIO: Goal = Goal(1.2);
/// The goal for the longest pause, in milliseconds.
const PAUSE: Goal = Goal(10.0);

/// CPU per request: one line per store, size and route.
pub(crate) fn costs(runs: &[GrowthRun]) -> MarkdownTable {
    let title = format!("ratio to {}", count(SMALLEST));
    let mut table =
        MarkdownTable::new(["store", "records of each kind", "route", "server µs", "store µs", "sum µs", &title]);
    for (run, route) in runs.iter().flat_map(|run| LoadedRoute::ALL.map(|route| (run, route))) {
        let part = |part: fn(&RouteCost) -> f64| run.cpu(route, part).map_or_else(String::new, |part| part.cell(1));
        let store = if run.store.has_process() { part(|cost| cost.store) } else { NONE.to_owned() };
        let ratio = ratio(runs, run, route).map_or_else(|| NONE.to_owned(), |ratio| ratio.cell(2));
        let [name, route] = [run.store.name(), route.name()].map(str::to_owned);
        table.push([name, count(run.size), route, part(|cost| cost.server), store, part(RouteCost::sum), ratio]);
    }
    table
}

/// Bytes per record: one line per store and size.
pub(crate) fn bytes(runs: &[GrowthRun]) -> MarkdownTable {
    let mut table = MarkdownTable::new([
        "store",
        "records of each kind",
        "bytes per token",
        "bytes per key with its response",
        "all records, MiB",
    ]);
    for run in runs {
        let [token, key] = run.bytes.map(|bytes| format!("{bytes:.0}"));
        let total = format!("{:.0}", run.total as f64 / (1024.0 * 1024.0));
        table.push([run.store.name().to_owned(), count(run.size), token, key, total]);
    }
    table
}

/// The longest verbs: one line per store, size and phase.
pub(crate) fn pauses(memory: &[(u64, MemoryPauses)], redis: &[(u64, u32, RedisPauses)]) -> MarkdownTable {
    let mut table = MarkdownTable::new([
        "store",
        "records",
        "while",
        "longest verb, ms",
        "on the CPU, ms",
        "99.999th percentile, ms",
        "longest event in Redis, ms",
    ]);
    let none = || NONE.to_owned();
    for (size, pauses) in memory {
        let phases = [
            ("it grows", pauses.growth),
            ("it is full", pauses.full),
            ("expired records are removed", pauses.sweep),
            ("empty call (noise of the machine)", pauses.nothing),
        ];
        for (phase, LongestVerb { elapsed, cpu, usual }) in phases {
            let [elapsed, cpu, usual] = [elapsed, cpu, usual].map(|time| format!("{:.2}", millis(time)));
            table.push(["memory".to_owned(), count(*size), phase.to_owned(), elapsed, cpu, usual, none()]);
        }
    }
    for (size, hz, pauses) in redis {
        let left = if pauses.left > size / 100 { format!(" ({} left)", pauses.left) } else { String::new() };
        let phases = [
            ("it is idle (noise of the machine)".to_owned(), &pauses.idle),
            ("it grows".to_owned(), &pauses.growth),
            (format!("expired records are removed{left}"), &pauses.sweep),
        ];
        for (phase, pause) in phases {
            let (store, verb) = (format!("Redis, `hz {hz}`"), format!("{:.2}", millis(pause.verb)));
            table.push([store, count(*size), phase, verb, none(), none(), event(pause)]);
        }
    }
    table
}

/// The goals: one line each. A missed goal is not an error; a goal is unknown unless the largest size was measured.
pub(crate) fn goals(
    runs: &[GrowthRun],
    memory: &[(u64, MemoryPauses)],
    redis: &[(u64, u32, RedisPauses)],
) -> MarkdownTable {
    let mut table = MarkdownTable::new(["figure", "measured", "goal"]);
    for (store, route) in StoreKind::WITH_GOALS.iter().flat_map(|store| LoadedRoute::ALL.map(|route| (*store, route))) {
        let (name, small, large) = (store.name(), count(SMALLEST), count(LARGEST));
        let figure = format!("{} on {name}: CPU per request at {large} records, relative to {small}", route.name());
        let largest = runs.iter().find(|run| run.store == store && run.size == LARGEST);
        let ratio = largest.and_then(|largest| ratio(runs, largest, route));
        let cells = ratio.map_or_else(|| unknown(RATIO), |ratio| [ratio.cell(2), RATIO.verdict(ratio.median, 2)]);
        push(&mut table, figure, cells);
    }
    let longest = memory.iter().flat_map(|(_, pauses)| [pauses.growth, pauses.full, pauses.sweep]);
    let longest = longest.map(|longest| longest.cpu).max();
    let is_known = has_all(memory.iter().map(|(size, _)| *size));
    push(&mut table, "longest verb on the CPU, memory, ms".to_owned(), pause(longest.filter(|_| is_known)));
    for hz in HZ {
        let own = || redis.iter().filter(|(_, own, _)| *own == hz);
        let longest = own().map(|(_, _, pauses)| pauses.growth.verb.max(pauses.sweep.verb)).max();
        let is_known = has_all(own().map(|(size, ..)| *size));
        push(&mut table, format!("longest verb, Redis, `hz {hz}`, ms"), pause(longest.filter(|_| is_known)));
    }
    table
}

fn push(table: &mut MarkdownTable, figure: String, [measured, goal]: [String; 2]) {
    table.push([figure, measured, goal]);
}

fn unknown(goal: Goal) -> [String; 2] {
    [NONE.to_owned(), goal.unknown()]
}

fn pause(longest: Option<Duration>) -> [String; 2] {
    longest.map(millis).map_or_else(|| unknown(PAUSE), |longest| [format!("{longest:.2}"), PAUSE.verdict(longest, 2)])
}

/// True if the smallest and the largest size of the goals were measured.
fn has_all(sizes: impl Iterator<Item = u64> + Clone) -> bool {
    [SMALLEST, LARGEST].iter().all(|size| sizes.clone().any(|measured| measured == *size))
}

/// The cost of a run, relative to that of the same store with the fewest records in the same round.
fn ratio(runs: &[GrowthRun], run: &GrowthRun, route: LoadedRoute) -> Option<Spread> {
    let smallest = runs.iter().find(|other| other.store == run.store && other.size == SMALLEST)?;
    run.ratio(smallest, route)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn event(pause: &RedisPause) -> String {
    pause.event.as_ref().map_or_else(|| "below 1".to_owned(), |(millis, name)| format!("{millis} (`{name}`)"))
}

/// A power of ten as people write it.
pub(crate) fn count(size: u64) -> String {
    let digits = size.ilog10();
    let raised: String =
        digits.to_string().chars().filter_map(|digit| "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(digit as usize - 48)).collect();
    if 10_u64.pow(digits) == size { format!("10{raised}") } else { size.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::growth_run::tests::run;

    fn runs() -> [GrowthRun; 3] {
        [
            run(StoreKind::Memory, 10_000, 12.0, 20.0),
            run(StoreKind::Memory, 10_000_000, 15.0, 22.0),
            run(StoreKind::Redis, 10_000, 20.0, 40.0),
        ]
    }

    fn longest(millis: u64) -> LongestVerb {
        let [cpu, usual] = [300, 20].map(Duration::from_micros);
        LongestVerb { elapsed: Duration::from_millis(millis), cpu, usual }
    }

    fn redis_pause(millis: u64) -> RedisPause {
        RedisPause { verb: Duration::from_millis(millis), event: None }
    }

    /// The rows, each as its cells joined by `|`.
    fn rows(table: &MarkdownTable) -> Vec<String> {
        let row = |line: &str| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>().join("|");
        table.to_string().lines().skip(2).map(row).collect()
    }

    #[test]
    fn costs_are_compared_with_the_smallest_size() {
        let rows = rows(&costs(&runs()));
        assert_eq!(rows[2], "memory|10⁷|token|11.2 (11.2–11.2)|–|15.0 (15.0–15.0)|1.25 (1.25–1.25)");
        let key = "Redis|10⁴|key (retryable)|30.0 (30.0–30.0)|10.0 (10.0–10.0)|40.0 (40.0–40.0)|1.00 (1.00–1.00)";
        assert_eq!(rows[5], key);
    }

    #[test]
    fn bytes_are_printed_per_record() {
        assert_eq!(rows(&bytes(&runs()))[1], "memory|10⁷|130|260|3719");
    }

    #[test]
    fn goal_is_met_or_missed() {
        let pauses = MemoryPauses { growth: longest(11), full: longest(1), ..MemoryPauses::default() };
        let memory = [10_000, 10_000_000].map(|size| (size, pauses));
        let pauses = RedisPauses { growth: redis_pause(2), sweep: redis_pause(9), ..RedisPauses::default() };
        let redis = [10_000, 10_000_000].map(|size| (size, 10, pauses.clone()));
        let ratio = "CPU per request at 10⁷ records, relative to 10⁴";
        let expected = [
            format!("token on memory: {ratio}|1.25 (1.25–1.25)|≤ 1.2 missed"),
            format!("key (retryable) on memory: {ratio}|1.10 (1.10–1.10)|≤ 1.2 met"),
            format!("token on Redis: {ratio}|–|≤ 1.2 unknown"),
            format!("key (retryable) on Redis: {ratio}|–|≤ 1.2 unknown"),
            "longest verb on the CPU, memory, ms|0.30|≤ 10 met".to_owned(),
            "longest verb, Redis, `hz 10`, ms|9.00|≤ 10 met".to_owned(),
            "longest verb, Redis, `hz 100`, ms|–|≤ 10 unknown".to_owned(),
        ];
        assert_eq!(rows(&goals(&runs(), &memory, &redis)), expected);
    }

    #[test]
    fn goal_is_unknown_without_the_largest_or_the_smallest_size() {
        for size in [10_000, 1_000_000, 10_000_000] {
            let run = run(StoreKind::Memory, size, 12.0, 20.0);
            let goals = rows(&goals(&[run], &[(size, MemoryPauses::default())], &[]));
            assert!(goals.iter().all(|goal| goal.ends_with("unknown")), "{size}: {goals:?}");
        }
    }

    #[test]
    fn pauses_of_memory_have_a_line_per_phase() {
        let memory = [(10_000, MemoryPauses { sweep: longest(2), ..MemoryPauses::default() })];
        let rows = rows(&pauses(&memory, &[]));
        assert_eq!(rows[2], "memory|10⁴|expired records are removed|2.00|0.30|0.02|–");
        assert_eq!(rows.len(), 4);
    }

    #[test]
    fn pauses_name_the_event_of_redis_and_what_was_left() {
        let sweep = RedisPause { verb: Duration::from_millis(26), event: Some((25, "expire-cycle".to_owned())) };
        let redis = [(10_000, 10, RedisPauses { sweep, left: 300, ..RedisPauses::default() })];
        let expected = [
            "Redis, `hz 10`|10⁴|it is idle (noise of the machine)|0.00|–|–|below 1",
            "Redis, `hz 10`|10⁴|it grows|0.00|–|–|below 1",
            "Redis, `hz 10`|10⁴|expired records are removed (300 left)|26.00|–|–|25 (`expire-cycle`)",
        ];
        assert_eq!(rows(&pauses(&[], &redis)), expected);
    }

    #[test]
    fn sizes_are_powers_of_ten_or_digits() {
        assert_eq!([10_000, 10_000_000, 2_500].map(count), ["10⁴", "10⁷", "2500"]);
    }
}

//! The tables of growth.

use std::time::Duration;

use crate::growth_run::{GrowthRun, LoadedRoute, RouteCost};
use crate::longest_verb::LongestVerb;
use crate::memory_pauses::MemoryPauses;
use crate::redis_pauses::{RedisPause, RedisPauses};
use crate::scaled_store::StoreKind;
use crate::statistics::Spread;

/// The goal for the cost at the largest size, relative to that at the smallest.
const RATIO: f64 = 1.2;
/// The goal for the longest pause.
const PAUSE: Duration = Duration::from_millis(10);

const PAUSES: &str = "\
| store | records | while | longest verb, ms | on the CPU, ms | but for 1 in 100,000, ms | longest event in Redis, ms |
|---|---|---|---|---|---|---|";

/// CPU per request: one line per store, route and size.
pub(crate) fn costs(runs: &[GrowthRun]) -> String {
    let mut lines = vec![
        "| store | records | route | server µs | store µs | sum µs | ratio to the smallest |\n|---|---|---|---|---|---|---|"
            .to_owned(),
    ];
    for (run, route) in runs.iter().flat_map(|run| LoadedRoute::ALL.map(|route| (run, route))) {
        let part = |part: fn(&RouteCost) -> f64| run.cpu(route, part).map_or_else(String::new, median);
        let sum = run.cpu(route, |cost| cost.server + cost.store).map_or_else(String::new, apart);
        lines.push(format!(
            "| {} | {} | {} | {} | {} | {sum} | {} |",
            run.store.name(),
            count(run.size),
            route.name(),
            part(|cost| cost.server),
            part(|cost| cost.store),
            ratio(runs, run, route).map_or_else(String::new, |ratio| format!("{ratio:.2}")),
        ));
    }
    lines.join("\n")
}

/// Bytes per record: one line per store and size.
pub(crate) fn bytes(runs: &[GrowthRun]) -> String {
    let mut lines = vec![
        "| store | records | bytes per token | bytes per key | all records, MiB |\n|---|---|---|---|---|".to_owned(),
    ];
    lines.extend(runs.iter().map(|run| {
        let ([token, key], total) = (run.bytes, run.total as f64 / (1024.0 * 1024.0));
        format!("| {} | {} | {token:.0} | {key:.0} | {total:.0} |", run.store.name(), count(run.size))
    }));
    lines.join("\n")
}

/// The longest verbs: one line per store, size and phase.
pub(crate) fn pauses(memory: &[(u64, MemoryPauses)], redis: &[(u64, u32, RedisPauses)]) -> String {
    let mut lines = vec![PAUSES.to_owned()];
    for (size, pauses) in memory {
        let phases = [
            ("it grows", pauses.growth),
            ("it is full", pauses.full),
            ("expired records are removed", pauses.sweep),
            ("nothing is called", pauses.nothing),
        ];
        lines.extend(phases.map(|(phase, LongestVerb { elapsed, cpu, usual })| {
            let [elapsed, cpu, usual] = [elapsed, cpu, usual].map(millis);
            format!("| memory | {} | {phase} | {elapsed} | {cpu} | {usual} | – |", count(*size))
        }));
    }
    for (size, hz, pauses) in redis {
        let left = if pauses.left > size / 100 { format!(" ({} left)", pauses.left) } else { String::new() };
        let phases =
            [("it grows".to_owned(), &pauses.growth), (format!("expired records are removed{left}"), &pauses.sweep)];
        lines.extend(phases.map(|(phase, pause)| {
            format!(
                "| Redis, `hz {hz}` | {} | {phase} | {} | – | – | {} |",
                count(*size),
                millis(pause.verb),
                event(pause)
            )
        }));
    }
    lines.join("\n")
}

/// The goals: one line each. A missed goal is not an error.
pub(crate) fn goals(runs: &[GrowthRun], memory: &[(u64, MemoryPauses)], redis: &[(u64, u32, RedisPauses)]) -> String {
    let mut lines = Vec::new();
    for store in [StoreKind::Memory, StoreKind::Redis] {
        let Some(last) = runs.iter().rfind(|run| run.store == store) else { continue };
        for route in LoadedRoute::ALL {
            let ratio = ratio(runs, last, route).unwrap_or_default();
            let (name, route, size) = (store.name(), route.name(), count(last.size));
            lines.push(format!(
                "{route} on {name} at {size} records: {ratio:.2}, goal {RATIO:.2}: {}",
                met(ratio <= RATIO)
            ));
        }
    }
    let longest = memory.iter().flat_map(|(_, pauses)| [pauses.growth, pauses.full, pauses.sweep]);
    if let Some(longest) = longest.map(|longest| longest.cpu).max() {
        lines.push(format!(
            "longest verb on the CPU, memory: {} ms, goal {}: {}",
            millis(longest),
            millis(PAUSE),
            met(longest <= PAUSE)
        ));
    }
    for hz in [10, 100] {
        let own = redis.iter().filter(|(_, own, _)| *own == hz);
        if let Some(longest) = own.map(|(_, _, pauses)| pauses.growth.verb.max(pauses.sweep.verb)).max() {
            let verdict = met(longest <= PAUSE);
            lines.push(format!(
                "longest verb, Redis, `hz {hz}`: {} ms, goal {}: {verdict}",
                millis(longest),
                millis(PAUSE)
            ));
        }
    }
    lines.join("\n")
}

/// The cost of a run, relative to the one of the same store with the fewest records.
fn ratio(runs: &[GrowthRun], run: &GrowthRun, route: LoadedRoute) -> Option<f64> {
    let smallest = runs.iter().find(|other| other.store == run.store)?;
    Some(run.median(route)? / smallest.median(route)?)
}

fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

fn median(spread: Spread) -> String {
    format!("{:.1}", spread.median)
}

fn apart(Spread { median, least, most }: Spread) -> String {
    format!("{median:.1} ({least:.1}–{most:.1})")
}

fn millis(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1000.0)
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

    #[test]
    fn costs_are_compared_with_the_smallest_size() {
        let costs = costs(&runs());
        assert!(costs.contains("| memory | 10⁷ | token | 11.2 | 3.8 | 15.0 (15.0–15.0) | 1.25 |"), "{costs}");
        assert!(costs.contains("| Redis | 10⁴ | key | 30.0 | 10.0 | 40.0 (40.0–40.0) | 1.00 |"), "{costs}");
    }

    #[test]
    fn bytes_are_printed_per_record() {
        let bytes = bytes(&runs());
        assert!(bytes.contains("| memory | 10⁷ | 130 | 260 | 3719 |"), "{bytes}");
    }

    #[test]
    fn goal_is_met_or_missed() {
        let memory = [(10_000, MemoryPauses { growth: longest(11), full: longest(1), ..MemoryPauses::default() })];
        let pause = |millis| RedisPause { verb: Duration::from_millis(millis), event: None };
        let redis = [(10_000, 10, RedisPauses { growth: pause(2), sweep: pause(9), left: 0 })];
        let goals = goals(&runs(), &memory, &redis);
        for line in [
            "token on memory at 10⁷ records: 1.25, goal 1.20: missed",
            "key on memory at 10⁷ records: 1.10, goal 1.20: met",
            "longest verb on the CPU, memory: 0.30 ms, goal 10.00: met",
            "longest verb, Redis, `hz 10`: 9.00 ms, goal 10.00: met",
        ] {
            assert!(goals.lines().any(|other| other == line), "{line} is not in {goals}");
        }
    }

    #[test]
    fn pauses_of_memory_have_a_line_per_phase() {
        let memory = [(10_000, MemoryPauses { sweep: longest(2), ..MemoryPauses::default() })];
        let pauses = pauses(&memory, &[]);
        assert!(pauses.contains("| memory | 10⁴ | expired records are removed | 2.00 | 0.30 | 0.02 | – |"), "{pauses}");
        assert_eq!(pauses.lines().count(), 2 + 4);
    }

    #[test]
    fn pauses_name_the_event_of_redis_and_what_was_left() {
        let sweep = RedisPause { verb: Duration::from_millis(26), event: Some((25, "expire-cycle".to_owned())) };
        let redis = [(10_000, 10, RedisPauses { growth: RedisPause::default(), sweep, left: 300 })];
        let pauses = pauses(&[], &redis);
        assert!(
            pauses.contains(
                "| Redis, `hz 10` | 10⁴ | expired records are removed (300 left) | 26.00 | – | – | 25 (`expire-cycle`) |"
            ),
            "{pauses}"
        );
        assert!(pauses.contains("| it grows | 0.00 | – | – | below 1 |"), "{pauses}");
    }

    #[test]
    fn sizes_are_powers_of_ten_or_digits() {
        assert_eq!([10_000, 10_000_000, 2_500].map(count), ["10⁴", "10⁷", "2500"]);
    }
}

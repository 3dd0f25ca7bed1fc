//! The report of the comparison with a peer, as a markdown table.

use crate::case_run::CaseRun;
use crate::markdown_table::MarkdownTable;
use crate::peer_pair::PeerPair;
use crate::statistics::Spread;

/// The runs of a pair, one element per round: Onceward and the peer.
pub(crate) type PairRuns = Vec<[CaseRun; 2]>;

/// The runs of all pairs, in the order of [`PeerPair::ALL`].
type AllRuns = [PairRuns; PeerPair::ALL.len()];

const TITLES: [&str; 9] = [
    "route",
    "requests/s",
    "server CPU µs",
    "above bare",
    "Redis CPU µs",
    "Redis commands (with those in scripts)",
    "throughput, Onceward / idempotent",
    "CPU, Onceward / idempotent",
    "CPU above bare, Onceward / idempotent",
];

/// The table: medians, with minimum and maximum of the rounds. `None` if there were no rounds.
pub(crate) fn table(runs: &AllRuns) -> Option<MarkdownTable> {
    let mut table = MarkdownTable::new(TITLES);
    let [bare, ..] = runs;
    for (pair, runs) in PeerPair::ALL.iter().zip(runs) {
        let ratios = [ratios(pair, runs, bare)?, Default::default()];
        for (side, [faster, cpu, above_bare]) in ratios.into_iter().enumerate() {
            let [throughput, server, above, redis, commands] = figures(pair, runs, bare, side)?;
            let name = pair.rows[side].to_owned();
            table.push([name, throughput, server, above, redis, commands, faster, cpu, above_bare]);
        }
    }
    Some(table)
}

/// The goals: one line per pair with one. A missed goal is not an error.
pub(crate) fn goals(runs: &AllRuns) -> String {
    let [bare, ..] = runs;
    let line = |(pair, runs): (&PeerPair, &PairRuns)| {
        let (goal, [row, peer]) = (pair.goal?, pair.rows);
        let (ratio, of_bare) = (throughput_ratio(runs)?, throughput_ratio(bare)?);
        let by_cpu = Spread::of(runs.iter().map(|[own, peer]| peer.micros() / own.micros()))?;
        Some(format!(
            "{row}: {} times the throughput of {peer}, goal {}. The bare route of actix has {} times the throughput of axum's. \
             Per request, {peer} needs {} times the CPU time (server, Redis and generator).",
            ratio.cell(2),
            goal.verdict_at_least(ratio.median, 2),
            of_bare.cell(2),
            by_cpu.cell(2)
        ))
    };
    PeerPair::ALL.iter().zip(runs).filter_map(line).collect::<Vec<_>>().join("\n")
}

/// The figures of one server.
fn figures(pair: &PeerPair, runs: &PairRuns, bare: &PairRuns, side: usize) -> Option<[String; 5]> {
    let spread = |figure: fn(&CaseRun) -> f64| Spread::of(runs.iter().map(|both| figure(&both[side])));
    let above = Spread::of(runs.iter().zip(bare).map(|(both, bare)| server(&both[side]) - server(&bare[side])))?;
    let above = if pair.is_bare() { String::new() } else { above.cell(1) };
    let [redis, commands] = match pair.case() {
        Ok(case) if case.has_redis() => {
            let (received, executed) = (spread(CaseRun::commands_per_request)?, spread(CaseRun::executed_per_request)?);
            [spread(redis)?.cell(1), format!("{:.1} ({:.1})", received.median, executed.median)]
        }
        _ => Default::default(),
    };
    Some([spread(CaseRun::throughput)?.cell(0), spread(server)?.cell(1), above, redis, commands])
}

/// The ratios of a pair, round by round: throughput, CPU time of server and Redis, and the same above the bare routes.
fn ratios(pair: &PeerPair, runs: &PairRuns, bare: &PairRuns) -> Option<[String; 3]> {
    let cpu = |run: &CaseRun| server(run) + redis(run);
    let of_cpu = Spread::of(runs.iter().map(|[own, peer]| cpu(own) / cpu(peer)))?;
    let above_bare =
        Spread::of(runs.iter().zip(bare).map(|([own, peer], [own_bare, peer_bare])| {
            (cpu(own) - server(own_bare)) / (cpu(peer) - server(peer_bare))
        }))?;
    let above_bare = if pair.is_bare() { String::new() } else { above_bare.cell(2) };
    Some([throughput_ratio(runs)?.cell(2), of_cpu.cell(2), above_bare])
}

fn throughput_ratio(runs: &PairRuns) -> Option<Spread> {
    Spread::of(runs.iter().map(|[own, peer]| own.throughput() / peer.throughput()))
}

/// CPU time of the server per request, in microseconds.
fn server(run: &CaseRun) -> f64 {
    run.micros_per_request(run.cpu.server)
}

/// CPU time of Redis per request, in microseconds.
fn redis(run: &CaseRun) -> f64 {
    run.micros_per_request(run.cpu.redis)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::case_run::CpuTime;
    use crate::command_count::CommandCount;
    use crate::wrk::LoadResult;

    /// A run of 100 requests: requests per second, and CPU time of server and Redis per request, in microseconds. The generator uses 10.
    fn run(throughput: f64, server: u64, redis: u64) -> CaseRun {
        let (p50, p99) = (Duration::ZERO, Duration::ZERO);
        let load = LoadResult { requests: 100, lasted: Duration::from_secs_f64(100.0 / throughput), p50, p99 };
        let [server, redis, generator] = [server, redis, 10].map(|micros| Duration::from_micros(micros * 100));
        let commands = CommandCount { received: 200, scripts: 100, executed: 400 };
        CaseRun { load, commands, cpu: CpuTime { server, redis, generator } }
    }

    /// Two rounds. The bare routes cost 10 and 12 µs in the first, 11 and 13 in the second.
    fn runs(faster: f64) -> AllRuns {
        let bare = vec![[run(88.0, 10, 0), run(80.0, 12, 0)], [run(80.0, 11, 0), run(80.0, 13, 0)]];
        let memory = vec![[run(80.0, 15, 0), run(60.0, 22, 0)], [run(90.0, 14, 0), run(60.0, 23, 0)]];
        let redis = vec![[run(40.0 * faster, 18, 8), run(40.0, 32, 20)]; 2];
        [bare, memory, redis]
    }

    fn cells(table: &str, row: &str) -> Vec<String> {
        let line = table.lines().find(|line| line.contains(row)).unwrap();
        line.split('|').map(|cell| cell.trim().to_owned()).collect()
    }

    #[test]
    fn table_has_one_line_per_server() {
        let table = table(&runs(2.0)).unwrap().to_string();
        assert_eq!(table.lines().count(), 2 + 2 * PeerPair::ALL.len());
        assert!(table.lines().all(|line| line.matches('|').count() == TITLES.len() + 1), "{table}");
    }

    #[test]
    fn cost_is_above_the_own_bare_route_of_the_round() {
        let table = table(&runs(2.0)).unwrap().to_string();
        assert_eq!(cells(&table, "memory, Onceward")[4], "4.0 (3.0–5.0)");
        assert_eq!(cells(&table, "memory, idempotent")[4], "10.0 (10.0–10.0)");
        assert_eq!(cells(&table, "bare, axum")[2..7], ["80 (80–80)", "12.5 (12.0–13.0)", "", "", ""]);
    }

    #[test]
    fn ratios_are_of_onceward_to_the_peer_per_round() {
        let table = table(&runs(2.0)).unwrap().to_string();
        // Above bare: 18 + 8 - 10 of 32 + 20 - 12, and 18 + 8 - 11 of 32 + 20 - 13.
        assert_eq!(
            cells(&table, "Redis, Onceward")[5..10],
            ["8.0 (8.0–8.0)", "2.0 (4.0)", "2.00 (2.00–2.00)", "0.50 (0.50–0.50)", "0.39 (0.38–0.40)"]
        );
        assert_eq!(cells(&table, "bare, actix")[7..10], ["1.05 (1.00–1.10)", "0.84 (0.83–0.85)", ""]);
        assert_eq!(cells(&table, "Redis, idempotent")[7..10], ["", "", ""]);
    }

    #[test]
    fn goal_is_met_or_missed_by_the_median() {
        let met = goals(&runs(2.0));
        assert!(
            met.contains("Redis, Onceward: 2.00 (2.00–2.00) times the throughput of Redis, idempotent, goal ≥ 2 met."),
            "{met}"
        );
        let missed = goals(&runs(1.9));
        assert!(missed.contains("goal ≥ 2 missed") && missed.contains("memory, Onceward: 1.42"), "{missed}");
        assert_eq!(missed.lines().count(), 2);
    }

    #[test]
    fn goal_is_stated_with_the_bare_routes_and_the_cpu_time() {
        // The CPU time is 32 + 20 + 10 of 18 + 8 + 10.
        let line = "The bare route of actix has 1.05 (1.00–1.10) times the throughput of axum's. \
            Per request, Redis, idempotent needs 1.72 (1.72–1.72) times the CPU time (server, Redis and generator).";
        assert!(goals(&runs(2.0)).ends_with(line), "{}", goals(&runs(2.0)));
    }

    #[test]
    fn report_needs_a_round() {
        assert!(table(&AllRuns::default()).is_none());
    }
}

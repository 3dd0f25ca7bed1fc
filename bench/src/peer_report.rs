//! The report of the comparison with a peer: a markdown table of the figures, and one of the ratios with the goals.

use crate::case_run::CaseRun;
use crate::framework::Framework;
use crate::goal::Goal;
use crate::markdown_table::{MarkdownTable, NONE};
use crate::peer_group::{PeerGroup, PeerServer};
use crate::statistics::Spread;

/// The runs of a group in one round, in the order of [`PeerServer::ALL`].
pub(crate) type GroupRun = [CaseRun; PeerServer::ALL.len()];

/// The runs of a group, one element per round.
pub(crate) type GroupRuns = Vec<GroupRun>;

/// The runs of all groups, in the order of [`PeerGroup::ALL`].
type AllRuns = [GroupRuns; PeerGroup::ALL.len()];

/// The position of the peer in a [`GroupRun`].
const PEER: usize = PeerServer::ALL.len() - 1;

/// The figures: medians, with minimum and maximum of the rounds. `None` if there were no rounds.
pub(crate) fn figures(runs: &AllRuns) -> Option<MarkdownTable> {
    let titles = ["route", "requests/s", "server", "server above bare", "Redis", "commands (with those in scripts)"];
    let mut table = MarkdownTable::new(titles);
    let [bare, ..] = runs;
    for (group, runs) in PeerGroup::ALL.iter().zip(runs) {
        for (at, server) in PeerServer::ALL.into_iter().enumerate() {
            let [throughput, cpu, above, redis, commands] = figures_of(group, runs, bare, at)?;
            table.push([group.row(server), throughput, cpu, above, redis, commands]);
        }
    }
    Some(table)
}

/// The figures of one server.
fn figures_of(group: &PeerGroup, runs: &GroupRuns, bare: &GroupRuns, at: usize) -> Option<[String; 5]> {
    let spread = |figure: fn(&CaseRun) -> f64| Spread::of(runs.iter().map(|run| figure(&run[at])));
    let above = Spread::of_pairs(runs, bare, |run, bare| run[at].server_micros() - bare[at].server_micros())?;
    let above = if group.is_bare() { NONE.to_owned() } else { above.cell(1) };
    let [redis, commands] = match group.case() {
        Ok(case) if case.has_redis() => {
            let (received, executed) = (spread(CaseRun::commands_per_request)?, spread(CaseRun::executed_per_request)?);
            [spread(CaseRun::redis_micros)?.cell(1), format!("{:.1} ({:.1})", received.median, executed.median)]
        }
        _ => [NONE, NONE].map(str::to_owned),
    };
    Some([spread(CaseRun::throughput)?.cell(0), spread(CaseRun::server_micros)?.cell(1), above, redis, commands])
}

/// The ratios, round by round: how many times the throughput of the peer, and how many times less CPU time per request. `None` if there
/// were no rounds. A missed goal is not an error.
pub(crate) fn ratios(runs: &AllRuns) -> Option<MarkdownTable> {
    let mut table = MarkdownTable::new([
        "beside idempotent on axum",
        "throughput",
        "goal",
        "less CPU: server",
        "goal",
        "server above bare",
        "goal",
        "server and Redis above bare",
        "all processes",
    ]);
    let [bare, ..] = runs;
    for (group, runs) in PeerGroup::ALL.iter().zip(runs) {
        for (at, own) in PeerServer::ALL.into_iter().enumerate().take(PEER) {
            let [throughput, server, above, both, all] = ratios_of(runs, bare, at)?;
            let on_axum = own == PeerServer::Onceward(Framework::Axum);
            let throughput_goal = group.goals.filter(|_| !on_axum).map(|goals| goals.throughput);
            let cpu_goal = group.goals.filter(|_| on_axum).map(|goals| goals.cpu);
            let above_bare = |ratio: Spread| if group.is_bare() { NONE.to_owned() } else { ratio.cell(2) };
            table.push([
                group.row(own),
                throughput.cell(2),
                verdict(throughput_goal, throughput),
                server.cell(2),
                verdict(cpu_goal, server),
                above_bare(above),
                verdict(cpu_goal, above),
                above_bare(both),
                all.cell(2),
            ]);
        }
    }
    Some(table)
}

/// The ratios of one server of Onceward to the peer: throughput, and CPU time per request of the server, of the server above bare, of
/// server and Redis above bare, and of server, Redis and generator.
fn ratios_of(runs: &GroupRuns, bare: &GroupRuns, at: usize) -> Option<[Spread; 5]> {
    let of_peer =
        |figure: fn(&CaseRun) -> f64| Spread::of(runs.iter().map(|run| figure(&run[PEER]) / figure(&run[at])));
    let above_bare = |figure: fn(&CaseRun) -> f64| {
        Spread::of_pairs(runs, bare, |run, bare| {
            let above = |at: usize| figure(&run[at]) - figure(&bare[at]);
            above(PEER) / above(at)
        })
    };
    let throughput = Spread::of(runs.iter().map(|run| run[at].throughput() / run[PEER].throughput()))?;
    let both = |run: &CaseRun| run.server_micros() + run.redis_micros();
    let server = CaseRun::server_micros;
    Some([throughput, of_peer(server)?, above_bare(server)?, above_bare(both)?, of_peer(CaseRun::micros)?])
}

/// The cell of a goal; empty without one.
fn verdict(goal: Option<Goal>, ratio: Spread) -> String {
    goal.map(|goal| goal.verdict_at_least(ratio.median, 2)).unwrap_or_default()
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

    /// Two rounds. The bare routes cost 10, 11 and 12 µs in the first, 11, 12 and 13 in the second.
    fn runs(faster: f64) -> AllRuns {
        let bare = vec![
            [run(88.0, 10, 0), run(80.0, 11, 0), run(80.0, 12, 0)],
            [run(80.0, 11, 0), run(80.0, 12, 0), run(80.0, 13, 0)],
        ];
        let memory = vec![
            [run(80.0, 15, 0), run(70.0, 16, 0), run(60.0, 22, 0)],
            [run(90.0, 14, 0), run(70.0, 17, 0), run(60.0, 23, 0)],
        ];
        let redis = vec![[run(40.0 * faster, 18, 8), run(50.0, 24, 10), run(40.0, 32, 20)]; 2];
        [bare, memory, redis]
    }

    fn cells(table: &MarkdownTable, row: &str) -> Vec<String> {
        let table = table.to_string();
        let line = table.lines().find(|line| line.contains(row)).unwrap();
        line.split('|').skip(2).map(|cell| cell.trim().to_owned()).collect()
    }

    #[test]
    fn figures_have_a_line_per_server_and_ratios_one_per_server_of_onceward() {
        let lines = |table: Option<MarkdownTable>| table.unwrap().to_string().lines().count();
        assert_eq!(lines(figures(&runs(2.0))), 2 + 3 * PeerGroup::ALL.len());
        assert_eq!(lines(ratios(&runs(2.0))), 2 + 2 * PeerGroup::ALL.len());
    }

    #[test]
    fn cost_is_above_the_own_bare_route_of_the_round() {
        let table = figures(&runs(2.0)).unwrap();
        assert_eq!(cells(&table, "memory, Onceward on actix-web")[2], "4.0 (3.0–5.0)");
        assert_eq!(cells(&table, "memory, Onceward on axum")[2], "5.0 (5.0–5.0)");
        assert_eq!(cells(&table, "memory, idempotent on axum")[2], "10.0 (10.0–10.0)");
        assert_eq!(cells(&table, "bare, idempotent")[..5], ["80 (80–80)", "12.5 (12.0–13.0)", "–", "–", "–"]);
        assert_eq!(cells(&table, "Redis, Onceward on axum")[3..5], ["10.0 (10.0–10.0)", "2.0 (4.0)"]);
    }

    #[test]
    fn ratios_are_to_the_peer_per_round() {
        let table = ratios(&runs(2.0)).unwrap();
        // Above bare: 32 - 12 of 18 - 10, and 32 - 13 of 18 - 11. With Redis: 52 - 12 of 26 - 10, and 52 - 13 of 26 - 11.
        let [throughput, server, above] = ["2.00 (2.00–2.00)", "1.78 (1.78–1.78)", "2.61 (2.50–2.71)"];
        let [both, all] = ["2.55 (2.50–2.60)", "1.72 (1.72–1.72)"];
        assert_eq!(
            cells(&table, "Redis, Onceward on actix-web")[..8],
            [throughput, "≥ 2 met", server, "", above, "", both, all]
        );
        assert_eq!(cells(&table, "bare, Onceward on actix-web")[..3], ["1.05 (1.00–1.10)", "", "1.19 (1.18–1.20)"]);
        assert_eq!(cells(&table, "bare, Onceward on axum")[4..7], ["–", "", "–"]);
    }

    #[test]
    fn goal_is_met_or_missed_by_the_median() {
        let missed = ratios(&runs(1.9)).unwrap();
        assert_eq!(cells(&missed, "Redis, Onceward on actix-web")[1], "≥ 2 missed");
        // 32 of 24 µs, and 20 of 13 or 19 of 12 above bare.
        let [server, of_server, above, of_above] =
            ["1.33 (1.33–1.33)", "≥ 1.5 missed", "1.56 (1.54–1.58)", "≥ 1.5 met"];
        assert_eq!(cells(&missed, "Redis, Onceward on axum")[2..6], [server, of_server, above, of_above]);
        assert_eq!(cells(&missed, "memory, Onceward on axum")[1..4], ["", "1.36 (1.35–1.38)", "≥ 1.2 met"]);
    }

    #[test]
    fn report_needs_a_round() {
        assert!(figures(&AllRuns::default()).is_none() && ratios(&AllRuns::default()).is_none());
    }
}

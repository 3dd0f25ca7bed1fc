//! The report of the comparison with nginx, as a markdown table. The server of each run is the proxy.

use crate::case_run::CaseRun;
use crate::goal::Goal;
use crate::markdown_table::{MarkdownTable, NONE};
use crate::proxy_case::{ProxyCase, ProxyKind};
use crate::statistics::Spread;

/// The runs of all cases, in the order of [`ProxyCase::ALL`], one element per round.
pub(crate) type AllRuns = [Vec<CaseRun>; ProxyCase::ALL.len()];

/// The figures: medians, with minimum and maximum of the rounds. `None` if there were no rounds. A missed goal is not an error.
pub(crate) fn table(runs: &AllRuns) -> Option<MarkdownTable> {
    let mut table =
        MarkdownTable::new(["requests", "proxy", "beside nginx", "goal", "Redis", "commands", "requests/s"]);
    for (case, own) in ProxyCase::ALL.iter().zip(runs) {
        let spread = |figure: fn(&CaseRun) -> f64| Spread::of(own.iter().map(figure));
        let beside =
            Spread::of_pairs(own, &runs[case.beside], |own, nginx| own.server_micros() / nginx.server_micros())?;
        let is_nginx = case.proxy == ProxyKind::Nginx;
        let [redis, commands] = match case.is_guarded() {
            true => [
                spread(CaseRun::redis_micros)?.cell(1),
                format!("{:.1}", spread(CaseRun::commands_per_request)?.median),
            ],
            false => [NONE, NONE].map(str::to_owned),
        };
        table.push([
            case.load.name.to_owned(),
            spread(CaseRun::server_micros)?.cell(1),
            if is_nginx { NONE.to_owned() } else { beside.cell(2) },
            Goal::cell(case.goal, beside.median, 2),
            redis,
            commands,
            spread(CaseRun::throughput)?.cell(0),
        ]);
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::case_run::CpuTime;
    use crate::command_count::CommandCount;
    use crate::wrk::LoadResult;

    /// A run of 100 requests with this CPU time of the proxy per request, in microseconds, and 5 of Redis.
    fn run(proxy: u64) -> CaseRun {
        let (p50, p99) = (Duration::ZERO, Duration::ZERO);
        let load = LoadResult { requests: 100, lasted: Duration::from_secs(1), p50, p99 };
        let [server, redis] = [proxy, 5].map(|micros| Duration::from_micros(micros * 100));
        let commands = CommandCount { received: 300, scripts: 0, executed: 300 };
        CaseRun { load, commands, cpu: CpuTime { server, redis, generator: Duration::ZERO } }
    }

    #[test]
    fn proxy_is_compared_with_nginx_per_round() {
        let rounds = |micros: [u64; 2]| micros.map(run).to_vec();
        let runs = [[10, 20], [15, 40], [20, 20], [52, 54], [60, 60], [60, 80], [30, 30]].map(rounds);
        let table = table(&runs).unwrap().to_string();
        let cells = |row: &str| -> Vec<String> {
            let line = table.lines().find(|line| line.contains(row)).unwrap();
            line.split('|').skip(2).map(|cell| cell.trim().to_owned()).collect()
        };
        assert_eq!(cells("GET, nginx")[..5], ["15.0 (10.0–20.0)", "–", "", "–", "–"]);
        assert_eq!(cells("GET, Onceward")[1..3], ["1.75 (1.50–2.00)", "≤ 2.5 met"]);
        assert_eq!(cells("POST, Onceward")[1..3], ["2.65 (2.60–2.70)", "≤ 2.5 missed"]);
        assert_eq!(cells("with a key")[1..5], ["3.00 (3.00–3.00)", "", "5.0 (5.0–5.0)", "3.0"]);
    }
}

//! Compares Redis with and without batches and a connection per worker, in the same rounds, on both frameworks.
//!
//! On axum, the connection with batches is one for all threads of the runtime.

use crate::case::Case;
use crate::case_run::{CaseRun, Runner};
use crate::framework::Framework;
use crate::markdown_table::MarkdownTable;
use crate::redis_server::RedisServer;
use crate::statistics::Spread;
use crate::wrk::Wrk;
use crate::{Failure, machine};

/// The compared cases: each with the first of its line.
const CASES: [[&str; 3]; 2] = [
    ["token, Redis", "token, no batches", "token, one connection"],
    ["key, retryable, Redis", "key, retryable, no batches", "key, retryable, one connection"],
];

/// Runs every case in every round, and prints the CPU time of each.
pub(crate) fn measure(rounds: u64, seconds: u64) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let generator = Wrk::in_folder(folder.path())?;
    let mut redis = RedisServer::start()?;
    let mut runner = Runner::new(&generator, folder.path(), seconds);
    let titles = ["case", "requests/s", "server CPU µs", "Redis CPU µs", "sum µs", "sum, relative to batched"];
    let mut table = MarkdownTable::new(titles);
    for (framework, names) in Framework::ALL.into_iter().flat_map(|framework| CASES.map(|names| (framework, names))) {
        let mut runs: [Vec<CaseRun>; 3] = Default::default();
        for round in 0..rounds {
            for (name, runs) in names.iter().zip(&mut runs) {
                let case = Case::named(name).ok_or_else(|| format!("unknown case: {name}"))?;
                let run = runner.run(framework, case, &mut redis)?;
                let (name, rate) = (title(framework, name), run.throughput());
                println!("round {} of {rounds}: {name:<42} {rate:>8.0} requests/s", round + 1);
                runs.push(run);
            }
        }
        let rows = names.iter().zip(&runs);
        let rows = rows.filter_map(|(name, runs_of_case)| row(title(framework, name), runs_of_case, &runs[0]));
        rows.for_each(|row| table.push(row));
    }
    println!("\n{}", machine::line(&[redis.version()?]));
    println!("\nPer request, medians of {rounds} rounds of {seconds} s (least–most)\n\n{table}");
    Ok(())
}

/// The name of a row.
fn title(framework: Framework, name: &str) -> String {
    format!("{}, {name}", framework.name())
}

/// CPU time of server and Redis per request, in microseconds.
fn cost(run: &CaseRun) -> f64 {
    run.server_micros() + run.redis_micros()
}

fn row(name: String, runs: &[CaseRun], batched: &[CaseRun]) -> Option<[String; 6]> {
    let spread = |figure: &dyn Fn(&CaseRun) -> f64| Spread::of(runs.iter().map(figure));
    let ratio = Spread::of_pairs(runs, batched, |run, batched| cost(run) / cost(batched))?;
    Some([
        name,
        spread(&CaseRun::throughput)?.cell(0),
        spread(&CaseRun::server_micros)?.cell(1),
        spread(&CaseRun::redis_micros)?.cell(1),
        spread(&cost)?.cell(1),
        ratio.cell(2),
    ])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::case_run::CpuTime;
    use crate::command_count::CommandCount;
    use crate::wrk::LoadResult;

    fn run(micros: u64) -> CaseRun {
        let (lasted, p50, p99) = (Duration::from_secs(1), Duration::ZERO, Duration::ZERO);
        let cpu = CpuTime {
            server: Duration::from_micros(micros * 75),
            redis: Duration::from_micros(micros * 25),
            ..CpuTime::default()
        };
        CaseRun { load: LoadResult { requests: 100, lasted, p50, p99 }, commands: CommandCount::default(), cpu }
    }

    #[test]
    fn row_shows_cost_and_ratio_per_round() {
        let row = row("x".to_owned(), &[run(30), run(50), run(40)], &[run(20), run(40), run(20)]).unwrap();
        let cpu = ["30.0 (22.5–37.5)", "10.0 (7.5–12.5)", "40.0 (30.0–50.0)"];
        assert_eq!(row[2..], [cpu[0], cpu[1], cpu[2], "1.50 (1.25–2.00)"]);
    }

    #[test]
    fn every_compared_case_exists() {
        assert!(CASES.iter().flatten().all(|name| Case::named(name).is_some()));
    }
}

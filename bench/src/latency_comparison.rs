//! Compares the latency of guarded routes with that of the bare route at a rate that leaves the machine idle most of the time.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Failure;
use crate::case::Case;
use crate::goal::Goal;
use crate::markdown_table::MarkdownTable;
use crate::paced_load::{PACE, RATE, requests};
use crate::paced_result::PacedResult;
use crate::redis_server::RedisServer;
use crate::server_process::ServerProcess;
use crate::statistics::Spread;

/// Default duration of a case in each round.
pub(crate) const SECONDS: u64 = 6;

/// The compared cases.
const CASES: [LatencyCase; 3] = [
    LatencyCase { name: "bare", goals: None },
    LatencyCase { name: "token, Redis", goals: Some([Goal(0.15), Goal(0.5)]) },
    LatencyCase { name: "key, retryable, Redis", goals: Some([Goal(0.3), Goal(1.0)]) },
];

/// A compared case.
#[derive(Debug)]
struct LatencyCase {
    name: &'static str,
    /// The goals for 50th and 99th percentile above those of the bare route, in milliseconds. `None` for the bare route.
    goals: Option<[Goal; 2]>,
}

/// Measures the cases, and prints the table.
pub(crate) fn measure_alone(rounds: u64, seconds: u64) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let report = measure(rounds, seconds, &mut RedisServer::start()?, folder.path())?;
    println!("\n{report}");
    Ok(())
}

/// Measures every case in every round, and returns the report.
pub(crate) fn measure(rounds: u64, seconds: u64, redis: &mut RedisServer, folder: &Path) -> Result<String, Failure> {
    let mut results: [Vec<PacedResult>; CASES.len()] = Default::default();
    for round in 0..rounds {
        for (LatencyCase { name, .. }, results) in CASES.iter().zip(&mut results) {
            let result = run(Case::named(name).ok_or("unknown case")?, redis, folder, seconds)?;
            let [p50, p99] = [result.p50, result.p99].map(millis);
            println!("round {} of {rounds}: {name:<24} p50 {p50:.3} ms, p99 {p99:.3} ms", round + 1);
            results.push(result);
        }
    }
    let table = table(&results).ok_or("no rounds")?;
    Ok(format!("Latency at {RATE} requests/s, medians of {rounds} rounds of {seconds} s (least–most)\n\n{table}"))
}

/// Runs a case on its own server.
fn run(case: &Case, redis: &mut RedisServer, folder: &Path, seconds: u64) -> Result<PacedResult, Failure> {
    redis.forget()?;
    let server = ServerProcess::start(case, &redis.url(), folder, requests(seconds))?;
    let output = Command::new(std::env::current_exe()?)
        .args([PACE, case.name, server.url()])
        .arg(folder)
        .arg(seconds.to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    let result = PacedResult::read(&String::from_utf8_lossy(&output.stdout)).filter(|_| output.status.success());
    Ok(result.ok_or_else(|| format!("{}: the generator exited with {}", case.name, output.status))?)
}

/// The table. Returns `None` if there were no rounds.
fn table(results: &[Vec<PacedResult>; CASES.len()]) -> Option<MarkdownTable> {
    let mut table = MarkdownTable::new([
        "case",
        "p50 ms",
        "above bare",
        "goal",
        "p99 ms",
        "above bare",
        "goal",
        "generator delay, p99 ms",
    ]);
    for (LatencyCase { name, goals }, of_case) in CASES.iter().zip(results) {
        let (late, late_bare) = (late(of_case)?, late(&results[0])?);
        let [p50_goal, p99_goal] = goals.map_or([None; 2], |goals| goals.map(Some));
        let [p50, p50_above, p50_verdict] = cells(of_case, &results[0], p50_goal, |result| millis(result.p50))?;
        let [p99, p99_above, p99_verdict] = cells(of_case, &results[0], p99_goal, |result| millis(result.p99))?;
        // A delay by the generator says nothing about the server.
        let starved = p99_goal.filter(|goal| late.max(late_bare) > goal.0);
        let p99_verdict = starved.map_or(p99_verdict, Goal::unknown);
        let late = format!("{late:.3}");
        table.push([(*name).to_owned(), p50, p50_above, p50_verdict, p99, p99_above, p99_verdict, late]);
    }
    Some(table)
}

/// The median of the 99th percentiles of the delay by the generator, in milliseconds.
fn late(results: &[PacedResult]) -> Option<f64> {
    Some(Spread::of(results.iter().map(|result| millis(result.late)))?.median)
}

/// The cells of one percentile: its median, the median of the differences per round, and the goal for these.
fn cells(
    results: &[PacedResult],
    bare: &[PacedResult],
    goal: Option<Goal>,
    figure: fn(&PacedResult) -> f64,
) -> Option<[String; 3]> {
    let median = Spread::of(results.iter().map(figure))?.median;
    let above = Spread::of_pairs(results, bare, |result, bare| figure(result) - figure(bare))?;
    let shown = if goal.is_some() { above.cell(3) } else { String::new() };
    Some([format!("{median:.3}"), shown, Goal::cell(goal, above.median, 3)])
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(p50: [u64; 3], p99: [u64; 3]) -> Vec<PacedResult> {
        let result = |(p50, p99)| {
            let [p50, p99, late] = [p50, p99, 40].map(Duration::from_micros);
            PacedResult { p50, p99, late }
        };
        p50.into_iter().zip(p99).map(result).collect()
    }

    #[test]
    fn differences_are_per_round_and_judged_by_their_median() {
        let bare = results([100, 200, 300], [1000, 1000, 1000]);
        let token = results([240, 350, 450], [1400, 1501, 3000]);
        let key = results([401, 501, 601], [1500, 1600, 1700]);
        let table = table(&[bare, token, key]).unwrap().to_string();
        let rows: Vec<Vec<_>> = table.lines().skip(2).map(|line| line.split('|').map(str::trim).collect()).collect();
        assert_eq!(rows[0][1..9], ["bare", "0.200", "", "", "1.000", "", "", "0.040"]);
        let token = ["0.350", "0.150 (0.140–0.150)", "≤ 0.15 met", "1.501", "0.501 (0.400–2.000)", "≤ 0.5 missed"];
        assert_eq!(rows[1][2..8], token);
        assert_eq!(rows[2][3..5], ["0.301 (0.301–0.301)", "≤ 0.3 missed"]);
        assert_eq!(rows[2][6..8], ["0.600 (0.500–0.700)", "≤ 1 met"]);
    }

    #[test]
    fn p99_is_unknown_while_the_generator_is_delayed() {
        let late = Duration::from_micros(501);
        let [mut bare, token, key] = [100, 200, 300].map(|p50| results([p50; 3], [1000; 3]));
        bare.iter_mut().for_each(|result| result.late = late);
        let table = table(&[bare, token, key]).unwrap().to_string();
        let rows: Vec<Vec<_>> = table.lines().skip(3).map(|line| line.split('|').map(str::trim).collect()).collect();
        assert_eq!((rows[0][4], rows[0][7]), ("≤ 0.15 met", "≤ 0.5 unknown"));
        assert_eq!(rows[1][7], "≤ 1 met");
    }

    #[test]
    fn table_requires_a_round() {
        assert!(table(&Default::default()).is_none());
    }

    #[test]
    fn first_compared_case_is_the_only_one_without_goals() {
        assert!(CASES.iter().all(|case| Case::named(case.name).unwrap().is_bare() == case.goals.is_none()));
        assert_eq!(CASES[0].name, "bare");
    }
}

//! Compares the latency of guarded routes with that of the bare route at a rate that leaves the machine idle most of the time.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::case::Case;
use crate::goal::Goal;
use crate::markdown_table::MarkdownTable;
use crate::paced_load::{PACE, RATE, requests};
use crate::paced_result::PacedResult;
use crate::redis_server::RedisServer;
use crate::server_process::ServerProcess;
use crate::statistics::Spread;
use crate::{Failure, machine};

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
    let mut redis = RedisServer::start()?;
    let report = measure(rounds, seconds, &mut redis, folder.path())?;
    println!("\n{}\n\n{report}", machine::line(&[redis.version()?]));
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
        let late = Spread::of(of_case.iter().map(|result| millis(result.late)))?;
        let [p50_goal, p99_goal] = goals.map_or([None; 2], |goals| goals.map(Some));
        let [p50, p50_above, p50_verdict] = cells(of_case, &results[0], (p50_goal, 0.0), |result| millis(result.p50))?;
        let p99_goal = (p99_goal, late.median);
        let [p99, p99_above, p99_verdict] = cells(of_case, &results[0], p99_goal, |result| millis(result.p99))?;
        let late = late.cell(3);
        table.push([(*name).to_owned(), p50, p50_above, p50_verdict, p99, p99_above, p99_verdict, late]);
    }
    Some(table)
}

/// The cells of one percentile: its median, the median of the differences per round, and the goal for these, with the delay by the
/// generator.
fn cells(
    results: &[PacedResult],
    bare: &[PacedResult],
    (goal, late): (Option<Goal>, f64),
    figure: fn(&PacedResult) -> f64,
) -> Option<[String; 3]> {
    let own = Spread::of(results.iter().map(figure))?;
    let above = Spread::of_pairs(results, bare, |result, bare| figure(result) - figure(bare))?;
    let shown = if goal.is_some() { above.cell(3) } else { String::new() };
    Some([own.cell(3), shown, goal.map(|goal| verdict(goal, above.median, late)).unwrap_or_default()])
}

/// The verdict on a latency above that of the bare route, in milliseconds. A delay by the generator says nothing about the server, so a goal
/// that is missed only because of it is unknown.
fn verdict(goal: Goal, above: f64, late: f64) -> String {
    let is_due_to_generator = !goal.is_met(above, 3) && goal.is_met(above - late, 3);
    if is_due_to_generator { goal.unknown() } else { goal.verdict(above, 3) }
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
        let token = results([240, 350, 450], [1400, 1541, 3000]);
        let key = results([401, 501, 601], [1500, 1600, 1700]);
        let table = table(&[bare, token, key]).unwrap().to_string();
        let rows: Vec<Vec<_>> = table.lines().skip(2).map(|line| line.split('|').map(str::trim).collect()).collect();
        let late = "0.040 (0.040–0.040)";
        let bare = ["bare", "0.200 (0.100–0.300)", "", "", "1.000 (1.000–1.000)", "", "", late];
        assert_eq!(rows[0][1..9], bare);
        assert_eq!(rows[1][2..5], ["0.350 (0.240–0.450)", "0.150 (0.140–0.150)", "≤ 0.15 met"]);
        assert_eq!(rows[1][5..8], ["1.541 (1.400–3.000)", "0.541 (0.400–2.000)", "≤ 0.5 missed"]);
        assert_eq!(rows[2][3..5], ["0.301 (0.301–0.301)", "≤ 0.3 missed"]);
        assert_eq!(rows[2][6..8], ["0.600 (0.500–0.700)", "≤ 1 met"]);
    }

    #[test]
    fn goal_is_unknown_only_if_the_generator_may_have_missed_it() {
        let verdict = |above, late| verdict(Goal(0.5), above, late);
        assert_eq!(verdict(0.5, 9.0), "≤ 0.5 met");
        assert_eq!(verdict(0.7, 0.2), "≤ 0.5 unknown");
        assert_eq!(verdict(0.7, 0.1), "≤ 0.5 missed");
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

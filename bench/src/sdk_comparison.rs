//! Compares the latency of a route of an application that each Python and Node middleware protects with that of the same application
//! without the middleware.

use std::path::Path;
use std::time::Duration;

use crate::http_connection::request;
use crate::markdown_table::MarkdownTable;
use crate::paced_load::{requests_at, send_at};
use crate::paced_result::PacedResult;
use crate::redis_server::RedisServer;
use crate::sdk_shop::{Middleware, SdkProcess, SdkStack};
use crate::statistics::Spread;
use crate::{Failure, machine};

/// Requests per second.
const RATE: u64 = 200;
/// Default duration of a route in each round.
pub(crate) const SECONDS: u64 = 5;
/// The measured route, protected by a key, at most once.
const ROUTE: &str = "/orders";

/// The results of one round: without the middleware, and with it.
type Round = [PacedResult; 2];

/// Measures every stack without and with its middleware in every round, and prints the table. `program` is `onceward`.
pub(crate) fn measure(program: &Path, rounds: u64, seconds: u64) -> Result<(), Failure> {
    let mut redis = RedisServer::start()?;
    let service = SdkProcess::service(program, &redis.url())?;
    let mut results = vec![Vec::new(); SdkStack::ALL.len()];
    for round in 0..rounds {
        for (stack, results) in SdkStack::ALL.into_iter().zip(&mut results) {
            let [open, protected] = [Middleware::Absent, Middleware::Present].map(|middleware| {
                let shop = SdkProcess::shop(stack, &service, middleware)?;
                run(&shop, seconds)
            });
            let both = [open?, protected?];
            println!("round {} of {rounds}: {:<14} without: {}; with: {}", round + 1, stack.name, both[0], both[1]);
            results.push(both);
        }
    }
    println!("\n{}", machine::line(&[redis.version()?]));
    println!("\nLatency at {RATE} requests/s, in ms: medians of {rounds} rounds of {seconds} s (least–most)");
    println!("\n{}", table(&results).ok_or("no rounds")?);
    Ok(())
}

/// Sends requests with a new key each to a shop.
fn run(shop: &SdkProcess, seconds: u64) -> Result<PacedResult, Failure> {
    // Different in each run, and as long as a key.
    let begun = std::time::UNIX_EPOCH.elapsed()?.as_nanos();
    let wanted: Vec<_> =
        (0..requests_at(RATE, seconds)).map(|number| request(ROUTE, &format!("{begun:024}{number:012}"))).collect();
    send_at(RATE, &shop.url, &wanted, 201)
}

/// The table. Returns `None` if there were no rounds.
fn table(results: &[Vec<Round>]) -> Option<MarkdownTable> {
    let mut table =
        MarkdownTable::new(["stack", "p50 without", "p50 with", "added", "p99 without", "p99 with", "added"]);
    for (stack, rounds) in SdkStack::ALL.iter().zip(results) {
        let [p50, p99] = [|result: &PacedResult| result.p50, |result: &PacedResult| result.p99];
        let [open, protected, added] = cells(rounds, p50)?;
        let [open_p99, protected_p99, added_p99] = cells(rounds, p99)?;
        table.push([stack.name.to_owned(), open, protected, added, open_p99, protected_p99, added_p99]);
    }
    Some(table)
}

/// The cells of one percentile: without the middleware, with it, and the difference per round.
fn cells(rounds: &[Round], figure: fn(&PacedResult) -> Duration) -> Option<[String; 3]> {
    let millis = |result| figure(result).as_secs_f64() * 1000.0;
    let spreads = [
        Spread::of(rounds.iter().map(|[open, _]| millis(open)))?,
        Spread::of(rounds.iter().map(|[_, protected]| millis(protected)))?,
        Spread::of(rounds.iter().map(|[open, protected]| millis(protected) - millis(open)))?,
    ];
    Some(spreads.map(|spread| spread.cell(2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_latency_is_the_median_of_the_differences_per_round() {
        let result = |micros| {
            let [p50, p99, late] = [micros, micros * 2, 0].map(Duration::from_micros);
            PacedResult { p50, p99, late }
        };
        let rounds = vec![[result(1000), result(3000)], [result(2000), result(3000)], [result(5000), result(9000)]];
        let all = vec![rounds; SdkStack::ALL.len()];
        let table = table(&all).unwrap().to_string();
        let row: Vec<_> = table.lines().nth(2).unwrap().split('|').map(str::trim).collect();
        assert_eq!(row[1..5], ["ASGI, FastAPI", "2.00 (1.00–5.00)", "3.00 (3.00–9.00)", "2.00 (1.00–4.00)"]);
        assert_eq!(row[7], "4.00 (2.00–8.00)");
    }

    #[test]
    fn table_requires_a_round() {
        assert!(table(&vec![Vec::new(); SdkStack::ALL.len()]).is_none());
    }
}

//! Measures the cost of the guard, of the stores and of the Rust SDK.
//!
//! | command | measures |
//! |---|---|
//! | `onceward-bench [ROUNDS [SECONDS]]` | throughput and CPU per request of guarded routes compared with the bare route, and `clients` |
//! | `onceward-bench clients [ROUNDS [SECONDS]]` | the Rust SDK compared with plain reqwest |
//! | `onceward-bench cluster [ROUNDS [SECONDS]]` | a cluster of three masters compared with one Redis |
//! | `onceward-bench sending [ROUNDS [SECONDS]]` | Redis with and without batches and a connection per worker |
//! | `onceward-bench verbs [ROUNDS]` | CPU per verb of the store, with scripts and with native commands |
//! | `onceward-bench memory [ROUNDS]` | time and instructions per verb of the memory store |
//! | `onceward-bench scale [LARGEST [CHART]]` | CPU per request, bytes per record and pauses with 10⁴ to 10⁷ tokens and keys; draws a chart |
//! | `onceward-bench sql [EXPIRED]` | a claim in a transaction of PostgreSQL, without and during the removal of expired rows |
//!
//! Each round runs every case once, for some seconds, and compares it with the bare route of the same round: other load on the machine
//! changes slowly, and affects both. The server, Redis and the load generator are three processes. A run with unexpected responses ends the
//! benchmark with an error; a missed target does not.

mod case;
mod case_run;
mod client_comparison;
mod client_load;
mod cluster;
mod cluster_comparison;
mod cpu;
mod growth_chart;
mod growth_report;
mod growth_run;
mod longest_verb;
mod memory_pauses;
mod memory_verbs;
mod order_server;
mod postgres_server;
mod record_samples;
mod redis_pauses;
mod redis_server;
mod report;
mod scale;
mod scale_process;
mod scale_server;
mod scaled_store;
mod sending_comparison;
mod server_process;
mod sql_claims;
mod statistics;
mod store_filler;
mod token_files;
mod verb_costs;
mod wrk;

use std::path::Path;
use std::process::ExitCode;

use crate::case::Case;
use crate::case_run::{CaseRun, Runner};
use crate::client_load::SUBMIT;
use crate::memory_pauses::MemoryPauses;
use crate::memory_verbs::MemoryVerb;
use crate::redis_server::RedisServer;
use crate::scaled_store::StoreKind;
use crate::server_process::SERVE;
use crate::statistics::CaseStatistics;
use crate::wrk::Wrk;

/// Any error.
type Failure = Box<dyn std::error::Error>;

/// Default number of rounds: they end within five minutes, since a case takes about five seconds, including its tokens.
const ROUNDS: u64 = 4;
const SECONDS: u64 = 2;
/// The command for the clients.
const CLIENTS: &str = "clients";
/// The command for a cluster and one Redis.
const CLUSTER: &str = "cluster";
/// The command for batches and connections per worker.
const SENDING: &str = "sending";
/// The command for the verbs of the store.
const VERBS: &str = "verbs";
/// The command for the verbs of the memory store.
const MEMORY: &str = "memory";
/// The command for transactions of a database.
const SQL: &str = "sql";
/// The command for stores with many records.
const SCALE: &str = "scale";
/// Default number of expired rows.
const EXPIRED: u64 = 10_000_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match begin(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn begin(arguments: &[&str]) -> Result<(), Failure> {
    match *arguments {
        [SERVE, name, redis, tokens, per_thread] => {
            let case = Case::named(name).ok_or_else(|| format!("unknown case: {name}"))?;
            order_server::serve(case, redis, Path::new(tokens), per_thread.parse()?)
        }
        [SUBMIT, way, url, tokens, count, seconds] => {
            client_load::run(way, url, Path::new(tokens), count.parse()?, seconds.parse()?)
        }
        [CLIENTS] => measure_clients(ROUNDS, SECONDS),
        [CLIENTS, rounds] => measure_clients(at_least_one(rounds)?, SECONDS),
        [CLIENTS, rounds, seconds] => measure_clients(at_least_one(rounds)?, at_least_one(seconds)?),
        [CLUSTER] => cluster_comparison::measure(ROUNDS, SECONDS),
        [CLUSTER, rounds] => cluster_comparison::measure(at_least_one(rounds)?, SECONDS),
        [CLUSTER, rounds, seconds] => cluster_comparison::measure(at_least_one(rounds)?, at_least_one(seconds)?),
        [SENDING] => sending_comparison::measure(ROUNDS, SECONDS),
        [SENDING, rounds] => sending_comparison::measure(at_least_one(rounds)?, SECONDS),
        [SENDING, rounds, seconds] => sending_comparison::measure(at_least_one(rounds)?, at_least_one(seconds)?),
        [VERBS] => verb_costs::measure(5),
        [VERBS, rounds] => verb_costs::measure(at_least_one(rounds)?),
        [MEMORY] => memory_verbs::measure(5),
        [MEMORY, rounds] => memory_verbs::measure(at_least_one(rounds)?),
        [memory_verbs::ONE, name] => {
            memory_verbs::run_once(MemoryVerb::named(name).ok_or_else(|| format!("unknown verb: {name}"))?)
        }
        [SCALE] => scale::measure(scale::LARGEST, None),
        [SCALE, largest] => scale::measure(at_least_one(largest)?, None),
        [SCALE, largest, chart] => scale::measure(at_least_one(largest)?, Some(Path::new(chart))),
        [scale_process::SERVE, name, address, folder] => {
            let store = StoreKind::named(name).ok_or_else(|| format!("unknown store: {name}"))?;
            scale_server::serve(store, address, Path::new(folder))
        }
        [memory_pauses::PAUSES, size] => MemoryPauses::print(at_least_one(size)?),
        [SQL] => sql_claims::measure(EXPIRED),
        [SQL, expired] => sql_claims::measure(at_least_one(expired)?),
        [] => measure(ROUNDS, SECONDS),
        [rounds] => measure(at_least_one(rounds)?, SECONDS),
        [rounds, seconds] => measure(at_least_one(rounds)?, at_least_one(seconds)?),
        _ => Err(
            "usage: onceward-bench [clients | cluster | sending] [ROUNDS [SECONDS]], onceward-bench verbs [ROUNDS], onceward-bench memory [ROUNDS], onceward-bench \
             scale [LARGEST [CHART]], or \
             onceward-bench sql [EXPIRED]"
                .into(),
        ),
    }
}

fn at_least_one(text: &str) -> Result<u64, Failure> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("{text} is not a positive number").into())
}

fn measure(rounds: u64, seconds: u64) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let generator = Wrk::in_folder(folder.path())?;
    let mut redis = RedisServer::start()?;
    let runner = Runner { redis: &mut redis, generator: &generator, folder: folder.path(), seconds, fastest: 0.0 };
    let runs = all_rounds(runner, rounds)?;
    let [bare, ..] = &runs;
    let rows = Case::ALL.iter().zip(&runs).filter_map(|(case, runs)| Some((case, CaseStatistics::of(runs, bare)?)));
    let rows: Vec<_> = rows.collect();
    let clients = client_comparison::measure(rounds, seconds, folder.path())?;
    println!("\n{}\n\n{}\n\n{}", report::table(&rows), report::costs(&rows), report::targets(&rows));
    println!("\n{clients}");
    Ok(())
}

fn measure_clients(rounds: u64, seconds: u64) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    println!("\n{}", client_comparison::measure(rounds, seconds, folder.path())?);
    Ok(())
}

/// The runs of each case, in the order of the rounds.
fn all_rounds(mut runner: Runner<'_>, rounds: u64) -> Result<[Vec<CaseRun>; Case::ALL.len()], Failure> {
    let mut runs: [Vec<CaseRun>; Case::ALL.len()] = Default::default();
    for round in 0..rounds {
        for (case, runs) in Case::ALL.iter().zip(&mut runs) {
            let run = runner.run(case)?;
            println!("round {} of {rounds}: {:<20} {:>8.0} requests/s", round + 1, case.name, run.throughput());
            runs.push(run);
        }
    }
    Ok(runs)
}

//! Measures the cost of the guard, of the stores and of the Rust SDK.
//!
//! | command | measures |
//! |---|---|
//! | `onceward-bench [ROUNDS [SECONDS]]` | CPU time, throughput and Redis commands per request of guarded routes compared with the bare route, on actix-web and on axum, and the next three |
//! | `onceward-bench allocations` | allocations per request of guarded routes compared with the bare route, on actix-web and on axum |
//! | `onceward-bench latency [ROUNDS [SECONDS]]` | latency of guarded routes and the bare route at 500 requests per second |
//! | `onceward-bench clients [ROUNDS [SECONDS]]` | the Rust SDK compared with plain reqwest |
//! | `onceward-bench cluster [ROUNDS [SECONDS]]` | a cluster of three masters compared with one Redis |
//! | `onceward-bench peers PROGRAM [ROUNDS [SECONDS]]` | a key, on actix-web and on axum, compared with the crate `idempotent` on axum, which the program serves |
//! | `onceward-bench proxy PROGRAM [ROUNDS [SECONDS]]` | `onceward proxy`, which the program serves, compared with nginx as a plain proxy |
//! | `onceward-bench sdk PROGRAM [ROUNDS [SECONDS]]` | latency of a protected route of each Python and Node middleware compared with the same handler without it, at 200 requests per second; the program is the service |
//! | `onceward-bench sending [ROUNDS [SECONDS]]` | Redis with and without batches and a connection per worker, on actix-web and on axum |
//! | `onceward-bench verbs [ROUNDS]` | CPU per verb of the store, with scripts and with native commands |
//! | `onceward-bench memory [ROUNDS]` | time and instructions per verb of the memory store |
//! | `onceward-bench scale [LARGEST [CHART]]` | CPU per request, bytes per record and pauses with 10⁴ to 10⁷ tokens and keys; draws a chart |
//! | `onceward-bench sql [EXPIRED]` | a claim in a transaction of PostgreSQL, without and during the removal of expired rows |
//!
//! Each round runs every case once, for some seconds, and compares it with the bare route of the same round: other load on the machine
//! changes slowly, and affects both. The server, Redis and the load generator are three processes. A run with unexpected responses ends the
//! benchmark with an error; a missed goal does not.
//!
//! There are two programs: `onceward-bench`, and `onceward-bench-counting`, whose allocator counts. The first starts the second to count
//! allocations.

mod allocation_cost;
mod allocation_costs;
mod allocation_count;
mod case;
mod case_run;
mod client_comparison;
mod client_load;
mod client_statistics;
mod closed_load;
mod cluster;
mod cluster_comparison;
mod command_count;
mod counting_program;
mod cpu;
mod filled_store;
mod framework;
mod goal;
mod growth_chart;
mod growth_report;
mod growth_run;
mod http_connection;
mod latency_comparison;
mod linear_scale;
mod longest_verb;
mod machine;
mod markdown_table;
mod memory_pauses;
mod memory_verbs;
mod order_server;
mod paced_load;
mod paced_result;
mod peer_comparison;
mod peer_group;
mod peer_report;
mod peer_runner;
mod postgres_server;
mod proxy_case;
mod proxy_comparison;
mod proxy_process;
mod proxy_report;
mod record_samples;
mod redis_pauses;
mod redis_server;
mod redis_servers;
mod replay_check;
mod report;
mod route_comparison;
mod scale;
mod scale_server;
mod scaled_store;
mod sdk_comparison;
mod sdk_shop;
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
use crate::client_load::{COUNT, SUBMIT};
use crate::framework::Framework;
use crate::memory_pauses::MemoryPauses;
use crate::memory_verbs::MemoryVerb;
use crate::paced_load::PACE;
use crate::scaled_store::StoreKind;
use crate::server_process::SERVE;

/// Any error.
type Failure = Box<dyn std::error::Error>;

/// Default number of rounds, and duration of each case in a round. All rounds end within about 15 minutes, since a case takes about five
/// seconds, including its tokens.
const ROUNDS: u64 = 5;
const SECONDS: u64 = 2;
/// The command for the allocations.
const ALLOCATIONS: &str = "allocations";
/// The command for the latency.
const LATENCY: &str = "latency";
/// The command for the clients.
const CLIENTS: &str = "clients";
/// The command for a cluster and one Redis.
const CLUSTER: &str = "cluster";
/// The command for other libraries.
const PEERS: &str = "peers";
/// The command for the proxy and nginx.
const PROXY: &str = "proxy";
/// The command for the Python and Node SDKs.
const SDK: &str = "sdk";
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
const USAGE: &str = "usage: onceward-bench [latency | clients | cluster | sending] [ROUNDS [SECONDS]], onceward-bench allocations, \
    onceward-bench peers | proxy | sdk PROGRAM [ROUNDS [SECONDS]], onceward-bench verbs | memory [ROUNDS], \
    onceward-bench scale [LARGEST [CHART]], or onceward-bench sql [EXPIRED]";

/// Runs the command in the arguments of the process.
pub fn run() -> ExitCode {
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
        [SERVE, name, redis, tokens, per_thread, ref rest @ ..] => {
            let case = Case::named(name).ok_or_else(|| format!("unknown case: {name}"))?;
            // Former versions, which `make bench-instructions` compares with this one, know no other framework.
            let framework = rest.first().copied().unwrap_or(Framework::Actix.name());
            let framework = Framework::named(framework).ok_or_else(|| format!("unknown framework: {framework}"))?;
            order_server::serve(framework, case, redis, Path::new(tokens), per_thread.parse()?)
        }
        [SUBMIT, client, url, tokens, count, seconds] => {
            client_load::run(client, url, Path::new(tokens), count.parse()?, seconds.parse()?)
        }
        [COUNT, client, url, tokens] => client_load::count(client, url, Path::new(tokens)),
        [PACE, name, url, tokens, seconds] => {
            let case = Case::named(name).ok_or_else(|| format!("unknown case: {name}"))?;
            paced_load::run(case, url, Path::new(tokens), seconds.parse()?)
        }
        [ALLOCATIONS] => allocation_costs::measure(),
        [LATENCY, ref rest @ ..] => with_rounds(rest, latency_comparison::SECONDS, latency_comparison::measure_alone),
        [CLIENTS, ref rest @ ..] => with_rounds(rest, SECONDS, route_comparison::measure_clients),
        [CLUSTER, ref rest @ ..] => with_rounds(rest, SECONDS, cluster_comparison::measure),
        [PEERS, program, ref rest @ ..] => {
            with_rounds(rest, SECONDS, |rounds, seconds| peer_comparison::measure(Path::new(program), rounds, seconds))
        }
        [PROXY, program, ref rest @ ..] => {
            with_rounds(rest, SECONDS, |rounds, seconds| proxy_comparison::measure(Path::new(program), rounds, seconds))
        }
        [SDK, program, ref rest @ ..] => with_rounds(rest, sdk_comparison::SECONDS, |rounds, seconds| {
            sdk_comparison::measure(Path::new(program), rounds, seconds)
        }),
        [SENDING, ref rest @ ..] => with_rounds(rest, SECONDS, sending_comparison::measure),
        [VERBS] => verb_costs::measure(ROUNDS),
        [VERBS, rounds] => verb_costs::measure(at_least_one(rounds)?),
        [MEMORY] => memory_verbs::measure(ROUNDS),
        [MEMORY, rounds] => memory_verbs::measure(at_least_one(rounds)?),
        [memory_verbs::ONE, name] => {
            memory_verbs::run_once(MemoryVerb::named(name).ok_or_else(|| format!("unknown verb: {name}"))?)
        }
        [SCALE] => scale::measure(scale::LARGEST, None),
        [SCALE, largest] => scale::measure(at_least_one(largest)?, None),
        [SCALE, largest, chart] => scale::measure(at_least_one(largest)?, Some(Path::new(chart))),
        [scale_server::SERVE, name, address, folder] => {
            let store = StoreKind::named(name).ok_or_else(|| format!("unknown store: {name}"))?;
            scale_server::serve(store, address, Path::new(folder))
        }
        [memory_pauses::PAUSES, size] => MemoryPauses::print(at_least_one(size)?),
        [SQL] => sql_claims::measure(EXPIRED),
        [SQL, expired] => sql_claims::measure(at_least_one(expired)?),
        [] => with_rounds(&[], SECONDS, route_comparison::measure),
        [rounds, ..] if is_number(rounds) => with_rounds(arguments, SECONDS, route_comparison::measure),
        _ => Err(USAGE.into()),
    }
}

/// Calls a function with the number of rounds and seconds in the arguments, or their defaults.
fn with_rounds(
    arguments: &[&str],
    seconds: u64,
    measure: impl FnOnce(u64, u64) -> Result<(), Failure>,
) -> Result<(), Failure> {
    match *arguments {
        [] => measure(ROUNDS, seconds),
        [rounds] => measure(at_least_one(rounds)?, seconds),
        [rounds, seconds] => measure(at_least_one(rounds)?, at_least_one(seconds)?),
        _ => Err(USAGE.into()),
    }
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn at_least_one(text: &str) -> Result<u64, Failure> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("{text} is not a positive number").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(arguments: &[&str]) -> Result<(u64, u64), String> {
        let mut found = None;
        let outcome = with_rounds(arguments, 7, |rounds, seconds| {
            found = Some((rounds, seconds));
            Ok(())
        });
        outcome.map_err(|error| error.to_string())?;
        found.ok_or_else(|| "not measured".to_owned())
    }

    #[test]
    fn rounds_and_seconds_have_defaults() {
        assert_eq!(rounds(&[]), Ok((ROUNDS, 7)));
        assert_eq!(rounds(&["3"]), Ok((3, 7)));
        assert_eq!(rounds(&["3", "4"]), Ok((3, 4)));
    }

    #[test]
    fn wrong_arguments_are_rejected() {
        assert_eq!(rounds(&["0"]), Err("0 is not a positive number".to_owned()));
        assert_eq!(rounds(&["1", "2", "3"]), Err(USAGE.to_owned()));
        assert_eq!(begin(&["0"]).unwrap_err().to_string(), "0 is not a positive number");
        assert_eq!(begin(&["allocate"]).unwrap_err().to_string(), USAGE);
        assert_eq!(begin(&["1", "2", "3"]).unwrap_err().to_string(), USAGE);
        assert_eq!(begin(&[ALLOCATIONS, "1", "2"]).unwrap_err().to_string(), USAGE);
    }
}

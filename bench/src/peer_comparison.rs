//! Compares a key with the crate `idempotent` on axum, round by round, under the same load.

use std::path::Path;

use crate::case_run::Runner;
use crate::peer_pair::PeerPair;
use crate::peer_report::{self, PairRuns};
use crate::peer_runner::PeerRunner;
use crate::redis_server::RedisServer;
use crate::replay_check::ReplayCheck;
use crate::wrk::Wrk;
use crate::{Failure, machine};

/// Runs every pair in every round, and prints the report. `program` is the peer's server.
pub(crate) fn measure(program: &Path, rounds: u64, seconds: u64) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let generator = Wrk::in_folder(folder.path())?;
    let mut redis = RedisServer::start()?;
    let runner = Runner::new(&generator, folder.path(), seconds);
    let runner = PeerRunner { runner, program, redis: &mut redis, check: ReplayCheck::new()? };
    let runs = all_rounds(runner, rounds)?;
    println!("\n{}", machine::line(&[redis.version()?]));
    println!("\nMedians of {rounds} rounds of {seconds} s (least–most), per request");
    println!("Onceward: a key with retryable rules");
    println!("\n{}\n\n{}", peer_report::table(&runs).ok_or("no rounds")?, peer_report::goals(&runs));
    Ok(())
}

/// The runs of each pair, in the order of the rounds.
fn all_rounds(mut runner: PeerRunner<'_>, rounds: u64) -> Result<[PairRuns; PeerPair::ALL.len()], Failure> {
    runner.check_peer()?;
    let mut runs: [PairRuns; PeerPair::ALL.len()] = Default::default();
    for round in 0..rounds {
        for (pair, runs) in PeerPair::ALL.iter().zip(&mut runs) {
            let both = runner.run(pair, round % 2 == 1)?;
            for (row, run) in pair.rows.iter().zip(both) {
                println!("round {} of {rounds}: {row:<24} {:>8.0} requests/s", round + 1, run.throughput());
            }
            runs.push(both);
        }
    }
    Ok(runs)
}

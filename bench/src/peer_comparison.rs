//! Compares a key on both frameworks with the crate `idempotent` on axum, round by round, under the same load.

use std::path::Path;

use crate::case_run::Runner;
use crate::peer_group::{PeerGroup, PeerServer};
use crate::peer_report::{self, GroupRuns};
use crate::peer_runner::PeerRunner;
use crate::redis_server::RedisServer;
use crate::replay_check::ReplayCheck;
use crate::wrk::Wrk;
use crate::{Failure, machine};

/// Runs every group in every round, and prints the report. `program` is the peer's server.
pub(crate) fn measure(program: &Path, rounds: u64, seconds: u64) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let generator = Wrk::in_folder(folder.path())?;
    let mut redis = RedisServer::start()?;
    let runner = Runner::new(&generator, folder.path(), seconds);
    let runner = PeerRunner { runner, program, redis: &mut redis, check: ReplayCheck::new()? };
    let runs = all_rounds(runner, rounds)?;
    println!("\n{}", machine::line(&[redis.version()?]));
    println!("\nMedians of {rounds} rounds of {seconds} s (least–most), CPU time in µs per request");
    println!(
        "Onceward: a key with retryable rules. All servers have two worker threads; axum has one multi-threaded runtime."
    );
    println!("Above bare: above the bare route of the same program and round");
    println!("\n{}", peer_report::figures(&runs).ok_or("no rounds")?);
    println!(
        "\nRatios, round by round: requests/s of Onceward / idempotent, and CPU time per request of idempotent / Onceward"
    );
    println!("\n{}", peer_report::ratios(&runs).ok_or("no rounds")?);
    Ok(())
}

/// The runs of each group, in the order of the rounds.
fn all_rounds(mut runner: PeerRunner<'_>, rounds: u64) -> Result<[GroupRuns; PeerGroup::ALL.len()], Failure> {
    runner.check_peer()?;
    let mut runs: [GroupRuns; PeerGroup::ALL.len()] = Default::default();
    for round in 0..rounds {
        for (group, runs) in PeerGroup::ALL.iter().zip(&mut runs) {
            let run = runner.run(group, round % 2 == 1)?;
            for (server, run) in PeerServer::ALL.into_iter().zip(&run) {
                let row = group.row(server);
                println!("round {} of {rounds}: {row:<30} {:>8.0} requests/s", round + 1, run.throughput());
            }
            runs.push(run);
        }
    }
    Ok(runs)
}

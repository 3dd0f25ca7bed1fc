//! Runs the two servers of a pair, one after the other, under the same load.

use std::path::Path;
use std::process::Command;

use crate::Failure;
use crate::case_run::{WARM_UP, token_ranges};
use crate::compared_run::{ComparedRun, ResourceUse};
use crate::peer_pair::PeerPair;
use crate::redis_server::RedisServer;
use crate::replay_check::ReplayCheck;
use crate::server_process::ServerProcess;
use crate::wrk::{LoadResult, THREADS, TokenRange, Wrk};

/// Runs pairs, one after the other, on one Redis.
pub(crate) struct PeerRunner<'a> {
    /// The peer's server.
    pub(crate) program: &'a Path,
    pub(crate) redis: &'a mut RedisServer,
    pub(crate) generator: &'a Wrk,
    pub(crate) folder: &'a Path,
    pub(crate) check: &'a ReplayCheck,
    pub(crate) seconds: u64,
    /// Maximum requests per second of all runs so far.
    pub(crate) fastest: f64,
}

impl PeerRunner<'_> {
    /// Checks that the peer deduplicates with each store.
    pub(crate) fn check_peer(&mut self) -> Result<(), Failure> {
        for pair in PeerPair::ALL.iter().filter(|pair| !pair.is_bare()) {
            self.redis.forget()?;
            let server = self.start_peer(pair)?;
            let url = format!("{}{}", server.url(), pair.case()?.path);
            self.check.check_route(&url).map_err(|reason| format!("{}: {reason}", pair.rows[1]))?;
        }
        Ok(())
    }

    /// Measures Onceward and then the peer. Both receive the same requests: the server of Onceward writes the tokens of both.
    pub(crate) fn run(&mut self, pair: &PeerPair) -> Result<[ComparedRun; 2], Failure> {
        let ranges = token_ranges(pair.case()?, self.fastest, self.seconds);
        let runs = [self.run_own(pair, ranges)?, self.run_peer(pair, ranges)?];
        self.fastest = runs.iter().map(|run| run.throughput).fold(self.fastest, f64::max);
        Ok(runs)
    }

    fn run_own(&mut self, pair: &PeerPair, ranges: (TokenRange, TokenRange)) -> Result<ComparedRun, Failure> {
        self.redis.forget()?;
        let (case, needed) = (pair.case()?, ranges.1.first + ranges.1.count);
        let server = ServerProcess::start(case, &self.redis.url(), self.folder, needed)?;
        let (load, used) = self.measure(pair, &server, ranges)?;
        ComparedRun::new(case, load, used, used.commands).map_err(|reason| format!("{}: {reason}", pair.rows[0]).into())
    }

    fn run_peer(&mut self, pair: &PeerPair, ranges: (TokenRange, TokenRange)) -> Result<ComparedRun, Failure> {
        self.redis.forget()?;
        let server = self.start_peer(pair)?;
        let (load, used) = self.measure(pair, &server, ranges)?;
        if !pair.is_bare() {
            let url = format!("{}{}", server.url(), pair.case()?.path);
            // Of the last thread: wrk calls the script of the first one once without sending the request.
            let tokens = self.folder.join((THREADS - 1).to_string());
            self.check.check_key(&url, &tokens, ranges.1.first)?;
        }
        // It sends scripts only.
        let run = ComparedRun::new(pair.case()?, load, used, used.calls.scripts);
        run.map_err(|reason| format!("{}: {reason}", pair.rows[1]).into())
    }

    fn start_peer(&self, pair: &PeerPair) -> Result<ServerProcess, Failure> {
        let mut program = Command::new(self.program);
        ServerProcess::spawn(program.args([pair.store, pair.case()?.path, &self.redis.url()]), pair.rows[1])
    }

    /// Runs the warm-up, and measures the load.
    fn measure(
        &mut self,
        pair: &PeerPair,
        server: &ServerProcess,
        (warm_up, measured): (TokenRange, TokenRange),
    ) -> Result<(LoadResult, ResourceUse), Failure> {
        let case = pair.case()?;
        self.generator.send(case, server.url(), self.folder, warm_up, WARM_UP)?;
        let before = ResourceUse::so_far(server, self.redis)?;
        let load = self.generator.send(case, server.url(), self.folder, measured, self.seconds)?;
        Ok((load, ResourceUse::so_far(server, self.redis)?.since(before)))
    }
}

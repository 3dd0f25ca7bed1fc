//! Runs the two servers of a pair, one after the other, under the same load.

use std::path::Path;
use std::process::Command;

use crate::Failure;
use crate::case_run::{CaseRun, Runner, token_ranges};
use crate::command_count::CommandCount;
use crate::peer_pair::PeerPair;
use crate::redis_server::RedisServer;
use crate::replay_check::ReplayCheck;
use crate::server_process::ServerProcess;
use crate::wrk::{THREADS, TokenRange};

/// Runs pairs, one after the other, on one Redis.
pub(crate) struct PeerRunner<'a> {
    pub(crate) runner: Runner<'a>,
    /// The peer's server.
    pub(crate) program: &'a Path,
    pub(crate) redis: &'a mut RedisServer,
    pub(crate) check: ReplayCheck,
}

impl PeerRunner<'_> {
    /// Checks that the peer deduplicates with each store.
    pub(crate) fn check_peer(&mut self) -> Result<(), Failure> {
        for pair in PeerPair::ALL.iter().filter(|pair| !pair.is_bare()) {
            self.redis.forget()?;
            let server = self.start_peer(pair)?;
            self.check.check_route(&pair.url(&server)?).map_err(|reason| pair.of_peer(&*reason))?;
        }
        Ok(())
    }

    /// Measures Onceward and the peer, in this order or the other one: rounds take turns, since the second server may find the machine
    /// warmer. Each key is sent to a server once.
    pub(crate) fn run(&mut self, pair: &PeerPair, is_peer_first: bool) -> Result<[CaseRun; 2], Failure> {
        let ranges = token_ranges(pair.case()?, self.runner.fastest, self.runner.seconds);
        let [own, peer] = if is_peer_first {
            // The server of Onceward writes the tokens of both.
            drop(self.start_own(pair, ranges)?);
            let peer = self.run_peer(pair, ranges).map_err(|reason| pair.of_peer(&*reason))?;
            [self.run_own(pair, ranges)?, peer]
        } else {
            let own = self.run_own(pair, ranges)?;
            [own, self.run_peer(pair, ranges).map_err(|reason| pair.of_peer(&*reason))?]
        };
        self.runner.fastest = self.runner.fastest.max(own.throughput()).max(peer.throughput());
        Ok([own, peer])
    }

    fn run_own(&mut self, pair: &PeerPair, ranges: (TokenRange, TokenRange)) -> Result<CaseRun, Failure> {
        self.redis.forget()?;
        let server = self.start_own(pair, ranges)?;
        let run = self.runner.measure(pair.case()?, &server, self.redis, ranges)?;
        self.check_replay(pair, &server, ranges.1)?;
        run.checked(pair.case()?)
    }

    fn run_peer(&mut self, pair: &PeerPair, ranges: (TokenRange, TokenRange)) -> Result<CaseRun, Failure> {
        self.redis.forget()?;
        let server = self.start_peer(pair)?;
        let run = self.runner.measure(pair.case()?, &server, self.redis, ranges)?;
        self.check_replay(pair, &server, ranges.1)?;
        // It sends scripts only.
        let commands = CommandCount { received: run.commands.scripts, ..run.commands };
        CaseRun { commands, ..run }.checked(pair.case()?)
    }

    /// Checks that the response to a measured request is replayed.
    fn check_replay(&self, pair: &PeerPair, server: &ServerProcess, measured: TokenRange) -> Result<(), Failure> {
        if pair.is_bare() {
            return Ok(());
        }
        // A key of the last thread: `wrk` calls the script of the first thread once without sending that request, so the server may not
        // know its first key.
        let tokens = self.runner.folder.join((THREADS - 1).to_string());
        self.check.check_key(&pair.url(server)?, &tokens, measured.first)
    }

    fn start_own(&self, pair: &PeerPair, (_, measured): (TokenRange, TokenRange)) -> Result<ServerProcess, Failure> {
        let per_thread = measured.first + measured.count;
        ServerProcess::start(pair.case()?, &self.redis.url(), self.runner.folder, per_thread)
    }

    fn start_peer(&self, pair: &PeerPair) -> Result<ServerProcess, Failure> {
        let mut program = Command::new(self.program);
        ServerProcess::spawn(program.args([pair.store, pair.case()?.path, &self.redis.url()]), pair.rows[1])
    }
}

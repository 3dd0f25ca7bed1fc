//! Runs the servers of a group, one after the other, under the same load.

use std::path::Path;
use std::process::Command;

use crate::Failure;
use crate::case_run::{CaseRun, Runner, token_ranges};
use crate::command_count::CommandCount;
use crate::framework::Framework;
use crate::peer_group::{PeerGroup, PeerServer};
use crate::peer_report::GroupRun;
use crate::redis_server::RedisServer;
use crate::replay_check::ReplayCheck;
use crate::server_process::ServerProcess;
use crate::wrk::{THREADS, TokenRange};

/// Runs groups, one after the other, on one Redis.
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
        for group in PeerGroup::ALL.iter().filter(|group| !group.is_bare()) {
            self.redis.forget()?;
            let server = self.start_peer(group)?;
            let checked = self.check.check_route(&group.url(&server)?);
            checked.map_err(|reason| format!("{}: {reason}", group.row(PeerServer::Peer)))?;
        }
        Ok(())
    }

    /// Measures the servers in the order of [`PeerServer::ALL`], or in reverse: rounds take turns, since a later server may find the machine
    /// warmer. Each key is sent to a server once.
    pub(crate) fn run(&mut self, group: &PeerGroup, is_reversed: bool) -> Result<GroupRun, Failure> {
        let ranges = token_ranges(group.case()?, self.runner.fastest, self.runner.seconds);
        let run = if is_reversed {
            // A server of Onceward writes the tokens of the peer.
            drop(self.start_own(group, Framework::Actix, ranges)?);
            let [peer, axum, actix] = self.run_each(group, [2, 1, 0].map(|at| PeerServer::ALL[at]), ranges)?;
            [actix, axum, peer]
        } else {
            self.run_each(group, PeerServer::ALL, ranges)?
        };
        self.runner.fastest = run.iter().map(CaseRun::throughput).fold(self.runner.fastest, f64::max);
        Ok(run)
    }

    /// Measures these servers, one after the other.
    fn run_each(
        &mut self,
        group: &PeerGroup,
        [first, second, third]: [PeerServer; 3],
        ranges: (TokenRange, TokenRange),
    ) -> Result<[CaseRun; 3], Failure> {
        let mut run = |server| {
            let run = self.run_server(group, server, ranges);
            run.map_err(|reason| format!("{}: {reason}", group.row(server)))
        };
        Ok([run(first)?, run(second)?, run(third)?])
    }

    fn run_server(
        &mut self,
        group: &PeerGroup,
        server: PeerServer,
        ranges: (TokenRange, TokenRange),
    ) -> Result<CaseRun, Failure> {
        self.redis.forget()?;
        let process = match server {
            PeerServer::Onceward(framework) => self.start_own(group, framework, ranges)?,
            PeerServer::Peer => self.start_peer(group)?,
        };
        let run = self.runner.measure(group.case()?, &process, self.redis, ranges)?;
        self.check_replay(group, &process, ranges.1)?;
        // The peer sends scripts only.
        let is_peer = server == PeerServer::Peer;
        let received = if is_peer { run.commands.scripts } else { run.commands.received };
        CaseRun { commands: CommandCount { received, ..run.commands }, ..run }.checked(group.case()?)
    }

    /// Checks that the response to a measured request is replayed.
    fn check_replay(&self, group: &PeerGroup, server: &ServerProcess, measured: TokenRange) -> Result<(), Failure> {
        if group.is_bare() {
            return Ok(());
        }
        // A key of the last thread: `wrk` calls the script of the first thread once without sending that request, so the server may not
        // know its first key.
        let tokens = self.runner.folder.join((THREADS - 1).to_string());
        self.check.check_key(&group.url(server)?, &tokens, measured.first)
    }

    fn start_own(
        &self,
        group: &PeerGroup,
        framework: Framework,
        (_, measured): (TokenRange, TokenRange),
    ) -> Result<ServerProcess, Failure> {
        let per_thread = measured.first + measured.count;
        ServerProcess::start_on(framework, group.case()?, &self.redis.url(), self.runner.folder, per_thread)
    }

    fn start_peer(&self, group: &PeerGroup) -> Result<ServerProcess, Failure> {
        let mut program = Command::new(self.program);
        let program = program.args([group.store, group.case()?.path, &self.redis.url()]);
        ServerProcess::spawn(program, &group.row(PeerServer::Peer))
    }
}

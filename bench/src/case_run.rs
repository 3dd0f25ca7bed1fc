//! One run of a case under load, on its own server process.

use std::path::Path;
use std::time::Duration;

use crate::case::{Case, Tokens};
use crate::command_count::CommandCount;
use crate::framework::Framework;
use crate::redis_server::RedisServer;
use crate::server_process::ServerProcess;
use crate::wrk::{CONNECTIONS, LoadResult, THREADS, TokenRange, Wrk};
use crate::{Failure, cpu};

/// Duration of the warm-up, in seconds.
pub(crate) const WARM_UP: u64 = 1;
/// Number of tokens, relative to those that the fastest run so far would have used: the next run may be faster.
const MARGIN: f64 = 2.0;
/// Expected requests per second of the first run: it is the bare case, which may reuse tokens.
const FIRST: f64 = 50_000.0;
/// Number of tokens per thread of `Tokens::Few`: the warm-up sends them all, but none while its first request is in flight.
const FEW: usize = 2_000;

/// The measurements of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CaseRun {
    pub(crate) load: LoadResult,
    pub(crate) commands: CommandCount,
    /// The CPU time of the three processes.
    pub(crate) cpu: CpuTime,
}

/// The CPU time of a load, by process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CpuTime {
    pub(crate) server: Duration,
    pub(crate) redis: Duration,
    pub(crate) generator: Duration,
}

impl CpuTime {
    /// The CPU time used until now.
    fn used(server: &ServerProcess, redis: &RedisServer) -> Result<Self, Failure> {
        Ok(Self {
            server: cpu::used_by(server.id())?,
            redis: cpu::used_by(redis.id())?,
            generator: cpu::used_by_ended_children()?,
        })
    }

    /// The CPU time used since `then`.
    pub(crate) fn since(self, then: Self) -> Self {
        Self {
            server: self.server.saturating_sub(then.server),
            redis: self.redis.saturating_sub(then.redis),
            generator: self.generator.saturating_sub(then.generator),
        }
    }
}

impl CaseRun {
    /// Requests per second.
    pub(crate) fn throughput(&self) -> f64 {
        self.load.requests as f64 / self.load.lasted.as_secs_f64()
    }

    /// Redis commands per request.
    pub(crate) fn commands_per_request(&self) -> f64 {
        self.commands.received as f64 / self.load.requests as f64
    }

    /// Commands that Redis ran per request, with those inside scripts.
    pub(crate) fn executed_per_request(&self) -> f64 {
        self.commands.executed as f64 / self.load.requests as f64
    }

    /// CPU time of the three processes per request, in microseconds. They share the CPUs, so that the ratio of two sums approximates the
    /// ratio of the throughputs on an otherwise idle machine.
    pub(crate) fn micros(&self) -> f64 {
        self.micros_per_request(self.cpu.server + self.cpu.redis + self.cpu.generator)
    }

    /// CPU time of the server per request, in microseconds.
    pub(crate) fn server_micros(&self) -> f64 {
        self.micros_per_request(self.cpu.server)
    }

    /// CPU time of Redis per request, in microseconds.
    pub(crate) fn redis_micros(&self) -> f64 {
        self.micros_per_request(self.cpu.redis)
    }

    /// CPU time per request, in microseconds.
    pub(crate) fn micros_per_request(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e6 / self.load.requests as f64
    }

    /// Returns the run.
    ///
    /// # Errors
    /// If it did not send the expected commands.
    pub(crate) fn checked(self, case: &Case) -> Result<Self, Failure> {
        if self.has_its_commands(case) {
            return Ok(self);
        }
        let CommandCount { received, scripts, .. } = self.commands;
        let found = format!("{received} commands, {scripts} of them scripts, for {} requests", self.load.requests);
        Err(format!("{}: {found}: the run is invalid", case.name).into())
    }

    /// Returns true if the run sent the expected number of commands, and a native case no script. Requests in flight at the end of the
    /// warm-up and of the run send their commands and are not counted as requests.
    fn has_its_commands(&self, case: &Case) -> bool {
        let least = case.commands * self.load.requests;
        let is_expected = (least..=least + case.commands * CONNECTIONS * 2).contains(&self.commands.received);
        is_expected && !(case.is_native() && self.commands.scripts > 0)
    }
}

/// Runs cases, one after the other.
pub(crate) struct Runner<'a> {
    pub(crate) generator: &'a Wrk,
    pub(crate) folder: &'a Path,
    pub(crate) seconds: u64,
    /// Maximum requests per second of all runs so far.
    pub(crate) fastest: f64,
}

impl<'a> Runner<'a> {
    /// Creates a runner. Each load takes this many seconds.
    pub(crate) fn new(generator: &'a Wrk, folder: &'a Path, seconds: u64) -> Self {
        Self { generator, folder, seconds, fastest: 0.0 }
    }

    /// Runs the warm-up of a case on this framework and Redis, and measures it.
    pub(crate) fn run(
        &mut self,
        framework: Framework,
        case: &Case,
        redis: &mut RedisServer,
    ) -> Result<CaseRun, Failure> {
        let ranges = token_ranges(case, self.fastest, self.seconds);
        redis.forget()?;
        let per_thread = ranges.1.first + ranges.1.count;
        let server = ServerProcess::start_on(framework, case, &redis.url(), self.folder, per_thread)?;
        let run = self.measure(case, &server, redis, ranges)?.checked(case)?;
        self.fastest = self.fastest.max(run.throughput());
        Ok(run)
    }

    /// Runs the warm-up of a case on a server, and measures it. The number of commands is not checked.
    pub(crate) fn measure(
        &self,
        case: &Case,
        server: &ServerProcess,
        redis: &mut RedisServer,
        (warm_up, measured): (TokenRange, TokenRange),
    ) -> Result<CaseRun, Failure> {
        self.generator.send(case, server.url(), self.folder, warm_up, WARM_UP)?;
        let (before, used) = (redis.commands()?, CpuTime::used(server, redis)?);
        let load = self.generator.send(case, server.url(), self.folder, measured, self.seconds)?;
        let cpu = CpuTime::used(server, redis)?.since(used);
        Ok(CaseRun { load, commands: redis.commands()?.since(before), cpu })
    }
}

/// Returns the tokens for the warm-up and for the measured load, if the fastest run so far had this many requests per second. The number is
/// the same in every case, since the generator is faster with a few reused tokens; only a replay needs reused ones.
pub(crate) fn token_ranges(case: &Case, fastest: f64, seconds: u64) -> (TokenRange, TokenRange) {
    if case.tokens == Tokens::Few {
        let few = TokenRange { first: 0, count: FEW };
        return (few, few);
    }
    let rate = fastest.max(FIRST) * MARGIN / THREADS as f64;
    let enough_for = |seconds: u64| (rate * seconds as f64).ceil() as usize;
    let warm_up = TokenRange { first: 0, count: enough_for(WARM_UP) };
    (warm_up, TokenRange { first: warm_up.count, count: enough_for(seconds) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn has_its_commands(name: &str, requests: u64, commands: u64) -> bool {
        runs_as_expected(name, requests, CommandCount { received: commands, ..CommandCount::default() })
    }

    fn runs_as_expected(name: &str, requests: u64, commands: CommandCount) -> bool {
        let (lasted, p50, p99) = (Duration::from_secs(1), Duration::ZERO, Duration::ZERO);
        let run = CaseRun { load: LoadResult { requests, lasted, p50, p99 }, commands, cpu: CpuTime::default() };
        run.has_its_commands(Case::named(name).unwrap())
    }

    #[test]
    fn token_costs_one_command_and_a_forged_one_none() {
        assert!(has_its_commands("token, Redis", 500, 500) && has_its_commands("token, Redis", 500, 628));
        assert!(!has_its_commands("token, Redis", 500, 499) && !has_its_commands("token, Redis", 500, 629));
        assert!(has_its_commands("forged, Redis", 500, 0) && !has_its_commands("forged, Redis", 500, 1));
    }

    #[test]
    fn key_run_costs_two_commands_and_a_replay_one() {
        assert!(
            has_its_commands("key, retryable, Redis", 500, 1000)
                && has_its_commands("key, retryable, Redis", 500, 1256)
        );
        assert!(
            !has_its_commands("key, retryable, Redis", 500, 999)
                && !has_its_commands("key, retryable, Redis", 500, 1257)
        );
        assert!(has_its_commands("replay, Redis", 500, 500) && !has_its_commands("replay, Redis", 500, 629));
    }

    #[test]
    fn remembered_token_costs_two_commands_and_an_interval_one() {
        assert!(has_its_commands("remembered, Redis", 500, 1000) && !has_its_commands("remembered, Redis", 500, 999));
        assert!(has_its_commands("interval, Redis", 500, 500) && !has_its_commands("interval, Redis", 500, 629));
    }

    #[test]
    fn native_run_with_a_script_is_rejected() {
        let scripted = |scripts| CommandCount { received: 1000, scripts, ..CommandCount::default() };
        assert!(
            runs_as_expected("key, retryable, native", 500, scripted(0))
                && !runs_as_expected("key, retryable, native", 500, scripted(1))
        );
        assert!(runs_as_expected("key, retryable, Redis", 500, scripted(500)));
    }

    #[test]
    fn cost_is_the_sum_of_the_three_processes() {
        let load =
            LoadResult { requests: 10, lasted: Duration::from_secs(1), p50: Duration::ZERO, p99: Duration::ZERO };
        let [server, redis, generator] = [100, 20, 3].map(Duration::from_micros);
        let run = CaseRun { load, commands: CommandCount::default(), cpu: CpuTime { server, redis, generator } };
        assert!((run.micros() - 12.3).abs() < 1e-9);
    }

    #[test]
    fn replay_reuses_the_warm_up_keys_and_runs_do_not() {
        let used = |name| {
            let (warm_up, measured) = token_ranges(Case::named(name).unwrap(), 60_000.0, 2);
            [warm_up.first..warm_up.first + warm_up.count, measured.first..measured.first + measured.count]
        };
        assert_eq!(used("replay, Redis"), [0..FEW, 0..FEW]);
        assert_eq!(used("key, retryable, Redis"), [0..60_000, 60_000..180_000]);
    }
}

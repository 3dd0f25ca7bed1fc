//! The measurements of one run of a server that is compared with another.

use std::time::Duration;

use crate::case::Case;
use crate::command_calls::CommandCalls;
use crate::redis_server::RedisServer;
use crate::server_process::ServerProcess;
use crate::wrk::{CONNECTIONS, LoadResult};
use crate::{Failure, cpu};

/// The CPU time and the commands until a moment, or between two moments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResourceUse {
    pub(crate) server: Duration,
    pub(crate) redis: Duration,
    pub(crate) generator: Duration,
    /// Commands that Redis received, if the scripts are those of Onceward.
    pub(crate) commands: u64,
    pub(crate) calls: CommandCalls,
}

impl ResourceUse {
    /// The use until now.
    pub(crate) fn so_far(server: &ServerProcess, redis: &mut RedisServer) -> Result<Self, Failure> {
        Ok(Self {
            server: cpu::used_by(server.id())?,
            redis: cpu::used_by(redis.id())?,
            generator: cpu::used_by_ended_children()?,
            commands: redis.commands()?.received,
            calls: CommandCalls::read(&redis.ask::<String>("INFO commandstats")?),
        })
    }

    /// The use since `then`.
    pub(crate) fn since(self, then: Self) -> Self {
        Self {
            server: self.server.saturating_sub(then.server),
            redis: self.redis.saturating_sub(then.redis),
            generator: self.generator.saturating_sub(then.generator),
            commands: self.commands.saturating_sub(then.commands),
            calls: self.calls.since(then.calls),
        }
    }
}

/// The measurements of a run. CPU times are in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ComparedRun {
    /// Requests per second.
    pub(crate) throughput: f64,
    /// CPU time of the server per request.
    pub(crate) server: f64,
    /// CPU time of Redis per request.
    pub(crate) redis: f64,
    /// CPU time of the load generator per request.
    pub(crate) generator: f64,
    /// Commands that Redis received per request.
    pub(crate) received: f64,
    /// Commands that Redis ran per request, including those inside scripts.
    pub(crate) executed: f64,
}

impl ComparedRun {
    /// Computes the figures per request.
    ///
    /// # Errors
    /// If Redis received another number of commands than those of the case: then the server did not do its work for each request.
    pub(crate) fn new(case: &Case, load: LoadResult, used: ResourceUse, received: u64) -> Result<Self, Failure> {
        if !has_its_commands(case, load.requests, received) {
            return Err(format!("{received} commands for {} requests: the run is invalid", load.requests).into());
        }
        let per_request = |figure: f64| figure / load.requests as f64;
        let micros = |time: Duration| per_request(time.as_secs_f64() * 1e6);
        Ok(Self {
            throughput: load.requests as f64 / load.lasted.as_secs_f64(),
            server: micros(used.server),
            redis: micros(used.redis),
            generator: micros(used.generator),
            received: per_request(received as f64),
            executed: per_request(used.calls.all as f64),
        })
    }

    /// CPU time of server and Redis per request.
    pub(crate) fn cpu(&self) -> f64 {
        self.server + self.redis
    }

    /// CPU time of server, Redis and generator per request. They share the CPUs, so that the ratio of two sums approximates the ratio of the
    /// throughputs on an otherwise idle machine.
    pub(crate) fn cpu_with_generator(&self) -> f64 {
        self.cpu() + self.generator
    }
}

/// Requests in flight at the end of the warm-up and of the run send their commands and are not counted as requests.
fn has_its_commands(case: &Case, requests: u64, received: u64) -> bool {
    let least = case.commands * requests;
    (least..=least + case.commands * CONNECTIONS * 2).contains(&received)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: CommandCalls = CommandCalls { all: 1000, scripts: 200 };

    fn run(received: u64) -> Result<ComparedRun, Failure> {
        let (lasted, p50, p99) = (Duration::from_secs(2), Duration::ZERO, Duration::ZERO);
        let [server, redis, generator] = [2, 1, 3].map(Duration::from_millis);
        let used = ResourceUse { server, redis, generator, commands: received, calls: CALLS };
        let case = Case::named("key, Redis").unwrap();
        ComparedRun::new(case, LoadResult { requests: 100, lasted, p50, p99 }, used, received)
    }

    #[test]
    fn figures_are_per_request() {
        let run = run(200).unwrap();
        assert_eq!((run.server, run.redis, run.generator), (20.0, 10.0, 30.0));
        assert_eq!((run.throughput, run.received, run.executed), (50.0, 2.0, 10.0));
        assert_eq!((run.cpu(), run.cpu_with_generator()), (30.0, 60.0));
    }

    #[test]
    fn run_with_too_few_or_too_many_commands_is_rejected() {
        assert!(run(199).is_err() && run(457).is_err());
        assert!(run(200).is_ok() && run(456).is_ok());
    }

    #[test]
    fn use_between_two_moments_is_the_difference() {
        let at = |millis: u64| ResourceUse {
            server: Duration::from_millis(millis * 2),
            redis: Duration::from_millis(millis),
            generator: Duration::from_millis(millis * 4),
            commands: millis * 3,
            calls: CommandCalls { all: millis * 10, scripts: millis },
        };
        let used = at(7).since(at(5));
        assert_eq!([used.server, used.redis, used.generator], [4, 2, 8].map(Duration::from_millis));
        assert_eq!((used.commands, used.calls), (6, CommandCalls { all: 20, scripts: 2 }));
    }
}

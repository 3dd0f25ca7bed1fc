//! One run: a case under load, on a server of its own.

use std::path::Path;
use std::time::Duration;

use crate::case::{Case, Tokens};
use crate::load::{CONNECTIONS, Generator, Load, Share, THREADS};
use crate::redis_server::RedisServer;
use crate::server::Server;
use crate::{Failure, cpu};

/// How long a server is warmed up, in seconds.
pub(crate) const WARM_UP: u64 = 1;
/// As many tokens as the fastest run so far would have used, times this: nobody knows how fast the next one is.
const MARGIN: f64 = 2.0;
/// How many requests a second the first run is prepared for: it is the bare one, which may send a token again.
const FIRST: f64 = 50_000.0;
/// How many a few are, for each thread: the warm-up comes round to them again, but not while the first is still running.
const FEW: usize = 2_000;

/// What a run has measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) load: Load,
    pub(crate) commands: u64,
    /// The processor time of all three.
    pub(crate) cpu: Cpu,
}

/// The processor time that a load has cost.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cpu {
    pub(crate) server: Duration,
    pub(crate) redis: Duration,
    pub(crate) generator: Duration,
}

impl Cpu {
    /// What has been used until now.
    fn used(server: &Server, redis: &RedisServer) -> Result<Self, Failure> {
        Ok(Self {
            server: cpu::used_by(server.id())?,
            redis: cpu::used_by(redis.id())?,
            generator: cpu::used_by_ended_children()?,
        })
    }

    /// What has been used since then.
    fn since(self, then: Self) -> Self {
        Self {
            server: self.server.saturating_sub(then.server),
            redis: self.redis.saturating_sub(then.redis),
            generator: self.generator.saturating_sub(then.generator),
        }
    }
}

impl Run {
    /// Requests a second.
    pub(crate) fn throughput(&self) -> f64 {
        self.load.requests as f64 / self.load.lasted.as_secs_f64()
    }

    /// Redis commands for each request.
    pub(crate) fn commands_per_request(&self) -> f64 {
        self.commands as f64 / self.load.requests as f64
    }

    /// Microseconds of this processor time for each request.
    pub(crate) fn micros_per_request(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e6 / self.load.requests as f64
    }

    /// Whether as many commands were sent as the case should send. What is under way on a connection when the time is
    /// over sends its commands and is not counted as a request: at the end of the warm-up, and at the end of the run.
    fn has_its_commands(&self, case: &Case) -> bool {
        let least = case.commands * self.load.requests;
        (least..=least + case.commands * CONNECTIONS * 2).contains(&self.commands)
    }
}

/// Where runs take place.
pub(crate) struct Track<'a> {
    pub(crate) redis: &'a mut RedisServer,
    pub(crate) generator: &'a Generator,
    pub(crate) folder: &'a Path,
    pub(crate) seconds: u64,
    /// The most requests a second that any run has had.
    pub(crate) fastest: f64,
}

impl Track<'_> {
    /// Warms a case up and measures it.
    pub(crate) fn run(&mut self, case: &Case) -> Result<Run, Failure> {
        let (warm_up, measured) = shares(case, self.fastest, self.seconds);
        self.redis.forget()?;
        let server = Server::start(case, &self.redis.url(), self.folder, measured.first + measured.count)?;
        self.generator.send(case, server.url(), self.folder, warm_up, WARM_UP)?;
        let (before, used) = (self.redis.commands()?, Cpu::used(&server, self.redis)?);
        let load = self.generator.send(case, server.url(), self.folder, measured, self.seconds)?;
        let cpu = Cpu::used(&server, self.redis)?.since(used);
        let run = Run { load, commands: self.redis.commands()? - before, cpu };
        if !run.has_its_commands(case) {
            return Err(format!("{}: {} commands for {} requests", case.name, run.commands, load.requests).into());
        }
        self.fastest = self.fastest.max(run.throughput());
        Ok(run)
    }
}

/// Which tokens the warm-up and the measured load may use, if the fastest run so far had this many requests a second.
/// There are as many in every case, good or forged, since the generator is quicker with a few that it has sent before;
/// but a replay needs those.
pub(crate) fn shares(case: &Case, fastest: f64, seconds: u64) -> (Share, Share) {
    if case.tokens == Tokens::Few {
        let few = Share { first: 0, count: FEW };
        return (few, few);
    }
    let rate = fastest.max(FIRST) * MARGIN / THREADS as f64;
    let enough_for = |seconds: u64| (rate * seconds as f64).ceil() as usize;
    let warm_up = Share { first: 0, count: enough_for(WARM_UP) };
    (warm_up, Share { first: warm_up.count, count: enough_for(seconds) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn has_its_commands(name: &str, requests: u64, commands: u64) -> bool {
        let (lasted, p50, p99) = (Duration::from_secs(1), Duration::ZERO, Duration::ZERO);
        let run = Run { load: Load { requests, lasted, p50, p99 }, commands, cpu: Cpu::default() };
        run.has_its_commands(Case::named(name).unwrap())
    }

    #[test]
    fn a_token_costs_one_command_and_a_forged_one_costs_none() {
        assert!(has_its_commands("token, Redis", 500, 500) && has_its_commands("token, Redis", 500, 628));
        assert!(!has_its_commands("token, Redis", 500, 499) && !has_its_commands("token, Redis", 500, 629));
        assert!(has_its_commands("forged, Redis", 500, 0) && !has_its_commands("forged, Redis", 500, 1));
    }

    #[test]
    fn a_first_run_under_a_key_costs_two_commands_and_a_replay_costs_one() {
        assert!(has_its_commands("key, Redis", 500, 1000) && has_its_commands("key, Redis", 500, 1256));
        assert!(!has_its_commands("key, Redis", 500, 999) && !has_its_commands("key, Redis", 500, 1257));
        assert!(has_its_commands("replay, Redis", 500, 500) && !has_its_commands("replay, Redis", 500, 629));
    }

    #[test]
    fn a_remembered_token_costs_two_commands_and_an_interval_costs_one() {
        assert!(has_its_commands("remembered, Redis", 500, 1000) && !has_its_commands("remembered, Redis", 500, 999));
        assert!(has_its_commands("interval, Redis", 500, 500) && !has_its_commands("interval, Redis", 500, 629));
    }

    #[test]
    fn a_replay_is_measured_with_the_keys_of_its_warm_up_and_a_first_run_with_others() {
        let used = |name| {
            let (warm_up, measured) = shares(Case::named(name).unwrap(), 60_000.0, 2);
            [warm_up.first..warm_up.first + warm_up.count, measured.first..measured.first + measured.count]
        };
        assert_eq!(used("replay, Redis"), [0..FEW, 0..FEW]);
        assert_eq!(used("key, Redis"), [0..60_000, 60_000..180_000]);
    }
}

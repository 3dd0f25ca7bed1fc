//! Compares `onceward proxy` with nginx as a plain proxy, in front of the same application, round by round.

use std::path::Path;
use std::process::Command;

use onceward::Guard;
use onceward::store::{Memory, Redis};
use tokio::runtime::Builder;

use crate::case::Tokens;
use crate::case_run::{CaseRun, CpuTime, WARM_UP};
use crate::proxy_case::{ProxyCase, ProxyKind};
use crate::proxy_process::ProxyProcess;
use crate::proxy_report::{self, AllRuns};
use crate::redis_server::RedisServer;
use crate::wrk::{Ids, THREADS, TokenRange, Wrk};
use crate::{Failure, cpu, machine, token_files};

/// Maximum requests per second of a case with tokens or keys, and how many of them are used again in a replay.
const RATE: usize = 60_000;
const FEW: usize = 2_000;

/// Runs every case in every round, and prints the report. `program` is `onceward`.
pub(crate) fn measure(program: &Path, rounds: u64, seconds: u64) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let generator = Wrk::in_folder(folder.path())?;
    let (application, redis) = (ProxyProcess::application()?, RedisServer::start()?);
    let folder = folder.path();
    let mut runner = ProxyRunner { program, application, redis, generator, folder, seconds };
    let runs = runner.all_rounds(rounds)?;
    println!("\n{}", machine::line(&[runner.redis.version()?, nginx_version()?]));
    println!("\nMedians of {rounds} rounds of {seconds} s (least–most), CPU time in µs per request");
    println!(
        "nginx: two workers, keepalive to the application, no access log. Onceward: two workers, request_log = errors."
    );
    println!("Beside nginx: CPU time of the proxy / that of nginx for the same method and round");
    println!("\n{}", proxy_report::table(&runs).ok_or("no rounds")?);
    Ok(())
}

/// Runs cases, one after the other.
struct ProxyRunner<'a> {
    program: &'a Path,
    application: ProxyProcess,
    redis: RedisServer,
    generator: Wrk,
    /// The folder of the token files.
    folder: &'a Path,
    seconds: u64,
}

impl ProxyRunner<'_> {
    /// The runs of each case, in the order of the rounds. Every second round runs the cases in reverse.
    fn all_rounds(&mut self, rounds: u64) -> Result<AllRuns, Failure> {
        let mut runs: AllRuns = Default::default();
        for round in 0..rounds {
            let mut order: Vec<_> = (0..ProxyCase::ALL.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for at in order {
                let case = &ProxyCase::ALL[at];
                let run = self.run(case)?;
                let (name, micros) = (case.load.name, run.server_micros());
                println!("round {} of {rounds}: {name:<30} {micros:>6.1} µs", round + 1);
                runs[at].push(run);
            }
        }
        Ok(runs)
    }

    /// Runs the warm-up of a case on a process of its own, and measures it.
    fn run(&mut self, case: &ProxyCase) -> Result<CaseRun, Failure> {
        self.redis.forget()?;
        let proxy = match case.proxy {
            ProxyKind::Nginx => ProxyProcess::nginx_before(&self.application)?,
            ProxyKind::Onceward => ProxyProcess::onceward_before(&self.application, self.program, &self.redis.url())?,
        };
        let (warm_up, measured) = self.ranges(case);
        if case.requests.ids != Ids::None {
            self.write_tokens(case, measured.first + measured.count)?;
        }
        let send = |range, seconds| {
            self.generator.send_as(case.requests, &case.load, &proxy.url(), self.folder, range, seconds)
        };
        send(warm_up, WARM_UP)?;
        let (before, used) = (self.redis.commands()?, self.used(&proxy)?);
        let load = send(measured, self.seconds)?;
        let cpu = self.used(&proxy)?.since(used);
        CaseRun { load, commands: self.redis.commands()?.since(before), cpu }.checked(&case.load)
    }

    /// The tokens or keys for the warm-up and for the measured load.
    fn ranges(&self, case: &ProxyCase) -> (TokenRange, TokenRange) {
        if case.load.tokens == Tokens::Few {
            let few = TokenRange { first: 0, count: FEW };
            return (few, few);
        }
        let enough_for = |seconds: u64| RATE / THREADS * seconds as usize;
        let first = enough_for(WARM_UP);
        (TokenRange { first: 0, count: first }, TokenRange { first, count: enough_for(self.seconds) })
    }

    /// Writes tokens that the proxy accepts: the guard has the same Redis, and so the same secret. Keys need no secret.
    fn write_tokens(&self, case: &ProxyCase, per_thread: usize) -> Result<(), Failure> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let guard = match case.load.tokens {
                Tokens::Good => Guard::new(Redis::open(&self.redis.url())?),
                _ => Guard::new(Memory::new()),
            };
            token_files::write(&guard, self.folder, per_thread).await
        })
    }

    /// The CPU time used until now.
    fn used(&self, proxy: &ProxyProcess) -> Result<CpuTime, Failure> {
        Ok(CpuTime {
            server: cpu::of_family(proxy.id())?,
            redis: cpu::of_threads(self.redis.id())?,
            generator: cpu::used_by_ended_children()?,
        })
    }
}

/// The name and version of nginx.
fn nginx_version() -> Result<String, Failure> {
    let output = Command::new("nginx").arg("-v").output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let version = said.split_whitespace().find_map(|word| word.strip_prefix("nginx/"));
    Ok(format!("nginx {}", version.unwrap_or("of an unknown version")))
}

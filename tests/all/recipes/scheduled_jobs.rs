//! A scheduled job that every process starts runs once per slot of its schedule.

use std::time::Duration;

use futures_util::future::join_all;
use onceward::store::Redis;
use onceward::{Guard, Intent, Key, KeyRules, Policy, RunError, RunOutcome, Subject};
use onceward_api::Code;
use onceward_tests::ledger::Ledger;
use onceward_tests::redis_server::RedisServer;
use tokio::time::sleep;

/// The length of a slot, in seconds.
const HOUR: u64 = 3_600;

type Ran = Result<RunOutcome<usize>, RunError<&'static str>>;

/// Returns the begin of the slot that contains this time, in seconds since 1970.
fn slot(now: u64) -> u64 {
    now - now % HOUR
}

/// Runs the job of this slot unless a process has run it.
async fn run_job(guard: &Guard, rules: KeyRules, now: u64, work: impl AsyncFn() -> Result<usize, &'static str>) -> Ran {
    let key = Key::of_parts(["hourly report", &slot(now).to_string()]).unwrap();
    let intent = Intent::new("run job", Subject::anonymous()).key(&key);
    guard.run(&Policy::key(rules), &intent, async || work().await).await
}

/// Opens a guard with its own connection, as each process has.
fn guard_on(redis: &RedisServer) -> Guard {
    Guard::new(Redis::open(&redis.url()).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_runs_once_per_slot_over_several_processes() {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    for hour in 0..10 {
        let processes = (0..4).map(|skew| {
            let (guard, ledger) = (guard_on(&redis), ledger.clone());
            // The clocks of the processes differ by minutes.
            let now = hour * HOUR + skew * 600;
            async move {
                let work = async || {
                    ledger.record(&slot(now).to_string());
                    sleep(Duration::from_millis(20)).await;
                    Ok(7)
                };
                match run_job(&guard, KeyRules::at_most_once(), now, work).await {
                    Ok(RunOutcome::Executed(7)) => 1,
                    Ok(RunOutcome::Replayed(7)) => 0,
                    Err(RunError::Rejected(rejection)) if rejection.code() == Code::InProgress => 0,
                    other => panic!("{other:?}"),
                }
            }
        });
        assert_eq!(join_all(processes).await.into_iter().sum::<usize>(), 1);
        assert_eq!(ledger.count(&(hour * HOUR).to_string()), 1);
    }
    assert_eq!(ledger.runs().len(), 10);
}

#[tokio::test]
async fn failed_job_runs_again_in_its_slot_if_it_is_retryable() {
    let redis = RedisServer::start();
    let guards = [guard_on(&redis), guard_on(&redis)];
    let failed = run_job(&guards[0], KeyRules::retryable(), 60, async || Err("no disk")).await;
    assert!(matches!(failed, Err(RunError::Failed("no disk"))), "{failed:?}");
    let again = run_job(&guards[1], KeyRules::retryable(), 120, async || Ok(1)).await;
    assert_eq!(again.unwrap(), RunOutcome::Executed(1));
    let late = run_job(&guards[0], KeyRules::retryable(), HOUR - 1, async || Err("runs twice")).await;
    assert_eq!(late.unwrap(), RunOutcome::Replayed(1));
}

#[tokio::test]
async fn failed_job_at_most_once_waits_for_a_decision() {
    let redis = RedisServer::start();
    let guards = [guard_on(&redis), guard_on(&redis)];
    let failed = run_job(&guards[0], KeyRules::at_most_once(), 60, async || Err("half of the mails are sent")).await;
    assert!(matches!(failed, Err(RunError::Unknown(_))), "{failed:?}");
    let again = run_job(&guards[1], KeyRules::at_most_once(), 120, async || Err("runs twice")).await;
    let Err(RunError::Rejected(rejection)) = again else { panic!("{again:?}") };
    assert_eq!(rejection.code(), Code::OutcomeUnknown);
    let next = run_job(&guards[1], KeyRules::at_most_once(), HOUR, async || Ok(2)).await;
    assert_eq!(next.unwrap(), RunOutcome::Executed(2), "the next slot is independent");
}

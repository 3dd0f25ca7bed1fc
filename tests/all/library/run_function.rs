//! `Guard::run`: runs any function once, for jobs and message consumers.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward::Failure::{NotApplied, Unknown};
use onceward::store::{Memory, Redis};
use onceward::{
    Binding, Effect, Failure, Guard, Intent, IntervalRules, Key, KeyRules, Mode, Policy, RecordState, RunError,
    RunOutcome, Subject, TokenRules,
};
use onceward_api::Code;
use onceward_tests::consumer::{DELIVERED, Message};
use onceward_tests::key_routes::{BRIEF, LEASE};
use onceward_tests::ledger::Ledger;
use onceward_tests::peer::Peer;
use onceward_tests::polling::{holds_for, outlast, until};
use onceward_tests::redis_server::RedisServer;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::PEER;

const LONG: Duration = Duration::from_secs(10);

/// The result of a job, with many kinds of serializable fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Invoice {
    number: u64,
    total: i128,
    lines: Vec<(String, f64)>,
    paid: Option<bool>,
    notes: HashMap<String, Kind>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Kind {
    Plain,
    Long { text: String },
}

fn invoice(number: u64) -> Invoice {
    let notes = HashMap::from([
        ("a".to_owned(), Kind::Plain),
        ("\u{1F980}\0\"".to_owned(), Kind::Long { text: "ä".repeat(1_000) }),
    ]);
    Invoice {
        number,
        total: i128::from(i64::MIN) * 2,
        lines: vec![("x".into(), 0.1), ("y".into(), -1e300)],
        paid: None,
        notes,
    }
}

type RunResult<T> = Result<RunOutcome<T>, RunError<&'static str>>;

fn by_key() -> Policy {
    Policy::key(KeyRules::retryable().lease(BRIEF).unwrap())
}

fn held() -> Policy {
    Policy::key(KeyRules::at_most_once().lease(BRIEF).unwrap())
}

/// Runs some work under a key.
async fn run<T, F>(guard: &Guard, policy: &Policy, key: &str, work: impl FnOnce() -> F) -> RunResult<T>
where
    T: Serialize + for<'de> Deserialize<'de>,
    F: Future<Output = Result<T, &'static str>>,
{
    let key = Key::new(key).unwrap();
    guard.run(policy, &Intent::new("job", Subject::anonymous()).key(&key), work).await
}

/// Work that must not run.
async fn never<T>() -> Result<T, &'static str> {
    panic!("the work ran")
}

/// Returns the code of a rejection.
fn code<T: std::fmt::Debug>(ended: RunResult<T>) -> Code {
    match ended {
        Err(RunError::Rejected(rejection)) => rejection.code(),
        other => panic!("{other:?}"),
    }
}

fn guards() -> (RedisServer, [Guard; 2]) {
    let redis = RedisServer::start();
    let on_redis = Guard::new(Redis::open(&redis.url()).unwrap());
    (redis, [on_redis, Guard::new(Memory::new())])
}

#[tokio::test]
async fn work_runs_once_and_its_value_is_replayed() {
    let (_redis, guards) = guards();
    for guard in guards {
        for (name, policy) in [("plain", by_key()), ("held", held())] {
            let runs = Cell::new(0);
            let work = async || {
                runs.set(runs.get() + 1);
                Ok(invoice(7))
            };
            assert_eq!(run(&guard, &policy, name, work).await.unwrap(), RunOutcome::Executed(invoice(7)));
            for _ in 0..3 {
                assert_eq!(run(&guard, &policy, name, never).await.unwrap(), RunOutcome::Replayed(invoice(7)));
            }
            assert_eq!(runs.get(), 1);
        }
        assert_eq!(run(&guard, &by_key(), "nothing", async || Ok(())).await.unwrap(), RunOutcome::Executed(()));
        assert_eq!(run(&guard, &by_key(), "nothing", never::<()>).await.unwrap().into_value(), ());
    }
}

#[tokio::test]
async fn duplicate_in_flight_receives_retry_after_then_the_value() {
    let guard = Guard::new(Memory::new());
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let first = {
        let (guard, begun, go) = (guard.clone(), Arc::clone(&begun), Arc::clone(&go));
        tokio::spawn(async move {
            let work = async || {
                begun.notify_one();
                go.notified().await;
                Ok(invoice(1))
            };
            run(&guard, &by_key(), "k", work).await
        })
    };
    begun.notified().await;
    // The lease is renewed meanwhile.
    outlast(BRIEF).await;
    let Err(error) = run(&guard, &by_key(), "k", never::<Invoice>).await else { panic!("the first run is in flight") };
    assert!(error.is_temporary());
    let RunError::Rejected(rejection) = error else { panic!("{error:?}") };
    assert_eq!(rejection.code(), Code::InProgress);
    assert!(rejection.retry_after().is_some_and(|wait| !wait.is_zero() && wait <= LONG), "{rejection:?}");
    go.notify_one();
    assert_eq!(first.await.unwrap().unwrap(), RunOutcome::Executed(invoice(1)));
    assert_eq!(run(&guard, &by_key(), "k", never).await.unwrap(), RunOutcome::Replayed(invoice(1)));
}

#[tokio::test]
async fn failed_work_runs_again() {
    let (_redis, guards) = guards();
    for guard in guards {
        for _ in 0..3 {
            let failed = run::<Invoice, _>(&guard, &by_key(), "k", async || Err("no paper")).await;
            let Err(RunError::Failed(why)) = failed else { panic!("{failed:?}") };
            assert_eq!(why, "no paper");
        }
        let done = run(&guard, &by_key(), "k", async || Ok(invoice(2))).await.unwrap();
        assert_eq!(done, RunOutcome::Executed(invoice(2)), "immediately, not after the lease");
    }
}

/// A message is delivered three times, and each time the work takes effect and then fails.
#[tokio::test]
async fn err_at_most_once_is_unknown_and_does_not_run_again() {
    let (_redis, guards) = guards();
    for guard in guards {
        let effects = Cell::new(0);
        let mut errors = Vec::new();
        for _ in 0..3 {
            let charge = async || {
                effects.set(effects.get() + 1);
                Err("the response of the bank was lost")
            };
            errors.push(run::<Invoice, _>(&guard, &held(), "k", charge).await.unwrap_err());
        }
        assert_eq!(effects.get(), 1, "{errors:?}");
        assert!(matches!(&errors[0], RunError::Unknown("the response of the bank was lost")), "{errors:?}");
        for again in &errors[1..] {
            assert!(
                matches!(again, RunError::Rejected(rejection) if rejection.code() == Code::OutcomeUnknown),
                "{errors:?}"
            );
        }
        assert!(errors.iter().all(|error| !error.is_temporary() && error.effect() == Effect::Unknown), "{errors:?}");
        // An operator has found out that the bank did not charge.
        let key = Key::new("k").unwrap();
        let intent = Intent::new("job", Subject::anonymous()).key(&key);
        guard.settle(&KeyRules::retryable(), &intent, None, Effect::NotApplied, None).await.unwrap();
        assert_eq!(run(&guard, &held(), "k", async || Ok(invoice(3))).await.unwrap(), RunOutcome::Executed(invoice(3)));
    }
}

/// Runs work that fails and states whether it took effect.
async fn fail(guard: &Guard, policy: &Policy, intent: &Intent<'_>, failure: Failure<&'static str>) -> RunResult<()> {
    guard.run(policy, intent, async || Err(failure)).await
}

#[tokio::test]
async fn work_not_applied_runs_again_even_at_most_once() {
    let (_redis, guards) = guards();
    for guard in guards {
        let key = Key::new("k").unwrap();
        let intent = Intent::new("job", Subject::anonymous()).key(&key);
        for policy in [by_key(), held()] {
            for _ in 0..3 {
                let failed = fail(&guard, &policy, &intent, NotApplied("no paper")).await;
                assert!(matches!(failed, Err(RunError::Failed("no paper"))), "{failed:?}");
                assert_eq!(failed.unwrap_err().effect(), Effect::NotApplied);
            }
        }
        assert_eq!(run(&guard, &held(), "k", async || Ok(1)).await.unwrap(), RunOutcome::Executed(1), "at once");
    }
}

#[tokio::test]
async fn work_whose_effect_is_unknown_keeps_its_token_key_and_interval() {
    let (_redis, guards) = guards();
    for guard in guards {
        let key = Key::new("k").unwrap();
        let remembered = Policy::Token(TokenRules::new().remember(LONG));
        let interval = Policy::interval(IntervalRules::new().every(LONG).unwrap());
        let unheld = Policy::key(KeyRules::retryable().lease(LONG).unwrap());
        for (policy, code) in [
            (Policy::token(), Code::TokenUsed),
            (remembered, Code::OutcomeUnknown),
            (interval, Code::TooSoon),
            (unheld, Code::InProgress),
            (held(), Code::OutcomeUnknown),
        ] {
            let token = guard.issue(LONG, Binding::none()).await.unwrap();
            let intent = Intent::new(code.as_str(), Subject::anonymous()).credential(token.as_str()).key(&key);
            let failed = fail(&guard, &policy, &intent, Unknown("lost")).await;
            assert!(matches!(failed, Err(RunError::Unknown("lost"))), "{policy:?}: {failed:?}");
            let again: RunResult<()> = guard.run(&policy, &intent, never).await;
            assert_eq!(self::code(again), code, "{policy:?}");
        }
        // A lock only prevents concurrent runs.
        let lock = Policy::interval(IntervalRules::new().release_always());
        let intent = Intent::new("lock", Subject::anonymous());
        for _ in 0..2 {
            assert!(matches!(fail(&guard, &lock, &intent, Unknown("lost")).await, Err(RunError::Unknown("lost"))));
        }
    }
}

#[tokio::test]
async fn failed_work_names_its_error_as_the_source() {
    let guard = Guard::new(Memory::new());
    for policy in [by_key(), held()] {
        let key = Key::new(if policy == held() { "held" } else { "plain" }).unwrap();
        let intent = Intent::new("job", Subject::anonymous()).key(&key);
        let work = async || Err::<(), _>(std::io::Error::other("no paper"));
        let error: Box<dyn Error> = guard.run(&policy, &intent, work).await.unwrap_err().into();
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("no paper"), "{error}");
    }
}

#[tokio::test]
async fn panicked_work_never_runs_again_at_most_once() {
    let (_redis, guards) = guards();
    for guard in guards {
        for (name, policy) in [("plain", by_key()), ("held", held())] {
            let (own, rules) = (guard.clone(), policy.clone());
            let panicked = tokio::spawn(async move { run(&own, &rules, name, never::<Invoice>).await.is_ok() }).await;
            assert!(panicked.is_err_and(|error| error.is_panic()));
            let is_over = || async {
                match run(&guard, &policy, name, async || Ok(invoice(3))).await {
                    Ok(ran) => name == "plain" && ran == RunOutcome::Executed(invoice(3)),
                    ended => {
                        let error = ended.unwrap_err();
                        let RunError::Rejected(rejection) = &error else { panic!("{error:?}") };
                        assert_eq!(error.is_temporary(), rejection.code() == Code::InProgress);
                        name == "held" && rejection.code() == Code::OutcomeUnknown
                    }
                }
            };
            until("the lease expires", LEASE * 3, is_over).await;
            if name == "held" {
                let is_unknown =
                    || async { code(run(&guard, &policy, name, never::<Invoice>).await) == Code::OutcomeUnknown };
                holds_for("the outcome is unknown", BRIEF * 2, is_unknown).await;
            }
        }
    }
}

/// `run` is not cancel safe: dropping its future aborts the work.
#[tokio::test]
async fn dropped_future_is_an_unknown_outcome() {
    let guard = Guard::new(Memory::new());
    let cut = tokio::time::timeout(BRIEF / 3, run::<(), _>(&guard, &held(), "k", std::future::pending)).await;
    assert!(cut.is_err());
    let is_unknown = || async { code(run(&guard, &held(), "k", never::<()>).await) == Code::OutcomeUnknown };
    until("the outcome is unknown", LEASE * 3, is_unknown).await;
}

#[tokio::test]
async fn stored_value_of_another_type_is_unreadable() {
    let guard = Guard::new(Memory::new());
    run(&guard, &by_key(), "k", async || Ok("text".to_owned())).await.unwrap();
    let ended = run(&guard, &by_key(), "k", never::<Invoice>).await;
    let Err(error) = ended else { panic!("{ended:?}") };
    assert!(matches!(error, RunError::Unreadable(_)), "{error:?}");
    assert!(!error.is_temporary(), "a retry would fail in the same way");
    assert_eq!(
        run(&guard, &by_key(), "k", never::<String>).await.unwrap().into_value(),
        "text",
        "the value is still stored"
    );
}

#[tokio::test]
async fn value_that_cannot_be_stored_counts_as_done() {
    let guard = Guard::new(Memory::new());
    // A map key that is no string cannot be serialized, and the other value is too large.
    let strange = async || Ok(vec![HashMap::from([(vec![1], 2)])]);
    assert!(matches!(run(&guard, &by_key(), "strange", strange).await, Ok(RunOutcome::Executed(_))));
    let again = run(&guard, &by_key(), "strange", never::<Vec<HashMap<Vec<u8>, u8>>>).await;
    assert_eq!(code(again), Code::ReplyNotKept);
    let policy = Policy::key(KeyRules::retryable().reply_limit(10));
    assert!(matches!(run(&guard, &policy, "large", async || Ok("x".repeat(20))).await, Ok(RunOutcome::Executed(_))));
    assert_eq!(code(run(&guard, &policy, "large", never::<String>).await), Code::ReplyNotKept);
}

#[tokio::test]
async fn unstored_value_is_unprotected_and_stored_later() {
    for policy in [by_key(), held()] {
        let redis = RedisServer::start();
        let guard = Guard::new(Redis::open(&redis.url()).unwrap().timeout(Duration::from_millis(300)));
        let work = async || {
            redis.freeze();
            Ok(invoice(4))
        };
        assert_eq!(run(&guard, &policy, "k", work).await.unwrap(), RunOutcome::Unprotected(invoice(4)));
        let Err(error) = run(&guard, &policy, "k", never::<Invoice>).await else { panic!("the store is frozen") };
        assert!(matches!(error, RunError::Store(_)) && error.is_temporary(), "{error:?}");
        redis.thaw();
        let key = Key::new("k").unwrap();
        let intent = Intent::new("job", Subject::anonymous()).key(&key);
        let is_done =
            || async { matches!(guard.look(&policy, &intent).await.unwrap().state, RecordState::Done(Ok(_))) };
        until("the value is stored", LEASE * 5, is_done).await;
        assert_eq!(run(&guard, &policy, "k", never).await.unwrap(), RunOutcome::Replayed(invoice(4)));
    }
}

#[tokio::test]
async fn nothing_runs_without_the_store_unless_failing_open() {
    let mut redis = RedisServer::start();
    let guard = Guard::new(Redis::open(&redis.url()).unwrap().timeout(Duration::from_millis(300)));
    redis.kill();
    for policy in [by_key(), held(), Policy::interval(IntervalRules::new())] {
        let ended = run(&guard, &policy, "k", never::<()>).await;
        assert!(matches!(&ended, Err(error @ RunError::Store(_)) if error.is_temporary()), "{ended:?}");
    }
    let open = Policy::interval(IntervalRules::new().fail_open());
    assert_eq!(run(&guard, &open, "k", async || Ok(1)).await.unwrap(), RunOutcome::Unprotected(1));
    assert_eq!(guard.let_through(), 1);
}

#[tokio::test]
async fn guard_that_is_off_runs_everything_without_store_commands() {
    let redis = RedisServer::start();
    let monitor = redis.monitor();
    let guard = Guard::builder(Redis::open(&redis.url()).unwrap()).mode(Mode::Off).build();
    for number in 0..2 {
        let ran = run(&guard, &by_key(), "k", async || Ok(number)).await.unwrap();
        assert_eq!(ran, RunOutcome::Unprotected(number));
    }
    let failed = run::<(), _>(&guard, &by_key(), "k", async || Err("no paper")).await;
    assert!(matches!(failed, Err(RunError::Failed("no paper"))), "{failed:?}");
    assert_eq!(monitor.commands().into_iter().filter(|line| line.contains("onceward")).collect::<Vec<_>>(), [""; 0]);
    assert!(guard.would_have().is_empty());
}

#[tokio::test]
async fn observing_guard_runs_everything_and_counts_rejections() {
    let mut redis = RedisServer::start();
    let store = Redis::open(&redis.url()).unwrap().timeout(Duration::from_millis(300));
    let guard = Guard::builder(store).mode(Mode::Observe).build();
    let failed = run::<u8, _>(&guard, &by_key(), "k", async || Err("no paper")).await;
    assert!(matches!(failed, Err(RunError::Failed("no paper"))), "{failed:?}");
    let twice = async || {
        let beside = run(&guard, &by_key(), "k", async || Ok(2)).await.unwrap();
        assert_eq!(beside, RunOutcome::Unprotected(2), "an observed duplicate runs beside the first");
        Ok(1)
    };
    assert_eq!(run(&guard, &by_key(), "k", twice).await.unwrap(), RunOutcome::Executed(1));
    assert_eq!(run(&guard, &by_key(), "k", async || Ok(3)).await.unwrap(), RunOutcome::Unprotected(3));
    assert_eq!(guard.would_have(), BTreeMap::from([("in_progress", 1), ("replayed", 1)]));
    redis.kill();
    assert_eq!(run(&guard, &by_key(), "other", async || Ok(4)).await.unwrap(), RunOutcome::Unprotected(4));
    assert_eq!(guard.would_have().get("store_unavailable"), Some(&1));
}

#[tokio::test]
async fn work_under_a_token_runs_once_unless_it_failed() {
    let (_redis, guards) = guards();
    for guard in guards {
        let remembered = Policy::Token(TokenRules::new().remember(LONG));
        for (policy, is_remembered) in [(Policy::token(), false), (remembered, true)] {
            let token = guard.issue(LONG, Binding::none()).await.unwrap();
            let intent = Intent::new("job", Subject::anonymous()).credential(token.as_str());
            let failed: RunResult<Invoice> = guard.run(&policy, &intent, async || Err("no paper")).await;
            assert!(matches!(failed, Err(RunError::Failed("no paper"))), "{failed:?}");
            let done: RunResult<Invoice> = guard.run(&policy, &intent, async || Ok::<_, &str>(invoice(5))).await;
            assert_eq!(done.unwrap(), RunOutcome::Executed(invoice(5)));
            let again: RunResult<Invoice> = guard.run(&policy, &intent, never).await;
            match is_remembered {
                true => assert_eq!(again.unwrap(), RunOutcome::Replayed(invoice(5))),
                false => assert_eq!(code(again), Code::TokenUsed),
            }
            let nothing: RunResult<Invoice> =
                guard.run(&policy, &Intent::new("job", Subject::anonymous()), never).await;
            assert_eq!(code(nothing), Code::TokenMissing);
        }
    }
}

#[tokio::test]
async fn work_in_an_interval_runs_once_unless_it_failed() {
    let (_redis, guards) = guards();
    for guard in guards {
        for millis in [100, 400] {
            let name = format!("every-{millis}");
            let every = Duration::from_millis(millis);
            let policy = Policy::interval(IntervalRules::new().every(every).unwrap());
            let failed = run::<(), _>(&guard, &policy, &name, async || Err("no paper")).await;
            assert!(matches!(failed, Err(RunError::Failed("no paper"))), "{failed:?}");
            assert_eq!(run(&guard, &policy, &name, async || Ok(())).await.unwrap(), RunOutcome::Executed(()));
            let soon = run(&guard, &policy, &name, never::<()>).await;
            if let Err(error) = &soon {
                assert!(!error.is_temporary(), "a consumer that retried would run it after the interval");
                let RunError::Rejected(rejection) = error else { panic!("{error:?}") };
                assert_eq!(rejection.retry_after(), None);
            }
            assert_eq!(code(soon), Code::TooSoon);
            let is_over = || async { run(&guard, &policy, &name, async || Ok(())).await.is_ok() };
            until("the interval expires", LEASE * 2, is_over).await;
        }
        // A lock is free as soon as the work has ended.
        let policy = Policy::interval(IntervalRules::new().release_always());
        for _ in 0..3 {
            let inner = async || {
                let beside = run(&guard, &policy, "lock", never::<()>).await;
                let is_temporary = beside.as_ref().is_err_and(RunError::is_temporary);
                Ok(is_temporary && code(beside) == Code::Locked)
            };
            assert_eq!(run(&guard, &policy, "lock", inner).await.unwrap(), RunOutcome::Executed(true));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_calls_run_the_work_once() {
    let (_redis, guards) = guards();
    for guard in guards {
        let runs = Arc::new(AtomicUsize::new(0));
        let racers: Vec<_> = (0..200)
            .map(|_| {
                let (guard, runs) = (guard.clone(), Arc::clone(&runs));
                tokio::spawn(async move {
                    let work = async || {
                        sleep(Duration::from_millis(50)).await;
                        Ok(runs.fetch_add(1, Ordering::SeqCst))
                    };
                    loop {
                        match run(&guard, &by_key(), "k", work).await {
                            Ok(ran) => return ran.into_value(),
                            Err(error) => assert!(error.is_temporary(), "{error:?}"),
                        }
                        sleep(Duration::from_millis(20)).await;
                    }
                })
            })
            .collect();
        for racer in racers {
            assert_eq!(racer.await.unwrap(), 0);
        }
        assert_eq!(runs.load(Ordering::SeqCst), 1);
    }
}

/// Returns the outcome of each delivery, in order.
fn delivered(redis: &RedisServer) -> Vec<String> {
    redis.ask(&format!("LRANGE {DELIVERED} 0 -1"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_consumers_process_every_message_once() {
    let (redis, ledger) = (RedisServer::start(), Ledger::new());
    let peers = [(); 2].map(|()| Peer::start(PEER, "consumer", &redis.url(), &ledger));
    let mut connection = redis.connection();
    let ids: Vec<_> = (0..100).map(|number| format!("message-{number}")).collect();
    for (number, id) in ids.iter().enumerate() {
        let message = Message { fails: number % 3, ..Message::new(id) };
        for peer in &peers {
            // Some are delivered twice to the same consumer.
            for _ in 0..1 + number % 2 {
                redis::cmd("RPUSH").arg(&peer.url).arg(message.text()).exec(&mut connection).unwrap();
            }
        }
    }
    let expected: usize = (0..100).map(|number| 2 * (1 + number % 2)).sum();
    let is_done = |line: &&String| line.contains(" executed by ") || line.contains(" replayed of ");
    until("every delivery is done", LONG * 3, || async {
        delivered(&redis).iter().filter(is_done).count() == expected
    })
    .await;
    for id in &ids {
        assert_eq!(ledger.count(id), 1, "{id}");
        let own: Vec<_> = delivered(&redis).into_iter().filter(|line| line.starts_with(&format!("{id} "))).collect();
        assert_eq!(own.iter().filter(|line| line.contains("executed")).count(), 1, "{own:?}");
        let by = own.iter().find_map(|line| line.split_once(" executed by ").map(|(_, by)| by.to_owned())).unwrap();
        let replays: Vec<_> = own.iter().filter_map(|line| line.split_once(" replayed of ")).collect();
        assert!(replays.iter().all(|(_, of)| *of == by), "{own:?}");
    }
}

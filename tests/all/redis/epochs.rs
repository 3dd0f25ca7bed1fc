//! Redis loses data: it crashes and restarts with older data, or another server replaces it. A used token is never accepted again,
//! because it is bound to the epoch that issued it. With that binding switched off, the same test shows doubles.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use onceward::store::Redis;
use onceward::{
    Attempt, Binding, Guard, Intent, Key, KeyRules, ManualClock, Policy, Reply, RunId, Secret, Settled, Subject,
    Verdict,
};
use onceward_api::Code;
use onceward_tests::faulty_tcp_proxy::{Proxy, TcpFault};
use onceward_tests::listening_port::free_port;
use onceward_tests::polling::until;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::verdict_tally::{Presentation, Tally, TokenOutcome, present, redeem, times};
use tokio::task::JoinSet;
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);
/// Maximum time from the recovery of the store until a token is accepted.
pub(crate) const BACK: Duration = Duration::from_secs(2);
/// Number of tokens outstanding at the fault.
const TOKENS: usize = 200;

/// Two guards on the same store; one does not bind its tokens to the epoch.
pub(crate) struct GuardPair {
    pub(crate) pinned: TalliedGuard,
    pub(crate) unpinned: TalliedGuard,
}

/// A guard with a tally of its verdicts.
pub(crate) struct TalliedGuard {
    pub(crate) guard: Guard,
    pub(crate) tally: Arc<Tally>,
    pub(crate) tokens: Vec<String>,
}

impl GuardPair {
    pub(crate) fn on(address: &str) -> Self {
        let open = |prefix: &str| Redis::open(address).expect("an address").prefix(prefix);
        Self { pinned: TalliedGuard::of(open("pinned")), unpinned: TalliedGuard::of(open("unpinned").unpinned()) }
    }

    pub(crate) fn sides(&mut self) -> [&mut TalliedGuard; 2] {
        [&mut self.pinned, &mut self.unpinned]
    }

    /// Issues the tokens of this round.
    pub(crate) async fn issue(&mut self, count: usize) {
        for side in self.sides() {
            side.issue(count).await;
        }
    }

    /// Has every caller redeem every token of this round, on both guards.
    pub(crate) fn everybody(&self, callers: usize) -> JoinSet<()> {
        let mut all = JoinSet::new();
        for side in [&self.pinned, &self.unpinned] {
            for caller in 0..callers {
                side.rush(&mut all, caller);
            }
        }
        all
    }

    /// Waits until a new token is accepted.
    pub(crate) async fn is_back(&self) {
        let one = async |side: &TalliedGuard| {
            let begun = Instant::now();
            until("a new token is accepted", BACK, || side.gets_through()).await;
            assert!(begun.elapsed() < BACK, "{:?}", begun.elapsed());
        };
        tokio::join!(one(&self.pinned), one(&self.unpinned));
    }

    /// Asserts that no token was accepted twice, and that the unbound guard did accept doubles.
    pub(crate) fn judge(&self, what: &str) {
        println!("{what}: {}; without the epoch {} doubles", self.pinned.tally, self.unpinned.tally.doubles());
        self.pinned.tally.is_clean();
        assert!(self.pinned.tally.count(TokenOutcome::Accepted) > 0, "{what}: none accepted: {}", self.pinned.tally);
        assert!(self.unpinned.tally.doubles() > 0, "{what}: no doubles, so no proof: {}", self.unpinned.tally);
    }
}

impl TalliedGuard {
    pub(crate) fn of(store: Redis) -> Self {
        Self { guard: Guard::new(store), tally: Arc::default(), tokens: Vec::new() }
    }

    async fn issue(&mut self, count: usize) {
        self.tokens.clear();
        let begun = Instant::now();
        while self.tokens.len() < count {
            // The store may still be recovering.
            match self.guard.issue(MINUTE, Binding::none()).await {
                Ok(token) => self.tokens.push(token.as_str().to_owned()),
                Err(error) => assert!(begun.elapsed() < MINUTE, "{error}"),
            }
        }
    }

    fn rush(&self, all: &mut JoinSet<()>, caller: usize) {
        let (guard, tally) = (self.guard.clone(), Arc::clone(&self.tally));
        let mut tokens: Vec<_> = self.tokens.iter().cloned().enumerate().collect();
        tokens.rotate_left(caller);
        all.spawn(async move {
            // Give up early while the store does not answer.
            let mut silent = 0;
            for (number, token) in &tokens {
                // A third plain, a third with attempts, a third with remembered responses.
                let told = tally.note(token, present(&guard, token, &Presentation::by(*number)).await);
                silent = if matches!(told, TokenOutcome::Unknown | TokenOutcome::NotExecuted) { silent + 1 } else { 0 };
                if silent == 3 {
                    return;
                }
            }
        });
    }

    pub(crate) async fn gets_through(&self) -> bool {
        let Ok(token) = self.guard.issue(MINUTE, Binding::none()).await else { return false };
        let told = redeem(&self.guard, token.as_str()).await;
        self.tally.note(token.as_str(), told) == TokenOutcome::Accepted
    }

    /// Counts the tokens of this round that were accepted.
    fn accepted(&self) -> usize {
        self.tally.count(TokenOutcome::Accepted)
    }
}

/// Data that Redis has after a crash.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Persistence {
    /// The last snapshot.
    Snapshot,
    /// Everything.
    Log,
    /// Everything except the last writes.
    LogWithoutItsEnd,
}

/// Kills Redis repeatedly under load.
async fn crashes(keeps: Persistence, cycles: usize) -> GuardPair {
    let arguments: &[&str] = match keeps {
        Persistence::Snapshot => &[],
        Persistence::Log => &["--appendonly", "yes", "--appendfsync", "always"],
        Persistence::LogWithoutItsEnd => &["--appendonly", "yes"],
    };
    let mut redis = RedisServer::start_with(arguments);
    let mut both = GuardPair::on(&redis.url());
    for cycle in 0..cycles {
        both.issue(TOKENS).await;
        if keeps == Persistence::Snapshot {
            redis.ask::<()>("SAVE");
        }
        let before = [both.pinned.accepted(), both.unpinned.accepted()];
        let rush = both.everybody(2);
        let some = || async {
            both.pinned.accepted() >= before[0] + TOKENS / 4 && both.unpinned.accepted() >= before[1] + TOKENS / 4
        };
        until("some of the tokens are used", MINUTE, some).await;
        redis.kill();
        rush.join_all().await;
        if keeps == Persistence::LogWithoutItsEnd {
            cut_the_end(redis.folder());
        }
        redis.restart();
        both.is_back().await;
        both.everybody(2).join_all().await;
        assert_eq!(both.pinned.tally.doubles(), 0, "cycle {cycle}: {}", both.pinned.tally);
    }
    both
}

/// Truncates the end of the append-only file.
fn cut_the_end(folder: &Path) {
    let files = fs::read_dir(folder.join("appendonlydir")).unwrap().map(|file| file.unwrap().path());
    let mut logs: Vec<_> = files.filter(|file| file.to_string_lossy().ends_with(".incr.aof")).collect();
    logs.sort();
    let log = File::options().write(true).open(logs.last().expect("there is a log")).unwrap();
    let length = log.metadata().unwrap().len();
    log.set_len(length.saturating_sub(fastrand::u64(600..1_200))).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn used_token_stays_used_after_an_old_snapshot() {
    let both = crashes(Persistence::Snapshot, times(3, 100)).await;
    both.judge("crashes back to a snapshot");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn used_token_stays_used_after_a_truncated_log() {
    let both = crashes(Persistence::LogWithoutItsEnd, times(3, 100)).await;
    both.judge("crashes that lose the end of the log");
}

/// Without data loss no token can come back. Tokens are still stale, and never called used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_without_data_loss_calls_no_unused_token_used() {
    let both = crashes(Persistence::Log, times(3, 100)).await;
    println!("crashes that lose nothing: {}", both.pinned.tally);
    both.pinned.tally.is_clean();
    both.unpinned.tally.is_clean();
    assert!(both.pinned.tally.count(TokenOutcome::Stale) > 0 && both.unpinned.tally.count(TokenOutcome::Stale) == 0);
}

/// A key is as durable as its Redis. This test documents that limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_runs_again_only_if_redis_lost_it() {
    for (arguments, runs_again) in [(&[][..], true), (&["--appendonly", "yes", "--appendfsync", "always"], false)] {
        let mut redis = RedisServer::start_with(arguments);
        let guard = Guard::new(Redis::open(&redis.url()).unwrap().timeout(BACK));
        let key = Key::new("k").unwrap();
        let intent = Intent::new("a", Subject::anonymous()).key(&key);
        let policy = Policy::key(KeyRules::at_most_once());
        let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("a new key") };
        pass.complete(Some(Reply::new(200, "done"))).await.unwrap();
        redis.kill();
        redis.restart();
        let again = guard.check(&policy, &intent).await.unwrap();
        assert_eq!(matches!(again, Verdict::Run(_)), runs_again, "{arguments:?}: {again:?}");
        assert_eq!(matches!(again, Verdict::Replay(_)), !runs_again, "{arguments:?}: {again:?}");
    }
}

/// The clock of one process is far off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_process_clock_accepts_no_token_twice() {
    let (redis, clock, secret) = (RedisServer::start(), ManualClock::new(), Secret::random());
    let open = || Guard::builder(Redis::open(&redis.url()).unwrap().timeout(BACK)).secret(secret.clone());
    let (right, ahead) = (open().build(), open().clock((&clock).into()).build());
    let tally = Tally::default();
    for number in 0..9 {
        let token = right.issue(MINUTE, Binding::none()).await.unwrap();
        let how = Presentation::by(number);
        assert_eq!(present(&ahead, token.as_str(), &how).await, TokenOutcome::Other(Code::TokenExpired));
        let told = tally.note(token.as_str(), present(&right, token.as_str(), &how).await);
        assert_eq!(told, TokenOutcome::Accepted, "the token was not used");
        let token = ahead.issue(MINUTE, Binding::none()).await.unwrap();
        for guard in [&right, &ahead, &right] {
            tally.note(token.as_str(), present(guard, token.as_str(), &Presentation::by(number)).await);
        }
    }
    assert_eq!(tally.count(TokenOutcome::Accepted), 18, "{tally}");
    tally.is_clean();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_clock_jump_expires_records_but_accepts_no_token_twice() {
    let redis = RedisServer::start_leaping();
    let guard = Guard::new(Redis::open(&redis.url()).unwrap().timeout(BACK));
    let (tally, key) = (Tally::default(), Key::new("k").unwrap());
    let intent = Intent::new("a", Subject::anonymous()).key(&key);
    let policy = Policy::key(KeyRules::at_most_once());
    let Ok(Verdict::Run(pass)) = guard.check(&policy, &intent).await else { panic!("a new key") };
    pass.complete(None).await.unwrap();
    let mut tokens = Vec::new();
    for number in 0..6 {
        let token = guard.issue(MINUTE, Binding::none()).await.unwrap().as_str().to_owned();
        if number < 3 {
            assert_eq!(
                tally.note(&token, present(&guard, &token, &Presentation::by(number)).await),
                TokenOutcome::Accepted
            );
        }
        tokens.push(token);
    }
    redis.ask::<()>("SET marker 1 EX 3600");
    redis.leap();
    // Redis may still use a cached time.
    until("its clock has jumped", BACK, || async { redis.ask::<usize>("EXISTS marker") == 0 }).await;
    for (number, token) in tokens.iter().enumerate() {
        let told = tally.note(token, present(&guard, token, &Presentation::by(number)).await);
        assert_eq!(told, TokenOutcome::Used, "{number}: its record has expired");
    }
    assert_eq!((tally.count(TokenOutcome::Accepted), tally.doubles()), (3, 0), "{tally}");
    let again = guard.check(&policy, &intent).await.unwrap();
    assert!(matches!(again, Verdict::Run(_)), "documented limit: the key runs again: {again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn demoted_and_promoted_master_is_another_epoch() {
    let redis = RedisServer::start();
    let mut both = GuardPair::on(&redis.url());
    both.issue(1).await;
    redis.ask::<()>(&format!("REPLICAOF 127.0.0.1 {}", free_port()));
    redis.ask::<()>("REPLICAOF NO ONE");
    let told = redeem(&both.pinned.guard, &both.pinned.tokens[0]).await;
    assert_eq!(told, TokenOutcome::Stale);
    assert_eq!(redeem(&both.unpinned.guard, &both.unpinned.tokens[0]).await, TokenOutcome::Accepted);
    both.is_back().await;
}

/// The guard still assumes the previous epoch when it sends the command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redeem_during_an_epoch_change_reports_the_new_epoch() {
    let redis = RedisServer::start();
    let guard = Guard::new(Redis::open(&redis.url()).unwrap().timeout(BACK));
    for (number, afterwards) in [(1, TokenOutcome::Stale), (2, TokenOutcome::Other(Code::ReplyNotKept))] {
        let token = guard.issue(MINUTE, Binding::none()).await.unwrap();
        assert_eq!(present(&guard, token.as_str(), &Presentation::by(number)).await, TokenOutcome::Accepted);
        redis.ask::<()>(&format!("REPLICAOF 127.0.0.1 {}", free_port()));
        redis.ask::<()>("REPLICAOF NO ONE");
        for _ in 0..2 {
            assert_eq!(present(&guard, token.as_str(), &Presentation::by(number)).await, afterwards);
        }
    }
}

/// Redis changes its replication id when the first replica connects, although no data is lost: clients must fetch new tokens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_replica_makes_tokens_stale_never_used() {
    let redis = RedisServer::start_with(&["--repl-diskless-sync-delay", "0"]);
    let mut both = GuardPair::on(&redis.url());
    both.issue(3).await;
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &redis.port().to_string()]);
    let is_there = || async { redis.ask::<String>("INFO replication").contains("state=online") };
    until("the replica is connected", MINUTE, is_there).await;
    both.everybody(2).join_all().await;
    assert_eq!(both.pinned.tally.count(TokenOutcome::Stale), 6, "{}", both.pinned.tally);
    both.is_back().await;
    // A second one changes nothing.
    both.issue(3).await;
    let second = RedisServer::start_with(&["--replicaof", "127.0.0.1", &redis.port().to_string()]);
    let are_there = || async { redis.ask::<String>("INFO replication").matches("state=online").count() == 2 };
    until("the second replica is connected", MINUTE, are_there).await;
    both.everybody(1).join_all().await;
    assert_eq!(both.pinned.tally.count(TokenOutcome::Stale), 6, "{}", both.pinned.tally);
    both.pinned.tally.is_clean();
    drop((replica, second));
}

/// Redeems for an attempt and returns the run id.
async fn redeemed_by(guard: &Guard, token: &str, attempt: &Attempt) -> RunId {
    let intent = Intent::new("a", Subject::anonymous()).credential(token).attempt(attempt);
    let Ok(Verdict::Run(pass)) = guard.check(&Policy::token(), &intent).await else { panic!("valid token") };
    let run = pass.run_id().expect("an attempt has a run");
    pass.complete(None).await.unwrap();
    run
}

#[tokio::test]
async fn released_attempt_is_not_accepted_again_after_data_loss() {
    let mut redis = RedisServer::start();
    for (store, afterwards) in [
        (Redis::open(&redis.url()).unwrap(), TokenOutcome::Stale),
        (Redis::open(&redis.url()).unwrap().prefix("unpinned").unpinned(), TokenOutcome::Accepted),
    ] {
        let guard = Guard::new(store);
        let [one, two] = ["one", "two"].map(|name| Presentation::Attempt(Attempt::new(name).unwrap()));
        let token = guard.issue(MINUTE, Binding::none()).await.unwrap().as_str().to_owned();
        let run = redeemed_by(&guard, &token, &Attempt::new("one").unwrap()).await;
        redis.ask::<()>("SAVE");
        guard.release(&token, &Attempt::new("one").unwrap(), run).await.unwrap();
        assert_eq!(present(&guard, &token, &two).await, TokenOutcome::Accepted, "this is the use");
        redis.kill();
        redis.restart();
        until("Redis is back", BACK, || async { guard.issue(MINUTE, Binding::none()).await.is_ok() }).await;
        assert_eq!(present(&guard, &token, &one).await, afterwards);
    }
}

#[tokio::test]
async fn token_of_an_earlier_epoch_is_not_released() {
    let mut redis = RedisServer::start();
    let guard = Guard::new(Redis::open(&redis.url()).unwrap().timeout(BACK));
    let attempt = Attempt::new("one").unwrap();
    // After the restart Redis has either the mark, or the token as if it had never been used.
    for is_marked in [true, false] {
        let token = guard.issue(MINUTE, Binding::none()).await.unwrap().as_str().to_owned();
        if !is_marked {
            redis.ask::<()>("SAVE");
        }
        let run = redeemed_by(&guard, &token, &attempt).await;
        if is_marked {
            redis.ask::<()>("SAVE");
        }
        redis.kill();
        redis.restart();
        let released = guard.release(&token, &attempt, run).await.unwrap();
        assert_eq!(released, Settled::Lost, "marked: {is_marked}");
        assert_eq!(present(&guard, &token, &Presentation::Plain).await, TokenOutcome::Stale);
    }
}

/// The epoch read over an application's own connection is cached briefly; reading it for each command would double the round trips.
#[tokio::test]
async fn plain_token_with_unknown_epoch_costs_no_extra_round_trip() {
    let mut redis = RedisServer::start();
    let secret = Secret::random();
    let on = |store: Redis| Guard::builder(store.timeout(BACK)).secret(secret.clone()).build();
    let issuer = on(Redis::open(&redis.url()).unwrap());
    let one = issuer.issue(MINUTE, Binding::none()).await.unwrap();
    let other = issuer.issue(MINUTE, Binding::none()).await.unwrap();
    let proxy = Proxy::before(redis.port()).await;
    let client = redis::Client::open(proxy.url()).unwrap();
    let handed = client.get_connection_manager().await.unwrap();
    let guard = on(Redis::over(handed));
    // The epoch is read in the same pipeline as the token, not before.
    proxy.next("$4\r\nINFO", TcpFault::LoseRequest);
    assert_eq!(redeem(&guard, one.as_str()).await, TokenOutcome::Unknown);
    redis.kill();
    redis.restart();
    until("the token is stale", BACK, || async { redeem(&guard, other.as_str()).await == TokenOutcome::Stale }).await;
}

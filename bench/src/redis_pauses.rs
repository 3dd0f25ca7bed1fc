//! The longest call of a verb of the store on Redis: while Redis is idle, while it grows, and while it removes expired records.
//!
//! One thread calls the verbs one after the other. Meanwhile others fill Redis, or Redis removes what has expired. The removal is switched off
//! while Redis is filled, so that all records are expired when it begins.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use onceward::store::{Redis, Room, Store};
use onceward::{Kind, Ticket};
use tokio::runtime::Builder;

use crate::Failure;
use crate::longest_verb::now;
use crate::record_samples::RecordSamples;
use crate::redis_server::RedisServer;
use crate::store_filler::{RecordFill, StoreFiller};

const TTL: Duration = Duration::from_secs(1);
/// Maximum time for the removal of expired records.
const REMOVAL: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(20);
/// Duration of the measurement of an idle Redis.
const IDLE: Duration = Duration::from_secs(2);
/// Duration of the warm-up: connections are opened and scripts are loaded in it.
const WARM_UP: Duration = Duration::from_millis(500);
/// The time between two series of verbs: much less than a pause that counts.
const BETWEEN: Duration = Duration::from_millis(1);

/// The longest calls on a Redis of one size.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RedisPauses {
    /// Of an empty server that only the prober uses: a pause of this length is one of the machine.
    pub(crate) idle: RedisPause,
    pub(crate) growth: RedisPause,
    pub(crate) sweep: RedisPause,
    /// Expired records that were left at the end.
    pub(crate) left: u64,
}

/// A pause, as a client sees it and as Redis itself reports it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RedisPause {
    /// The longest verb, including the time that other processes had the CPU.
    pub(crate) verb: Duration,
    /// The longest event of `LATENCY LATEST`, in milliseconds, and its name.
    pub(crate) event: Option<(u64, String)>,
}

impl RedisPauses {
    /// Measures a server with `size` tokens, and this many cycles of background work per second (`hz`, which Redis sets to 10).
    pub(crate) async fn of(size: u64, hz: u32) -> Result<Self, Failure> {
        let options = ["--enable-debug-command", "local", "--latency-monitor-threshold", "1", "--hz"];
        let options = options.into_iter().map(str::to_owned).chain([hz.to_string()]);
        let options: Vec<_> = options.collect();
        let mut redis = RedisServer::start_with(|| Ok(options.clone()))?;
        redis.ask::<()>("DEBUG SET-ACTIVE-EXPIRE 0")?;
        let prober = Prober::start(redis.url())?;
        tokio::time::sleep(IDLE).await;
        let idle = RedisPause { verb: prober.end()?, event: longest_event(&mut redis)? };
        let prober = Prober::start(redis.url())?;
        let fill = RecordFill { kind: Kind::Token, value: RecordSamples::taken().await?.issued, ttl: TTL };
        StoreFiller::Redis(redis.url()).fill(&fill, size).await?;
        let growth = RedisPause { verb: prober.end()?, event: longest_event(&mut redis)? };
        // The last record expires.
        tokio::time::sleep(TTL).await;
        let prober = Prober::start(redis.url())?;
        redis.ask::<()>("DEBUG SET-ACTIVE-EXPIRE 1")?;
        let left = removed(&mut redis).await?;
        let sweep = RedisPause { verb: prober.end()?, event: longest_event(&mut redis)? };
        Ok(Self { idle, growth, sweep, left })
    }
}

/// Waits until Redis has removed almost all records, and returns how many are left.
async fn removed(redis: &mut RedisServer) -> Result<u64, Failure> {
    let (begun, before) = (now(), redis.ask::<u64>("DBSIZE")?);
    loop {
        let left = redis.ask::<u64>("DBSIZE")?;
        if left <= before / 100 || begun.elapsed() > REMOVAL {
            return Ok(left);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Returns the longest event since the last call.
fn longest_event(redis: &mut RedisServer) -> Result<Option<(u64, String)>, Failure> {
    let events: Vec<(String, u64, u64, u64)> = redis.ask("LATENCY LATEST")?;
    redis.ask::<u64>("LATENCY RESET")?;
    Ok(longest(events))
}

/// Returns the event with the longest time. The last number of each is its maximum.
fn longest(events: Vec<(String, u64, u64, u64)>) -> Option<(u64, String)> {
    events.into_iter().map(|(name, _, _, most)| (most, name)).max()
}

/// A thread that calls verbs of the store.
struct Prober {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<Duration, String>>,
}

impl Prober {
    /// Starts the thread, and waits until it is warmed up.
    fn start(url: String) -> Result<Self, Failure> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (seen, (warm, is_warm)) = (Arc::clone(&is_over), mpsc::channel());
        let thread = thread::spawn(move || probe(&url, &warm, &seen).map_err(|error| error.to_string()));
        let prober = Self { is_over, thread };
        // Without a message, the prober has failed.
        match is_warm.recv() {
            Ok(()) => Ok(prober),
            Err(_) => Err(prober.end().err().unwrap_or_else(|| "the prober ended early".into())),
        }
    }

    /// Ends the thread, and returns the longest verb.
    fn end(self) -> Result<Duration, Failure> {
        self.is_over.store(true, Ordering::Relaxed);
        Ok(self.thread.join().map_err(|_| "the prober panicked")??)
    }
}

fn probe(url: &str, warm: &mpsc::Sender<()>, is_over: &AtomicBool) -> Result<Duration, Failure> {
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        let (store, begun, mut longest) = (Redis::open(url)?.timeout(PATIENCE), now(), Duration::ZERO);
        while begun.elapsed() < WARM_UP {
            call_verbs(&store).await?;
        }
        warm.send(())?;
        while !is_over.load(Ordering::Relaxed) {
            longest = longest.max(call_verbs(&store).await?);
        }
        Ok(longest)
    })
}

/// Calls a few verbs, and returns the time of the longest.
async fn call_verbs(store: &Redis) -> Result<Duration, Failure> {
    let (ticket, begun) = (Ticket::of(Kind::Interval, b"prober"), now());
    store.insert(&ticket, b"probe", PATIENCE, Room::Free).await?;
    let inserted = now();
    store.remove(&ticket, b"probe", None).await?;
    let longest = (inserted - begun).max(inserted.elapsed());
    tokio::time::sleep(BETWEEN).await;
    Ok(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_event_is_chosen_by_its_maximum() {
        let event = |name: &str, latest, most| (name.to_owned(), 1_700_000_000, latest, most);
        let events = vec![event("command", 3, 9), event("expire-cycle", 8, 25), event("fork", 20, 20)];
        assert_eq!(longest(events), Some((25, "expire-cycle".to_owned())));
        assert_eq!(longest(Vec::new()), None);
    }
}

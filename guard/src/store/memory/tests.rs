use std::sync::Arc;

use super::*;
use crate::clock::ManualClock;
use crate::record::Record as Layout;
use crate::reply::NoReply;
use crate::reply::Reply;
use crate::run_id::RunId;
#[cfg(feature = "laws")]
use crate::store::laws::Laws;

const MINUTE: Duration = Duration::from_secs(60);
const KIB: usize = 1024;
/// The minimum number of bytes that a record counts.
const LEAST: usize = 256;

fn numbered(kind: Kind, number: usize) -> Ticket {
    Ticket::of(kind, &number.to_be_bytes())
}

/// Returns the record of a completed run with a response of this size.
fn done(size: usize) -> Vec<u8> {
    let reply = Ok(Reply::new(200, vec![b'x'; size]));
    DoneRecord { run: RunId::new(), fingerprint: Some([1; 16]), asker: None, deadline: 5, reply }.encode()
}

/// Inserts until the store rejects a record, and returns how many it accepted.
async fn fill(store: &Memory, kind: Kind) -> usize {
    for number in 0.. {
        if store.insert(&numbered(kind, number), b"xy", MINUTE, Room::Free).await.is_err() {
            return number;
        }
    }
    unreachable!("a store with a limit is full at some point")
}

/// Claims a key and completes it with a response of this size.
async fn run(store: &Memory, number: usize, size: usize) {
    let ticket = numbered(Kind::Key, number);
    assert_eq!(store.insert(&ticket, b"claim", MINUTE, Room::Free).await.unwrap(), None, "{number}: a claim has room");
    let completed = store.swap(&ticket, b"claim", &done(size), MINUTE, Room::Free, None).await.unwrap();
    assert_eq!(completed, Compared::Done, "{number}: completing has room");
}

/// Returns the size of the stored response, or why there is none.
async fn stored(store: &Memory, number: usize) -> Result<usize, NoReply> {
    let found = store.look(&numbered(Kind::Key, number)).await.unwrap().expect("a record is never dropped");
    match Layout::decode(&found) {
        Ok(Layout::Done(done)) => done.reply.map(|reply| reply.body().len()),
        other => panic!("{other:?}"),
    }
}

/// Asserts that the counted bytes are those of the stored records.
fn assert_counted(store: &Memory) {
    for kind in Kind::ALL {
        let (mut used, mut responses) = (0, 0);
        for number in 0..SHARDS {
            let shard = store.lock_shard(number);
            for record in shard.entries().filter(|record| record.ticket.kind() == kind) {
                used += record.weight().cost();
                responses += record.weight().response();
            }
        }
        assert_eq!((store.quotas.used(kind), store.quotas.responses(kind)), (used, responses), "{kind:?}");
    }
}

#[cfg(feature = "laws")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn laws_hold_with_the_system_clock() {
    Laws::of(Memory::new()).rounds(200).hold().await;
}

#[cfg(feature = "laws")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn laws_hold_with_a_manual_clock() {
    let clock = ManualClock::new();
    Laws::with_clock(Memory::with_clock((&clock).into()), &clock).hold().await;
}

#[tokio::test]
async fn full_store_rejects_new_records_and_drops_none() {
    let store = Memory::new().limit(1024 * KIB);
    let taken = fill(&store, Kind::Token).await;
    assert!(taken > 1000, "{taken}");
    let error = store.insert(&numbered(Kind::Token, taken), b"xy", MINUTE, Room::Free).await.unwrap_err();
    assert!(matches!(error, StoreError::NotExecuted(_)) && error.is_full(), "{error}");
    for number in 0..taken {
        let removed = store.remove(&numbered(Kind::Token, number), b"xy", None).await.unwrap();
        assert_eq!(removed, Compared::Done, "{number}");
    }
    assert_eq!(fill(&store, Kind::Token).await, taken, "a removed record has made room again");
}

#[tokio::test]
async fn full_record_kind_leaves_others_their_quota() {
    let store = Memory::new().limit(1024 * KIB);
    let taken = [Kind::Token, Kind::Key, Kind::Interval];
    let mut quotas = Vec::new();
    for kind in taken {
        quotas.push(fill(&store, kind).await);
    }
    assert!(quotas[0] > quotas[1] && quotas[1] > quotas[2] && quotas[2] > 100, "{quotas:?}");
    assert!(store.insert(&Ticket::of_secret(), b"secret", MINUTE, Room::Free).await.is_ok());
}

#[tokio::test]
async fn settle_and_release_work_in_a_full_store() {
    let store = Memory::new().limit(64 * KIB);
    let token = numbered(Kind::Token, usize::MAX);
    store.insert(&token, b"xy", MINUTE, Room::Free).await.unwrap();
    store.remove(&token, b"xy", None).await.unwrap();
    fill(&store, Kind::Token).await;
    assert_eq!(store.insert(&token, b"xy", MINUTE, Room::Reserved).await.unwrap(), None);
    let claim = [0; 102];
    assert_eq!(
        store.swap(&token, b"xy", &claim, MINUTE, Room::Free, None).await.unwrap(),
        Compared::Done,
        "a token becomes a claim"
    );
    assert_eq!(store.swap(&token, &claim, &done(64 * KIB), MINUTE, Room::Free, None).await.unwrap(), Compared::Done);
    let stub = store.look(&token).await.unwrap().unwrap();
    let Ok(Layout::Done(DoneRecord { reply: Err(NoReply::NoRoom), .. })) = Layout::decode(&stub) else {
        panic!("{stub:?}")
    };
    assert_eq!(store.remove(&token, &stub, None).await.unwrap(), Compared::Done);
    assert_counted(&store);
}

#[tokio::test]
async fn reserve_exceeds_a_quota_by_a_quarter_at_most() {
    let store = Memory::new().limit(64 * KIB);
    let taken = fill(&store, Kind::Token).await;
    for number in taken.. {
        if let Err(error) = store.insert(&numbered(Kind::Token, number), b"xy", MINUTE, Room::Reserved).await {
            assert!(error.is_full(), "{error}");
            break;
        }
    }
    assert_eq!(store.len(), 64 * KIB / 2 / 4 * 5 / LEAST);
    assert_counted(&store);
}

#[tokio::test]
async fn oldest_responses_are_evicted_and_records_stay() {
    let store = Memory::new().limit(1024 * KIB);
    for number in 0..200 {
        run(&store, number, 10 * KIB).await;
        assert_eq!(stored(&store, number).await, Ok(10 * KIB), "{number}: the newest is there");
        assert!(store.quotas.used(Kind::Key) <= store.quotas.quota(Kind::Key));
    }
    let mut kept = Vec::new();
    for number in 0..200 {
        match stored(&store, number).await {
            Ok(_) => kept.push(number),
            Err(reason) => assert_eq!(reason, NoReply::NoRoom),
        }
    }
    assert!((20..=38).contains(&kept.len()), "384 KiB keep {} of 10 KiB", kept.len());
    let dropped = 200 - kept.len();
    assert!(kept.into_iter().eq(dropped..200), "the oldest gave way first");
    assert_eq!(store.quotas.dropped(Kind::Key), dropped as u64);
    assert_counted(&store);
}

#[tokio::test]
async fn expired_response_is_evicted_before_a_live_one() {
    let clock = ManualClock::new();
    let store = Memory::with_clock((&clock).into()).limit(1024 * KIB);
    // The share of keys is 384 KiB.
    let expired = numbered(Kind::Key, 0);
    store.insert(&expired, &done(150 * KIB), MINUTE / 2, Room::Free).await.unwrap();
    run(&store, 1, 150 * KIB).await;
    clock.advance(MINUTE / 2);
    run(&store, 2, 150 * KIB).await;
    assert_eq!((stored(&store, 1).await, stored(&store, 2).await), (Ok(150 * KIB), Ok(150 * KIB)));
    assert_counted(&store);
}

#[tokio::test]
async fn new_claims_evict_stored_responses() {
    let store = Memory::new().limit(1024 * KIB);
    for number in 0..100 {
        run(&store, number, 20 * KIB).await;
    }
    let before = store.len();
    let mut taken = 0;
    while store.insert(&numbered(Kind::Key, 1_000 + taken), b"claim", MINUTE, Room::Free).await.is_ok() {
        taken += 1;
    }
    assert_eq!(before + taken, 1024 * KIB / 8 * 3 / LEAST, "only records are left");
    assert_eq!(store.quotas.responses(Kind::Key), 0);
    assert_counted(&store);
}

#[tokio::test]
async fn response_too_large_to_fit_evicts_nothing() {
    let store = Memory::new().limit(1024 * KIB);
    run(&store, 1, 100 * KIB).await;
    run(&store, 2, 1024 * KIB).await;
    assert_eq!((stored(&store, 1).await, stored(&store, 2).await), (Ok(100 * KIB), Err(NoReply::NoRoom)));
}

#[tokio::test]
async fn duplicates_in_a_full_store_evict_nothing() {
    let store = Memory::new().limit(1024 * KIB);
    for number in 0..100 {
        run(&store, number, 20 * KIB).await;
    }
    let (responses, large) = (store.quotas.responses(Kind::Key), done(20 * KIB));
    for number in 0..100 {
        let ticket = numbered(Kind::Key, number);
        assert!(store.insert(&ticket, b"claim", MINUTE, Room::Free).await.unwrap().is_some());
        assert!(matches!(
            store.swap(&ticket, b"claim", &large, MINUTE, Room::Free, None).await.unwrap(),
            Compared::Found(_)
        ));
    }
    assert_eq!(store.quotas.responses(Kind::Key), responses);
}

#[tokio::test]
async fn large_foreign_value_is_rejected_when_it_does_not_fit() {
    let store = Memory::new().limit(64 * KIB);
    let ticket = numbered(Kind::Key, 1);
    store.insert(&ticket, b"held", MINUTE, Room::Free).await.unwrap();
    let error = store.swap(&ticket, b"held", &vec![7; 64 * KIB], MINUTE, Room::Free, None).await.unwrap_err();
    assert!(error.is_full(), "{error}");
    assert_eq!(store.look(&ticket).await.unwrap().as_deref(), Some(&b"held"[..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn usage_count_stays_exact_under_concurrent_verbs() {
    for hasher in [TicketHasher::new(), TicketHasher::colliding()] {
        let clock = ManualClock::new();
        let store = Memory { hasher, ..Memory::with_clock((&clock).into()).limit(256 * KIB) };
        call_verbs_concurrently(Arc::new(store), clock).await;
    }
}

async fn call_verbs_concurrently(store: Arc<Memory>, clock: ManualClock) {
    let workers = (0..4).map(|worker: u64| {
        let (store, clock) = (Arc::clone(&store), clock.clone());
        tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(worker);
            for _ in 0..5_000 {
                let ticket = numbered(random.choice([Kind::Token, Kind::Key]).unwrap(), random.usize(..60));
                let (large, ttl) =
                    (done(random.usize(Room::SMALL..20 * KIB)), Duration::from_millis(random.u64(1..50)));
                let held = store.look(&ticket).await.unwrap().unwrap_or_default();
                let _ = match random.u8(..6) {
                    0 => store.insert(&ticket, b"claim", ttl, Room::Free).await.map(drop),
                    1 | 2 => store.remove(&ticket, &held, None).await.map(drop),
                    3 => store.insert(&ticket, &large, ttl, Room::Reserved).await.map(drop),
                    _ => store.swap(&ticket, &held, &large, ttl, Room::Free, None).await.map(drop),
                };
                if random.u8(..20) == 0 {
                    clock.advance(Duration::from_millis(1));
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    assert!(store.quotas.dropped(Kind::Key) > 0, "it was full");
    assert_counted(&store);
    assert!(store.quotas.used(Kind::Key) <= store.quotas.quota(Kind::Key));
}

#[tokio::test]
async fn expired_records_free_their_room_at_once() {
    let clock = ManualClock::new();
    let store = Memory::with_clock((&clock).into()).limit(1024 * KIB);
    let taken = fill(&store, Kind::Token).await;
    clock.advance(MINUTE);
    assert_eq!(fill(&store, Kind::Token).await, taken);
}

#[tokio::test]
async fn expired_records_are_removed_incrementally() {
    let clock = ManualClock::new();
    let store = Memory::with_clock((&clock).into());
    // A steady stream of records, each of which expires after a thousand further inserts.
    for number in 0..50_000 {
        store.insert(&numbered(Kind::Token, number), b"xy", Duration::from_millis(1000), Room::Free).await.unwrap();
        clock.advance(Duration::from_millis(1));
    }
    assert!(store.len() < 4_000, "{} records are held, a thousand live", store.len());
    assert_eq!(store.quotas.used(Kind::Token), store.len() * LEAST);
    assert_counted(&store);
}

#[tokio::test]
async fn insert_removes_few_of_many_expired_records() {
    let clock = ManualClock::new();
    let store = Memory::with_clock((&clock).into());
    for number in 0..50_000 {
        store.insert(&numbered(Kind::Token, number), b"xy", MINUTE, Room::Free).await.unwrap();
    }
    clock.advance(MINUTE);
    for number in 0..50_000 {
        let before = store.quotas.used(Kind::Token);
        store.insert(&numbered(Kind::Key, number), b"xy", 10 * MINUTE, Room::Free).await.unwrap();
        assert!(before - store.quotas.used(Kind::Token) <= 8 * LEAST, "an insert removes at most eight records");
    }
    assert!(store.len() < 70_000, "{} records are held, 50,000 live", store.len());
    assert_counted(&store);
}

#[tokio::test]
async fn full_store_finds_expired_records_of_one_kind_among_others() {
    let clock = ManualClock::new();
    let mut store = Memory::with_clock((&clock).into()).limit(1024 * KIB);
    store.search_limits.records = 8;
    let intervals = fill(&store, Kind::Interval).await;
    clock.advance(MINUTE / 2);
    // One token expires with the intervals, the others later.
    store.insert(&numbered(Kind::Token, 0), b"xy", MINUTE / 2, Room::Free).await.unwrap();
    let mut tokens = 1;
    while store.insert(&numbered(Kind::Token, tokens), b"xy", MINUTE, Room::Free).await.is_ok() {
        tokens += 1;
    }
    clock.advance(MINUTE / 2);
    assert_eq!(store.len(), intervals + tokens);
    assert_eq!(store.insert(&numbered(Kind::Token, tokens), b"xy", MINUTE, Room::Free).await.unwrap(), None);
    let error = store.insert(&numbered(Kind::Token, tokens + 1), b"xy", MINUTE, Room::Free).await.unwrap_err();
    assert!(error.is_full(), "the other tokens are live: {error}");
    assert_counted(&store);
}

#[tokio::test]
async fn full_store_is_searched_part_by_part_at_intervals() {
    let clock = ManualClock::new();
    let mut store = Memory::with_clock((&clock).into()).limit(1024 * KIB);
    store.search_limits.slots = 100;
    // One token expires after the searches below have begun.
    store.insert(&numbered(Kind::Token, 0), b"xy", MINUTE, Room::Free).await.unwrap();
    let mut tokens = 1;
    while store.insert(&numbered(Kind::Token, tokens), b"xy", 10 * MINUTE, Room::Free).await.is_ok() {
        tokens += 1;
    }
    let next_shard = |store: &Memory| store.next_searched_shard.load(std::sync::atomic::Ordering::Relaxed);
    let after_one = next_shard(&store);
    assert!((1..SHARDS / 2).contains(&after_one), "2,048 tokens are in 1,024 shards: {after_one}");
    for number in 0..100 {
        store.insert(&numbered(Kind::Token, tokens + number), b"xy", MINUTE, Room::Free).await.unwrap_err();
    }
    assert_eq!(next_shard(&store), after_one, "a search that frees nothing is not repeated at once");
    clock.advance(MINUTE);
    let attempts = 2 * tokens / 100;
    let mut attempt = 0;
    while store.insert(&numbered(Kind::Token, tokens), b"xy", MINUTE, Room::Free).await.is_err() {
        attempt += 1;
        assert!(attempt < attempts, "the expired token is found");
        clock.advance(Duration::from_millis(100));
    }
    assert_counted(&store);
}

#[tokio::test]
async fn each_instance_has_its_own_epoch() {
    let ticket = Ticket::of(Kind::Token, b"any");
    assert_ne!(Memory::new().epoch(&ticket), Memory::new().epoch(&ticket));
}

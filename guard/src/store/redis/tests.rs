//! The store on transports that answer late, never, or with given replies.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use ::redis as redis_crate;
use ::redis::{RedisError, Value};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::capabilities::{DeleteCommand, NativeCommands};
use super::deadline::Deadline;
use super::replication_id::ReplicationId;
use super::request::KeyName;
use super::scripts::SWAP_RESERVED;
use super::transport::{Response, ServerFacts};
use super::*;
use crate::ticket::Kind;

const TIMEOUT: Duration = Duration::from_secs(1);

/// Replies to queries about itself after a delay, and to no command.
struct SlowTransport {
    tells_after: Duration,
}

impl SlowTransport {
    async fn tell<T>(&self, what: T, deadline: Deadline) -> Result<T, TransportError> {
        let told = tokio::time::timeout_at(deadline.at, tokio::time::sleep(self.tells_after)).await;
        told.map(|()| what).map_err(|_| deadline.timed_out())
    }
}

#[async_trait]
impl Transport for SlowTransport {
    async fn send(&self, _question: Request<'_>, deadline: Deadline) -> Result<Response, TransportError> {
        tokio::time::sleep_until(deadline.at).await;
        Err(deadline.timed_out())
    }

    fn facts(&self, _key: KeyName<'_>) -> ServerFacts {
        ServerFacts::default()
    }

    fn epoch(&self, _key: KeyName<'_>) -> Option<Epoch> {
        None
    }

    async fn learn_epoch(&self, _key: KeyName<'_>, deadline: Deadline) -> Result<Epoch, TransportError> {
        self.tell(Epoch::default(), deadline).await
    }

    fn forget(&self, _key: KeyName<'_>) {}

    async fn learn_scripts(&self, _key: KeyName<'_>, deadline: Deadline) -> Result<bool, TransportError> {
        self.tell(true, deadline).await
    }

    async fn native_tried(&self, _key: KeyName<'_>, _deadline: Deadline) {}

    fn reject_native(&self, _key: KeyName<'_>) {}

    fn admit(&self, _: KeyName<'_>, _: Duration) -> Admission {
        Admission::Accept
    }

    fn slow(&self) -> usize {
        0
    }

    async fn reconnected(&self) {}
}

fn store(tells_after: Duration) -> Redis {
    Redis { max_in_flight: 4, ..Redis::on(SlowTransport { tells_after }).timeout(TIMEOUT) }
}

/// Runs a verb, each of which may query the server first.
async fn ask(store: &Redis, what: usize) -> Result<(), StoreError> {
    let ticket = Ticket::of(Kind::Key, b"x");
    match what {
        0 => store.look(&ticket).await.map(drop),
        1 => store.insert(&ticket, b"x", TIMEOUT, Room::Free).await.map(drop),
        2 => store.ask_epoch(&ticket).await.map(drop),
        _ => store.swap(&ticket, b"x", b"y", TIMEOUT, Room::Free, Some(Epoch::default())).await.map(drop),
    }
}

/// Sends ten commands at once, with a limit of four in flight.
async fn ask_ten(what: usize) {
    let (store, begun, mut asked) = (store(Duration::MAX), Instant::now(), JoinSet::new());
    for _ in 0..10 {
        let store = store.clone();
        asked.spawn(async move { (ask(&store, what).await.expect_err("no reply"), begun.elapsed()) });
    }
    let (waited, refused): (Vec<_>, Vec<_>) =
        asked.join_all().await.into_iter().partition(|(_, took)| *took >= TIMEOUT);
    assert_eq!((refused.len(), waited.len()), (6, 4), "{what}");
    assert!(refused.iter().all(|(error, _)| matches!(error, StoreError::NotExecuted(_))), "{refused:?}");
    assert_eq!(store.in_flight.load(Ordering::Relaxed), 0, "only commands in flight are counted");
}

#[tokio::test]
async fn commands_beyond_the_queue_limit_are_rejected_at_once() {
    tokio::join!(ask_ten(0), ask_ten(1), ask_ten(2), ask_ten(3));
}

#[tokio::test]
async fn verb_with_a_preceding_lookup_keeps_the_timeout() {
    let store = store(TIMEOUT * 9 / 10);
    let begun = Instant::now();
    let asked = tokio::join!(ask(&store, 0), ask(&store, 1), ask(&store, 3));
    assert!(asked.0.is_err() && asked.1.is_err() && asked.2.is_err(), "no command is answered");
    assert!(begun.elapsed() < TIMEOUT * 3 / 2, "nine tenths more: {:?}", begun.elapsed());
}

/// Returns these replies in turn, on a server with native commands, and keeps what it was sent.
struct ScriptedTransport {
    replies: Mutex<VecDeque<Result<Value, RedisError>>>,
    sent: Mutex<Vec<String>>,
    native: Mutex<NativeCommands>,
    runs_scripts: bool,
    /// The replication ids that follow the replies in turn; the last one stays.
    ids: Mutex<VecDeque<ReplicationId>>,
}

#[async_trait]
impl Transport for Arc<ScriptedTransport> {
    async fn send(&self, request: Request<'_>, _deadline: Deadline) -> Result<Response, TransportError> {
        let command = request.command();
        let words = command.args_iter().map(|word| match word {
            redis_crate::Arg::Simple(word) => String::from_utf8_lossy(word).into_owned(),
            _ => "?".to_owned(),
        });
        let words: Vec<_> = words.filter(|word| !word.starts_with("onceward:")).collect();
        self.sent.lock().unwrap().push(words.join(" "));
        let value = self.replies.lock().unwrap().pop_front().expect("a reply is left")?;
        let mut ids = self.ids.lock().unwrap();
        let id = if ids.len() > 1 { ids.pop_front() } else { ids.front().copied() };
        let epoch = id.filter(|_| request.wants_epoch).and_then(|id| id.epoch());
        Ok(Response { value, epoch })
    }

    fn facts(&self, _key: KeyName<'_>) -> ServerFacts {
        ServerFacts { epoch: None, runs_scripts: Some(self.runs_scripts), native: *self.native.lock().unwrap() }
    }

    fn epoch(&self, _key: KeyName<'_>) -> Option<Epoch> {
        None
    }

    async fn learn_epoch(&self, _: KeyName<'_>, _: Deadline) -> Result<Epoch, TransportError> {
        unreachable!("the epoch is checked after the command")
    }

    fn forget(&self, _key: KeyName<'_>) {}

    async fn learn_scripts(&self, _: KeyName<'_>, _: Deadline) -> Result<bool, TransportError> {
        unreachable!("it is known")
    }

    async fn native_tried(&self, _key: KeyName<'_>, _deadline: Deadline) {}

    fn reject_native(&self, _key: KeyName<'_>) {
        *self.native.lock().unwrap() = NativeCommands::NONE;
    }

    fn admit(&self, _: KeyName<'_>, _: Duration) -> Admission {
        Admission::Accept
    }

    fn slow(&self) -> usize {
        0
    }

    async fn reconnected(&self) {}
}

fn scripted(replies: Vec<Result<Value, RedisError>>) -> (Redis, Arc<ScriptedTransport>) {
    let delete = Some(DeleteCommand::Delifeq);
    scripted_by(NativeCommands { has_set_ifeq: true, delete, is_conclusive: true }, true, replies)
}

fn scripted_by(
    native: NativeCommands,
    runs_scripts: bool,
    replies: Vec<Result<Value, RedisError>>,
) -> (Redis, Arc<ScriptedTransport>) {
    let transport = Arc::new(ScriptedTransport {
        replies: Mutex::new(replies.into()),
        sent: Mutex::default(),
        native: Mutex::new(native),
        runs_scripts,
        ids: Mutex::new([ReplicationId::Master([b'a'; 40])].into()),
    });
    (Redis::on(Arc::clone(&transport)), transport)
}

fn reply(text: &str) -> Result<Value, RedisError> {
    let value = redis_crate::parse_redis_value(format!("{text}\r\n").as_bytes()).expect("a reply");
    value.extract_error()
}

fn bulk(value: &str) -> Result<Value, RedisError> {
    Ok(Value::BulkString(value.as_bytes().to_vec()))
}

fn ticket() -> Ticket {
    Ticket::of(Kind::Key, b"x")
}

async fn removed(replies: Vec<Result<Value, RedisError>>) -> (Result<Compared, StoreError>, Vec<String>) {
    let (store, transport) = scripted(replies);
    let removed = store.remove(&ticket(), b"held", None).await;
    (removed, transport.sent.lock().unwrap().clone())
}

async fn swapped(replies: Vec<Result<Value, RedisError>>) -> (Result<Compared, StoreError>, Vec<String>) {
    let (store, transport) = scripted(replies);
    let swapped = store.swap(&ticket(), b"held", b"new", TIMEOUT, Room::Reserved, None).await;
    (swapped, transport.sent.lock().unwrap().clone())
}

fn found(value: &'static str) -> Compared {
    Compared::Found(Bytes::from_static(value.as_bytes()))
}

#[tokio::test]
async fn native_deletion_of_nothing_is_decided_by_a_lookup() {
    for (replies, wanted, commands) in [
        (vec![reply(":1")], Compared::Done, 1),
        (vec![reply(":0"), reply("_")], Compared::Gone, 2),
        (vec![reply(":0"), bulk("other")], found("other"), 2),
        (vec![reply(":0"), bulk("held"), reply(":1")], Compared::Done, 3),
        (vec![reply(":0"), bulk("held"), reply(":0"), reply("_")], Compared::Gone, 4),
    ] {
        let (removed, sent) = removed(replies).await;
        assert_eq!((removed.unwrap(), sent.len()), (wanted, commands), "{sent:?}");
    }
}

#[tokio::test]
async fn held_value_that_the_lookup_finds_again_never_counts_as_removed() {
    let again = || [reply(":0"), bulk("held")];
    let (removed, sent) = removed((0..4).flat_map(|_| again()).collect()).await;
    assert!(matches!(removed, Err(StoreError::NotExecuted(_))), "{removed:?}");
    assert_eq!(sent, ["DELIFEQ held", "GET"].repeat(4));
}

#[tokio::test]
async fn native_swap_compares_the_previous_value() {
    for (replies, wanted, commands) in [
        (vec![bulk("held")], Compared::Done, 1),
        (vec![bulk("other")], found("other"), 1),
        (vec![bulk("new")], found("new"), 1),
        (vec![reply("_"), reply("_")], Compared::Gone, 2),
        (vec![reply("_"), bulk("other")], found("other"), 2),
        (vec![reply("_"), bulk("held"), bulk("held")], Compared::Done, 3),
    ] {
        let (swapped, sent) = swapped(replies).await;
        assert_eq!((swapped.unwrap(), sent.len()), (wanted, commands), "{sent:?}");
        assert_eq!(sent[0], "SET new IFEQ held GET PX 1000");
    }
}

#[tokio::test]
async fn lost_reply_to_a_native_command_is_unknown_and_one_to_its_lookup_is_not() {
    let lost = || Err(RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe)));
    assert!(matches!(removed(vec![lost()]).await.0, Err(StoreError::Unknown(_))));
    assert!(matches!(swapped(vec![lost()]).await.0, Err(StoreError::Unknown(_))));
    assert!(matches!(removed(vec![reply(":0"), lost()]).await.0, Err(StoreError::NotExecuted(_))));
    assert!(matches!(swapped(vec![reply("_"), lost()]).await.0, Err(StoreError::NotExecuted(_))));
}

#[tokio::test]
async fn rejected_native_command_is_replaced_by_a_script_from_then_on() {
    for error in ["-ERR syntax error", "-ERR unknown command 'DELIFEQ'", "-NOPERM no permissions to run the command"] {
        let (store, transport) = scripted(vec![reply(error), reply(":1"), reply(":1"), reply(":1")]);
        for _ in 0..3 {
            assert_eq!(store.remove(&ticket(), b"held", None).await.unwrap(), Compared::Done, "{error}");
        }
        let sent = transport.sent.lock().unwrap().clone();
        assert!(sent[0].starts_with("DELIFEQ") && sent[1..].iter().all(|sent| sent.starts_with("EVALSHA")), "{sent:?}");
    }
}

#[tokio::test]
async fn full_server_writes_small_reserved_values_by_a_script_and_nothing_else() {
    let full = || reply("-OOM command not allowed when used memory > 'maxmemory'.");
    let (swapped, sent) = swapped(vec![full(), reply(":1")]).await;
    assert_eq!(swapped.unwrap(), Compared::Done);
    assert!(sent[0].starts_with("SET new IFEQ") && sent[1].contains(SWAP_RESERVED.text), "{sent:?}");
    for (size, room, is_written) in
        [(Room::SMALL, Room::Reserved, true), (Room::SMALL + 1, Room::Reserved, false), (1, Room::Free, false)]
    {
        let value = vec![b'v'; size];
        let (store, _) = scripted(vec![full(), reply(":1")]);
        let swapped = store.swap(&ticket(), b"held", &value, TIMEOUT, room, None).await;
        let (store, _) = scripted(vec![full(), reply("_")]);
        let inserted = store.insert(&ticket(), &value, TIMEOUT, room).await;
        let written = (swapped.map(|swapped| swapped == Compared::Done), inserted.map(|found| found.is_none()));
        match written {
            (Ok(true), Ok(true)) => assert!(is_written, "{size} {room:?}"),
            (Err(swap), Err(insert)) => assert!(swap.is_full() && insert.is_full() && !is_written, "{size} {room:?}"),
            other => panic!("{size} {room:?}: {other:?}"),
        }
    }
}

/// Native commands are probed in the background: on a slow server, a renewal must not wait for that.
#[tokio::test]
async fn verb_runs_a_script_at_once_while_native_commands_are_not_known() {
    let (store, transport) = scripted_by(NativeCommands::default(), true, vec![reply(":1"), reply(":1")]);
    assert_eq!(store.swap(&ticket(), b"held", b"new", TIMEOUT, Room::Reserved, None).await.unwrap(), Compared::Done);
    assert_eq!(store.remove(&ticket(), b"new", None).await.unwrap(), Compared::Done);
    let sent = transport.sent.lock().unwrap().clone();
    assert!(sent.iter().all(|sent| sent.starts_with("EVAL ")), "by its text, which any server executes: {sent:?}");
}

/// A user that may not run scripts on a server that is full, or lacks a command.
#[tokio::test]
async fn user_without_scripts_claims_nothing_that_it_could_not_settle() {
    let delete = Some(DeleteCommand::Delifeq);
    let full = NativeCommands { has_set_ifeq: false, delete, is_conclusive: false };
    let (store, transport) = scripted_by(full, false, vec![reply(":1")]);
    assert_eq!(store.remove(&ticket(), b"held", None).await.unwrap(), Compared::Done, "a full server deletes");
    for inserted in [
        store.insert(&ticket(), b"x", TIMEOUT, Room::Free).await.map(drop),
        store.swap(&ticket(), b"held", b"x", TIMEOUT, Room::Reserved, None).await.map(drop),
    ] {
        let error = inserted.unwrap_err();
        assert!(matches!(error, StoreError::NotExecuted(_)) && error.to_string().contains("not known yet"), "{error}");
    }
    assert_eq!(*transport.sent.lock().unwrap(), ["DELIFEQ held"]);
    let lacking = NativeCommands { delete: None, is_conclusive: true, has_set_ifeq: true };
    let (store, transport) = scripted_by(lacking, false, Vec::new());
    let error = store.insert(&ticket(), b"x", TIMEOUT, Room::Free).await.unwrap_err();
    assert!(matches!(error, StoreError::NotExecuted(_)) && error.to_string().contains("EVAL"), "{error}");
    assert_eq!(transport.sent.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn native_verbs_in_another_epoch_are_stale_and_a_write_is_removed_again() {
    let epoch = ReplicationId::Master([b'b'; 40]).epoch();
    for (replies, sent) in [(vec![reply(":1")], vec!["DELIFEQ held"]), (vec![reply(":0")], vec!["DELIFEQ held"])] {
        let (store, transport) = scripted(replies);
        assert_eq!(store.remove(&ticket(), b"held", epoch).await.unwrap(), Compared::Stale);
        assert_eq!(*transport.sent.lock().unwrap(), sent);
    }
    let (store, transport) = scripted(vec![bulk("held"), reply(":1")]);
    assert_eq!(store.swap(&ticket(), b"held", b"new", TIMEOUT, Room::Free, epoch).await.unwrap(), Compared::Stale);
    assert_eq!(*transport.sent.lock().unwrap(), ["SET new IFEQ held GET PX 1000", "DELIFEQ new"]);
    // The epoch ends between the command and its lookup.
    let (store, transport) = scripted(vec![reply(":0"), bulk("held")]);
    *transport.ids.lock().unwrap() = [b'b', b'c'].map(|byte| ReplicationId::Master([byte; 40])).into();
    assert_eq!(store.remove(&ticket(), b"held", epoch).await.unwrap(), Compared::Stale);
}

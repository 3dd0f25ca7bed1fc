//! The queue by itself: the order of replies, epochs, and commands whose callers have left.

use std::time::Duration;

use redis::Value;

use super::contents::MAX_PER_INFO;
use super::*;
use crate::store::redis::request::{Argument, KeyName};
use crate::ticket::{Kind, Ticket};

const INFO_A: &[u8] = b"$69\r\nrole:master\r\nmaster_replid:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n";

fn deadline() -> Deadline {
    Deadline::after(Duration::from_secs(10))
}

fn ask_with(queue: &Arc<CommandQueue>, number: u64, wants_epoch: bool) -> PendingResponse {
    let ticket = Ticket::of(Kind::Key, b"x");
    let key = KeyName { prefix: "p", ticket: &ticket };
    let request = Request::new(key, wants_epoch, [Argument::Text(b"GET"), Argument::Number(number)]);
    queue.ask(&request, deadline()).expect("the queue is open")
}

fn ask(queue: &Arc<CommandQueue>, number: u64) -> PendingResponse {
    ask_with(queue, number, false)
}

fn sent(queue: &CommandQueue) -> String {
    let mut buffer = Vec::new();
    queue.take_unsent(&mut buffer, Instant::now());
    String::from_utf8(buffer).unwrap().replace("\r\n", " ")
}

fn received(queue: &CommandQueue, bytes: &[u8]) -> RedisResult<Received> {
    queue.receive(bytes, &mut ReplicationIdReader::default(), &Breaker::new("a test"), &mut Vec::new())
}

fn polled(response: &mut PendingResponse) -> Option<Result<Response, TransportError>> {
    match Pin::new(response).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

fn value(response: &mut PendingResponse) -> Value {
    polled(response).expect("a response").expect("no error").value
}

#[test]
fn replies_are_passed_to_the_commands_in_order() {
    let queue = Arc::default();
    let (mut first, mut second) = (ask(&queue, 1), ask(&queue, 2));
    assert_eq!(sent(&queue), "*2 $3 GET $1 1 *2 $3 GET $1 2 ");
    assert!(polled(&mut first).is_none());
    let reply = b":1\r\n>1\r\n+push\r\n:2\r\n:";
    assert_eq!(received(&queue, reply).unwrap(), Received { length: reply.len() - 1, is_suspect: false });
    assert_eq!((value(&mut second), value(&mut first)), (Value::Int(2), Value::Int(1)));
    assert!(received(&queue, b":3\r\n").is_err(), "it replies to no command");
}

#[test]
fn response_with_an_epoch_waits_for_it() {
    let queue = Arc::default();
    let (mut plain, mut bound) = (ask(&queue, 1), ask_with(&queue, 2, true));
    assert_eq!(sent(&queue), "*2 $3 GET $1 1 *2 $3 GET $1 2 *2 $4 INFO $11 replication ");
    received(&queue, b":1\r\n:2\r\n").unwrap();
    assert!(polled(&mut bound).is_none());
    assert_eq!(polled(&mut plain).unwrap().unwrap().epoch, None);
    received(&queue, INFO_A).unwrap();
    let response = polled(&mut bound).unwrap().unwrap();
    assert_eq!(response.value, Value::Int(2));
    assert_eq!(response.epoch, ReplicationIdReader::default().epoch(INFO_A));
    assert!(response.epoch.is_some());
}

#[test]
fn each_group_of_commands_has_the_epoch_that_was_read_after_it() {
    let queue = Arc::default();
    let mut asked: Vec<_> = (0..=MAX_PER_INFO as u64).map(|number| ask_with(&queue, number, true)).collect();
    assert_eq!(sent(&queue).matches("INFO").count(), 2);
    let info_b = String::from_utf8_lossy(INFO_A).replace('a', "b");
    // `replace` changes the names too.
    let info_b = info_b.replace("mbster", "master");
    received(&queue, &[&b":1\r\n".repeat(MAX_PER_INFO), INFO_A, b":1\r\n", info_b.as_bytes()].concat()).unwrap();
    let epochs: Vec<_> = asked.iter_mut().map(|asked| polled(asked).unwrap().unwrap().epoch).collect();
    let [a, b] = [INFO_A, info_b.as_bytes()].map(|info| ReplicationIdReader::default().epoch(info));
    assert_ne!(a, b);
    assert!(epochs[..MAX_PER_INFO].iter().all(|epoch| *epoch == a) && epochs[MAX_PER_INFO] == b, "{epochs:?}");
}

#[test]
fn caller_that_leaves_before_the_epoch_is_read_changes_no_other_response() {
    let queue = Arc::default();
    let (dropped, mut other) = (ask_with(&queue, 1, true), ask_with(&queue, 2, true));
    sent(&queue);
    received(&queue, b":1\r\n:2\r\n").unwrap();
    drop(dropped);
    let mut next = ask_with(&queue, 3, true);
    sent(&queue);
    received(&queue, INFO_A).unwrap();
    assert_eq!(value(&mut other), Value::Int(2));
    assert!(polled(&mut next).is_none(), "it uses the slot of the dropped one");
    received(&queue, &[b":3\r\n", INFO_A].concat()).unwrap();
    assert_eq!(value(&mut next), Value::Int(3));
}

#[test]
fn command_that_times_out_before_the_epoch_is_read_stays_timed_out() {
    let (queue, begun) = (Arc::default(), Instant::now());
    let mut late = ask_with(&queue, 1, true);
    sent(&queue);
    received(&queue, b":1\r\n").unwrap();
    assert!(expired(&queue, begun).is_suspect);
    received(&queue, INFO_A).unwrap();
    assert!(matches!(polled(&mut late), Some(Err(TransportError::TimedOut(_)))));
}

#[test]
fn dropped_command_is_not_sent_or_its_reply_is_ignored() {
    let queue = Arc::default();
    let (first, unsent, mut last) = (ask(&queue, 1), ask_with(&queue, 2, true), ask(&queue, 3));
    drop(unsent);
    let before = "*2 $3 GET $1 1 *2 $3 GET $1 3 ";
    assert!(sent(&queue).starts_with(before));
    drop(first);
    let mut next = ask(&queue, 4);
    sent(&queue);
    received(&queue, b":1\r\n:3\r\n").unwrap();
    assert_eq!(value(&mut last), Value::Int(3));
    assert!(polled(&mut next).is_none(), "the reply to the dropped command is not its own");
}

#[test]
fn commands_one_by_one_are_taken_one_by_one() {
    let queue = Arc::<CommandQueue>::default();
    let ticket = Ticket::of(Kind::Key, b"x");
    let key = KeyName { prefix: "p", ticket: &ticket };
    let asked = [true, false].map(|wants_epoch| {
        let mut request = Request::new(key, wants_epoch, [Argument::Text(b"A")]);
        request.is_alone = true;
        queue.ask(&request, deadline())
    });
    assert_eq!(sent(&queue), "*1 $1 A *2 $4 INFO $11 replication ");
    assert_eq!(sent(&queue), "*1 $1 A ");
    assert!(!queue.watch(Waker::noop()).is_queued);
    drop(asked);
}

/// Lets the deadline of commands that were asked at `begun` pass, and their extra time too.
fn expired(queue: &CommandQueue, begun: Instant) -> Expiry {
    expired_on(queue, begun, false)
}

/// The same on a socket that accepts nothing, if it is blocked.
fn expired_on(queue: &CommandQueue, begun: Instant, is_blocked: bool) -> Expiry {
    let breaker = Breaker::new("a test");
    let expire = |seconds| queue.expire(begun + Duration::from_secs(seconds), is_blocked, &breaker, &mut Vec::new());
    let next = expire(11).next;
    assert!(next.is_some_and(|next| next > begun + Duration::from_secs(11)), "the extra time ends later");
    expire(12)
}

/// Returns whether a connection is suspect when a command that was sent after `waited` of its ten seconds has no response.
fn is_suspect_after(waited: Duration) -> bool {
    let (queue, begun) = (Arc::default(), Instant::now());
    let mut answer = ask_with(&queue, 1, true);
    queue.take_unsent(&mut Vec::new(), begun + waited);
    received(&queue, b":1\r\n").unwrap();
    let is_suspect = expired(&queue, begun).is_suspect;
    assert!(matches!(polled(&mut answer), Some(Err(TransportError::TimedOut(_)))));
    is_suspect
}

#[test]
fn connection_is_suspect_only_after_a_full_timeout() {
    assert!(is_suspect_after(Duration::from_secs(1)));
    assert!(!is_suspect_after(Duration::from_secs(8)));
}

#[test]
fn command_that_times_out_before_it_is_sent_is_never_sent() {
    let queue = Arc::default();
    let mut late = ask(&queue, 1);
    assert_eq!(expired(&queue, Instant::now()), Expiry { next: None, is_suspect: false });
    assert!(matches!(polled(&mut late), Some(Err(TransportError::TimedOut(_)))));
    assert_eq!(sent(&queue), "");
}

#[test]
fn expired_commands_are_withdrawn_from_between_others() {
    let (queue, begun) = (Arc::<CommandQueue>::default(), Instant::now());
    let ask_later = |number| {
        let ticket = Ticket::of(Kind::Key, b"x");
        let key = KeyName { prefix: "p", ticket: &ticket };
        let request = Request::new(key, false, [Argument::Text(b"GET"), Argument::Number(number)]);
        queue.ask(&request, Deadline::after(Duration::from_secs(60))).expect("the queue is open")
    };
    let (first, mut late, second, mut later, third) =
        (ask_later(1), ask(&queue, 2), ask_later(3), ask_with(&queue, 4, true), ask_later(5));
    let breaker = Breaker::new("a test");
    for seconds in [11, 12] {
        queue.expire(begun + Duration::from_secs(seconds), false, &breaker, &mut Vec::new());
    }
    assert!(
        polled(&mut late).is_some_and(|late| late.is_err()) && polled(&mut later).is_some_and(|late| late.is_err())
    );
    assert!(sent(&queue).starts_with("*2 $3 GET $1 1 *2 $3 GET $1 3 *2 $3 GET $1 5 "));
    received(&queue, b":1\r\n:3\r\n:5\r\n").unwrap();
    for (mut response, number) in [(first, 1), (second, 3), (third, 5)] {
        assert_eq!(value(&mut response), Value::Int(number));
    }
}

#[test]
fn socket_that_accepts_nothing_makes_the_connection_suspect() {
    let (queue, begun) = (Arc::default(), Instant::now());
    let unsent = ask(&queue, 1);
    assert!(expired_on(&queue, begun, true).is_suspect);
    drop(unsent);
}

#[test]
fn failed_queue_fails_every_command_and_accepts_none() {
    let queue: Arc<CommandQueue> = Arc::default();
    let (mut first, mut second) = (ask(&queue, 1), ask(&queue, 2));
    sent(&queue);
    let mut unsent = ask(&queue, 3);
    queue.fail(&lost());
    for response in [&mut first, &mut second, &mut unsent] {
        assert!(matches!(polled(response), Some(Err(TransportError::Redis(error))) if error.is_io_error()));
    }
    let ticket = Ticket::of(Kind::Key, b"x");
    let key = KeyName { prefix: "p", ticket: &ticket };
    assert!(queue.ask(&Request::new(key, false, [Argument::Key]), deadline()).is_none());
}

#[test]
fn closed_queue_is_over_when_every_command_is_answered() {
    let queue = Arc::default();
    let mut pending = ask(&queue, 1);
    sent(&queue);
    queue.close();
    assert!(!queue.watch(Waker::noop()).is_over);
    received(&queue, b":1\r\n").unwrap();
    assert!(queue.watch(Waker::noop()).is_over);
    assert_eq!(value(&mut pending), Value::Int(1));
}

//! The task that drives one thread's connection: it sends the commands of a [queue](super::queue) and receives their replies.
//!
//! A batch costs server and Redis about 20 µs besides its commands, for system calls on both sides. So the driver yields once before it
//! sends, and usually the event loop polls its sockets meanwhile: the requests that have arrived, and those that the last replies have
//! ended, add their commands. With 64 HTTP connections and two workers a batch then has 17 commands instead of 12. To wait for the replies
//! to the batch before, or for a third iteration, did not make a token or a key cheaper.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use redis::{RedisError, RedisResult};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::breaker::Breaker;
use super::input::InputBuffer;
use super::queue::{CommandQueue, LARGE, lost};
use super::replication_id::ReplicationIdReader;
use super::socket::Socket;

/// Sends the commands of a queue over a socket, and passes the replies on.
pub(super) struct QueueDriver<R: Fn()> {
    queue: Arc<CommandQueue>,
    socket: Socket,
    breaker: Arc<Breaker>,
    /// Called when the connection is suspect.
    report: R,
    input: InputBuffer,
    ids: ReplicationIdReader,
    output: Vec<u8>,
    /// How much of the output has been written.
    written: usize,
    is_flushed: bool,
    /// Other tasks have run since there are commands to send.
    has_yielded: bool,
    wakers: Vec<Waker>,
    timer: Pin<Box<Sleep>>,
    /// `None` if the timer is not needed.
    timer_at: Option<Instant>,
}

impl<R: Fn()> QueueDriver<R> {
    pub(super) fn new(queue: Arc<CommandQueue>, socket: Socket, breaker: Arc<Breaker>, report: R) -> Self {
        let now = Instant::now();
        Self {
            queue,
            socket,
            breaker,
            report,
            input: InputBuffer::new(),
            ids: ReplicationIdReader::default(),
            output: Vec::new(),
            written: 0,
            is_flushed: true,
            has_yielded: false,
            wakers: Vec::new(),
            timer: Box::pin(sleep_until(now)),
            timer_at: None,
        }
    }

    /// Drives the connection until it breaks, or until the queue is closed and every command is answered.
    pub(super) async fn run(mut self) {
        if let Err(error) = poll_fn(|context| self.poll(context)).await {
            self.queue.fail(&broken(error));
            (self.report)();
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<RedisResult<()>> {
        match self.advance(context) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Does what can be done without waiting. Returns whether nothing is left to do.
    fn advance(&mut self, context: &mut Context<'_>) -> RedisResult<bool> {
        self.receive(context)?;
        let status = self.queue.watch(context.waker());
        if status.is_over {
            return Ok(true);
        }
        self.write(context)?;
        if status.is_queued && self.is_flushed {
            self.send(context)?;
        }
        self.watch_deadlines(status.soonest, context);
        Ok(false)
    }

    /// Reads until nothing is left to read.
    fn receive(&mut self, context: &mut Context<'_>) -> RedisResult<()> {
        loop {
            let mut space = ReadBuf::new(self.input.space());
            match Pin::new(&mut self.socket).poll_read(context, &mut space) {
                Poll::Pending => return Ok(()),
                Poll::Ready(read) => read?,
            }
            match space.filled().len() {
                0 => return Err(lost()),
                count => self.input.add(count),
            }
            self.distribute()?;
        }
    }

    fn distribute(&mut self) -> RedisResult<()> {
        let received = self.queue.receive(self.input.unread(), &mut self.ids, &self.breaker, &mut self.wakers);
        self.wakers.drain(..).for_each(Waker::wake);
        let received = received?;
        self.input.consume(received.length);
        if received.is_suspect {
            (self.report)();
        }
        Ok(())
    }

    /// Sends what is queued, after other tasks have run once.
    fn send(&mut self, context: &mut Context<'_>) -> RedisResult<()> {
        self.has_yielded = !self.has_yielded;
        if self.has_yielded {
            // Wakes this task after the others.
            let _ = pin!(tokio::task::yield_now()).poll(context);
            return Ok(());
        }
        self.output.clear();
        self.written = 0;
        self.is_flushed = false;
        if self.queue.take_unsent(&mut self.output, Instant::now()) {
            context.waker().wake_by_ref();
        }
        self.write(context)
    }

    fn write(&mut self, context: &mut Context<'_>) -> RedisResult<()> {
        while self.written < self.output.len() {
            match Pin::new(&mut self.socket).poll_write(context, &self.output[self.written..]) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(0)) => return Err(lost()),
                Poll::Ready(written) => self.written += written?,
            }
        }
        if !self.is_flushed {
            self.is_flushed = Pin::new(&mut self.socket).poll_flush(context)?.is_ready();
            if self.is_flushed && self.output.capacity() > LARGE {
                (self.output, self.written) = (Vec::new(), 0);
            }
        }
        Ok(())
    }

    /// Fails the commands that have not been answered in time. The timer is polled each time: a task that has used up its budget does
    /// not register its waker.
    fn watch_deadlines(&mut self, mut soonest: Option<Instant>, context: &mut Context<'_>) {
        if self.timer_at.is_some() && self.timer.as_mut().poll(context).is_ready() {
            self.timer_at = None;
            let expiry = self.queue.expire(Instant::now(), !self.is_flushed, &self.breaker, &mut self.wakers);
            self.wakers.drain(..).for_each(Waker::wake);
            if expiry.is_suspect {
                (self.report)();
            }
            soonest = expiry.next;
            // A closed queue may be over now.
            context.waker().wake_by_ref();
        }
        if let Some(soonest) = soonest
            && self.timer_at.is_none_or(|at| soonest < at)
        {
            self.timer_at = Some(soonest);
            self.timer.as_mut().reset(soonest);
            // Registers the waker. A time that has passed already wakes the task at once.
            if self.timer.as_mut().poll(context).is_ready() {
                context.waker().wake_by_ref();
            }
        }
    }
}

/// Returns the error of commands in flight when this error broke their connection. An established connection may also fail with *connection
/// refused*, after an ICMP message. For a command that has been sent, that does not mean *not executed*.
fn broken(error: RedisError) -> RedisError {
    if error.is_io_error() { io::Error::new(io::ErrorKind::BrokenPipe, error).into() } else { error }
}

impl<R: Fn()> Drop for QueueDriver<R> {
    /// The runtime may end before the queue is empty.
    fn drop(&mut self) {
        self.queue.fail(&lost());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use redis::Value;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::task::JoinHandle;

    use super::*;
    use crate::store::StoreError;
    use crate::store::redis::deadline::Deadline;
    use crate::store::redis::error::TransportError;
    use crate::store::redis::queue::PendingResponse;
    use crate::store::redis::request::{Argument, KeyName, Request};
    use crate::ticket::{Kind, Ticket};

    /// A driver, and the server's end of its socket.
    struct Driven {
        queue: Arc<CommandQueue>,
        server: DuplexStream,
        reports: Arc<AtomicUsize>,
        driver: JoinHandle<()>,
    }

    /// Drives a queue over a socket that buffers so many bytes.
    fn drive(buffered: usize) -> Driven {
        let (socket, server) = duplex(buffered);
        let (queue, reports) = (Arc::<CommandQueue>::default(), Arc::new(AtomicUsize::new(0)));
        let (breaker, counted) = (Arc::new(Breaker::new("a test")), Arc::clone(&reports));
        let report = move || {
            counted.fetch_add(1, Ordering::SeqCst);
        };
        let driver = QueueDriver::new(Arc::clone(&queue), Box::new(socket), breaker, report);
        Driven { queue, server, reports, driver: tokio::spawn(driver.run()) }
    }

    impl Driven {
        fn ask(&self, text: &[u8], timeout: Duration) -> PendingResponse {
            let ticket = Ticket::of(Kind::Key, b"x");
            let key = KeyName { prefix: "p", ticket: &ticket };
            let request = Request::new(key, false, [Argument::Text(text)]);
            self.queue.ask(&request, Deadline::after(timeout)).expect("the queue is open")
        }

        /// Reads what has been sent, as one batch.
        async fn read(&mut self) -> String {
            let mut buffer = vec![0; 4096];
            let count = self.server.read(&mut buffer).await.unwrap();
            String::from_utf8_lossy(&buffer[..count]).replace("\r\n", " ")
        }

        fn reports(&self) -> usize {
            self.reports.load(Ordering::SeqCst)
        }
    }

    const LONG: Duration = Duration::from_secs(60);
    const MILLISECOND: Duration = Duration::from_millis(1);

    #[tokio::test]
    async fn commands_of_one_iteration_are_sent_as_one_batch() {
        let mut driven = drive(4096);
        let (first, second) = (driven.ask(b"A", LONG), driven.ask(b"B", LONG));
        assert_eq!(driven.read().await, "*1 $1 A *1 $1 B ");
        driven.server.write_all(b":1\r\n:2").await.unwrap();
        assert_eq!(first.await.unwrap().value, Value::Int(1));
        driven.server.write_all(b"\r\n").await.unwrap();
        assert_eq!(second.await.unwrap().value, Value::Int(2));
    }

    #[tokio::test]
    async fn commands_of_the_next_iteration_join_the_batch_and_later_ones_do_not() {
        let mut driven = drive(4096);
        let first = driven.ask(b"A", LONG);
        tokio::task::yield_now().await;
        let second = driven.ask(b"B", LONG);
        assert_eq!(driven.read().await, "*1 $1 A *1 $1 B ");
        let third = driven.ask(b"C", LONG);
        assert_eq!(driven.read().await, "*1 $1 C ", "without a reply to the batch before");
        driven.server.write_all(b":1\r\n:2\r\n:3\r\n").await.unwrap();
        assert_eq!(first.await.unwrap().value, Value::Int(1));
        assert_eq!((second.await.unwrap().value, third.await.unwrap().value), (Value::Int(2), Value::Int(3)));
    }

    #[tokio::test]
    async fn command_longer_than_the_socket_buffer_is_sent_once() {
        let mut driven = drive(16);
        let long = [b'x'; 1000];
        let pending = driven.ask(&long, LONG);
        let mut received = String::new();
        while !received.ends_with("x ") {
            received.push_str(&driven.read().await);
        }
        assert_eq!(received.matches('x').count(), 1000);
        driven.server.write_all(b"+OK\r\n").await.unwrap();
        assert_eq!(pending.await.unwrap().value, Value::Okay);
    }

    #[tokio::test]
    async fn command_without_reply_times_out_and_makes_the_connection_suspect() {
        let mut driven = drive(4096);
        let begun = Instant::now();
        let (short, long) = (driven.ask(b"A", 30 * MILLISECOND), driven.ask(b"B", LONG));
        assert!(matches!(short.await, Err(TransportError::TimedOut(_))));
        assert!(begun.elapsed() >= Duration::from_millis(40), "it gets some extra time");
        assert_eq!(driven.reports(), 1);
        assert_eq!(driven.read().await, "*1 $1 A *1 $1 B ");
        driven.server.write_all(b":1\r\n:2\r\n").await.unwrap();
        assert_eq!(long.await.unwrap().value, Value::Int(2), "not the late reply to the other command");
    }

    #[tokio::test]
    async fn deadline_holds_while_the_socket_accepts_nothing() {
        let mut driven = drive(16);
        let (long, short) = (driven.ask(&[b'x'; 1000], 30 * MILLISECOND), driven.ask(b"B", 30 * MILLISECOND));
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        let unsent = driven.ask(b"C", 30 * MILLISECOND);
        for pending in [long, short, unsent] {
            assert!(matches!(pending.await, Err(TransportError::TimedOut(_))));
        }
        assert!(driven.reports() > 0, "the connection is suspect");
        driven.queue.close();
        let mut received = String::new();
        driven.server.read_to_string(&mut received).await.unwrap();
        assert!(!received.contains('C'), "{received}");
    }

    #[test]
    fn refusal_on_an_open_connection_leaves_the_outcome_unknown() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let error = broken(refused.into());
        assert!(!error.is_connection_refusal() && error.is_io_error(), "{error}");
        assert!(matches!(TransportError::from(error).into(), StoreError::Unknown(_)));
    }

    #[tokio::test]
    async fn broken_connection_fails_every_command_and_is_reported() {
        for garbage in [&b""[..], b"HTTP/1.1 400 Bad Request\r\n"] {
            let mut driven = drive(4096);
            let pending = driven.ask(b"A", LONG);
            driven.read().await;
            driven.server.write_all(garbage).await.unwrap();
            driven.server.shutdown().await.unwrap();
            let error = pending.await.unwrap_err();
            assert!(error.is_suspect(false), "{error}");
            driven.driver.await.unwrap();
            assert_eq!(driven.reports.load(Ordering::SeqCst), 1);
        }
    }

    #[tokio::test]
    async fn dropped_driver_fails_its_commands_without_a_report() {
        let mut driven = drive(4096);
        let pending = driven.ask(b"A", LONG);
        driven.read().await;
        driven.driver.abort();
        assert!(pending.await.is_err());
        assert_eq!(driven.reports(), 0);
    }

    #[tokio::test]
    async fn driver_of_a_closed_queue_ends_after_the_last_reply() {
        let mut driven = drive(4096);
        let pending = driven.ask(b"A", LONG);
        driven.read().await;
        driven.queue.close();
        tokio::task::yield_now().await;
        driven.server.write_all(b":1\r\n").await.unwrap();
        assert_eq!(pending.await.unwrap().value, Value::Int(1));
        driven.driver.await.unwrap();
        assert_eq!(driven.reports.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn driver_of_a_closed_queue_ends_after_the_last_timeout() {
        let driven = drive(4096);
        let pending = driven.ask(b"A", Duration::from_millis(20));
        tokio::task::yield_now().await;
        driven.queue.close();
        driven.driver.await.unwrap();
        assert!(matches!(pending.await, Err(TransportError::TimedOut(_))));
    }

    #[tokio::test]
    async fn server_that_turns_read_only_makes_the_connection_suspect() {
        let mut driven = drive(4096);
        let pending = driven.ask(b"A", LONG);
        driven.read().await;
        driven.server.write_all(b"-READONLY You can't write against a read only replica.\r\n").await.unwrap();
        assert!(pending.await.is_err());
        assert_eq!(driven.reports(), 1);
    }
}

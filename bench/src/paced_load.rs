//! An open-loop load: requests are sent at fixed times, however long earlier responses take. It runs in its own process.
//!
//! The latency of a request is measured from its scheduled send. A server that pauses thus delays all requests of the pause, as it does with
//! independent clients; a generator that waits for each response would send, and count, only one.

use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use crate::Failure;
use crate::case::Case;
use crate::http_connection::{HttpConnection, request};
use crate::paced_result::{PacedRequest, PacedResult};

/// The command that runs this program as the generator.
pub(crate) const PACE: &str = "pace";

/// Requests per second.
pub(crate) const RATE: u64 = 500;
/// Number of connections, each with its own thread. A request waits for an earlier one only if that takes longer than
/// `CONNECTIONS / RATE` = 100 ms.
const CONNECTIONS: usize = 50;
/// Duration of the warm-up, in seconds.
const WARM_UP: u64 = 1;
/// Time until the first request, in which all threads start.
const LEAD: Duration = Duration::from_millis(100);
/// Time before a send in which its thread does not sleep: a sleep ends up to 0.1 ms late.
const SPIN: Duration = Duration::from_micros(200);

/// The times at which requests are sent.
#[derive(Debug, Clone, Copy)]
struct Schedule {
    first: Instant,
    interval: Duration,
}

impl Schedule {
    fn at(&self, number: usize) -> Instant {
        self.first + self.interval * number as u32
    }
}

/// Returns the number of requests of a load of some seconds, including its warm-up.
pub(crate) fn requests(seconds: u64) -> usize {
    requests_at(RATE, seconds)
}

/// Like [`requests`], at another rate.
pub(crate) fn requests_at(rate: u64, seconds: u64) -> usize {
    ((WARM_UP + seconds) * rate) as usize
}

/// Sends requests for some seconds, and prints the percentiles of their latency.
pub(crate) fn run(case: &Case, url: &str, tokens: &Path, seconds: u64) -> Result<(), Failure> {
    let tokens = std::fs::read_to_string(tokens.join("0"))?;
    let wanted: Vec<_> = tokens.lines().map(|token| request(case.path, token)).take(requests(seconds)).collect();
    if wanted.len() < requests(seconds) {
        return Err("the file has fewer tokens than requested".into());
    }
    println!("{}", send_at(RATE, url, &wanted, case.status)?);
    Ok(())
}

/// Sends requests at a rate, and returns the percentiles of the latency of those after the warm-up.
pub(crate) fn send_at(rate: u64, url: &str, wanted: &[Vec<u8>], status: u16) -> Result<PacedResult, Failure> {
    let connections = (0..CONNECTIONS).map(|_| HttpConnection::open(url)).collect::<Result<Vec<_>, _>>()?;
    let schedule = Schedule { first: Instant::now() + LEAD, interval: Duration::from_secs(1) / rate as u32 };
    let sent = send_all(connections, wanted, schedule, status)?;
    let measured = sent.into_iter().filter(|(number, _)| *number >= (WARM_UP * rate) as usize);
    let measured: Vec<_> = measured.map(|(_, request)| request).collect();
    Ok(PacedResult::of(&measured).ok_or("no requests")?)
}

/// Sends every request at its time, each connection in its own thread. Returns the numbers and times of the requests.
fn send_all(
    connections: Vec<HttpConnection>,
    wanted: &[Vec<u8>],
    schedule: Schedule,
    status: u16,
) -> Result<Vec<(usize, PacedRequest)>, Failure> {
    let count = connections.len();
    std::thread::scope(|scope| {
        let start = |(number, connection)| {
            let numbers = (number..wanted.len()).step_by(count);
            scope.spawn(move || send_some(connection, wanted, numbers, schedule, status))
        };
        let threads: Vec<_> = connections.into_iter().enumerate().map(start).collect();
        let mut sent = Vec::with_capacity(wanted.len());
        for thread in threads {
            sent.extend(thread.join().map_err(|_| "a sender panicked")??);
        }
        Ok(sent)
    })
}

/// Sends the requests with these numbers on one connection.
fn send_some(
    mut connection: HttpConnection,
    wanted: &[Vec<u8>],
    numbers: impl Iterator<Item = usize>,
    schedule: Schedule,
    expected: u16,
) -> Result<Vec<(usize, PacedRequest)>, String> {
    let mut sent = Vec::new();
    let mut free = schedule.first;
    for number in numbers {
        let scheduled = schedule.at(number);
        wait_until(scheduled);
        let late = scheduled.max(free).elapsed();
        let status = connection.send(&wanted[number]).map_err(|error| error.to_string())?;
        free = Instant::now();
        if status != expected {
            return Err(format!("status {status} instead of {expected}: the run is invalid"));
        }
        sent.push((number, PacedRequest { latency: free - scheduled, late }));
    }
    Ok(sent)
}

#[expect(clippy::disallowed_methods, reason = "the thread has nothing else to do")]
fn wait_until(time: Instant) {
    std::thread::sleep(time.saturating_duration_since(Instant::now()).saturating_sub(SPIN));
    while Instant::now() < time {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::mpsc;

    use super::*;

    const PAUSE: Duration = Duration::from_millis(30);

    fn schedule() -> Schedule {
        Schedule { first: Instant::now() + Duration::from_millis(1), interval: Duration::from_millis(1) }
    }

    /// A server on one connection that calls a function before each response.
    fn server(status: &'static str, mut before: impl FnMut(usize) + Send + 'static) -> HttpConnection {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let connection = HttpConnection::open(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        std::thread::spawn(move || {
            for number in 0.. {
                if stream.read(&mut [0; 4096]).unwrap() == 0 {
                    return;
                }
                before(number);
                write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").unwrap();
            }
        });
        connection
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the pause is what the test is about")]
    fn pause_of_the_server_counts_for_requests_scheduled_in_it() {
        let slow = server("201 Created", |number| {
            if number == 0 {
                std::thread::sleep(PAUSE);
            }
        });
        let sent = send_all(vec![slow], &vec![b"x".to_vec(); 11], schedule(), 201).unwrap();
        assert!(sent.iter().map(|(number, _)| *number).eq(0..11));
        // Request 10 is scheduled 10 ms after the first, whose response takes 30 ms: it is sent 20 ms late, but not by the generator.
        let (first, last) = (sent[0].1, sent[10].1);
        assert!(first.latency >= PAUSE && last.latency >= PAUSE - Duration::from_millis(10), "{sent:?}");
        assert!(last.latency - last.late >= PAUSE - Duration::from_millis(10), "{sent:?}");
    }

    #[test]
    fn request_is_sent_while_an_earlier_one_waits() {
        let (later, receiver) = mpsc::channel();
        // The first request has a response only after the second was received on the other connection.
        let first = server("201 Created", move |_| receiver.recv().unwrap());
        let second = server("201 Created", move |_| later.send(()).unwrap());
        let sent = send_all(vec![first, second], &[b"x".to_vec(), b"x".to_vec()], schedule(), 201).unwrap();
        assert_eq!(sent.len(), 2);
    }

    #[test]
    fn unexpected_status_ends_the_load() {
        let sent = send_all(vec![server("409 Conflict", |_| ())], &[b"x".to_vec()], schedule(), 201);
        assert_eq!(sent.unwrap_err().to_string(), "status 409 instead of 201: the run is invalid");
    }

    #[test]
    fn warm_up_is_not_measured() {
        assert_eq!((requests(0), requests(6)), (500, 3500));
    }
}

//! A closed-loop load: each connection sends its next request when it has received the response to the previous one.
//!
//! The number of requests is fixed, unlike with `wrk`, so that the load does not decide how many records a store holds.

use std::time::Duration;

use crate::Failure;
use crate::http_connection::HttpConnection;
use crate::longest_verb::now;
use crate::wrk::CONNECTIONS;

/// The open connections, each with its own thread during a load.
pub(crate) struct ClosedLoad(Vec<HttpConnection>);

impl ClosedLoad {
    /// Opens all connections to a URL.
    pub(crate) fn open(url: &str) -> Result<Self, Failure> {
        Ok(Self((0..CONNECTIONS).map(|_| HttpConnection::open(url)).collect::<Result<_, _>>()?))
    }

    /// Sends every request once.
    ///
    /// # Errors
    /// If a response does not have the expected status: then the measurement is invalid.
    pub(crate) fn send(&mut self, requests: &[Vec<u8>], expected: u16) -> Result<(), Failure> {
        let count = self.0.len();
        self.on_each(|number, connection| {
            let mut own = requests.iter().skip(number).step_by(count);
            own.try_for_each(|request| send_one(connection, request, expected))
        })
    }

    /// Sends one request on each connection again and again for some time, and at least once.
    ///
    /// # Errors
    /// If a response does not have the expected status.
    pub(crate) fn repeat(&mut self, request: &[u8], time: Duration, expected: u16) -> Result<(), Failure> {
        let begun = now();
        self.on_each(|_, connection| {
            send_one(connection, request, expected)?;
            while begun.elapsed() < time {
                send_one(connection, request, expected)?;
            }
            Ok(())
        })
    }

    fn on_each(
        &mut self,
        work: impl Fn(usize, &mut HttpConnection) -> Result<(), String> + Sync,
    ) -> Result<(), Failure> {
        let work = &work;
        std::thread::scope(|scope| {
            let start = |(number, connection)| scope.spawn(move || work(number, connection));
            let threads: Vec<_> = self.0.iter_mut().enumerate().map(start).collect();
            threads.into_iter().try_for_each(|thread| Ok(thread.join().map_err(|_| "a sender panicked")??))
        })
    }
}

fn send_one(connection: &mut HttpConnection, request: &[u8], expected: u16) -> Result<(), String> {
    let status = connection.send(request).map_err(|error| error.to_string())?;
    if status == expected {
        return Ok(());
    }
    Err(format!("status {status} instead of {expected}: the run is invalid"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A server that counts its requests.
    fn server(status: &'static str) -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (url, served) = (format!("http://{}", listener.local_addr().unwrap()), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&served);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().take(CONNECTIONS as usize).map_while(Result::ok) {
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || {
                    while stream.read(&mut [0; 64]).is_ok_and(|length| length > 0) {
                        counted.fetch_add(1, Ordering::SeqCst);
                        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").unwrap();
                    }
                });
            }
        });
        (url, served)
    }

    #[test]
    fn every_request_is_sent_once() {
        let (url, served) = server("201 Created");
        let mut load = ClosedLoad::open(&url).unwrap();
        load.send(&vec![b"x".to_vec(); 150], 201).unwrap();
        assert_eq!(served.load(Ordering::SeqCst), 150);
        load.repeat(b"x", Duration::from_millis(1), 201).unwrap();
        assert!(served.load(Ordering::SeqCst) >= 150 + CONNECTIONS as usize);
    }

    #[test]
    fn unexpected_status_is_an_error() {
        let (url, _) = server("409 Conflict");
        let sent = ClosedLoad::open(&url).unwrap().send(&[b"x".to_vec()], 201);
        assert_eq!(sent.unwrap_err().to_string(), "status 409 instead of 201: the run is invalid");
    }
}

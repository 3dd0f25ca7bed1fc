//! A connection that sends one request after another, without the work of an HTTP client.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::Failure;
use crate::wrk::BODY;

/// Length of a key: the first characters of a token, like in the script of `wrk`.
pub(crate) const KEY_LENGTH: usize = 36;
/// Maximum time for a response.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A connection that is kept alive.
pub(crate) struct HttpConnection {
    stream: TcpStream,
    received: Vec<u8>,
}

impl HttpConnection {
    /// Connects to a URL.
    pub(crate) fn open(url: &str) -> Result<Self, Failure> {
        let stream = TcpStream::connect(url.strip_prefix("http://").ok_or("not an http URL")?)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { stream, received: Vec::with_capacity(4096) })
    }

    /// Sends a request, and reads the whole response. Returns its status.
    pub(crate) fn send(&mut self, request: &[u8]) -> Result<u16, Failure> {
        self.stream.write_all(request)?;
        self.received.clear();
        let mut part = [0; 4096];
        loop {
            if let Some(status) = status_of_whole(&self.received)? {
                return Ok(status);
            }
            let length = self.stream.read(&mut part)?;
            if length == 0 {
                return Err("the server closed the connection".into());
            }
            self.received.extend_from_slice(&part[..length]);
        }
    }
}

/// Returns the request that the script of `wrk` sends: a token, and its first characters as a key.
pub(crate) fn request(path: &str, token: &str) -> Vec<u8> {
    let key = token.get(..KEY_LENGTH).unwrap_or(token);
    format!(
        "POST {path} HTTP/1.1\r\nHost: bench\r\nAccept: application/json\r\nIdempotency-Key: {key}\r\n\
         Onceward-Token: {token}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{BODY}",
        BODY.len()
    )
    .into_bytes()
}

/// Returns the status of a response, or `None` while it is incomplete.
fn status_of_whole(received: &[u8]) -> Result<Option<u16>, String> {
    let Some(end) = received.windows(4).position(|part| part == b"\r\n\r\n") else { return Ok(None) };
    let head = String::from_utf8_lossy(&received[..end]).to_ascii_lowercase();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    let is_chunked = head.lines().any(|line| line.replace(' ', "") == "transfer-encoding:chunked");
    let body = &received[end + 4..];
    let is_whole = match length {
        Some(length) => Some(body.len() >= length),
        None if is_chunked => has_last_chunk(body),
        None => None,
    };
    match (status, is_whole) {
        (Some(status), Some(is_whole)) => Ok(is_whole.then_some(status)),
        _ => Err(format!("cannot parse the response: {head}")),
    }
}

/// Returns whether a body in chunks has arrived to its end; `None` if it cannot be parsed. It has no trailers.
fn has_last_chunk(mut body: &[u8]) -> Option<bool> {
    loop {
        let Some(end) = body.windows(2).position(|part| part == b"\r\n") else { return Some(false) };
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).ok()?, 16).ok()?;
        let Some(rest) = body.get(end + 2 + size + 2..) else { return Some(false) };
        if size == 0 {
            return Some(true);
        }
        body = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_known_once_the_response_is_whole() {
        let whole = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(status_of_whole(whole), Ok(Some(201)));
        assert!((0..whole.len()).all(|length| status_of_whole(&whole[..length]) == Ok(None)));
    }

    #[test]
    fn response_in_chunks_is_whole_with_its_last_one() {
        // The first chunk looks like an end.
        let whole =
            b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n0\r\n\r\n\r\na\r\n0123456789\r\n0\r\n\r\n";
        assert_eq!(status_of_whole(whole), Ok(Some(201)));
        assert!((0..whole.len()).all(|length| status_of_whole(&whole[..length]) == Ok(None)));
        assert!(status_of_whole(b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n").is_err());
    }

    #[test]
    fn response_without_status_or_length_is_rejected() {
        assert!(status_of_whole(b"HTTP/1.1 201 Created\r\n\r\n").is_err());
        assert!(status_of_whole(b"HTTP/1.1 x\r\nContent-Length: 0\r\n\r\n").is_err());
    }

    #[test]
    fn request_has_the_token_its_key_and_the_body() {
        let token = "t".repeat(40);
        let request = String::from_utf8(request("/orders", &token)).unwrap();
        assert!(request.starts_with("POST /orders HTTP/1.1\r\n"), "{request}");
        assert!(request.contains(&format!("\r\nIdempotency-Key: {}\r\nOnceward-Token: {token}\r\n", "t".repeat(36))));
        assert!(request.ends_with(&format!("\r\nContent-Length: {}\r\n\r\n{BODY}", BODY.len())), "{request}");
    }
}

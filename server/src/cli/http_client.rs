//! A minimal HTTP client for the running service: one GET with a timeout.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Maximum size of a response.
const LONGEST: u64 = 16 * 1024 * 1024;

/// A response.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HttpReply {
    pub(super) status: u16,
    pub(super) body: String,
}

/// The reason why there is no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    #[error("the connection failed: {0}")]
    Broken(#[from] std::io::Error),
    #[error("no response in time")]
    Timeout,
    #[error("the response is not HTTP; is another program listening there?")]
    NotHttp,
}

/// Returns the address at which a service that listens here is reached from this machine: 0.0.0.0 becomes 127.0.0.1.
pub(super) fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

pub(super) async fn get(address: SocketAddr, path: &str, within: Duration) -> Result<HttpReply, RequestError> {
    timeout(within, ask(address, path)).await.map_err(|_| RequestError::Timeout)?
}

async fn ask(address: SocketAddr, path: &str) -> Result<HttpReply, RequestError> {
    let mut stream = TcpStream::connect(address).await.map_err(RequestError::Connect)?;
    // HTTP/1.0: the response is not chunked and ends with the connection.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: */*\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer).await?;
    read(&answer).ok_or(RequestError::NotHttp)
}

fn read(answer: &[u8]) -> Option<HttpReply> {
    let text = str::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.split(['\r', '\n']).next()?.parse().ok()?;
    Some(HttpReply { status, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_response_is_parsed_and_other_data_rejected() {
        let read = |text: &str| read(text.as_bytes()).map(|answer| (answer.status, answer.body));
        assert_eq!(read("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nready\n"), Some((200, "ready\n".into())));
        assert_eq!(read("HTTP/1.0 503\r\n\r\n"), Some((503, String::new())));
        for strange in
            ["", "HTTP/1.1 200 OK\r\n", "SSH-2.0-x\r\n\r\n", "HTTP/1.1 ok\r\n\r\n", "-ERR unknown command\r\n"]
        {
            assert_eq!(read(strange), None, "{strange}");
        }
    }

    #[test]
    fn wildcard_address_is_reached_over_loopback() {
        for (listen, asked) in [("0.0.0.0:80", "127.0.0.1:80"), ("[::]:80", "[::1]:80"), ("10.0.0.7:80", "10.0.0.7:80")]
        {
            assert_eq!(reachable(listen.parse().unwrap()), asked.parse().unwrap());
        }
    }
}

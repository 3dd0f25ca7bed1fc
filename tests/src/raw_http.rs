//! HTTP requests whose target is sent exactly as given: an HTTP client would normalize some of them.

use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::client::Answer;

/// Posts to a target on a new connection. The header names are in lower case.
pub async fn post(url: &str, target: impl AsRef<[u8]>, headers: &[(&str, &str)], body: &str) -> Answer {
    request("POST", url, target, headers, body).await
}

/// Like [`post`], with any method. All bytes after the head of the response are its body, also after HEAD.
pub async fn request(
    method: &str,
    url: &str,
    target: impl AsRef<[u8]>,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    request_on(connect(url).await, method, target, headers, body).await
}

/// Opens a connection.
pub async fn connect(url: &str) -> TcpStream {
    TcpStream::connect(url.trim_start_matches("http://")).await.expect("the server listens")
}

/// Posts to a target on this connection, which the server closes afterwards. The header names are in lower case.
pub async fn post_on(stream: TcpStream, target: impl AsRef<[u8]>, headers: &[(&str, &str)], body: &str) -> Answer {
    request_on(stream, "POST", target, headers, body).await
}

/// Sends a request. A `host` among the headers replaces the default one.
async fn request_on(
    mut stream: TcpStream,
    method: &str,
    target: impl AsRef<[u8]>,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let mut request = [method.as_bytes(), b" ", target.as_ref(), b" HTTP/1.1\r\nconnection: close\r\n"].concat();
    let host = [("host", "shop")].into_iter().filter(|_| !headers.iter().any(|(name, _)| *name == "host"));
    for (name, value) in host.chain(headers.iter().copied()) {
        request.extend(format!("{name}: {value}\r\n").bytes());
    }
    request.extend(format!("content-length: {}\r\n\r\n{body}", body.len()).bytes());
    // The server may close the connection before it has read all of a malformed request.
    let _ = stream.write_all(&request).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    read(&answer)
}

fn read(answer: &[u8]) -> Answer {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a status");
    let mut headers = HeaderMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let name: HeaderName = name.parse().expect("the name of a header");
        headers.append(name, HeaderValue::from_str(value.trim()).expect("the value of a header"));
    }
    let outcome = headers.get(onceward_api::header::OUTCOME).and_then(|value| value.to_str().ok()).unwrap_or_default();
    Answer { status, outcome: outcome.to_owned(), headers, body: Bytes::copy_from_slice(&answer[end + 4..]) }
}

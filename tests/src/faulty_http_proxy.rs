//! An HTTP proxy with faults: it cuts connections, delays messages, and responds in place of the application.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward_api::{Code, Problem};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::reserved_port::ReservedPort;

/// The fault that one request meets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpFault {
    /// No fault.
    None,
    /// The connection breaks before the request arrives.
    CutBefore,
    /// Half of the request arrives.
    CutRequest,
    /// The request is executed, and the client receives this percentage of the response.
    CutAnswer(usize),
    /// The request is executed, and the response is delayed by this time.
    Delay(Duration),
    /// The request arrives only after this time.
    Stall(Duration),
    /// The proxy responds with this rejection, as a guard would.
    Reject(Code),
    /// Like `Reject`, with `Retry-After` in seconds.
    RefuseFor(Code, u64),
    /// The proxy responds with this status, and the request does not arrive.
    Instead(u16),
    /// The request is executed, and the proxy responds with this status instead.
    After(u16),
    /// The proxy redirects to this location with this status.
    Lead(u16, String),
    /// The proxy responds with exactly these bytes.
    Raw(Vec<u8>),
}

/// A request that the proxy received.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// Method and path.
    pub line: String,
    /// Headers, with names in lower case.
    pub headers: HashMap<String, String>,
    /// The body.
    pub body: Vec<u8>,
}

impl RecordedRequest {
    /// Returns the value of a header, or an empty string.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Returns true if the request fetches tokens.
    pub fn fetches(&self) -> bool {
        self.line.contains(" /token")
    }
}

type HttpFaultPlan = dyn Fn(&RecordedRequest) -> HttpFault + Send + Sync;

struct Shared {
    upstream: AtomicU16,
    is_open: watch::Sender<bool>,
    plan: Mutex<Arc<HttpFaultPlan>>,
    seen: Mutex<Vec<RecordedRequest>>,
    fetching: AtomicUsize,
    most_fetching: AtomicUsize,
}

/// A proxy in front of one application.
pub struct FaultyHttpProxy {
    /// Its URL.
    pub url: String,
    shared: Arc<Shared>,
}

impl FaultyHttpProxy {
    /// Starts a proxy to the application at this URL. The plan chooses the fault of each request.
    pub async fn to(url: &str, plan: impl Fn(&RecordedRequest) -> HttpFault + Send + Sync + 'static) -> Self {
        let here = ReservedPort::new();
        let listener = TcpListener::bind(here.address()).await.expect("a reserved port");
        let shared = Arc::new(Shared {
            upstream: AtomicU16::new(port(url)),
            is_open: watch::Sender::new(true),
            plan: Mutex::new(Arc::new(plan)),
            seen: Mutex::default(),
            fetching: AtomicUsize::new(0),
            most_fetching: AtomicUsize::new(0),
        });
        let proxy = Self { url: here.url(), shared: Arc::clone(&shared) };
        tokio::spawn(listen(listener, here, shared));
        proxy
    }

    /// Refuses connections from now on. Open ones stay open.
    pub fn refuse(&self) {
        self.shared.is_open.send_replace(false);
    }

    /// Accepts connections again.
    pub fn accept(&self) {
        self.shared.is_open.send_replace(true);
    }

    /// Forwards to another URL from now on.
    pub fn lead_to(&self, url: &str) {
        self.shared.upstream.store(port(url), Ordering::SeqCst);
    }

    /// Replaces the plan.
    pub fn plan(&self, plan: impl Fn(&RecordedRequest) -> HttpFault + Send + Sync + 'static) {
        *self.shared.plan.lock().expect("lock not poisoned") = Arc::new(plan);
    }

    /// Returns every request so far.
    pub fn seen(&self) -> Vec<RecordedRequest> {
        self.shared.seen.lock().expect("lock not poisoned").clone()
    }

    /// Returns every request so far that did not fetch tokens.
    pub fn submissions(&self) -> Vec<RecordedRequest> {
        self.seen().into_iter().filter(|seen| !seen.fetches()).collect()
    }

    /// Maximum number of token requests that were in flight at the same time.
    pub fn most_fetching(&self) -> usize {
        self.shared.most_fetching.load(Ordering::SeqCst)
    }
}

/// A plan without faults.
pub fn smooth(_: &RecordedRequest) -> HttpFault {
    HttpFault::None
}

/// A plan in which the first submissions meet these faults, in this order. Later ones and token requests meet none.
pub fn first(faults: impl Into<Vec<HttpFault>>) -> impl Fn(&RecordedRequest) -> HttpFault + Send + Sync + 'static {
    let left = Mutex::new(faults.into());
    move |seen| {
        let mut left = left.lock().expect("lock not poisoned");
        if seen.fetches() || left.is_empty() { HttpFault::None } else { left.remove(0) }
    }
}

fn port(url: &str) -> u16 {
    url.rsplit_once(':').and_then(|(_, port)| port.trim_end_matches('/').parse().ok()).expect("an address with a port")
}

/// Accepts connections while the proxy is open. The port stays reserved in between.
async fn listen(mut listener: TcpListener, here: ReservedPort, shared: Arc<Shared>) -> Option<()> {
    let mut is_open = shared.is_open.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => Some(accepted.ok()?.0),
            _ = is_open.wait_for(|is_open| !is_open) => None,
        };
        if let Some(client) = accepted {
            tokio::spawn(carry(client, Arc::clone(&shared)));
        } else {
            drop(listener);
            is_open.wait_for(|is_open| *is_open).await.ok()?;
            listener = TcpListener::bind(here.address()).await.expect("a reserved port");
        }
    }
}

/// Serves requests one after the other until the connection ends.
async fn carry(mut client: TcpStream, shared: Arc<Shared>) -> Option<()> {
    let mut read = Vec::new();
    loop {
        let request = message(&mut client, &mut read).await?;
        let seen = seen(&request);
        let plan = Arc::clone(&shared.plan.lock().expect("lock not poisoned"));
        shared.seen.lock().expect("lock not poisoned").push(seen.clone());
        let fetching = seen.fetches().then(|| shared.fetching.fetch_add(1, Ordering::SeqCst) + 1);
        shared.most_fetching.fetch_max(fetching.unwrap_or_default(), Ordering::SeqCst);
        let upstream = shared.upstream.load(Ordering::SeqCst);
        let carried = meet(&mut client, &request, upstream, plan(&seen)).await;
        if fetching.is_some() {
            shared.fetching.fetch_sub(1, Ordering::SeqCst);
        }
        carried?;
    }
}

/// Applies the fault to a request. Returns `None` if the connection must be closed.
async fn meet(client: &mut TcpStream, request: &[u8], upstream: u16, fault: HttpFault) -> Option<()> {
    let answer = match fault {
        HttpFault::None => forward(request, upstream).await?,
        HttpFault::CutBefore => return None,
        HttpFault::CutRequest => {
            let mut server = TcpStream::connect(("127.0.0.1", upstream)).await.ok()?;
            server.write_all(&request[..request.len() / 2]).await.ok()?;
            return None;
        }
        HttpFault::CutAnswer(percent) => {
            let answer = forward(request, upstream).await?;
            client.write_all(&answer[..answer.len() * percent / 100]).await.ok()?;
            return None;
        }
        HttpFault::Delay(long) => {
            let answer = forward(request, upstream).await?;
            sleep(long).await;
            answer
        }
        HttpFault::Stall(long) => {
            sleep(long).await;
            forward(request, upstream).await?
        }
        HttpFault::Reject(code) => rejection(code, ""),
        HttpFault::RefuseFor(code, seconds) => rejection(code, &format!("retry-after: {seconds}\r\n")),
        HttpFault::Instead(status) => bare(status, ""),
        HttpFault::After(status) => {
            forward(request, upstream).await?;
            bare(status, "")
        }
        HttpFault::Lead(status, location) => bare(status, &format!("location: {location}\r\n")),
        HttpFault::Raw(bytes) => bytes,
    };
    client.write_all(&answer).await.ok()
}

/// Builds a response without a body: a status and these header lines.
fn bare(status: u16, lines: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} On the way\r\n{lines}content-length: 0\r\n\r\n").into_bytes()
}

fn rejection(code: Code, lines: &str) -> Vec<u8> {
    let body = serde_json::to_string(&Problem::new(code)).expect("plain data");
    let (status, kind, length) = (code.status(), Problem::CONTENT_TYPE, body.len());
    format!(
        "HTTP/1.1 {status} Rejected\r\nonceward-outcome: {code}\r\n{lines}content-type: {kind}\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Forwards a request and reads the whole response.
async fn forward(request: &[u8], upstream: u16) -> Option<Vec<u8>> {
    let mut server = TcpStream::connect(("127.0.0.1", upstream)).await.ok()?;
    server.write_all(request).await.ok()?;
    message(&mut server, &mut Vec::new()).await
}

/// Reads one HTTP/1.1 message whose body has a `Content-Length` or is chunked. Bytes after it stay in `read`.
async fn message(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<Vec<u8>> {
    let mut piece = vec![0; 64 * 1024];
    loop {
        if let Some(end) = end_of_message(read) {
            let rest = read.split_off(end);
            return Some(std::mem::replace(read, rest));
        }
        let count = stream.read(&mut piece).await.ok().filter(|count| *count > 0)?;
        read.extend_from_slice(&piece[..count]);
    }
}

fn end_of_message(read: &[u8]) -> Option<usize> {
    let head = find(read, b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&read[..head]).to_lowercase();
    if text.contains("transfer-encoding: chunked") {
        return find(&read[head..], b"0\r\n\r\n").map(|at| head + at + 5);
    }
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    Some(head + length.unwrap_or(0usize)).filter(|end| read.len() >= *end)
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

fn seen(request: &[u8]) -> RecordedRequest {
    let head = find(request, b"\r\n\r\n").map_or(request.len(), |end| end + 4);
    let text = String::from_utf8_lossy(&request[..head]);
    let mut lines = text.lines();
    let line = lines.next().unwrap_or_default().trim_end_matches(" HTTP/1.1").to_owned();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    RecordedRequest { line, headers, body: request[head..].to_vec() }
}

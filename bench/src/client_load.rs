//! The load of the two clients: plain reqwest and the SDK. Each runs in its own process, and prints its measurements like `wrk` does, or its
//! allocations.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward::api::header;
use onceward_client::Client;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::allocation_count::AllocationCount;
use crate::counting_program::{self, PARTS, REQUESTS, TOTAL};
use crate::statistics::percentile;
use crate::wrk::{BODY, CONNECTIONS};
use crate::{Failure, cpu};

/// The command that runs this program as a client.
pub(crate) const SUBMIT: &str = "submit";

/// The command that runs this program as a client that prints its allocations.
pub(crate) const COUNT: &str = "count";

/// Prefix of the line with the CPU time in microseconds.
pub(crate) const CPU: &str = "cpu=";
/// Duration of the warm-up, in seconds.
pub(crate) const WARM_UP: u64 = 1;

/// The client that sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientKind {
    Plain,
    Sdk,
}

impl ClientKind {
    /// Both clients. The SDK is compared with the first.
    pub(crate) const ALL: [Self; 2] = [Self::Plain, Self::Sdk];

    /// The name in a table that has rows for servers too.
    pub(crate) fn title(self) -> String {
        format!("{} (client)", self.name())
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain reqwest",
            Self::Sdk => "SDK, warm pool",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A client that sends submissions one after another.
#[derive(Clone)]
enum LoadClient {
    Plain { http: reqwest::Client, tokens: Arc<Vec<String>>, next: Arc<AtomicUsize> },
    Sdk(Client),
}

/// Sends as many requests as possible for some seconds, and prints the measurements.
pub(crate) fn run(name: &str, url: &str, tokens: &Path, count: u32, seconds: u64) -> Result<(), Failure> {
    let kind = ClientKind::named(name).ok_or_else(|| format!("unknown client: {name}"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let url = format!("{url}/orders");
        let sender = LoadClient::open(kind, &url, tokens, count).await?;
        send_for(WARM_UP, &sender, &url).await?;
        let (begun, used) = (Instant::now(), cpu::used_by(std::process::id())?);
        let took = send_for(seconds, &sender, &url).await?;
        let (lasted, used) = (begun.elapsed(), cpu::used_by(std::process::id())?.saturating_sub(used));
        println!("{}{}\n{}", CPU, used.as_micros(), figures(took, lasted));
        Ok(())
    })
}

/// Sends a fixed number of requests, one after another, and prints the allocations before, between and after the measured parts.
pub(crate) fn count(name: &str, url: &str, tokens: &Path) -> Result<(), Failure> {
    let kind = ClientKind::named(name).ok_or_else(|| format!("unknown client: {name}"))?;
    // One thread: on several, the number of allocations depends on which one runs a task.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let counts = runtime.block_on(async {
        let url = format!("{url}/orders");
        let sender = LoadClient::open(kind, &url, tokens, TOTAL as u32).await?;
        send_times(counting_program::WARM_UP, &sender, &url).await?;
        let mut counts = Vec::with_capacity(PARTS + 1);
        counts.push(AllocationCount::now());
        for _ in 0..PARTS {
            send_times(REQUESTS, &sender, &url).await?;
            counts.push(AllocationCount::now());
        }
        Ok::<_, Failure>(counts)
    })?;
    counts.iter().for_each(|count| println!("{count}"));
    Ok(())
}

/// Sends this many requests, one after another.
async fn send_times(times: usize, sender: &LoadClient, url: &str) -> Result<(), Failure> {
    for _ in 0..times {
        expect_created(sender.send(url).await.map_err(|error| error.to_string())?)?;
    }
    Ok(())
}

fn expect_created(status: u16) -> Result<(), String> {
    if status == 201 { Ok(()) } else { Err(format!("unexpected status {status}: the run is invalid")) }
}

/// Sends on all connections for some seconds. Returns the latency of each request.
async fn send_for(seconds: u64, sender: &LoadClient, url: &str) -> Result<Vec<Duration>, Failure> {
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut senders = JoinSet::new();
    for _ in 0..CONNECTIONS {
        senders.spawn(until(end, sender.clone(), url.to_owned()));
    }
    let mut took = Vec::new();
    for one in senders.join_all().await {
        took.extend(one.map_err(|error| error.to_string())?);
    }
    Ok(took)
}

impl LoadClient {
    async fn open(kind: ClientKind, url: &str, tokens: &Path, count: u32) -> Result<Self, Failure> {
        let http = || reqwest::Client::builder().no_proxy();
        match kind {
            ClientKind::Plain => {
                let tokens = std::fs::read_to_string(tokens.join("0"))?;
                let tokens = tokens.lines().map(str::to_owned).collect::<Vec<_>>();
                Ok(Self::Plain { http: http().build()?, tokens: Arc::new(tokens), next: Arc::default() })
            }
            ClientKind::Sdk => {
                // Twice as many as needed: the pool is refilled when half of the tokens are used.
                let client = Client::builder().http(http()).pool_size(count * 2).build()?;
                client.warm_up(url, count * 2).await?;
                Ok(Self::Sdk(client))
            }
        }
    }

    /// Sends one submission, and reads the whole response.
    async fn send(&self, url: &str) -> Result<u16, Box<dyn std::error::Error + Send + Sync>> {
        let content_type = ("content-type", "application/json");
        match self {
            Self::Plain { http, tokens, next } => {
                let token = tokens.get(next.fetch_add(1, Ordering::Relaxed)).ok_or("all tokens are used")?;
                let request =
                    http.post(url).header(content_type.0, content_type.1).header(header::TOKEN, token).body(BODY);
                let answer = request.send().await?;
                let status = answer.status().as_u16();
                answer.bytes().await?;
                Ok(status)
            }
            Self::Sdk(client) => {
                let answer = client.post(url).header(content_type.0, content_type.1).body(BODY).send().await?;
                let status = answer.status().as_u16();
                answer.bytes().await?;
                Ok(status)
            }
        }
    }
}

/// Sends until `end`. Returns the latency of each request.
async fn until(
    end: Instant,
    sender: LoadClient,
    url: String,
) -> Result<Vec<Duration>, Box<dyn std::error::Error + Send + Sync>> {
    let mut took = Vec::new();
    loop {
        let begun = Instant::now();
        if begun >= end {
            return Ok(took);
        }
        expect_created(sender.send(&url).await?)?;
        took.push(begun.elapsed());
    }
}

/// The line that the script of `wrk` prints. An unexpected response ends the run before this.
fn figures(mut took: Vec<Duration>, lasted: Duration) -> String {
    took.sort();
    let at = |share| percentile(&took, share).unwrap_or_default().as_micros();
    format!(
        "figures requests={} micros={} p50={} p99={} ran_out=0 unexpected=0 unexpected_status=0 broken=0",
        took.len(),
        lasted.as_micros(),
        at(50),
        at(99)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_created_order_is_expected() {
        assert_eq!(expect_created(201), Ok(()));
        assert!(expect_created(409).unwrap_err().contains("unexpected status 409"));
    }

    #[test]
    fn report_is_parsed_like_wrk_output() {
        let took = (1..=100).map(Duration::from_millis).collect();
        let load = crate::wrk::read(&figures(took, Duration::from_secs(2)), 201).unwrap();
        assert_eq!((load.requests, load.lasted), (100, Duration::from_secs(2)));
        assert_eq!((load.p50, load.p99), (Duration::from_millis(51), Duration::from_millis(100)));
    }
}

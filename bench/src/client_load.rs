//! The load of the two clients: plain reqwest and the SDK. Each runs in its own process, and prints its measurements like `wrk` does.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward::api::header;
use onceward_client::Client;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::wrk::{BODY, CONNECTIONS};
use crate::{Failure, cpu};

/// The command that runs this program as a client.
pub(crate) const SUBMIT: &str = "submit";

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
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain reqwest",
            Self::Sdk => "SDK, warm pool",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Plain, Self::Sdk].into_iter().find(|kind| kind.name() == name)
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
        let status = sender.send(&url).await?;
        if status != 201 {
            return Err(format!("unexpected status {status}: the run is invalid").into());
        }
        took.push(begun.elapsed());
    }
}

/// The line that the script of `wrk` prints. An unexpected response ends the run before this.
fn figures(mut took: Vec<Duration>, lasted: Duration) -> String {
    took.sort();
    let at = |share: usize| took.get(took.len() * share / 100).copied().unwrap_or_default().as_micros();
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
    fn report_is_parsed_like_wrk_output() {
        let took = (1..=100).map(Duration::from_millis).collect();
        let load = crate::wrk::read(&figures(took, Duration::from_secs(2)), 201).unwrap();
        assert_eq!((load.requests, load.lasted), (100, Duration::from_secs(2)));
        assert_eq!((load.p50, load.p99), (Duration::from_millis(51), Duration::from_millis(100)));
    }
}

//! Compares the SDK with plain reqwest, round by round, against the same server.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::Failure;
use crate::case::Case;
use crate::client_load::{CPU, ClientKind, SUBMIT, WARM_UP};
use crate::server_process::ServerProcess;
use crate::statistics::Spread;
use crate::wrk::{self, LoadResult};

/// Target ratio to the throughput of plain reqwest.
const TARGET: f64 = 0.90;
/// Maximum requests per second of a client, for the number of tokens.
const MOST: u64 = 150_000;

/// Measures both clients in each round, and returns the report.
pub(crate) fn measure(rounds: u64, seconds: u64, folder: &Path) -> Result<String, Failure> {
    let case = Case::named("token, memory").ok_or("unknown case: token, memory")?;
    let (mut plain, mut sdk) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        for (kind, loads) in [(ClientKind::Plain, &mut plain), (ClientKind::Sdk, &mut sdk)] {
            let tokens = MOST * (WARM_UP + seconds);
            // The case uses the memory store: it needs no Redis.
            let server = ServerProcess::start(case, "", folder, tokens as usize)?;
            let run = send(kind, server.url(), folder, tokens, seconds)?;
            println!("round {} of {rounds}: {:<20} {:>8.0} requests/s", round + 1, kind.name(), run.throughput());
            loads.push(run);
        }
    }
    Ok(summary(&plain, &sdk).ok_or("no rounds")?)
}

/// Starts this program as a client.
fn send(kind: ClientKind, url: &str, folder: &Path, tokens: u64, seconds: u64) -> Result<ClientRun, Failure> {
    let output = Command::new(std::env::current_exe()?)
        .args([SUBMIT, kind.name(), url])
        .arg(folder)
        .args([tokens.to_string(), seconds.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("{}: the client exited with {}", kind.name(), output.status).into());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let load = wrk::read(&said, 201).map_err(|error| format!("{}: {error}", kind.name()))?;
    let micros = said.lines().find_map(|line| line.strip_prefix(CPU)?.parse::<f64>().ok());
    Ok(ClientRun { load, micros: micros.ok_or("the client reported no CPU time")? / load.requests as f64 })
}

/// The measurements of one run of a client.
#[derive(Debug, Clone, Copy)]
struct ClientRun {
    load: LoadResult,
    /// CPU time per request, in microseconds.
    micros: f64,
}

impl ClientRun {
    fn throughput(&self) -> f64 {
        self.load.requests as f64 / self.load.lasted.as_secs_f64()
    }
}

/// One line per client, and one for the target. `None` if there were no rounds.
fn summary(plain: &[ClientRun], sdk: &[ClientRun]) -> Option<String> {
    let ratio = Spread::of(sdk.iter().zip(plain).map(|(sdk, plain)| sdk.throughput() / plain.throughput()))?;
    let line = |kind: ClientKind, loads: &[ClientRun]| {
        let rate = Spread::of(loads.iter().map(ClientRun::throughput))?.median;
        let micros = Spread::of(loads.iter().map(|run| run.micros))?.median;
        let millis = |of: fn(&LoadResult) -> f64| Spread::of(loads.iter().map(|run| of(&run.load))).map(|it| it.median);
        let (p50, p99) = (millis(|load| load.p50.as_secs_f64() * 1e3)?, millis(|load| load.p99.as_secs_f64() * 1e3)?);
        Some(format!("{:<20} {rate:>11.0} {p50:>8.2} {p99:>8.2} {micros:>15.1}", kind.name()))
    };
    let Spread { median, least, most } = ratio;
    let verdict = if median >= TARGET { "met" } else { "missed" };
    Some(format!(
        "{:<20} {:>11} {:>8} {:>8} {:>15}\n{}\n{}\n\n{:<20} {median:.2} ({least:.2}–{most:.2}) of plain reqwest, target {TARGET:.2}: {verdict}",
        "client",
        "requests/s",
        "p50 ms",
        "p99 ms",
        "CPU µs/request",
        line(ClientKind::Plain, plain)?,
        line(ClientKind::Sdk, sdk)?,
        ClientKind::Sdk.name(),
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn run(requests: u64) -> ClientRun {
        let (p50, p99) = (Duration::from_millis(1), Duration::from_millis(2));
        ClientRun { load: LoadResult { requests, lasted: Duration::from_secs(1), p50, p99 }, micros: 40.0 }
    }

    #[test]
    fn median_ratio_per_round_decides_the_target() {
        let summary = |sdk: &[u64]| {
            let plain = [run(1000), run(500), run(2000)];
            summary(&plain, &sdk.iter().copied().map(run).collect::<Vec<_>>()).unwrap()
        };
        let met = summary(&[950, 450, 1000]);
        assert!(met.ends_with("SDK, warm pool       0.90 (0.50–0.95) of plain reqwest, target 0.90: met"), "{met}");
        assert!(met.contains("plain reqwest               1000     1.00     2.00            40.0"), "{met}");
        assert!(summary(&[890, 400, 2000]).ends_with("missed"));
    }
}

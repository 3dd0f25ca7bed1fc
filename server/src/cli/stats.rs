//! `onceward stats`: the metrics of the running service as a table.

mod metrics_sample;

use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use clap::ArgMatches;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use self::metrics_sample::Sample;
use super::argument::{duration, is_json, is_set, number, text};
use super::http_client::{get, reachable};
use super::output::{Failure, Output};
use super::table::table;
use crate::config::Config;

/// Clears a terminal before the table is drawn again.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

/// Part of the name of every metric that is a size.
const BYTES: &str = " bytes";

pub(super) async fn stats(matches: &ArgMatches, config: &Config) -> Result<Output, Failure> {
    let within = duration(matches, "timeout")?;
    let address = reachable(address(config)?);
    if is_set(matches, "watch") {
        return watch(matches, address, within).await;
    }
    Ok(shown(address, &sample(address, within).await?, None))
}

/// Shows the metrics repeatedly, until the reader closes the pipe, or `--count` times.
async fn watch(matches: &ArgMatches, address: SocketAddr, within: Duration) -> Result<Output, Failure> {
    let every = duration(matches, "every")?;
    let mut left = text(matches, "count").map(|_| number(matches, "count", 1..=1_000_000)).transpose()?;
    let mut before: Option<(Sample, Instant)> = None;
    loop {
        let now = (sample(address, within).await?, Instant::now());
        let output = shown(address, &now.0, before.as_ref().map(|(before, then)| (before, now.1 - *then)));
        left = left.map(|left| left - 1);
        if left == Some(0) {
            return Ok(output);
        }
        let clear = if std::io::stdout().is_terminal() && !is_json(matches) { CLEAR } else { "" };
        let mut out = std::io::stdout();
        let written = write!(out, "{clear}{}", output.shown(is_json(matches))).and_then(|()| out.flush());
        if written.is_err() {
            return Ok(output);
        }
        before = Some(now);
        tokio::time::sleep(every).await;
    }
}

/// Returns the address that serves `/metrics`.
fn address(config: &Config) -> Result<SocketAddr, Failure> {
    match config.admin_listen {
        Some(address) => Ok(address),
        None if config.proxy.upstream.is_some() => Err(Failure::usage(
            "the proxy serves metrics only at `admin_listen`, which is not set. Start it with --admin-listen 127.0.0.1:9090, and \
             give this command the same setting.",
        )),
        None => Ok(config.listen),
    }
}

async fn sample(address: SocketAddr, within: Duration) -> Result<Sample, Failure> {
    let missing = |what: String| {
        Failure::problem(format!(
            "http://{address}/metrics: {what}. Is the service running, and does it serve metrics at this address? (--listen, --admin-listen)"
        ))
    };
    match get(address, "/metrics", within).await {
        Ok(answer) if answer.status == 200 => Ok(Sample::parse(&answer.body)),
        Ok(answer) => Err(missing(format!("the response has status {}", answer.status))),
        Err(error) => Err(missing(error.to_string())),
    }
}

fn shown(address: SocketAddr, now: &Sample, before: Option<(&Sample, Duration)>) -> Output {
    let rate = |count: f64, name: &str| match before {
        Some((before, since)) => format!("{:.1}/s", (count - before.count(name)).max(0.0) / since.as_secs_f64()),
        None => String::new(),
    };
    let count = |(name, count): (&str, f64)| vec![label(name), format!("{count:.0}"), rate(count, name)];
    let level = |(name, level): (&str, f64)| {
        let value = if name.contains(BYTES) { size(level) } else { format!("{level:.0}") };
        vec![label(name), value, "now".to_owned()]
    };
    let latency = |(verb, millis): (&str, f64)| {
        vec![label(&format!("store {verb}")), format!("{millis:.2} ms"), "average".to_owned()]
    };
    let rows: Vec<_> =
        now.counts().map(count).chain(now.levels().map(level)).chain(now.latencies().map(latency)).collect();
    let json = json!({
        "address": address.to_string(),
        "counts": numbers(now.counts()),
        "now": numbers(now.levels()),
        "store_average_ms": numbers(now.latencies()),
    });
    Output::fine(format!("http://{address}/metrics\n{}", table("  ", &rows)), json)
}

/// Returns the name of a metric for people, with the values of its labels: `verdicts: token, run`. The unit of a size is shown with its value.
fn label(name: &str) -> String {
    let name = name.replace(BYTES, "");
    let (labels, words): (Vec<&str>, Vec<&str>) = name.split(' ').partition(|word| word.contains('='));
    let values: Vec<_> = labels
        .iter()
        .filter_map(|label| label.split_once('='))
        .map(|(_, value)| value.replace("timed_out", "timed out"))
        .collect();
    let words = words.join(" ");
    if values.is_empty() { words } else { format!("{words}: {}", values.join(", ")) }
}

/// Formats a size with a binary unit, such as `252 KiB` or `1.5 GiB`.
fn size(bytes: f64) -> String {
    const UNITS: [(&str, f64); 3] = [("GiB", 1_073_741_824.0), ("MiB", 1_048_576.0), ("KiB", 1024.0)];
    // A number that would round up to 1024 belongs to the next unit.
    match UNITS.into_iter().find(|(_, length)| bytes >= length - length / 2048.0) {
        Some((unit, length)) => {
            let number = format!("{:.1}", bytes / length);
            format!("{} {unit}", number.strip_suffix(".0").unwrap_or(&number))
        }
        None => format!("{bytes:.0} B"),
    }
}

fn numbers<'a>(of: impl Iterator<Item = (&'a str, f64)>) -> Map<String, Value> {
    of.map(|(name, number)| (name.to_owned(), number.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_labels_are_readable() {
        let sizes = [0.0, 1023.0, 258_002.0, 1_048_575.0, 268_435_456.0, 1_610_612_736.0];
        assert_eq!(sizes.map(size), ["0 B", "1023 B", "252 KiB", "1 MiB", "256 MiB", "1.5 GiB"]);
        assert_eq!(label("memory limit bytes kind=key"), "memory limit: key");
        assert_eq!(label("waits outcome=timed_out"), "waits: timed out");
        assert_eq!(label("verdicts policy=token code=token_used"), "verdicts: token, token_used");
        assert_eq!(label("tokens issued"), "tokens issued");
    }
}

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

/// What is cleared on a terminal before the table is drawn anew.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

pub(super) async fn stats(matches: &ArgMatches, config: &Config) -> Result<Output, Failure> {
    let within = duration(matches, "timeout")?;
    let address = reachable(address(config));
    if is_set(matches, "watch") {
        return watch(matches, address, within).await;
    }
    Ok(shown(address, &sample(address, within).await?, None))
}

/// Shows them again and again, until nobody reads any more, or as often as was asked for.
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

/// Where the numbers are shown.
fn address(config: &Config) -> SocketAddr {
    config.admin_listen.unwrap_or(config.listen)
}

async fn sample(address: SocketAddr, within: Duration) -> Result<Sample, Failure> {
    let missing = |what: String| {
        Failure::problem(format!(
            "http://{address}/metrics: {what}. Is the service running, and is this where it shows its numbers? (--listen, --admin-listen)"
        ))
    };
    match get(address, "/metrics", within).await {
        Ok(answer) if answer.status == 200 => Ok(Sample::parse(&answer.body)),
        Ok(answer) => Err(missing(format!("it answered {}", answer.status))),
        Err(error) => Err(missing(format!("it {error}"))),
    }
}

fn shown(address: SocketAddr, now: &Sample, before: Option<(&Sample, Duration)>) -> Output {
    let rate = |count: f64, name: &str| match before {
        Some((before, since)) => format!("{:.1}/s", (count - before.count(name)).max(0.0) / since.as_secs_f64()),
        None => String::new(),
    };
    let count = |(name, count): (&str, f64)| vec![name.to_owned(), format!("{count:.0}"), rate(count, name)];
    let level = |(name, level): (&str, f64)| vec![name.to_owned(), format!("{level:.0}"), "now".to_owned()];
    let latency =
        |(verb, millis): (&str, f64)| vec![format!("store {verb}"), format!("{millis:.2} ms"), "average".to_owned()];
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

fn numbers<'a>(of: impl Iterator<Item = (&'a str, f64)>) -> Map<String, Value> {
    of.map(|(name, number)| (name.to_owned(), number.into())).collect()
}

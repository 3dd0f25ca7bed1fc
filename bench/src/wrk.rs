//! The load generator: `wrk` with a script, in its own process.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Failure;
use crate::case::{Case, Tokens};

/// Number of threads. Each has its own file of tokens.
pub(crate) const THREADS: usize = 2;
/// Number of connections, each with one request in flight.
pub(crate) const CONNECTIONS: u64 = 64;

const SCRIPT: &str = include_str!("wrk.lua");
/// The body of every request: an order, and a valid body for `POST /token`.
pub(crate) const BODY: &str =
    r#"{"action":"POST /shops/north/customers/4711/baskets/0815/orders/express/insured","ttl":"20m"}"#;

/// The measurements of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoadResult {
    pub(crate) requests: u64,
    pub(crate) lasted: Duration,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

/// The tokens in its file that each thread uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenRange {
    pub(crate) first: usize,
    pub(crate) count: usize,
}

/// The kind of requests that a load consists of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Requests {
    /// The method. A GET has no body.
    pub(crate) method: &'static str,
    pub(crate) ids: Ids,
}

/// The ids that a request carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ids {
    None,
    Key,
    Token,
    /// A token and a key.
    Both,
}

impl Ids {
    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Key => "key",
            Self::Token => "token",
            Self::Both => "both",
        }
    }
}

/// The load generator.
pub(crate) struct Wrk {
    script: PathBuf,
}

impl Wrk {
    /// Writes the script into a folder.
    pub(crate) fn in_folder(folder: &Path) -> Result<Self, Failure> {
        let script = folder.join("wrk.lua");
        std::fs::write(&script, SCRIPT)?;
        Ok(Self { script })
    }

    /// Sends as many requests as possible for some seconds, with the tokens in a folder.
    ///
    /// # Errors
    /// If a response has an unexpected status, or if all tokens were used: then the measurement is invalid.
    pub(crate) fn send(
        &self,
        case: &Case,
        url: &str,
        tokens: &Path,
        range: TokenRange,
        seconds: u64,
    ) -> Result<LoadResult, Failure> {
        self.send_as(Requests { method: "POST", ids: Ids::Both }, case, url, tokens, range, seconds)
    }

    /// Like [`send`](Self::send), with other requests.
    pub(crate) fn send_as(
        &self,
        requests: Requests,
        case: &Case,
        url: &str,
        tokens: &Path,
        range: TokenRange,
        seconds: u64,
    ) -> Result<LoadResult, Failure> {
        let output = Command::new("wrk")
            .args([format!("-t{THREADS}"), format!("-c{CONNECTIONS}"), format!("-d{seconds}s")])
            .args(["--timeout", "10s", "-s"])
            .arg(&self.script)
            .args([&format!("{url}{}", case.path), "--"])
            .arg(tokens)
            .args([range.first.to_string(), range.count.to_string(), after_the_last(case.tokens).to_owned()])
            .args([&case.status.to_string(), BODY, requests.method, requests.ids.name()])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("could not start wrk ({error}); install it with: apt-get install wrk"))?;
        let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            return Err(format!("wrk failed: {said}{complained}").into());
        }
        read(&said, case.status).map_err(|reason| format!("{}: {reason}\n{complained}", case.name).trim_end().into())
    }
}

/// The mode after the last token: a valid token, or a new key, is sent only once.
fn after_the_last(tokens: Tokens) -> &'static str {
    match tokens {
        Tokens::Good | Tokens::New => "once",
        Tokens::Forged | Tokens::Few => "again",
    }
}

/// Parses the output of the script. The error is the reason why the run is invalid.
pub(crate) fn read(said: &str, status: u16) -> Result<LoadResult, String> {
    let line = said.lines().find_map(|line| line.strip_prefix("figures "));
    let line = line.ok_or_else(|| format!("wrk printed no figures: {said}"))?;
    let pairs: HashMap<_, _> = line.split(' ').filter_map(|pair| pair.split_once('=')).collect();
    let figure = |name: &str| -> Result<u64, String> {
        let figure = pairs.get(name).and_then(|text| text.parse().ok());
        figure.ok_or_else(|| format!("wrk printed no `{name}`: {line}"))
    };
    // Checked first, since requests after the last token have other statuses.
    if figure("ran_out")? > 0 {
        return Err("all tokens were used before the end: the run is invalid".to_owned());
    }
    if figure("unexpected")? > 0 {
        let (count, other) = (figure("unexpected")?, figure("unexpected_status")?);
        return Err(format!("{count} responses were not {status}, such as {other}: the run is invalid"));
    }
    if figure("broken")? > 0 {
        return Err(format!("{} requests had no response: the run is invalid", figure("broken")?));
    }
    if figure("requests")? == 0 {
        return Err("no request had a response".to_owned());
    }
    Ok(LoadResult {
        requests: figure("requests")?,
        lasted: Duration::from_micros(figure("micros")?.max(1)),
        p50: Duration::from_micros(figure("p50")?),
        p99: Duration::from_micros(figure("p99")?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "Running 3s test @ http://127.0.0.1:1/orders\n  90 requests in 3.00s\n\
        figures requests=90 micros=3000000 p50=1500 p99=9000 ran_out=0 unexpected=0 unexpected_status=0 broken=0\n";

    fn invalid(from: &str, to: &str) -> String {
        read(&GOOD.replace(from, to), 201).unwrap_err()
    }

    #[test]
    fn figures_are_parsed_from_wrk_output() {
        let load = read(GOOD, 201).unwrap();
        assert_eq!((load.requests, load.lasted), (90, Duration::from_secs(3)));
        assert_eq!((load.p50, load.p99), (Duration::from_micros(1500), Duration::from_millis(9)));
    }

    #[test]
    fn run_with_unexpected_statuses_is_rejected() {
        let reason = invalid("unexpected=0 unexpected_status=0", "unexpected=2 unexpected_status=409");
        assert!(reason.contains("2 responses were not 201, such as 409"), "{reason}");
    }

    #[test]
    fn run_that_exhausted_its_tokens_is_rejected() {
        assert!(invalid("ran_out=0 unexpected=0", "ran_out=1 unexpected=9").contains("all tokens were used"));
    }

    #[test]
    fn run_with_missing_responses_or_figures_is_rejected() {
        assert!(invalid("broken=0", "broken=3").contains("3 requests had no response"));
        assert!(invalid("requests=90", "requests=0").contains("no request"));
        assert!(invalid(" p99=9000", "").contains("`p99`"));
        assert!(invalid("p50=1500", "p50=-nan").contains("`p50`"));
        assert!(invalid("figures ", "").contains("no figures"));
    }

    #[test]
    fn body_is_about_a_hundred_bytes() {
        assert!((80..=120).contains(&BODY.len()), "{}", BODY.len());
    }
}

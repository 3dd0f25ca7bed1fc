//! The load generator: `wrk`, in a process of its own, with our script.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Failure;
use crate::case::{Case, Tokens};

/// How many threads send. Each has a file of tokens for itself.
pub(crate) const THREADS: usize = 2;
/// How many connections they keep busy.
pub(crate) const CONNECTIONS: u64 = 64;

const SCRIPT: &str = include_str!("wrk.lua");
/// What every request says: an order here, and at `POST /token` what is asked for.
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

/// Which of the tokens in its file each thread may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenRange {
    pub(crate) first: usize,
    pub(crate) count: usize,
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

    /// Sends for some seconds as much as is answered, with the tokens of a folder.
    ///
    /// # Errors
    /// If an answer was not what the case expects, or if the tokens were used up: such a figure would lie.
    pub(crate) fn send(
        &self,
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
            .args([&case.status.to_string(), BODY])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("wrk does not start ({error}); install it with: apt-get install wrk"))?;
        let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            return Err(format!("wrk failed: {said}{complained}").into());
        }
        read(&said, case.status).map_err(|reason| format!("{}: {reason}\n{complained}", case.name).trim_end().into())
    }
}

/// A good token may be sent once only, and a key that was sent is not new.
fn after_the_last(tokens: Tokens) -> &'static str {
    match tokens {
        Tokens::Good | Tokens::New => "once",
        Tokens::Forged | Tokens::Few => "again",
    }
}

/// Reads what the script said at its end. The error is why the run does not count.
pub(crate) fn read(said: &str, status: u16) -> Result<LoadResult, String> {
    let line = said.lines().find_map(|line| line.strip_prefix("figures "));
    let line = line.ok_or_else(|| format!("wrk gave no figures: {said}"))?;
    let pairs: HashMap<_, _> = line.split(' ').filter_map(|pair| pair.split_once('=')).collect();
    let figure = |name: &str| -> Result<u64, String> {
        let figure = pairs.get(name).and_then(|text| text.parse().ok());
        figure.ok_or_else(|| format!("wrk did not say what `{name}` is: {line}"))
    };
    // First, since what is sent after the last token is answered otherwise.
    if figure("ran_out")? > 0 {
        return Err("the tokens were used up before the time was: this run does not count".to_owned());
    }
    if figure("unexpected")? > 0 {
        let (count, other) = (figure("unexpected")?, figure("unexpected_status")?);
        return Err(format!("{count} answers were not {status}, such as {other}: this run measured something else"));
    }
    if figure("broken")? > 0 {
        return Err(format!("{} requests had no answer: this run does not count", figure("broken")?));
    }
    if figure("requests")? == 0 {
        return Err("no request was answered".to_owned());
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

    fn refused(from: &str, to: &str) -> String {
        read(&GOOD.replace(from, to), 201).unwrap_err()
    }

    #[test]
    fn the_figures_are_found_among_what_wrk_says() {
        let load = read(GOOD, 201).unwrap();
        assert_eq!((load.requests, load.lasted), (90, Duration::from_secs(3)));
        assert_eq!((load.p50, load.p99), (Duration::from_micros(1500), Duration::from_millis(9)));
    }

    #[test]
    fn a_run_with_other_answers_is_refused_and_says_which() {
        let reason = refused("unexpected=0 unexpected_status=0", "unexpected=2 unexpected_status=409");
        assert!(reason.contains("2 answers were not 201, such as 409"), "{reason}");
    }

    #[test]
    fn a_run_that_used_up_its_tokens_is_refused() {
        assert!(refused("ran_out=0 unexpected=0", "ran_out=1 unexpected=9").contains("used up"));
    }

    #[test]
    fn a_run_with_missing_answers_or_figures_is_refused() {
        assert!(refused("broken=0", "broken=3").contains("3 requests had no answer"));
        assert!(refused("requests=90", "requests=0").contains("no request"));
        assert!(refused(" p99=9000", "").contains("`p99`"));
        assert!(refused("p50=1500", "p50=-nan").contains("`p50`"));
        assert!(refused("figures ", "").contains("no figures"));
    }

    #[test]
    fn a_body_is_about_a_hundred_bytes() {
        assert!((80..=120).contains(&BODY.len()), "{}", BODY.len());
    }
}

//! Compares the SDK with plain reqwest, round by round, against the same server.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::Failure;
use crate::case::Case;
use crate::client_load::{CPU, ClientKind, SUBMIT, WARM_UP};
use crate::client_statistics::{ClientRun, ClientStatistics};
use crate::server_process::ServerProcess;
use crate::wrk;

/// Maximum requests per second of a client, for the number of tokens.
const MOST: u64 = 150_000;

/// Measures both clients in each round, and returns their statistics in the order of [`ClientKind::ALL`].
pub(crate) fn measure(rounds: u64, seconds: u64, folder: &Path) -> Result<[ClientStatistics; 2], Failure> {
    let mut runs: [Vec<ClientRun>; 2] = Default::default();
    for round in 0..rounds {
        for (kind, runs) in ClientKind::ALL.into_iter().zip(&mut runs) {
            let tokens = MOST * (WARM_UP + seconds);
            let server = server_for_clients(folder, tokens as usize)?;
            let run = send(kind, server.url(), folder, tokens, seconds)?;
            println!("round {} of {rounds}: {:<24} {:>8.0} requests/s", round + 1, kind.name(), run.throughput());
            runs.push(run);
        }
    }
    let statistics = |of: &[ClientRun]| ClientStatistics::of(of, &runs[0]).ok_or("no rounds");
    Ok([statistics(&runs[0])?, statistics(&runs[1])?])
}

/// Starts the server for one client, and writes its tokens. Its memory store needs no Redis.
pub(crate) fn server_for_clients(folder: &Path, tokens: usize) -> Result<ServerProcess, Failure> {
    let case = Case::named("token, memory").ok_or("unknown case: token, memory")?;
    ServerProcess::start(case, "", folder, tokens)
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
    read(&String::from_utf8_lossy(&output.stdout)).map_err(|error| format!("{}: {error}", kind.name()).into())
}

/// Parses the output of a client. The error is the reason why the run is invalid.
fn read(said: &str) -> Result<ClientRun, String> {
    let load = wrk::read(said, 201)?;
    let micros = said.lines().find_map(|line| line.strip_prefix(CPU)?.parse::<f64>().ok());
    Ok(ClientRun { load, micros: micros.ok_or("the client reported no CPU time")? / load.requests as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "cpu=1500\nfigures requests=50 micros=1000000 p50=1 p99=2 ran_out=0 unexpected=0 \
        unexpected_status=0 broken=0\n";

    #[test]
    fn cpu_time_of_the_client_is_per_request() {
        let run = read(SAID).unwrap();
        assert_eq!((run.micros, run.throughput()), (30.0, 50.0));
    }

    #[test]
    fn run_without_cpu_time_is_rejected() {
        assert_eq!(read(&SAID.replace("cpu=", "")).unwrap_err(), "the client reported no CPU time");
    }
}

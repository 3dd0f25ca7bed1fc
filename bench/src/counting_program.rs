//! The program whose allocator counts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Failure;
use crate::allocation_cost::AllocationCost;
use crate::allocation_count::AllocationCount;
use crate::case::{Case, Tokens};
use crate::client_load::{COUNT, ClientKind};
use crate::framework::Framework;
use crate::http_connection::{HttpConnection, request};
use crate::server_process::ServerProcess;

/// The name of the program.
const NAME: &str = "onceward-bench-counting";
/// Number of requests before the measurement, and the pause after half of them: a worker opens its own connection to Redis only when the
/// shared one is 100 ms old.
pub(crate) const WARM_UP: usize = 1000;
const PAUSE: Duration = Duration::from_millis(300);
/// Number of measured parts, and of requests in each. The median leaves out a part in which a map grew or a timer fired.
pub(crate) const PARTS: usize = 5;
pub(crate) const REQUESTS: usize = 400;
/// Number of requests in all.
pub(crate) const TOTAL: usize = WARM_UP + PARTS * REQUESTS;
/// Number of connections: both workers of the server have some.
const CONNECTIONS: usize = 4;

/// The path of the program.
pub(crate) struct CountingProgram(PathBuf);

impl CountingProgram {
    /// Finds the program beside this one.
    pub(crate) fn find() -> Result<Self, Failure> {
        let program = std::env::current_exe()?.with_file_name(NAME);
        if program.exists() {
            return Ok(Self(program));
        }
        let path = program.display();
        Err(format!("{path} is missing; build it with: cargo build --release -p onceward-bench --locked").into())
    }

    /// Measures the server of a case on this framework and Redis.
    pub(crate) fn serve(
        &self,
        framework: Framework,
        case: &Case,
        redis: &str,
        folder: &Path,
    ) -> Result<AllocationCost, Failure> {
        let mut server = ServerProcess::start_program(&self.0, framework, case, redis, folder, TOTAL)?;
        let tokens = std::fs::read_to_string(folder.join("0"))?;
        let tokens: Vec<_> = tokens.lines().collect();
        let connections = (0..CONNECTIONS).map(|_| HttpConnection::open(server.url()));
        let mut connections = connections.collect::<Result<Vec<_>, _>>()?;
        let (warm_up, measured) = tokens.split_at(WARM_UP);
        let (before, after) = warm_up.split_at(WARM_UP / 2);
        send(case, &mut connections, before)?;
        pause();
        send(case, &mut connections, after)?;
        // A replay sends the keys of the warm-up again.
        let measured = if case.tokens == Tokens::Few { warm_up } else { measured };
        let mut counts = vec![server.allocations()?];
        for part in measured.chunks_exact(REQUESTS).cycle().take(PARTS) {
            send(case, &mut connections, part)?;
            counts.push(server.allocations()?);
        }
        Ok(cost(&counts).ok_or("no tokens")?)
    }

    /// Measures a client, against the server at this URL.
    pub(crate) fn submit(&self, kind: ClientKind, url: &str, folder: &Path) -> Result<AllocationCost, Failure> {
        let output = Command::new(&self.0)
            .args([COUNT, kind.name(), url])
            .arg(folder)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()?;
        let counts: Vec<_> =
            String::from_utf8_lossy(&output.stdout).lines().filter_map(AllocationCount::read).collect();
        if !output.status.success() || counts.len() != PARTS + 1 {
            return Err(format!("{}: the client exited with {} and no counts", kind.name(), output.status).into());
        }
        Ok(cost(&counts).ok_or("no counts")?)
    }
}

#[expect(clippy::disallowed_methods, reason = "no request waits for this thread")]
fn pause() {
    std::thread::sleep(PAUSE);
}

/// Sends a request for each token, one after another.
fn send(case: &Case, connections: &mut [HttpConnection], tokens: &[&str]) -> Result<(), Failure> {
    let count = connections.len();
    for (at, token) in tokens.iter().enumerate() {
        let status = connections[at % count].send(&request(case.path, token))?;
        if status != case.status {
            return Err(format!("{}: status {status} instead of {}: the run is invalid", case.name, case.status).into());
        }
    }
    Ok(())
}

/// The cost per request, from the counts before, between and after the parts. Returns `None` if there was no part.
fn cost(counts: &[AllocationCount]) -> Option<AllocationCost> {
    let parts = counts.windows(2).map(|pair| pair[1].per_request(pair[0], REQUESTS));
    AllocationCost::median(&parts.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_the_median_part() {
        let counts =
            [100, 8_100, 90_000, 98_400].map(|count| AllocationCount::read(&format!("allocations={count} bytes=0")));
        let counts = counts.map(Option::unwrap);
        assert_eq!(cost(&counts), Some(AllocationCost { allocations: 21.0, bytes: 0.0 }));
        assert_eq!(cost(&counts[..1]), None);
    }
}

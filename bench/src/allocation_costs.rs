//! Allocations per request of each case, above those of the bare route.
//!
//! A server that counts its allocations receives a fixed number of requests, one after another: the counts hardly vary between runs. Each
//! command to Redis is its own batch, which allocates more than under load.

use std::path::{Path, PathBuf};

use crate::Failure;
use crate::allocation_count::AllocationCost;
use crate::case::{Case, Tokens};
use crate::http_connection::{HttpConnection, request};
use crate::markdown_table::MarkdownTable;
use crate::redis_server::RedisServer;
use crate::server_process::ServerProcess;
use crate::statistics::Spread;

/// The program that counts.
const PROGRAM: &str = "onceward-bench-counting";
/// Number of requests before the measurement: every worker then has its connection to Redis.
const WARM_UP: usize = 1000;
/// Number of measured parts, and of requests in each. The median leaves out a part in which a map grew or a timer fired.
const PARTS: usize = 5;
const REQUESTS: usize = 400;
/// Number of connections: both workers of the server have some.
const CONNECTIONS: usize = 4;

/// Measures all cases, and prints the table.
pub(crate) fn measure() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let mut redis = RedisServer::start()?;
    let mut costs = Vec::new();
    for case in &Case::ALL {
        redis.forget()?;
        costs.push((case, cost(case, &redis.url(), folder.path())?));
    }
    println!("{}", table(&costs).ok_or("no cases")?);
    Ok(())
}

/// Measures a case on this Redis.
fn cost(case: &Case, redis: &str, folder: &Path) -> Result<AllocationCost, Failure> {
    let mut server = ServerProcess::start_program(&program()?, case, redis, folder, WARM_UP + PARTS * REQUESTS)?;
    let tokens = std::fs::read_to_string(folder.join("0"))?;
    let tokens: Vec<_> = tokens.lines().collect();
    let connections = (0..CONNECTIONS).map(|_| HttpConnection::open(server.url()));
    let mut connections = connections.collect::<Result<Vec<_>, _>>()?;
    let (warm_up, measured) = tokens.split_at(WARM_UP);
    send(case, &mut connections, warm_up)?;
    // A replay sends the keys of the warm-up again.
    let measured = if case.tokens == Tokens::Few { warm_up } else { measured };
    let mut parts = Vec::new();
    for part in measured.chunks_exact(REQUESTS).cycle().take(PARTS) {
        let before = server.allocations()?;
        send(case, &mut connections, part)?;
        parts.push(server.allocations()?.per_request(before, REQUESTS));
    }
    Ok(median(&parts).ok_or("no tokens")?)
}

/// The program that counts, beside this one.
fn program() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()?.with_file_name(PROGRAM);
    if program.exists() { Ok(program) } else { Err(format!("{} is missing; build it", program.display()).into()) }
}

/// Sends a request for each token, one after another.
fn send(case: &Case, connections: &mut [HttpConnection], tokens: &[&str]) -> Result<(), Failure> {
    for (at, token) in tokens.iter().enumerate() {
        let count = connections.len();
        let status = connections[at % count].send(&request(case.path, token))?;
        if status != case.status {
            return Err(format!("{}: status {status} instead of {}: the run is invalid", case.name, case.status).into());
        }
    }
    Ok(())
}

fn median(parts: &[AllocationCost]) -> Option<AllocationCost> {
    let of = |figure: fn(&AllocationCost) -> f64| Spread::of(parts.iter().map(figure)).map(|spread| spread.median);
    Some(AllocationCost { allocations: of(|part| part.allocations)?, bytes: of(|part| part.bytes)? })
}

/// The table. The bare route has absolute figures.
fn table(costs: &[(&Case, AllocationCost)]) -> Option<MarkdownTable> {
    let (_, bare) = costs.iter().find(|(case, _)| case.is_bare())?;
    let mut table = MarkdownTable::new(["case", "allocations above bare", "bytes above bare"]);
    for (case, cost) in costs {
        let (allocations, bytes) = if case.is_bare() {
            (format!("{:.1} in all", cost.allocations), format!("{:.0} in all", cost.bytes))
        } else {
            (format!("{:.1}", cost.allocations - bare.allocations), format!("{:.0}", cost.bytes - bare.bytes))
        };
        table.push([case.name.to_owned(), allocations, bytes]);
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_shows_costs_above_the_bare_route() {
        let [bare, token, ..] = &Case::ALL;
        let cost = |allocations, bytes| AllocationCost { allocations, bytes };
        let table = table(&[(bare, cost(20.0, 3000.0)), (token, cost(27.5, 3512.0))]).unwrap().to_string();
        let rows: Vec<Vec<_>> = table.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
        assert_eq!(rows[2], ["", "bare", "20.0 in all", "3000 in all", ""]);
        assert_eq!(rows[3], ["", "token, memory", "7.5", "512", ""]);
    }

    #[test]
    fn median_leaves_out_a_part_in_which_a_map_grew() {
        let parts = [8.0, 8.0, 90.0].map(|allocations| AllocationCost { allocations, bytes: allocations * 100.0 });
        assert_eq!(median(&parts), Some(AllocationCost { allocations: 8.0, bytes: 800.0 }));
        assert_eq!(median(&[]), None);
    }
}

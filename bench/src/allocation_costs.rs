//! Allocations per request of each case above those of the bare route, and of the SDK above those of plain reqwest.
//!
//! A program that counts its allocations handles, or sends, a fixed number of requests, one after another: the counts hardly vary between
//! runs. Each command to Redis is its own batch, which allocates more than under load.

use std::path::Path;

use crate::allocation_cost::AllocationCost;
use crate::case::Case;
use crate::client_comparison::server_for_clients;
use crate::client_load::ClientKind;
use crate::counting_program::{CountingProgram, TOTAL};
use crate::goal::Goal;
use crate::markdown_table::MarkdownTable;
use crate::redis_servers::RedisServers;
use crate::{Failure, machine};

/// The allocations of all cases and clients.
#[derive(Debug)]
pub(crate) struct AllocationCosts {
    /// In the order of [`Case::ALL`].
    pub(crate) routes: [AllocationCost; Case::ALL.len()],
    /// In the order of [`ClientKind::ALL`].
    pub(crate) clients: [AllocationCost; ClientKind::ALL.len()],
}

impl AllocationCosts {
    /// Measures all cases and clients.
    pub(crate) fn measure(servers: &mut RedisServers, folder: &Path) -> Result<Self, Failure> {
        let program = CountingProgram::find()?;
        let mut costs = Vec::new();
        for case in &Case::ALL {
            let redis = servers.of(case);
            redis.forget()?;
            costs.push(program.serve(case, &redis.url(), folder)?);
        }
        let routes = costs.try_into().map_err(|_| "a case was not measured")?;
        Ok(Self { routes, clients: Self::of_clients(folder)? })
    }

    /// Measures the clients only.
    pub(crate) fn of_clients(folder: &Path) -> Result<[AllocationCost; 2], Failure> {
        let program = CountingProgram::find()?;
        let measure = |kind| {
            let server = server_for_clients(folder, TOTAL)?;
            program.submit(kind, server.url(), folder)
        };
        let [plain, sdk] = ClientKind::ALL;
        Ok([measure(plain)?, measure(sdk)?])
    }

    /// The table. The rows that the others are compared with have absolute figures.
    fn table(&self) -> MarkdownTable {
        let mut table = MarkdownTable::new(["case", "allocations above bare", "goal", "bytes above bare"]);
        let goals = Case::ALL.iter().map(|case| case.goals.allocations);
        for (at, (case, goal)) in Case::ALL.iter().zip(goals).enumerate() {
            table.push(row(case.name, self.routes[at], self.routes[0], goal, case.is_bare()));
        }
        for (kind, cost) in ClientKind::ALL.iter().zip(self.clients) {
            table.push(row(&kind.title(), cost, self.clients[0], None, *kind == ClientKind::Plain));
        }
        table
    }
}

/// Measures everything, and prints the table.
pub(crate) fn measure() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let mut servers = RedisServers::start()?;
    let costs = AllocationCosts::measure(&mut servers, folder.path())?;
    println!("{}\n\n{}", machine::line(&servers.versions()?), costs.table());
    Ok(())
}

fn row(name: &str, cost: AllocationCost, base: AllocationCost, goal: Option<Goal>, is_base: bool) -> [String; 4] {
    let above = cost.above(base);
    let [allocations, bytes] = if is_base { cost.base_cells() } else { above.cells() };
    [name.to_owned(), allocations, Goal::cell(goal, above.allocations, 1), bytes]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_shows_costs_above_the_base_and_goals() {
        let cost = |allocations| AllocationCost { allocations, bytes: allocations * 100.0 };
        let mut costs = AllocationCosts { routes: [cost(27.5); Case::ALL.len()], clients: [cost(50.0), cost(60.0)] };
        costs.routes[0] = cost(20.0);
        let table = costs.table().to_string();
        let row = |name: &str| {
            let line = table.lines().find(|line| line.starts_with(&format!("| {name} "))).unwrap();
            line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).skip(1).collect::<Vec<_>>()
        };
        assert_eq!(row("bare"), ["20.0 in all", "2000 in all"]);
        assert_eq!(row("token, memory"), ["7.5", "750"]);
        assert_eq!(row("token, Redis"), ["7.5", "≤ 8 met", "750"]);
        assert_eq!(row("plain reqwest (client)"), ["50.0 in all", "5000 in all"]);
        assert_eq!(row("SDK, warm pool (client)"), ["10.0", "1000"]);
    }
}

//! Allocations per request of each case above those of the bare route of the same framework, and of the SDK above those of plain reqwest.
//!
//! A program that counts its allocations handles, or sends, a fixed number of requests, one after another: the counts hardly vary between
//! runs. Each command to Redis is its own batch, which allocates more than under load.

use std::path::Path;

use crate::allocation_cost::AllocationCost;
use crate::client_comparison::server_for_clients;
use crate::client_load::ClientKind;
use crate::counting_program::{CountingProgram, TOTAL};
use crate::framework::Framework;
use crate::goal::Goal;
use crate::markdown_table::MarkdownTable;
use crate::redis_servers::RedisServers;
use crate::{Failure, machine};

/// The allocations of all cases and clients.
#[derive(Debug)]
pub(crate) struct AllocationCosts {
    /// By framework, in the order of [`Framework::ALL`]; each in the order of [`Framework::cases`].
    pub(crate) routes: [Vec<AllocationCost>; Framework::ALL.len()],
    /// In the order of [`ClientKind::ALL`].
    pub(crate) clients: [AllocationCost; ClientKind::ALL.len()],
}

impl AllocationCosts {
    /// Measures all cases and clients.
    pub(crate) fn measure(servers: &mut RedisServers, folder: &Path) -> Result<Self, Failure> {
        let program = CountingProgram::find()?;
        let mut routes: [Vec<AllocationCost>; Framework::ALL.len()] = Default::default();
        for (framework, costs) in Framework::ALL.into_iter().zip(&mut routes) {
            for case in framework.cases() {
                let redis = servers.of(case);
                redis.forget()?;
                costs.push(program.serve(framework, case, &redis.url(), folder)?);
            }
        }
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
        let titles = [
            "case",
            "allocations above bare",
            "goal",
            "bytes above bare",
            "axum: allocations above bare",
            "axum: bytes above bare",
        ];
        let mut table = MarkdownTable::new(titles);
        let [actix, axum] = &self.routes;
        for (case, cost) in Framework::Actix.cases().zip(actix) {
            let on_axum = Framework::Axum.cases().zip(axum).find(|(other, _)| other.name == case.name);
            let on_axum = on_axum.map(|(_, cost)| cells(*cost, axum[0], case.is_bare()));
            table.push(row(case.name, *cost, actix[0], case.goals.allocations, case.is_bare(), on_axum));
        }
        for (kind, cost) in ClientKind::ALL.iter().zip(self.clients) {
            table.push(row(&kind.title(), cost, self.clients[0], None, *kind == ClientKind::Plain, None));
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

/// Allocations and bytes: those of a base in all, others above their base.
fn cells(cost: AllocationCost, base: AllocationCost, is_base: bool) -> [String; 2] {
    if is_base { cost.base_cells() } else { cost.above(base).cells() }
}

fn row(
    name: &str,
    cost: AllocationCost,
    base: AllocationCost,
    goal: Option<Goal>,
    is_base: bool,
    on_axum: Option<[String; 2]>,
) -> [String; 6] {
    let [allocations, bytes] = cells(cost, base, is_base);
    let goal = Goal::cell(goal, cost.above(base).allocations, 1);
    let [on_axum, bytes_on_axum] = on_axum.unwrap_or_default();
    [name.to_owned(), allocations, goal, bytes, on_axum, bytes_on_axum]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_shows_costs_above_the_base_and_goals() {
        let cost = |allocations| AllocationCost { allocations, bytes: allocations * 100.0 };
        let of = |framework: Framework, bare, other| {
            framework.cases().map(|case| cost(if case.is_bare() { bare } else { other })).collect()
        };
        let routes = [of(Framework::Actix, 20.0, 27.5), of(Framework::Axum, 30.0, 39.5)];
        let costs = AllocationCosts { routes, clients: [cost(50.0), cost(60.0)] };
        let table = costs.table().to_string();
        let row = |name: &str| {
            let line = table.lines().find(|line| line.starts_with(&format!("| {name} "))).unwrap();
            line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).skip(1).collect::<Vec<_>>()
        };
        assert_eq!(row("bare"), ["20.0 in all", "2000 in all", "30.0 in all", "3000 in all"]);
        assert_eq!(row("token, memory"), ["7.5", "750", "9.5", "950"]);
        assert_eq!(row("token, Redis"), ["7.5", "≤ 8 met", "750", "9.5", "950"]);
        assert_eq!(row("token, native"), ["7.5", "≤ 8 met", "750"], "not measured on axum");
        assert_eq!(row("plain reqwest (client)"), ["50.0 in all", "5000 in all"]);
        assert_eq!(row("SDK, warm pool (client)"), ["10.0", "1000"]);
    }
}

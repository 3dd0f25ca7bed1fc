//! Compares guarded routes with the bare route of the same framework, and the SDK with plain reqwest, in one run.

use crate::Failure;
use crate::allocation_cost::AllocationCost;
use crate::allocation_costs::AllocationCosts;
use crate::case::Case;
use crate::case_run::{CaseRun, Runner};
use crate::client_load::ClientKind;
use crate::client_statistics::ClientStatistics;
use crate::framework::Framework;
use crate::redis_servers::RedisServers;
use crate::report::{self, ClientRow, RouteRow};
use crate::statistics::CaseStatistics;
use crate::wrk::Wrk;
use crate::{client_comparison, latency_comparison, machine};

/// The runs of each case in the order of the rounds; the cases in the order of [`Framework::cases`].
type Runs = Vec<Vec<CaseRun>>;

/// Measures everything, and prints the tables.
pub(crate) fn measure(rounds: u64, seconds: u64) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let generator = Wrk::in_folder(folder.path())?;
    let mut servers = RedisServers::start()?;
    let allocations = AllocationCosts::measure(&mut servers, folder.path())?;
    let runs = all_rounds(&mut Runner::new(&generator, folder.path(), seconds), &mut servers, rounds)?;
    let clients = client_comparison::measure(rounds, seconds, folder.path())?;
    let latency = latency_comparison::measure(rounds, latency_comparison::SECONDS, servers.installed(), folder.path())?;
    let clients = client_rows(clients, allocations.clients);
    let mut rows = Framework::ALL.into_iter().zip(&runs).zip(&allocations.routes);
    let mut rows = || rows.next().map(|((framework, runs), costs)| route_rows(framework, runs, costs));
    let (routes, on_axum) = (rows().unwrap_or_default(), rows().unwrap_or_default());
    println!("\n{}", machine::line(&servers.versions()?));
    println!("\nCost per request, medians of {rounds} rounds of {seconds} s (least–most)");
    println!("Client rows: CPU time and allocations of the client, above those of plain reqwest");
    println!("\n{}", report::costs(&routes, &clients));
    println!("\nOn actix-web and on axum, each above the bare route of the same framework\n");
    println!("{}", report::frameworks(&routes, &on_axum));
    println!(
        "\nFull load\n\n{}\n\nFull load on axum\n\n{}\n\n{latency}",
        report::loads(&routes, &clients),
        report::loads(&on_axum, &[])
    );
    Ok(())
}

/// Measures the clients only, and prints the tables.
pub(crate) fn measure_clients(rounds: u64, seconds: u64) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let allocations = AllocationCosts::of_clients(folder.path())?;
    let rows = client_rows(client_comparison::measure(rounds, seconds, folder.path())?, allocations);
    println!("\n{}", machine::line(&[]));
    println!("\nMedians of {rounds} rounds of {seconds} s (least–most)");
    println!("\n{}\n\n{}", report::costs(&[], &rows), report::loads(&[], &rows));
    Ok(())
}

/// The runs on each framework, in the order of [`Framework::ALL`].
fn all_rounds(runner: &mut Runner<'_>, servers: &mut RedisServers, rounds: u64) -> Result<[Runs; 2], Failure> {
    let mut runs = Framework::ALL.map(|framework| vec![Vec::new(); framework.cases().count()]);
    for round in 0..rounds {
        for (framework, runs) in Framework::ALL.into_iter().zip(&mut runs) {
            for (case, runs) in framework.cases().zip(runs) {
                let run = runner.run(framework, case, servers.of(case))?;
                let (name, rate) = (format!("{}, {}", framework.name(), case.name), run.throughput());
                println!("round {} of {rounds}: {name:<35} {rate:>8.0} requests/s", round + 1);
                runs.push(run);
            }
        }
    }
    Ok(runs)
}

/// The rows of the routes, in the order of the cases. Empty if there were no rounds.
fn route_rows(framework: Framework, runs: &Runs, allocations: &[AllocationCost]) -> Vec<RouteRow> {
    let row = |((case, runs_of_case), allocations): ((&'static Case, &Vec<CaseRun>), &AllocationCost)| {
        let figures = CaseStatistics::of(runs_of_case, runs.first()?)?;
        Some(RouteRow { case, figures, allocations: *allocations })
    };
    framework.cases().zip(runs).zip(allocations).filter_map(row).collect()
}

fn client_rows(figures: [ClientStatistics; 2], allocations: [AllocationCost; 2]) -> Vec<ClientRow> {
    let rows = ClientKind::ALL.into_iter().zip(figures).zip(allocations);
    rows.map(|((kind, figures), allocations)| ClientRow { kind, figures, allocations }).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::case_run::CpuTime;
    use crate::command_count::CommandCount;
    use crate::wrk::LoadResult;

    /// A run of one request that took the server this long.
    fn run(micros: usize) -> CaseRun {
        let load = LoadResult { requests: 1, lasted: Duration::from_secs(1), p50: Duration::ZERO, p99: Duration::ZERO };
        let cpu = CpuTime { server: Duration::from_micros(micros as u64), ..CpuTime::default() };
        CaseRun { load, commands: CommandCount::default(), cpu }
    }

    #[test]
    fn route_has_the_runs_and_allocations_of_its_case() {
        let runs: Runs = (0..Case::ALL.len()).map(|at| vec![run(10 + at)]).collect();
        let allocations: Vec<_> =
            (0..Case::ALL.len()).map(|at| AllocationCost { allocations: at as f64, bytes: 0.0 }).collect();
        let rows = route_rows(Framework::Actix, &runs, &allocations);
        let shown = |row: &RouteRow| (row.case.name, row.figures.above.median.round(), row.allocations.allocations);
        let expected = |(at, case): (usize, &Case)| (case.name, at as f64, at as f64);
        assert!(rows.iter().map(shown).eq(Case::ALL.iter().enumerate().map(expected)));
        assert_eq!(route_rows(Framework::Axum, &runs, &allocations).len(), Framework::Axum.cases().count());
        assert!(route_rows(Framework::Actix, &Runs::default(), &allocations).is_empty());
    }
}

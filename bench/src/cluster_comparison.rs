//! Compares one Redis with a cluster of three masters, in the same rounds.

use std::path::Path;

use crate::case::Case;
use crate::case_run::{WARM_UP, token_ranges};
use crate::cluster::Cluster;
use crate::markdown_table::MarkdownTable;
use crate::redis_server::RedisServer;
use crate::server_process::ServerProcess;
use crate::statistics::Spread;
use crate::wrk::Wrk;
use crate::{Failure, machine};

/// The compared cases.
const CASES: [&str; 3] = ["token, Redis", "key, retryable, Redis", "remembered, Redis"];

/// Runs every case on both in every round, and prints the ratio.
pub(crate) fn measure(rounds: u64, seconds: u64) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let generator = Wrk::in_folder(folder.path())?;
    let (mut one, mut three) = (RedisServer::start()?, Cluster::start()?);
    let mut table = MarkdownTable::new(["case", "one Redis, requests/s", "cluster, requests/s", "cluster / one Redis"]);
    for name in CASES {
        let case = Case::named(name).ok_or_else(|| format!("unknown case: {name}"))?;
        let mut runner = ComparisonRunner { generator: &generator, folder: folder.path(), case, seconds, fastest: 0.0 };
        let (mut singles, mut clusters) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            one.forget()?;
            singles.push(runner.run(&one.url())?);
            three.forget()?;
            clusters.push(runner.run(&three.url())?);
            let (single, cluster) = (singles[singles.len() - 1], clusters[clusters.len() - 1]);
            println!(
                "round {} of {rounds}: {name:<24} one {single:>8.0}, cluster {cluster:>8.0} requests/s",
                round + 1
            );
        }
        table.push(row(name, &singles, &clusters).ok_or("no rounds")?);
    }
    println!("\n{}", machine::line(&[one.version()?]));
    println!("\nMedians of {rounds} rounds of {seconds} s (least–most)\n\n{table}");
    Ok(())
}

/// Runs one case on both stores.
struct ComparisonRunner<'a> {
    generator: &'a Wrk,
    folder: &'a Path,
    case: &'static Case,
    seconds: u64,
    /// Maximum requests per second so far.
    fastest: f64,
}

impl ComparisonRunner<'_> {
    /// Runs the case on this store, and returns the requests per second.
    fn run(&mut self, store: &str) -> Result<f64, Failure> {
        let (warm_up, measured) = token_ranges(self.case, self.fastest, self.seconds);
        let server = ServerProcess::start(self.case, store, self.folder, measured.first + measured.count)?;
        self.generator.send(self.case, server.url(), self.folder, warm_up, WARM_UP)?;
        let load = self.generator.send(self.case, server.url(), self.folder, measured, self.seconds)?;
        let throughput = load.requests as f64 / load.lasted.as_secs_f64();
        self.fastest = self.fastest.max(throughput);
        Ok(throughput)
    }
}

fn row(name: &str, singles: &[f64], clusters: &[f64]) -> Option<[String; 4]> {
    let ratios = clusters.iter().zip(singles).map(|(cluster, single)| cluster / single);
    let (single, cluster) = (Spread::of(singles.iter().copied())?, Spread::of(clusters.iter().copied())?);
    let ratio = Spread::of(ratios)?;
    Some([name.to_owned(), single.cell(0), cluster.cell(0), ratio.cell(2)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_shows_medians_and_the_ratio_per_round() {
        let row = row("token, Redis", &[100.0, 200.0, 400.0], &[50.0, 200.0, 600.0]).unwrap();
        assert_eq!(row, ["token, Redis", "200 (100–400)", "200 (50–600)", "1.00 (0.50–1.50)"]);
        assert!(super::row("x", &[], &[]).is_none());
    }

    #[test]
    fn compared_cases_exist() {
        assert!(CASES.iter().all(|name| Case::named(name).is_some()));
    }
}

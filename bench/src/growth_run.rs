//! The cost of a request while the store holds many records, and the bytes of a record.

use std::path::Path;
use std::time::Duration;

use crate::case::Case;
use crate::scale_process::ScaleProcess;
use crate::scaled_store::{ScaledStore, StoreKind};
use crate::statistics::Spread;
use crate::wrk::{THREADS, TokenRange, Wrk};
use crate::{Failure, cpu};

/// Number of rounds, and duration of the load of a route in each, in seconds.
pub(crate) const ROUNDS: usize = 3;
pub(crate) const SECONDS: u64 = 2;
/// Number of tokens, relative to those that the fastest run so far would have used: the next run may be faster.
const MARGIN: f64 = 1.5;
/// Attempts of a load whose tokens did not last, each with twice as many.
const ATTEMPTS: usize = 6;
/// From this size on, all rounds use one store: their own records are few beside the others.
const SHARED: u64 = 1_000_000;

/// The routes under load: the command for its token files, and the case that the load generator sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadedRoute {
    /// Redeems a token.
    Token,
    /// Claims a new key and stores the response.
    Key,
}

impl LoadedRoute {
    pub(crate) const ALL: [Self; 2] = [Self::Token, Self::Key];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Key => "key",
        }
    }

    fn command(self) -> &'static str {
        match self {
            Self::Token => "issue",
            Self::Key => "foreign",
        }
    }

    /// The requests, which do not depend on the store.
    fn case(self) -> Result<&'static Case, Failure> {
        let name = format!("{}, memory", self.name());
        Case::named(&name).ok_or_else(|| format!("there is no case {name}").into())
    }
}

/// CPU time per request, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RouteCost {
    pub(crate) server: f64,
    pub(crate) store: f64,
}

/// The figures of a store of one size.
#[derive(Debug, Clone)]
pub(crate) struct GrowthRun {
    pub(crate) store: StoreKind,
    /// Number of tokens, and of keys, beside those of the load.
    pub(crate) size: u64,
    /// Bytes of a token, and of a key with its stored response.
    pub(crate) bytes: [f64; 2],
    /// Bytes of all records.
    pub(crate) total: u64,
    /// The rounds of each route.
    pub(crate) costs: [Vec<RouteCost>; 2],
}

impl GrowthRun {
    /// CPU time per request of server and store together, or of one of them.
    pub(crate) fn cpu(&self, route: LoadedRoute, part: impl Fn(&RouteCost) -> f64) -> Option<Spread> {
        Spread::of(self.costs[route as usize].iter().map(part))
    }

    /// The median CPU time per request of server and store together.
    pub(crate) fn median(&self, route: LoadedRoute) -> Option<f64> {
        Some(self.cpu(route, |cost| cost.server + cost.store)?.median)
    }
}

/// Measures one kind of store, from the smallest size to the largest.
pub(crate) struct GrowthRunner<'a> {
    pub(crate) store: StoreKind,
    pub(crate) generator: &'a Wrk,
    pub(crate) folder: &'a Path,
    /// Maximum requests per second of all runs of a route so far.
    pub(crate) rates: [f64; 2],
}

impl<'a> GrowthRunner<'a> {
    pub(crate) fn new(store: StoreKind, generator: &'a Wrk, folder: &'a Path) -> Self {
        Self { store, generator, folder, rates: [store.first_rate(); 2] }
    }

    pub(crate) async fn run(&mut self, size: u64) -> Result<GrowthRun, Failure> {
        let mut filled = self.filled(size).await?;
        let (bytes, total) = (filled.bytes, filled.total);
        let mut costs = [const { Vec::new() }; 2];
        for round in 0..ROUNDS {
            if round > 0 && size < SHARED {
                filled = self.filled(size).await?;
            }
            for (route, costs) in LoadedRoute::ALL.into_iter().zip(&mut costs) {
                costs.push(self.load(&mut filled, route)?);
            }
        }
        Ok(GrowthRun { store: self.store, size, bytes, total, costs })
    }

    async fn filled(&self, size: u64) -> Result<FilledStore, Failure> {
        let mut store = ScaledStore::start(self.store).await?;
        let mut server = ScaleProcess::start(self.store, &store, self.folder)?;
        let mut sizes = [store.bytes(server.id()).await?, 0, 0];
        for (at, command) in ["tokens", "keys"].into_iter().enumerate() {
            server.tell(&format!("{command} {size}"))?;
            sizes[at + 1] = store.bytes(server.id()).await?;
        }
        let each = |at: usize| sizes[at + 1].saturating_sub(sizes[at]) as f64 / size as f64;
        let total = sizes[2].saturating_sub(sizes[0]);
        Ok(FilledStore { server, store, bytes: [each(0), each(1)], total })
    }

    /// Loads a route, again with more tokens if they did not last.
    fn load(&mut self, filled: &mut FilledStore, route: LoadedRoute) -> Result<RouteCost, Failure> {
        let mut attempt = 1;
        loop {
            match self.load_once(filled, route) {
                Err(_) if attempt < ATTEMPTS => self.rates[route as usize] *= 2.0,
                loaded => return loaded,
            }
            attempt += 1;
        }
    }

    fn load_once(&mut self, filled: &mut FilledStore, route: LoadedRoute) -> Result<RouteCost, Failure> {
        let rate = &mut self.rates[route as usize];
        let count = (*rate * MARGIN * SECONDS as f64 / THREADS as f64).ceil() as usize;
        filled.server.tell(&format!("{} {count}", route.command()))?;
        let before = filled.cpu()?;
        let range = TokenRange { first: 0, count };
        let load = self.generator.send(route.case()?, filled.server.url(), self.folder, range, SECONDS)?;
        let after = filled.cpu()?;
        *rate = rate.max(load.requests as f64 / load.lasted.as_secs_f64());
        let micros = |at: usize| after[at].saturating_sub(before[at]).as_secs_f64() * 1e6 / load.requests as f64;
        Ok(RouteCost { server: micros(0), store: micros(1) })
    }
}

/// A server whose store holds records. The server ends first.
struct FilledStore {
    server: ScaleProcess,
    store: ScaledStore,
    bytes: [f64; 2],
    total: u64,
}

impl FilledStore {
    /// The CPU time of the server, and of the store.
    fn cpu(&self) -> Result<[Duration; 2], Failure> {
        Ok([cpu::used_by(self.server.id())?, self.store.cpu()?])
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run in which a request of each route takes this many microseconds.
    pub(crate) fn run(store: StoreKind, size: u64, token: f64, key: f64) -> GrowthRun {
        let rounds = |sum: f64| vec![RouteCost { server: sum * 0.75, store: sum * 0.25 }; ROUNDS];
        GrowthRun { store, size, bytes: [130.0, 260.5], total: size * 390, costs: [rounds(token), rounds(key)] }
    }

    #[test]
    fn cost_of_a_request_is_the_median_of_server_and_store() {
        let mut run = run(StoreKind::Redis, 10_000, 20.0, 40.0);
        run.costs[0][1] = RouteCost { server: 90.0, store: 10.0 };
        assert_eq!((run.median(LoadedRoute::Token), run.median(LoadedRoute::Key)), (Some(20.0), Some(40.0)));
        assert_eq!(run.cpu(LoadedRoute::Token, |cost| cost.server).map(|spread| spread.most), Some(90.0));
    }

    #[test]
    fn every_route_has_its_case() {
        let paths = LoadedRoute::ALL.map(|route| route.case().unwrap().path);
        assert_eq!(paths, ["/orders", "/keyed"]);
    }
}

//! The cost of a request while the store holds many records, and the bytes of a record.

use std::ops::AddAssign;
use std::path::Path;
use std::time::Duration;

use crate::Failure;
use crate::filled_store::FilledStore;
use crate::scaled_store::StoreKind;
use crate::statistics::Spread;

/// Number of rounds, and of loads per round of each size. A load has [`StoreKind::requests`].
pub(crate) const ROUNDS: usize = 5;
pub(crate) const LOADS: u64 = 4;

/// The routes under load.
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
            Self::Key => "key (retryable)",
        }
    }

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Token => "/orders",
            Self::Key => "/keyed",
        }
    }

    /// The command that has the server write token files.
    pub(crate) fn command(self) -> &'static str {
        match self {
            Self::Token => "issue",
            Self::Key => "foreign",
        }
    }
}

/// CPU time per request, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RouteCost {
    pub(crate) server: f64,
    pub(crate) store: f64,
}

impl RouteCost {
    /// The CPU time of server and store together.
    pub(crate) fn sum(&self) -> f64 {
        self.server + self.store
    }
}

/// The CPU time of server and store in the loads of a round.
#[derive(Debug, Clone, Copy, Default)]
struct LoadTime([Duration; 2]);

impl LoadTime {
    fn per_request(self, requests: u64) -> RouteCost {
        let [server, store] = self.0.map(|time| time.as_secs_f64() * 1e6 / requests as f64);
        RouteCost { server, store }
    }
}

impl AddAssign<[Duration; 2]> for LoadTime {
    fn add_assign(&mut self, other: [Duration; 2]) {
        self.0[0] += other[0];
        self.0[1] += other[1];
    }
}

/// The figures of a store of one size.
#[derive(Debug, Clone)]
pub(crate) struct GrowthRun {
    pub(crate) store: StoreKind,
    /// Number of tokens, and of keys. A load adds at most as many.
    pub(crate) size: u64,
    /// Bytes of a token, and of a key with its stored response.
    pub(crate) bytes: [f64; 2],
    /// Bytes of all records.
    pub(crate) total: u64,
    /// The rounds of each route.
    pub(crate) costs: [Vec<RouteCost>; 2],
}

impl GrowthRun {
    /// The rounds of a route.
    pub(crate) fn of(&self, route: LoadedRoute) -> &[RouteCost] {
        &self.costs[route as usize]
    }

    /// CPU time per request of server and store together, or of one of them.
    pub(crate) fn cpu(&self, route: LoadedRoute, part: impl Fn(&RouteCost) -> f64) -> Option<Spread> {
        Spread::of(self.of(route).iter().map(part))
    }

    /// The median CPU time per request of server and store together.
    pub(crate) fn median(&self, route: LoadedRoute) -> Option<f64> {
        Some(self.cpu(route, RouteCost::sum)?.median)
    }

    /// The cost relative to that of a reference size in the same round.
    pub(crate) fn ratio(&self, reference: &Self, route: LoadedRoute) -> Option<Spread> {
        Spread::of_pairs(self.of(route), reference.of(route), |cost, reference| cost.sum() / reference.sum())
    }
}

/// Measures one kind of store with each of these sizes. The loads of the sizes take turns, so that other load on the machine affects all of
/// them.
pub(crate) async fn measure(store: StoreKind, sizes: &[u64], folder: &Path) -> Result<Vec<GrowthRun>, Failure> {
    let (mut runs, mut stores) = (Vec::new(), Vec::new());
    for &size in sizes {
        let filled = FilledStore::new(store, size, folder).await?;
        runs.push(GrowthRun { store, size, bytes: filled.bytes, total: filled.total, costs: Default::default() });
        stores.push(Some(filled));
    }
    for round in 0..ROUNDS {
        let mut times = vec![[LoadTime::default(); 2]; sizes.len()];
        for _ in 0..LOADS {
            for ((filled, &size), times) in stores.iter_mut().zip(sizes).zip(&mut times) {
                let usable = usable(filled.take(), store, size, folder).await?;
                load(filled.insert(usable), times)?;
            }
        }
        for (run, times) in runs.iter_mut().zip(times) {
            let costs = run.costs.iter_mut().zip(times);
            costs.for_each(|(costs, time)| costs.push(time.per_request(LOADS * store.requests())));
        }
        println!("{}: round {} of {ROUNDS}", store.name(), round + 1);
    }
    Ok(runs)
}

/// Returns the store, or a fresh one if loads have added too many keys. The former one ends first.
async fn usable(
    filled: Option<FilledStore>,
    store: StoreKind,
    size: u64,
    folder: &Path,
) -> Result<FilledStore, Failure> {
    match filled.filter(|filled| !filled.is_used_up()) {
        Some(filled) => Ok(filled),
        None => FilledStore::new(store, size, folder).await,
    }
}

/// Warms up, and loads each route.
fn load(filled: &mut FilledStore, times: &mut [LoadTime; 2]) -> Result<(), Failure> {
    filled.warm_up()?;
    for (route, time) in LoadedRoute::ALL.into_iter().zip(times) {
        *time += filled.load(route)?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run in which a request of each route takes this many microseconds.
    pub(crate) fn run(store: StoreKind, size: u64, token: f64, key: f64) -> GrowthRun {
        let rounds = |sum: f64| vec![RouteCost { server: sum * 0.75, store: sum * 0.25 }; 3];
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
    fn ratio_is_of_the_same_round() {
        let [mut small, mut large] = [10_000, 100_000].map(|size| run(StoreKind::Memory, size, 10.0, 20.0));
        // The machine was slower in one round, for both sizes.
        small.costs[0][1] = RouteCost { server: 30.0, store: 10.0 };
        large.costs[0][1] = RouteCost { server: 40.0, store: 10.0 };
        let ratio = large.ratio(&small, LoadedRoute::Token);
        assert_eq!(ratio, Some(Spread { median: 1.0, least: 1.0, most: 1.25 }));
    }

    #[test]
    fn cpu_time_of_all_loads_is_divided_by_all_requests() {
        let mut time = LoadTime::default();
        time += [30, 10].map(Duration::from_micros);
        time += [50, 10].map(Duration::from_micros);
        let cost = time.per_request(10);
        assert!((cost.server - 8.0).abs() < 1e-9 && (cost.sum() - 10.0).abs() < 1e-9);
    }
}

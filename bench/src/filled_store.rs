//! A store with many records, the server in front of it, and the connections of the load.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::closed_load::ClosedLoad;
use crate::growth_run::LoadedRoute;
use crate::http_connection::request;
use crate::scale_server;
use crate::scaled_store::{ScaledStore, StoreKind};
use crate::server_process::ServerProcess;
use crate::wrk::THREADS;
use crate::{Failure, cpu};

/// Duration of the replays in a warm-up: each worker then has its own connection to the store.
const REPLAYS: Duration = Duration::from_millis(500);
/// Number of requests of a load for each request of its warm-up.
const PER_WARM_UP: u64 = 10;

/// The status of every response.
const CREATED: u16 = 201;

/// A filled store. The connections are closed first, then the server ends.
pub(crate) struct FilledStore {
    load: ClosedLoad,
    server: ServerProcess,
    store: ScaledStore,
    kind: StoreKind,
    folder: PathBuf,
    /// Number of tokens, and of keys, that the store was filled with.
    size: u64,
    /// Number of keys that loads have added since.
    added: u64,
    /// The request whose response is replayed in every warm-up.
    replayed: Vec<u8>,
    /// Bytes of a token, and of a key with its stored response.
    pub(crate) bytes: [f64; 2],
    /// Bytes of all records.
    pub(crate) total: u64,
}

impl FilledStore {
    /// Starts a store and its server, and fills the store with `size` tokens and as many keys.
    pub(crate) async fn new(kind: StoreKind, size: u64, folder: &Path) -> Result<Self, Failure> {
        let mut store = ScaledStore::start(kind).await?;
        let mut program = Command::new(std::env::current_exe()?);
        let program = program.args([scale_server::SERVE, kind.name(), &store.address()]).arg(folder);
        let mut server = ServerProcess::spawn(program, kind.name())?;
        let mut sizes = [store.bytes(server.id()).await?, 0, 0];
        for (at, command) in ["tokens", "keys"].into_iter().enumerate() {
            server.tell(&format!("{command} {size}"))?;
            sizes[at + 1] = store.bytes(server.id()).await?;
        }
        let each = |at: usize| sizes[at + 1].saturating_sub(sizes[at]) as f64 / size as f64;
        let (bytes, total) = ([each(0), each(1)], sizes[2].saturating_sub(sizes[0]));
        let (load, folder) = (ClosedLoad::open(server.url())?, folder.to_owned());
        let mut filled = Self { load, server, store, kind, folder, size, added: 0, replayed: Vec::new(), bytes, total };
        filled.replayed = filled.requests(LoadedRoute::Key, 1)?.swap_remove(0);
        filled.load.send(std::slice::from_ref(&filled.replayed), CREATED)?;
        Ok(filled)
    }

    /// True if the next load, with its warm-up, would leave more than twice as many keys as the store was filled with.
    pub(crate) fn is_used_up(&self) -> bool {
        let requests = self.kind.requests();
        self.added + requests + requests / PER_WARM_UP > self.size
    }

    /// Sends replays of one key, and some requests to each route: connections, scripts and caches are then as warm as those of another
    /// store.
    pub(crate) fn warm_up(&mut self) -> Result<(), Failure> {
        // The server has closed connections that were idle while another store was filled.
        self.load = ClosedLoad::open(self.server.url())?;
        self.load.repeat(&self.replayed, REPLAYS, CREATED)?;
        LoadedRoute::ALL.into_iter().try_for_each(|route| {
            let requests = self.requests(route, self.kind.requests() / PER_WARM_UP)?;
            self.load.send(&requests, CREATED)
        })
    }

    /// Sends the requests of one load, and returns the CPU time of server and store.
    pub(crate) fn load(&mut self, route: LoadedRoute) -> Result<[Duration; 2], Failure> {
        let requests = self.requests(route, self.kind.requests())?;
        let before = self.cpu()?;
        self.load.send(&requests, CREATED)?;
        let after = self.cpu()?;
        Ok([0, 1].map(|at| after[at].saturating_sub(before[at])))
    }

    /// Returns this many requests, each with a new token or key.
    fn requests(&mut self, route: LoadedRoute, count: u64) -> Result<Vec<Vec<u8>>, Failure> {
        self.server.tell(&format!("{} {}", route.command(), count.div_ceil(THREADS as u64)))?;
        let files = (0..THREADS).map(|thread| std::fs::read_to_string(self.folder.join(thread.to_string())));
        let tokens = files.collect::<Result<String, _>>()?;
        self.added += if route == LoadedRoute::Key { count } else { 0 };
        Ok(tokens.lines().take(count as usize).map(|token| request(route.path(), token)).collect())
    }

    /// The CPU time of the server, and of the store's own processes.
    fn cpu(&self) -> Result<[Duration; 2], Failure> {
        Ok([cpu::of_threads(self.server.id())?, self.store.cpu()?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::SMALLEST;

    #[test]
    fn one_load_at_most_doubles_the_smallest_store() {
        for kind in StoreKind::ALL {
            let requests = kind.requests();
            assert!(requests >= PER_WARM_UP && requests + requests / PER_WARM_UP < SMALLEST, "{kind:?}");
        }
    }
}

//! The guard that a command uses.

use onceward::Guard;

use super::output::{Failure, meanwhile};
use crate::app::BuildError;
use crate::config::{Config, StoreAddress};
use crate::guard_setup::build_guard;

/// Returns a guard on the configured store, once the store is reachable.
pub(super) async fn guard(config: &Config, instead: &str) -> Result<Guard, Failure> {
    reachable(config, instead)?;
    build_guard(config, &meanwhile).await.map_err(|error| match error {
        BuildError::Store(_) => Failure::usage(error.to_string()),
        _ => Failure::problem(error.to_string()),
    })
}

/// Fails for the memory store, which another process cannot reach.
pub(super) fn reachable(config: &Config, instead: &str) -> Result<(), Failure> {
    match config.store {
        StoreAddress::Redis(_) | StoreAddress::Sql(_) => Ok(()),
        StoreAddress::Memory => Err(Failure::usage(format!(
            "the memory store belongs to the process of the service and cannot be reached from this command. {instead} \
             If the service uses another store, set it: --store redis://host:port (or ONCEWARD_STORE, or --config)."
        ))),
    }
}

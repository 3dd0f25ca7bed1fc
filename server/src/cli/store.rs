//! The guard that a command works with.

use onceward::Guard;

use super::output::Failure;
use crate::app::BuildError;
use crate::config::{Config, StoreAddress};
use crate::guard_setup::build_guard;

/// A guard on the store of the settings, once that answers.
pub(super) async fn guard(config: &Config, instead: &str) -> Result<Guard, Failure> {
    reachable(config, instead)?;
    build_guard(config).await.map_err(|error| match error {
        BuildError::Store(_) => Failure::usage(error.to_string()),
        _ => Failure::problem(error.to_string()),
    })
}

/// The store of a service that keeps it in its own memory cannot be reached from here.
pub(super) fn reachable(config: &Config, instead: &str) -> Result<(), Failure> {
    match config.store {
        StoreAddress::Redis(_) | StoreAddress::Sql(_) => Ok(()),
        StoreAddress::Memory => Err(Failure::usage(format!(
            "the memory store lives in the service's own process, and this command is another one. {instead} \
             With Redis, name it: --store redis://host:port (or ONCEWARD_STORE, or --config)."
        ))),
    }
}

//! `onceward migrate`: creates or updates the tables in a database.

use clap::ArgMatches;
use onceward::store::{MigrationOutcome, Sql};
use serde_json::json;

use super::argument::is_set;
use super::output::{Failure, Output};
use crate::check::database::explain;
use crate::check::finding::Finding;
use crate::config::{Config, StoreAddress};

pub(super) async fn migrate(matches: &ArgMatches, config: &Config) -> Result<Output, Failure> {
    let StoreAddress::Sql(url) = &config.store else {
        return Err(Failure::usage(format!(
            "{} needs no tables. Set a database: --store postgres://user@host/database or --store sqlite:path (or ONCEWARD_STORE).",
            config.store
        )));
    };
    if is_set(matches, "print-sql") {
        let script = Sql::migration(url).map_err(|error| Failure::usage(error.to_string()))?;
        return Ok(Output::fine(script, json!({ "sql": script })));
    }
    let store = config.store.to_string();
    let migrated = Sql::migrate(url).await.map_err(|error| match explain(&error, url) {
        Some(Finding { says, fix, .. }) => Failure::problem(format!("{says} {}", fix.unwrap_or_default())),
        None => Failure::problem(format!("{store}: {error}")),
    })?;
    let (text, done) = match migrated {
        MigrationOutcome::Made => (format!("{store}: created the tables of Onceward (onceward_…).\n"), true),
        MigrationOutcome::Updated => (format!("{store}: updated the tables and kept their records.\n"), true),
        MigrationOutcome::Current => (format!("{store}: the tables are up to date, nothing was changed.\n"), false),
    };
    Ok(Output::fine(text, json!({ "store": store, "made": done })))
}

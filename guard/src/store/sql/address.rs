//! Parsing of database addresses.

use std::str::FromStr as _;

use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;

use super::SqlError;

/// The parameters that a PostgreSQL address may have, besides `options[name]`.
const OF_POSTGRES: [&str; 18] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];
/// The parameters that a SQLite address may have.
const OF_SQLITE: [&str; 4] = ["mode", "cache", "immutable", "vfs"];

/// A parsed address, by kind of database.
pub(super) enum SqlAddress {
    Postgres(PgConnectOptions),
    Sqlite(SqliteConnectOptions),
}

impl SqlAddress {
    /// Parses an address. It may contain a password, so no error quotes it. A parameter that the driver does not know is rejected here,
    /// because the driver would log it with its value.
    pub(super) fn parse(text: &str) -> Result<Self, SqlError> {
        let bad = |error: sqlx::Error| SqlError::Address(error.to_string());
        match text.split_once(':') {
            Some(("postgres" | "postgresql", _)) => {
                let is_setting = |name: &str| name.starts_with("options[") || name.starts_with("options%5B");
                let is_known = |name: &str| OF_POSTGRES.contains(&name) || is_setting(name);
                check(text, is_known, &OF_POSTGRES)?;
                PgConnectOptions::from_str(text).map(Self::Postgres).map_err(bad)
            }
            Some(("sqlite", rest)) => {
                check(text, |name| OF_SQLITE.contains(&name), &OF_SQLITE)?;
                let options = SqliteConnectOptions::from_str(text).map_err(bad)?;
                if is_in_memory(rest, &options) {
                    let why = "SQLite needs a file, because records must outlive the process";
                    return Err(SqlError::Address(why.to_owned()));
                }
                Ok(Self::Sqlite(options))
            }
            Some((other @ ("mysql" | "mariadb" | "mssql" | "oracle"), _)) => {
                Err(SqlError::Address(format!("`{other}` is not supported")))
            }
            _ => Err(SqlError::Address("unknown scheme".to_owned())),
        }
    }
}

/// Returns the names and values of the query string, undecoded.
fn parameters(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let query = text.split_once('?').map_or("", |(_, query)| query);
    let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
    parameters.map(|parameter| parameter.split_once('=').unwrap_or((parameter, "")))
}

fn check(text: &str, is_known: impl Fn(&str) -> bool, known: &[&str]) -> Result<(), SqlError> {
    if parameters(text).all(|(name, _)| is_known(name)) {
        return Ok(());
    }
    Err(SqlError::Address(format!("it has a parameter that is none of {}", known.join(", "))))
}

/// Returns whether the database would be in memory, in any of the possible spellings.
fn is_in_memory(rest: &str, options: &SqliteConnectOptions) -> bool {
    let place = rest.split('?').next().unwrap_or_default();
    let file = options.get_filename();
    let is_a_file = |mode| matches!(mode, "ro" | "rw" | "rwc");
    matches!(place, "" | "//" | ":memory:" | "//:memory:")
        || matches!(file.to_str(), Some("" | ":memory:"))
        || parameters(rest).any(|(name, value)| name == "mode" && !is_a_file(value))
}

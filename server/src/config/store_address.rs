//! The address of the store, shown without credentials.

use std::fmt;

use onceward::store::{Redis, Sql};

/// The address of the store.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreAddress {
    /// The memory of this process.
    Memory,
    /// A Redis at this address, which may contain a password.
    Redis(String),
    /// A database at this address, which may contain a password.
    Sql(String),
}

impl StoreAddress {
    /// Parses an address. The error does not quote it, since it may contain a password.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("postgres" | "postgresql" | "sqlite" | "mysql" | "mariadb", _)) => {
                Sql::check_address(text).map_err(|error| error.to_string())?;
                Ok(Self::Sql(text.to_owned()))
            }
            _ => match Redis::check_address(text) {
                Ok(()) => Ok(Self::Redis(text.to_owned())),
                Err(error)
                    if ["redis", "valkey", "unix"].iter().any(|scheme| text.trim_start().starts_with(scheme)) =>
                {
                    Err(error.to_string())
                }
                Err(error) => Err(format!(
                    "expected `memory:`, `postgres://user@host/database`, `sqlite:/var/lib/onceward.db` or a Redis address; {error}"
                )),
            },
        }
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            // Host and port only: no user name, no password, no path or query.
            Self::Redis(address) => match address.split_once("://") {
                Some((scheme, rest)) => {
                    let authority = rest.split(['/', '?', '#']).next().unwrap_or("…");
                    write!(f, "{scheme}://{}", authority.rsplit('@').next().unwrap_or("…"))
                }
                // A list of hosts without a scheme has no password.
                None => f.write_str(address),
            },
            Self::Sql(url) => match url.split_once("://").filter(|(scheme, _)| scheme.starts_with("postgres")) {
                Some((_, rest)) => {
                    let rest = rest.split(['?', '#']).next().unwrap_or("…");
                    write!(f, "postgres://{}", rest.rsplit('@').next().unwrap_or("…"))
                }
                None => f.write_str(url.split('?').next().unwrap_or("…")),
            },
        }
    }
}

impl fmt::Debug for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

//! Parsing of database addresses.

use std::str::FromStr as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};
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
        let bad = |error: sqlx::Error| match error {
            sqlx::Error::Configuration(error) => SqlError::Address(error.to_string()),
            error => SqlError::Address(error.to_string()),
        };
        match text.split_once(':') {
            Some(("postgres" | "postgresql", rest)) => {
                check_place(rest)?;
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

/// The hint for a password that contains a delimiter of addresses.
const ENCODE: &str = "in a user name or a password, `/` is written as %2F, `?` as %3F and `#` as %23";

/// Rejects a PostgreSQL address that the driver would accept although it mistakes a part of the password for a port or a database, which
/// messages name.
fn check_place(rest: &str) -> Result<(), SqlError> {
    let Some(rest) = rest.strip_prefix("//") else {
        return Err(SqlError::Address("`//` is missing after the scheme".to_owned()));
    };
    let place = rest.split('?').next().unwrap_or_default();
    let path = place.split_once('/').map_or("", |(_, path)| path);
    if path.contains('@') || rest.contains('#') {
        return Err(SqlError::Address(ENCODE.to_owned()));
    }
    Ok(())
}

/// The characters that are encoded in a part of an address.
pub(super) const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Returns the command that creates the tables at this address, quoted for a shell. A password is replaced by `PASSWORD`.
pub(super) fn command(address: &str) -> String {
    let (place, query) = address.split_once('?').map_or((address, None), |(place, query)| (place, Some(query)));
    let place = match place.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?))) {
        Some((scheme, (credentials, host))) => match credentials.split_once(':') {
            Some((user, _)) => format!("{scheme}://{user}:PASSWORD@{host}"),
            None => format!("{scheme}://{credentials}@{host}"),
        },
        None => place.to_owned(),
    };
    let hidden = |parameter: &str| match parameter.starts_with("password=") {
        true => "password=PASSWORD".to_owned(),
        false => parameter.to_owned(),
    };
    let query = query.map(|query| format!("?{}", query.split('&').map(hidden).collect::<Vec<_>>().join("&")));
    let address = place + &query.unwrap_or_default();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || ":/@._-%+=,…".contains(letter);
    match address.chars().all(is_plain) {
        true => format!("onceward migrate --store {address}"),
        false => format!("onceward migrate --store '{}'", address.replace('\'', "'\\''")),
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
    let why = format!("it has a parameter that is none of {}", known.join(", "));
    let is_password = text.split_once('?').is_some_and(|(_, query)| query.contains('@'));
    Err(SqlError::Address(if is_password { ENCODE.to_owned() } else { why }))
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

#[cfg(test)]
mod tests {
    use sqlx::{Postgres, Sqlite};

    use super::super::dialect::Statements as _;
    use super::*;

    #[test]
    fn migrate_command_names_the_address_without_its_password() {
        for (address, shown) in [
            ("postgres://shop@127.0.0.1/shop", "postgres://shop@127.0.0.1/shop"),
            ("postgres://shop:canary@h:5432/shop", "postgres://shop:PASSWORD@h:5432/shop"),
            ("postgres://h/shop?user=shop&password=canary", "'postgres://h/shop?user=shop&password=PASSWORD'"),
            ("postgres://u:p@h/x?options[search_path]=shop", "'postgres://u:PASSWORD@h/x?options[search_path]=shop'"),
            ("sqlite:/var/lib/onceward.db", "sqlite:/var/lib/onceward.db"),
            ("sqlite:my file's.db", "'sqlite:my file'\\''s.db'"),
        ] {
            assert_eq!(command(address), format!("onceward migrate --store {shown}"));
        }
    }

    #[test]
    fn migrate_command_is_derived_from_connect_options() {
        for (address, shown) in [
            ("postgres://shop:canary@127.0.0.1/shop", "postgres://shop@127.0.0.1/shop"),
            ("postgres://shop@[::1]:5433/my%20shop", "postgres://shop@[::1]:5433/my%20shop"),
            ("postgres://u@%2Frun%2Fpg/x?password=canary", "postgres://u@%2Frun%2Fpg/x"),
            ("postgres://u@h/x?options[search_path]=shop", "postgres://u@h/x?options=-c%20search_path%3Dshop"),
        ] {
            let Ok(SqlAddress::Postgres(options)) = SqlAddress::parse(address) else { panic!("{address}") };
            let found = Postgres::migrate_command(&options).replace('\'', "");
            assert_eq!(found, format!("onceward migrate --store {shown}"), "{address}");
            let (_, again) = found.rsplit_once(' ').unwrap();
            let Ok(SqlAddress::Postgres(again)) = SqlAddress::parse(again) else { panic!("{again}") };
            let parts = |options: &PgConnectOptions| {
                let [host, user] = [options.get_host(), options.get_username()].map(str::to_owned);
                let [database, settings] =
                    [options.get_database(), options.get_options()].map(|part| part.map(str::to_owned));
                (host, user, database, settings, options.get_port(), options.get_socket().cloned())
            };
            assert_eq!(parts(&again), parts(&options), "{address}");
        }
        for (address, shown) in
            [("sqlite:/var/a%3Fb%25.db", "/var/a%3Fb%25.db"), ("sqlite:shop.db?mode=rwc", "shop.db")]
        {
            let Ok(SqlAddress::Sqlite(options)) = SqlAddress::parse(address) else { panic!("{address}") };
            assert_eq!(Sqlite::migrate_command(&options), format!("onceward migrate --store sqlite:{shown}"));
        }
    }

    #[test]
    fn address_error_quotes_no_part_of_a_password() {
        for (address, wanted) in [
            ("postgres://u:can/ary@h/db", "%2F"),
            ("postgres://u:5432/ary@h/db", "%2F"),
            ("postgres://u:5432/can?ary@h/db", "%3F"),
            ("postgres://u:5432/can?password=ary#x@h/db", "%23"),
            ("postgres://u:5432#canary@h/db", "%23"),
            ("postgres://u:can?ary@h/db", "%3F"),
            ("postgres://u:canary", "invalid port number"),
            ("postgres:u:canary@h/db", "`//` is missing"),
            ("postgres:/u:canary@h/db", "`//` is missing"),
        ] {
            let why = SqlAddress::parse(address).map(drop).expect_err(address).to_string();
            assert!(why.contains(wanted), "{address}: {why}");
            let why = why.replace("sqlite:/var/lib/onceward.db", "");
            assert!(!why.contains("can") && !why.contains("ary"), "{address}: {why}");
        }
        // Some providers have an `@` in their user names.
        for address in ["postgres://u%40server:p@h/db", "postgres://h/db?user=u@server&password=p@q"] {
            SqlAddress::parse(address).map(drop).expect(address);
        }
    }
}

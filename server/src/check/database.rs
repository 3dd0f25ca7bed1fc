//! Checks a PostgreSQL or SQLite database.

use std::time::Duration;

use onceward::store::{Room, Sql, SqlError, Store as _, StoreError};
use onceward::{Kind, Ticket};
use onceward_api::duration::spaced;
use sqlx::{Connection as _, PgConnection};

use super::durability::Losses;
use super::finding::Finding;
use super::{PATIENCE, sqlite_file};

/// Time until the probe record expires, if it is not removed.
const PROBED: Duration = Duration::from_secs(1);

/// The next step if PostgreSQL cannot be reached.
pub(crate) const START: &str = "Start PostgreSQL, or correct the address in --store.";

/// The loss when PostgreSQL does not wait for its disk.
const CUT: &str = "A crash of the machine loses the last commits: tokens redeemed in them are accepted again, and their keys may run again.";
const NOTHING: &str = "A crash loses nothing, unless the disk is lost.";
const BEHIND: &str = "After a failover, the new primary may lack the last commits, unless they wait for it (synchronous_standby_names): \
     tokens redeemed in them are accepted again, and their keys may run again.";
const BACKUP_POSTGRES: &str = "Keys that ran since the backup may run again, and tokens redeemed since then are accepted again. To make \
     all issued tokens stale, run: UPDATE onceward_schema SET reign = substring(uuid_send(gen_random_uuid()) FROM 1 FOR 8);";
const BACKUP_SQLITE: &str = "Keys that ran since the backup may run again, and tokens redeemed since then are accepted again. To make \
     all issued tokens stale, run: UPDATE onceward_schema SET reign = randomblob(8);";

/// The configuration of a PostgreSQL server.
struct PostgresSetup {
    version: String,
    is_replica: bool,
    waits_for_disk: bool,
    waits_for_commit: bool,
    user: String,
    /// The permissions on the tables that this user lacks.
    denied: Option<String>,
}

const SETUP: &str = "SELECT current_setting('server_version'), pg_is_in_recovery(),
    current_setting('fsync') = 'on', current_setting('synchronous_commit') <> 'off', current_user::text,
    (SELECT string_agg(needed.what || ' ' || needed.name, ', ') FROM (VALUES
        ('SELECT', 'onceward_schema'), ('SELECT', 'onceward_records'), ('INSERT', 'onceward_records'),
        ('UPDATE', 'onceward_records'), ('DELETE', 'onceward_records')) AS needed (what, name)
        WHERE NOT has_table_privilege(to_regclass(needed.name), needed.what))";

/// Returns whether the database can be used, and what it may lose.
pub(crate) async fn judge(url: &str, prefix: &str) -> (Vec<Finding>, Losses) {
    if let Some(path) = url.strip_prefix("sqlite:") {
        return judge_file(url, path, prefix).await;
    }
    match setup(url).await {
        Err(finding) => (vec![finding], Vec::new()),
        Ok(setup) => {
            let (disk, crash) = disk(&setup);
            let losses = vec![
                ("If the database or its machine crashes", crash),
                ("If a replica takes over", BEHIND),
                ("If a backup is restored", BACKUP_POSTGRES),
            ];
            let mut found = vec![role(&setup), disk];
            found.extend(rights(&setup));
            found.push(tables(url, open(url, prefix).await));
            (found, losses)
        }
    }
}

async fn setup(url: &str) -> Result<PostgresSetup, Finding> {
    let ask = async {
        let mut connection = PgConnection::connect(url).await?;
        sqlx::query_as(SETUP).fetch_one(&mut connection).await
    };
    let asked: Result<Result<_, sqlx::Error>, _> = tokio::time::timeout(PATIENCE, ask).await;
    let answered = asked.map_err(|_| unreachable(&format!("no reply within {}", spaced(PATIENCE))))?;
    let (version, is_replica, waits_for_disk, waits_for_commit, user, denied) =
        answered.map_err(|error| refused(&error))?;
    Ok(PostgresSetup { version, is_replica, waits_for_disk, waits_for_commit, user, denied })
}

fn unreachable(why: &str) -> Finding {
    Finding::problem("connection", format!("PostgreSQL cannot be reached: {why}."), START)
}

/// Explains a rejected login by its SQLSTATE.
fn refused(error: &sqlx::Error) -> Finding {
    let code = error.as_database_error().and_then(|error| error.code());
    let (says, fix) = match code.as_deref() {
        Some("28P01") => (
            "PostgreSQL rejects the user name or the password.",
            "Correct --store, or the file that --store-file names: postgres://user:password@host/database. Write @ in a password as %40.",
        ),
        Some("28000") => (
            "PostgreSQL does not allow this user to log in from this host.",
            "Create the user (CREATE ROLE … LOGIN), or allow it in pg_hba.conf for this host and database.",
        ),
        Some("3D000") => {
            ("The database does not exist.", "Create it (createdb), or correct the name after the host in --store.")
        }
        Some("42501") => {
            ("This user may not connect to this database.", "GRANT CONNECT ON DATABASE … TO …, as its owner.")
        }
        _ => return unreachable(&plain(error)),
    };
    Finding::problem("connection", says, fix)
}

/// Returns the text of an error without the driver's introduction.
fn plain(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(error) => error.message().to_owned(),
        sqlx::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    }
}

fn rights(setup: &PostgresSetup) -> Option<Finding> {
    let PostgresSetup { user, denied, .. } = setup;
    let denied = denied.as_ref()?;
    let fix = format!(
        "GRANT SELECT, INSERT, UPDATE, DELETE ON onceward_records TO \"{user}\"; GRANT SELECT ON onceward_schema TO \"{user}\";"
    );
    Some(Finding::problem("permissions", format!("User {user} lacks permissions: {denied}."), fix))
}

fn role(setup: &PostgresSetup) -> Finding {
    let says = format!("PostgreSQL {} replies.", setup.version);
    match setup.is_replica {
        true => {
            let fix = "Name the primary in --store.";
            Finding::problem("role", format!("{says} It is a replica, and accepts no writes."), fix)
        }
        false => Finding::fine("role", says),
    }
}

fn disk(setup: &PostgresSetup) -> (Finding, &'static str) {
    match (setup.waits_for_disk, setup.waits_for_commit) {
        (true, true) => (Finding::fine("disk", "It writes each commit to disk before it replies."), NOTHING),
        (false, _) => (Finding::warning("disk", "It does not wait for its disk (fsync off).", "Set fsync on."), CUT),
        (true, false) => {
            let fix = "Set synchronous_commit on, at least for this user.";
            (Finding::warning("disk", "It replies before a commit is on disk (synchronous_commit off).", fix), CUT)
        }
    }
}

/// Checks a SQLite file. Nothing else is reported about a file that cannot be used.
async fn judge_file(url: &str, path: &str, prefix: &str) -> (Vec<Finding>, Losses) {
    let (opened, file) = (open(url, prefix).await, sqlite_file::named(path));
    let problem = match &opened {
        Ok(()) => None,
        Err(OpenError::Tables(SqlError::NotMigrated)) => sqlite_file::unwritable(&file),
        Err(OpenError::Tables(error)) => sqlite_file::problem(error, &file),
        // The write failed, maybe because another process held the lock for too long.
        Err(OpenError::Probe(error)) => sqlite_file::refused(error, &file),
    };
    if let Some(problem) = problem {
        return (vec![problem], Vec::new());
    }
    let state = Finding::fine("disk", "It writes each commit to disk before it replies (synchronous full).");
    let losses = vec![("If the machine crashes", NOTHING), ("If a backup is restored", BACKUP_SQLITE)];
    (vec![state, tables(url, opened)], losses)
}

/// The reason why a database cannot be used.
enum OpenError {
    Tables(SqlError),
    Probe(StoreError),
}

/// Opens the database, writes one record under a unique name, and removes it.
async fn open(url: &str, prefix: &str) -> Result<(), OpenError> {
    let store = Sql::open_within(url, PATIENCE).await.map_err(OpenError::Tables)?;
    probe(&store.prefix(prefix)).await.map_err(OpenError::Probe)
}

/// Reports whether the tables exist and can be written.
fn tables(url: &str, opened: Result<(), OpenError>) -> Finding {
    let error = match opened {
        Ok(()) => return Finding::fine("tables", "The tables exist, and this user may write to them."),
        Err(OpenError::Tables(error)) => match migration(&error, url) {
            Some(finding) => return finding,
            None => error.to_string(),
        },
        Err(OpenError::Probe(error)) => error.to_string(),
    };
    let fix = "Fix the other problems listed here; if there are none, look at the log of the database.";
    Finding::problem("tables", format!("The tables cannot be used: {error}."), fix)
}

/// Returns the finding about tables that `onceward migrate` creates or updates, with the complete command.
pub(crate) fn migration(error: &SqlError, url: &str) -> Option<Finding> {
    let says = match error {
        SqlError::NotMigrated => "The tables of Onceward are missing from this database.".to_owned(),
        SqlError::Outdated { found, needed } => {
            format!("The tables of Onceward have version {found}, and this version needs {needed}.")
        }
        _ => return None,
    };
    Some(Finding::problem("tables", says, migrate_command(url)))
}

/// Returns the command that creates the tables, quoted for a shell. A password is replaced by `PASSWORD`.
fn migrate_command(url: &str) -> String {
    let (place, query) = url.split_once('?').map_or((url, None), |(place, query)| (place, Some(query)));
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
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b":/@._-%+=,".contains(&byte);
    match address.bytes().all(is_plain) {
        true => format!("onceward migrate --store {address}"),
        false => format!("onceward migrate --store '{}'", address.replace('\'', "'\\''")),
    }
}

async fn probe(store: &Sql) -> Result<(), StoreError> {
    let ticket = Ticket::of(Kind::Key, uuid::Uuid::new_v4().as_bytes());
    store.insert(&ticket, b"probe", PROBED, Room::Free).await?;
    store.swap(&ticket, b"probe", b"probed", PROBED, Room::Free, None).await?;
    store.remove(&ticket, b"probed", None).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrate_command_names_the_address_without_its_password() {
        for (url, shown) in [
            ("postgres://shop@127.0.0.1/shop", "postgres://shop@127.0.0.1/shop"),
            ("postgres://shop:canary@h:5432/shop", "postgres://shop:PASSWORD@h:5432/shop"),
            ("postgres://h/shop?user=shop&password=canary", "'postgres://h/shop?user=shop&password=PASSWORD'"),
            ("postgres://u:p@h/x?options[search_path]=shop", "'postgres://u:PASSWORD@h/x?options[search_path]=shop'"),
            ("sqlite:/var/lib/onceward.db", "sqlite:/var/lib/onceward.db"),
            ("sqlite:my file's.db", "'sqlite:my file'\\''s.db'"),
        ] {
            assert_eq!(migrate_command(url), format!("onceward migrate --store {shown}"));
        }
    }
}

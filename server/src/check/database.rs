//! Checks a PostgreSQL or SQLite database.

use std::io;
use std::time::Duration;

use onceward::store::{Room, Sql, SqlError, Store as _, StoreError};
use onceward::{Kind, Ticket};
use onceward_api::duration::spaced;
use sqlx::{Connection as _, PgConnection};

use super::durability::Losses;
use super::finding::{Finding, Level};
use super::{PATIENCE, sqlite_file};

/// Time until the probe record expires, if it is not removed.
const PROBED: Duration = Duration::from_secs(1);

/// The next step if PostgreSQL cannot be reached.
const START: &str = "Start PostgreSQL, or correct the address in --store.";

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
            found.push(tables(open(url, prefix).await));
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
    let server = NamedPostgres::of(url);
    let answered = asked.map_err(|_| server.unreachable(&format!("no reply within {}", spaced(PATIENCE))))?;
    let (version, is_replica, waits_for_disk, waits_for_commit, user, denied) =
        answered.map_err(|error| server.refused(&error))?;
    Ok(PostgresSetup { version, is_replica, waits_for_disk, waits_for_commit, user, denied })
}

/// A PostgreSQL as messages name it: without its credentials.
struct NamedPostgres {
    /// As in "PostgreSQL at 127.0.0.1:5432".
    name: String,
    /// As in "database shop".
    database: String,
}

impl NamedPostgres {
    fn of(url: &str) -> Self {
        let rest = url.split_once("://").map_or("", |(_, rest)| rest);
        let place = rest.split(['?', '#']).next().and_then(|place| place.rsplit('@').next()).unwrap_or_default();
        let (host, database) = place.split_once('/').unwrap_or((place, ""));
        let or = |text: &str, with: &str, without: &str| match text {
            "" => without.to_owned(),
            text => format!("{with} {text}"),
        };
        Self { name: or(host, "PostgreSQL at", "PostgreSQL"), database: or(database, "database", "this database") }
    }

    fn refuses(&self) -> Finding {
        Finding::problem("connection", format!("{} refuses connections.", self.name), START)
    }

    fn unreachable(&self, why: &str) -> Finding {
        Finding::problem("connection", format!("{} cannot be reached: {why}.", self.name), START)
    }

    /// Explains why a connection could not be opened.
    fn refused(&self, error: &sqlx::Error) -> Finding {
        let code = error.as_database_error().and_then(|error| error.code());
        match (error, code.as_deref()) {
            (_, Some("42501")) => Finding::problem(
                "connection",
                format!("{} does not allow this user to connect to {}.", self.name, self.database),
                "GRANT CONNECT ON DATABASE … TO …, as its owner.",
            ),
            (sqlx::Error::Io(error), _) if error.kind() == io::ErrorKind::ConnectionRefused => self.refuses(),
            (error, code) => code.and_then(|code| self.login(code)).unwrap_or_else(|| self.unreachable(&plain(error))),
        }
    }

    /// Explains a rejected login by its SQLSTATE.
    fn login(&self, code: &str) -> Option<Finding> {
        let Self { name, database } = self;
        let (says, fix) = match code {
            "28P01" => (
                format!("{name} rejects the user name or the password."),
                "Correct --store, or the file that --store-file names: postgres://user:password@host/database. Write @ in a password as %40.",
            ),
            "28000" => (
                format!("{name} does not allow this user to log in from this host."),
                "Create the user (CREATE ROLE … LOGIN), or allow it in pg_hba.conf for this host and database.",
            ),
            "3D000" => (
                format!("{name} has no {}.", database.strip_prefix("this ").unwrap_or(database)),
                "Create it (createdb), or correct the name after the host in --store.",
            ),
            _ => return None,
        };
        Some(Finding::problem("connection", says, fix))
    }
}

/// Explains why a database cannot be used. `None` if only a [check](problem) can find out.
pub(crate) fn explain(error: &SqlError, url: &str) -> Option<Finding> {
    let file = url.strip_prefix("sqlite:").map(sqlite_file::named);
    let server = NamedPostgres::of(url);
    match (error, file) {
        (SqlError::NotMigrated { .. } | SqlError::Outdated { .. }, _) => migration(error),
        (SqlError::Refused, _) => Some(server.refuses()),
        (SqlError::Unreachable(why), None) => Some(server.unreachable(why)),
        (SqlError::Rejected { code, .. }, None) => server.login(code),
        (SqlError::Unreachable(why), Some(file)) => Some(Finding::problem(
            "file",
            format!("{} cannot be opened: {why}.", file.display()),
            "Check whether another process holds the file, or name another one in --store.",
        )),
        (error, Some(file)) => sqlite_file::problem(error, &file),
        (_, None) => None,
    }
}

/// Checks the database, and returns the first problem.
pub(crate) async fn problem(url: &str, prefix: &str) -> Option<Finding> {
    let (found, _) = judge(url, prefix).await;
    let found = found.into_iter().find(|finding| finding.level == Level::Problem)?;
    Some(found.about(&NamedPostgres::of(url).name))
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
    let version = &setup.version;
    match setup.is_replica {
        true => {
            let fix = "Name the primary in --store.";
            Finding::problem("role", format!("It is a replica (PostgreSQL {version}), and accepts no writes."), fix)
        }
        false => Finding::fine("role", format!("PostgreSQL {version} replies.")),
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
        Err(OpenError::Tables(SqlError::NotMigrated { .. })) => sqlite_file::unwritable(&file),
        Err(OpenError::Tables(error)) => sqlite_file::problem(error, &file),
        // The write failed, maybe because another process held the lock for too long.
        Err(OpenError::Probe(error)) => sqlite_file::refused(error, &file),
    };
    if let Some(problem) = problem {
        return (vec![problem], Vec::new());
    }
    let state = Finding::fine("disk", "It writes each commit to disk before it replies (synchronous full).");
    let losses = vec![("If the machine crashes", NOTHING), ("If a backup is restored", BACKUP_SQLITE)];
    (vec![state, tables(opened)], losses)
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
fn tables(opened: Result<(), OpenError>) -> Finding {
    let error = match opened {
        Ok(()) => return Finding::fine("tables", "The tables exist, and this user may write to them."),
        Err(OpenError::Tables(error)) => match migration(&error) {
            Some(finding) => return finding,
            None => error.to_string(),
        },
        Err(OpenError::Probe(error)) => error.to_string(),
    };
    let fix = "Fix the other problems listed here; if there are none, look at the log of the database.";
    Finding::problem("tables", format!("The tables cannot be used: {error}."), fix)
}

/// Returns the finding about tables that `onceward migrate` creates or updates, with the complete command.
fn migration(error: &SqlError) -> Option<Finding> {
    let (says, command) = match error {
        SqlError::NotMigrated { command } => {
            ("The tables of Onceward are missing from this database.".to_owned(), command)
        }
        SqlError::Outdated { found, needed, command } => {
            let says = format!("The tables of Onceward have version {found}, and this version needs {needed}.");
            (says, command)
        }
        _ => return None,
    };
    Some(Finding::problem("tables", says, format!("Run: {command}")))
}

async fn probe(store: &Sql) -> Result<(), StoreError> {
    let ticket = Ticket::of(Kind::Key, uuid::Uuid::new_v4().as_bytes());
    store.insert(&ticket, b"probe", PROBED, Room::Free).await?;
    store.swap(&ticket, b"probe", b"probed", PROBED, Room::Free, None).await?;
    store.remove(&ticket, b"probed", None).await.map(drop)
}

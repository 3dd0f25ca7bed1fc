//! Checks a PostgreSQL or SQLite database.

use std::time::Duration;

use onceward::store::{Room, Sql, SqlError, Store as _, StoreError};
use onceward::{Kind, Ticket};
use sqlx::{Connection as _, PgConnection};

use super::durability::Losses;
use super::finding::Finding;
use super::{PATIENCE, sqlite_file};

/// How long the record that is tried lives, if it is not taken away.
const PROBED: Duration = Duration::from_secs(1);

/// What a power cut takes from a PostgreSQL that does not wait for its disk.
const CUT: &str = "A crash of the machine loses the last commits: a token used in them is accepted again, and a key that ran in them may run again.";
const NOTHING: &str = "A crash loses nothing, unless the disk is lost.";
const BEHIND: &str = "A replica that takes over may lack the last commits, unless they wait for it (synchronous_standby_names): a token used \
     just before is accepted again, and a key that ran just before may run again.";
const BACKUP: &str = "What was used since the backup is accepted again, unless onceward_schema.reign gets other bytes: then tokens of before are stale.";

/// How a PostgreSQL is set up.
struct PostgresSetup {
    version: String,
    is_replica: bool,
    waits_for_disk: bool,
    waits_for_commit: bool,
    user: String,
    /// What this user may not do with our tables.
    denied: Option<String>,
}

const SETUP: &str = "SELECT current_setting('server_version'), pg_is_in_recovery(),
    current_setting('fsync') = 'on', current_setting('synchronous_commit') <> 'off', current_user::text,
    (SELECT string_agg(needed.what || ' ' || needed.name, ', ') FROM (VALUES
        ('SELECT', 'onceward_schema'), ('SELECT', 'onceward_records'), ('INSERT', 'onceward_records'),
        ('UPDATE', 'onceward_records'), ('DELETE', 'onceward_records')) AS needed (what, name)
        WHERE NOT has_table_privilege(to_regclass(needed.name), needed.what))";

/// Whether it can be used, and what it may lose.
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
                ("If a backup is restored", BACKUP),
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
    let answered = asked.map_err(|_| unreachable(&format!("no answer within {PATIENCE:?}")))?;
    let (version, is_replica, waits_for_disk, waits_for_commit, user, denied) =
        answered.map_err(|error| refused(&error))?;
    Ok(PostgresSetup { version, is_replica, waits_for_disk, waits_for_commit, user, denied })
}

fn unreachable(why: &str) -> Finding {
    let fix = "Is it running, and is this where it is? (--store)";
    Finding::problem("connection", format!("It cannot be reached: {why}."), fix)
}

/// Why nobody gets in, by the code with which PostgreSQL says so.
fn refused(error: &sqlx::Error) -> Finding {
    let code = error.as_database_error().and_then(|error| error.code());
    let (says, fix) = match code.as_deref() {
        Some("28P01") => (
            "It refuses the user name or the password in --store.",
            "Write both as postgres://user:password@host/database, with %40 for @; or have --store-file name a file that holds it.",
        ),
        Some("28000") => (
            "It lets nobody of this name in from here.",
            "Is the user there (CREATE ROLE … LOGIN), and does pg_hba.conf let it in from this machine, to this database?",
        ),
        Some("3D000") => (
            "There is no database of this name.",
            "Make it (createdb), or name the one that is meant, behind the host in --store.",
        ),
        Some("42501") => ("This user may not use this database.", "GRANT CONNECT ON DATABASE … TO …, as its owner."),
        _ => return unreachable(&error.to_string()),
    };
    Finding::problem("connection", says, fix)
}

fn rights(setup: &PostgresSetup) -> Option<Finding> {
    let PostgresSetup { user, denied, .. } = setup;
    let denied = denied.as_ref()?;
    let fix = format!(
        "GRANT SELECT, INSERT, UPDATE, DELETE ON onceward_records TO \"{user}\"; GRANT SELECT ON onceward_schema TO \"{user}\";"
    );
    Some(Finding::problem("permissions", format!("User {user} may not: {denied}."), fix))
}

fn role(setup: &PostgresSetup) -> Finding {
    let says = format!("PostgreSQL {} answers.", setup.version);
    match setup.is_replica {
        true => Finding::problem("role", format!("{says} It is a replica, and takes no writes."), "Name the primary."),
        false => Finding::fine("role", says),
    }
}

fn disk(setup: &PostgresSetup) -> (Finding, &'static str) {
    match (setup.waits_for_disk, setup.waits_for_commit) {
        (true, true) => (Finding::fine("disk", "It writes everything to disk before it answers."), NOTHING),
        (false, _) => (Finding::warning("disk", "It does not wait for its disk (fsync off).", "Set fsync on."), CUT),
        (true, false) => {
            let fix = "Set synchronous_commit on, for this user at least.";
            (Finding::warning("disk", "It answers before a commit is on disk (synchronous_commit off).", fix), CUT)
        }
    }
}

/// Of a file that cannot be used nothing else is known.
async fn judge_file(url: &str, path: &str, prefix: &str) -> (Vec<Finding>, Losses) {
    let (opened, file) = (open(url, prefix).await, sqlite_file::named(path));
    let problem = match &opened {
        Ok(()) => None,
        Err(OpenError::Tables(SqlError::NotMigrated)) => sqlite_file::unwritable(&file),
        Err(OpenError::Tables(error)) => sqlite_file::problem(error, &file),
        // What was written was refused: of a file that others write too, it may have been in use for too long.
        Err(OpenError::Probe(error)) => sqlite_file::refused(error, &file),
    };
    if let Some(problem) = problem {
        return (vec![problem], Vec::new());
    }
    let state = Finding::fine("disk", "It writes everything to disk before it answers (synchronous full).");
    let losses = vec![("If the machine crashes", NOTHING), ("If a backup is restored", BACKUP)];
    (vec![state, tables(opened)], losses)
}

/// Why a database cannot be used.
enum OpenError {
    Tables(SqlError),
    Probe(StoreError),
}

/// Opens it, and writes one record, under a name that nobody else has, which is taken away again.
async fn open(url: &str, prefix: &str) -> Result<(), OpenError> {
    let store = Sql::open_within(url, PATIENCE).await.map_err(OpenError::Tables)?;
    probe(&store.prefix(prefix)).await.map_err(OpenError::Probe)
}

/// Whether the tables are there, and can be written.
fn tables(opened: Result<(), OpenError>) -> Finding {
    let error = match opened {
        Ok(()) => return Finding::fine("tables", "The tables are there, and this user may write them."),
        Err(OpenError::Tables(error @ (SqlError::NotMigrated | SqlError::Outdated { .. }))) => {
            return Finding::problem("tables", format!("{error}."), "onceward migrate --store ADDRESS");
        }
        Err(OpenError::Tables(error)) => error.to_string(),
        Err(OpenError::Probe(error)) => error.to_string(),
    };
    let fix = "Mend what else is marked here; if nothing is, look at the log of the database.";
    Finding::problem("tables", format!("The tables cannot be used: {error}."), fix)
}

async fn probe(store: &Sql) -> Result<(), StoreError> {
    let ticket = Ticket::of(Kind::Key, uuid::Uuid::new_v4().as_bytes());
    store.insert(&ticket, b"probe", PROBED, Room::Free).await?;
    store.swap(&ticket, b"probe", b"probed", PROBED, Room::Free, None).await?;
    store.remove(&ticket, b"probed", None).await.map(drop)
}

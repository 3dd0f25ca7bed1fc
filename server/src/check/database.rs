//! What can be said of a database.

use std::time::Duration;

use onceward::Guard;
use onceward::store::{Sql, SqlError};
use sqlx::{Connection as _, PgConnection};

use super::PATIENCE;
use super::finding::Finding;

/// What can be lost, in which case.
type Losses = Vec<(&'static str, &'static str)>;

/// What a power cut takes from a PostgreSQL that does not wait for its disk.
const CUT: &str = "A crash of the machine loses the last commits: a token used in them is accepted again, and a key that ran in them may run again.";
const NOTHING: &str = "A crash loses nothing, unless the disk is lost.";
const BEHIND: &str = "A replica that takes over may lack the last commits, unless they wait for it (synchronous_standby_names): a token used \
     just before is accepted again, and a key that ran just before may run again.";
const BACKUP: &str = "What was used since the backup is accepted again, unless onceward_schema gets another reign: then tokens of before are stale.";

/// How a PostgreSQL is set up.
struct Setup {
    version: String,
    is_replica: bool,
    waits_for_disk: bool,
    waits_for_commit: bool,
}

const SETUP: &str = "SELECT current_setting('server_version'), pg_is_in_recovery(),
    current_setting('fsync') = 'on', current_setting('synchronous_commit') <> 'off'";

/// Whether it can be used, and what it may lose.
pub(crate) async fn judge(url: &str) -> (Vec<Finding>, Losses) {
    let is_file = url.starts_with("sqlite:");
    let setup = if is_file { Ok(None) } else { setup(url).await.map(Some) };
    match setup {
        Err(trouble) => {
            let fix = "Is it running, and is this where it is? (--store)";
            (vec![Finding::problem("connection", format!("It cannot be reached: {trouble}."), fix)], Vec::new())
        }
        Ok(None) => {
            let state = Finding::fine("disk", "It writes everything to disk before it answers (synchronous full).");
            (
                vec![state, tables(url).await],
                vec![("If the machine crashes", NOTHING), ("If a backup is restored", BACKUP)],
            )
        }
        Ok(Some(setup)) => {
            let (disk, crash) = disk(&setup);
            let losses = vec![
                ("If the database or its machine crashes", crash),
                ("If a replica takes over", BEHIND),
                ("If a backup is restored", BACKUP),
            ];
            (vec![role(&setup), disk, tables(url).await], losses)
        }
    }
}

async fn setup(url: &str) -> Result<Setup, String> {
    let ask = async {
        let mut connection = PgConnection::connect(url).await?;
        sqlx::query_as(SETUP).fetch_one(&mut connection).await
    };
    let asked: Result<Result<_, sqlx::Error>, _> = tokio::time::timeout(PATIENCE, ask).await;
    let answered = asked.map_err(|_| format!("no answer within {PATIENCE:?}"))?;
    let (version, is_replica, waits_for_disk, waits_for_commit) = answered.map_err(|error| error.to_string())?;
    Ok(Setup { version, is_replica, waits_for_disk, waits_for_commit })
}

fn role(setup: &Setup) -> Finding {
    let says = format!("PostgreSQL {} answers.", setup.version);
    match setup.is_replica {
        true => Finding::problem("role", format!("{says} It is a replica, and takes no writes."), "Name the primary."),
        false => Finding::fine("role", says),
    }
}

fn disk(setup: &Setup) -> (Finding, &'static str) {
    match (setup.waits_for_disk, setup.waits_for_commit) {
        (true, true) => (Finding::fine("disk", "It writes everything to disk before it answers."), NOTHING),
        (false, _) => (Finding::warning("disk", "It does not wait for its disk (fsync off).", "Set fsync on."), CUT),
        (true, false) => {
            let fix = "Set synchronous_commit on, for this user at least.";
            (Finding::warning("disk", "It answers before a commit is on disk (synchronous_commit off).", fix), CUT)
        }
    }
}

/// Whether the tables are there, and can be written.
async fn tables(url: &str) -> Finding {
    let asked = match Sql::open_within(url, Duration::from_secs(2)).await {
        Ok(store) => Guard::new(store).ping().await.map_err(|error| error.to_string()),
        Err(error @ SqlError::NotMigrated) => {
            return Finding::problem("tables", format!("{error}."), "onceward migrate --store ADDRESS");
        }
        Err(error) => Err(error.to_string()),
    };
    match asked {
        Ok(()) => Finding::fine("tables", "The tables are there, and this user may write them."),
        Err(error) => Finding::problem("tables", format!("The tables cannot be used: {error}."), "See above."),
    }
}

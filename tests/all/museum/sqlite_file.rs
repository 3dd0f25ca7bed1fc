//! Museum row about a SQLite file that is deleted while a process has it open.

use std::fs;
use std::path::Path;
use std::time::Duration;

use onceward::store::Sql;
use onceward::{Guard, Intent, Key, KeyRules, Policy, Subject, Verdict};
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};

use super::{ScenarioResult, ensure};

/// An implementation that accepts each key once, by a SQLite file.
enum Gate {
    Onceward(Guard),
    /// A table with a unique key: correct as long as all processes have the same file open.
    Table(SqlitePool),
}

impl Gate {
    async fn at(path: &Path, is_onceward: bool) -> Self {
        let address = format!("sqlite:{}", path.display());
        if is_onceward {
            Sql::migrate(&address).await.unwrap();
            return Self::Onceward(Guard::new(Sql::open_within(&address, Duration::from_secs(10)).await.unwrap()));
        }
        let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
        let options = options.journal_mode(SqliteJournalMode::Wal);
        let pool = SqlitePool::connect_with(options).await.unwrap();
        sqlx::query("CREATE TABLE IF NOT EXISTS seen (name TEXT PRIMARY KEY)").execute(&pool).await.unwrap();
        Self::Table(pool)
    }

    /// Returns true if this key may run. An error returns false.
    async fn accepts(&self, key: &str) -> bool {
        match self {
            Self::Onceward(guard) => {
                let key = Key::new(key).unwrap();
                let intent = Intent::new("pay", Subject::named("alice")).key(&key);
                match guard.check(&Policy::key(KeyRules::retryable()), &intent).await {
                    Ok(Verdict::Run(pass)) => pass.complete(None).await.is_ok(),
                    _ => false,
                }
            }
            Self::Table(pool) => {
                let insert = sqlx::query("INSERT INTO seen VALUES (?) ON CONFLICT DO NOTHING").bind(key);
                insert.execute(pool).await.is_ok_and(|done| done.rows_affected() == 1)
            }
        }
    }
}

async fn replaced_file_scenario(is_onceward: bool) -> ScenarioResult {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let former = Gate::at(&path, is_onceward).await;
    assert!(former.accepts("before").await && !former.accepts("before").await);
    for file in fs::read_dir(folder.path()).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    let present = Gate::at(&path, is_onceward).await;
    let (one, other) = (present.accepts("after").await, former.accepts("after").await);
    assert!(one, "a process that opens the new file accepts the key");
    ensure(!other, || "two processes accepted the same key, each by its own file".into())
}

#[tokio::test]
async fn replaced_file() {
    replaced_file_scenario(true).await.unwrap();
    replaced_file_scenario(false).await.unwrap_err();
}

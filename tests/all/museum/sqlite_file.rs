//! A row about a database in a file, which somebody deletes while a process has it open.

use std::fs;
use std::path::Path;
use std::time::Duration;

use onceward::store::Sql;
use onceward::{Guard, Intent, Key, KeyRules, Policy, Subject, Verdict};
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};

use super::{StoryResult, told};

/// Who lets each key through once, by a file.
enum Doorkeeper {
    Onceward(Guard),
    /// A table with a unique key, which is right as long as all processes have the same file open.
    Table(SqlitePool),
}

impl Doorkeeper {
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

    /// Whether this key may run. What fails runs nothing.
    async fn lets_in(&self, key: &str) -> bool {
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

async fn the_story_of_replaced_file(is_onceward: bool) -> StoryResult {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let former = Doorkeeper::at(&path, is_onceward).await;
    assert!(former.lets_in("before").await && !former.lets_in("before").await);
    for file in fs::read_dir(folder.path()).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    let present = Doorkeeper::at(&path, is_onceward).await;
    let (one, other) = (present.lets_in("after").await, former.lets_in("after").await);
    assert!(one, "somebody gets through");
    told(!other, || "two processes let the same key in, each by a file of its own".into())
}

#[tokio::test]
async fn replaced_file() {
    the_story_of_replaced_file(true).await.unwrap();
    the_story_of_replaced_file(false).await.unwrap_err();
}

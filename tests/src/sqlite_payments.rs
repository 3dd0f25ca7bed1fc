//! A business in a file: each payment is a row of a ledger. Nothing of Onceward is in it.

use onceward::store::Memory;
use onceward::transaction::TxHandle;
use onceward::{Guard, Intent, Key, KeyRules, RunError, RunOutcome, Subject};
use sqlx::{Sqlite, SqlitePool};

/// Its table.
pub const TABLE: &str = "CREATE TABLE ledger (payment TEXT NOT NULL)";

/// Pays under a key that is the payment's name, and waits for a step before and behind each statement of the work.
pub async fn pay_step_by_step(
    pool: &SqlitePool,
    payment: &str,
    step: impl Fn() -> std::io::Result<()>,
) -> Result<RunOutcome<String>, RunError<sqlx::Error>> {
    let key = Key::new(payment).expect("a key");
    let intent = Intent::new("pay", Subject::named("alice")).key(&key);
    let step = &step;
    let work = |mut transaction: TxHandle<Sqlite>| async move {
        step()?;
        sqlx::query("INSERT INTO ledger VALUES (?1)").bind(payment).execute(&mut *transaction).await?;
        step()?;
        Ok(format!("paid {payment}"))
    };
    Guard::new(Memory::new()).transact(pool, &KeyRules::retryable(), &intent, work).await
}

/// How many payments the ledger has, how many of them differ, and how many are on record.
pub async fn figures(pool: &SqlitePool) -> [i64; 3] {
    let figures = "SELECT count(*), count(DISTINCT payment), (SELECT count(*) FROM onceward_records) FROM ledger";
    let figures: (i64, i64, i64) = sqlx::query_as(figures).fetch_one(pool).await.expect("the tables are there");
    figures.into()
}

//! Payments in a SQLite file: each payment adds a row to a ledger. The table is independent of Onceward.

use onceward::store::Memory;
use onceward::transaction::TxHandle;
use onceward::{Guard, Intent, Key, KeyRules, RunError, RunOutcome, Subject};
use sqlx::{Sqlite, SqlitePool};

/// The table.
pub const TABLE: &str = "CREATE TABLE ledger (payment TEXT NOT NULL)";

/// Pays under a key that is the payment's name, and calls `step` before and after the statement of the work.
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

/// Returns the number of payments in the ledger, of distinct payments, and of stored records.
pub async fn figures(pool: &SqlitePool) -> [i64; 3] {
    let figures = "SELECT count(*), count(DISTINCT payment), (SELECT count(*) FROM onceward_records) FROM ledger";
    let figures: (i64, i64, i64) = sqlx::query_as(figures).fetch_one(pool).await.expect("the tables are there");
    figures.into()
}

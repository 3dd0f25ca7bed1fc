//! Payments in a PostgreSQL database: each payment adds a row to a ledger and changes a balance. The tables are independent of Onceward.

use onceward::transaction::TxHandle;
use onceward::{Guard, Intent, Key, KeyRules, RunError, RunOutcome, Subject};
use sqlx::{PgConnection, PgPool, Postgres};

use crate::postgres::PostgresServer;

/// The tables.
pub const TABLES: &str = "CREATE TABLE ledger (payment text NOT NULL);
    CREATE TABLE account (balance bigint NOT NULL); INSERT INTO account VALUES (0)";

/// Makes a payment, which must happen once.
pub async fn pay(connection: &mut PgConnection, payment: &str) -> Result<String, sqlx::Error> {
    sqlx::query("INSERT INTO ledger VALUES ($1)").bind(payment).execute(&mut *connection).await?;
    sqlx::query("UPDATE account SET balance = balance + 1").execute(connection).await?;
    Ok(format!("paid {payment}"))
}

/// Pays under a key that is the payment's name, in one transaction.
pub async fn pay_once(
    guard: &Guard,
    pool: &PgPool,
    payment: &str,
) -> Result<RunOutcome<String>, RunError<sqlx::Error>> {
    let key = Key::new(payment).expect("a key");
    let intent = Intent::new("pay", Subject::named("alice")).key(&key);
    let work = |mut transaction: TxHandle<Postgres>| async move { pay(&mut transaction, payment).await };
    guard.transact(pool, &KeyRules::retryable(), &intent, work).await
}

/// Returns the number of payments in the ledger, of distinct payments, of stored records, and the balance.
pub async fn figures(server: &PostgresServer) -> [i64; 4] {
    let figures = "SELECT count(*), count(DISTINCT payment), (SELECT count(*) FROM onceward_records
        WHERE name LIKE 'onceward:transaction:%'), (SELECT balance FROM account) FROM ledger";
    let mut connection = server.connection().await;
    let figures: (i64, i64, i64, i64) =
        sqlx::query_as(figures).fetch_one(&mut connection).await.expect("the tables are there");
    figures.into()
}

//! The cost of a claim in a transaction: payments without a claim, with a claim, and with a claim and a stored reply, in turn; and again
//! during the removal of expired rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onceward::store::{Memory, Sql};
use onceward::transaction::{TxHandle, TxVerdict, claim_in, keep_clean};
use onceward::{Guard, Intent, Key, KeyRules, RunOutcome, Subject};
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Postgres};
use tokio::time::Instant;

use crate::markdown_table::MarkdownTable;
use crate::postgres_server::PostgresServer;
use crate::statistics::Spread;
use crate::{Failure, machine};

/// Number of concurrent payers.
const PAYERS: usize = 16;
/// Number of accounts: enough that the payers rarely conflict.
const ACCOUNTS: u64 = 1000;
/// Number of rounds, and duration of a case in each.
const ROUNDS: usize = 3;
const TIME: Duration = Duration::from_secs(3);

const TABLES: &str = "CREATE TABLE payments (number bigint PRIMARY KEY, account bigint NOT NULL);
    CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL);
    INSERT INTO accounts SELECT n, 0 FROM generate_series(0, 999) n";

/// The kind of a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PaymentKind {
    Bare,
    Claimed,
    ClaimedWithReply,
}

impl PaymentKind {
    const ALL: [Self; 3] = [Self::Bare, Self::Claimed, Self::ClaimedWithReply];

    fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare transaction",
            Self::Claimed => "with a claim",
            Self::ClaimedWithReply => "with a claim and its reply",
        }
    }
}

/// The shared state of the payers.
struct Bank {
    guard: Guard,
    pool: PgPool,
    number: AtomicU64,
}

pub(crate) fn measure(expired: u64) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(all(expired))
}

async fn all(expired: u64) -> Result<(), Failure> {
    let server = PostgresServer::start()?;
    Sql::migrate(&server.url()).await?;
    let pool = PgPoolOptions::new().max_connections(PAYERS as u32 + 2).test_before_acquire(false);
    let pool = pool.connect(&server.url()).await?;
    sqlx::raw_sql(TABLES).execute(&pool).await?;
    let bank = Arc::new(Bank { guard: Guard::new(Memory::new()), pool, number: AtomicU64::new(0) });
    println!("{}", machine::line(&[server.version().await?]));
    println!(
        "\nfsync on, {PAYERS} payers, medians of {ROUNDS} rounds of {TIME:?} (least–most); each payment is an insert and an update"
    );
    compare(&bank).await?;
    clean(&bank, expired).await
}

/// Measures each kind in turn, and prints its ratio to the bare one of the same round.
async fn compare(bank: &Arc<Bank>) -> Result<(), Failure> {
    let mut rates = [const { Vec::new() }; PaymentKind::ALL.len()];
    for _ in 0..ROUNDS {
        for (kind, rates) in PaymentKind::ALL.into_iter().zip(&mut rates) {
            rates.push(rate(bank, kind).await?);
        }
    }
    let [bare, ..] = &rates;
    let mut table = MarkdownTable::new(["payment", "payments/s", "relative to bare"]);
    for (kind, rates) in PaymentKind::ALL.into_iter().zip(&rates) {
        let ratio = Spread::of_pairs(rates, bare, |rate, bare| rate / bare).ok_or("no rounds")?;
        let rate = Spread::of(rates.iter().copied()).ok_or("no rounds")?;
        table.push([kind.name().to_owned(), rate.cell(0), ratio.cell(2)]);
    }
    println!("\n{table}");
    Ok(())
}

/// Measures payments with this many expired rows in the table, and during their removal.
async fn clean(bank: &Arc<Bank>, expired: u64) -> Result<(), Failure> {
    let begun = Instant::now();
    let fill = format!(
        "INSERT INTO onceward_records SELECT 'onceward:transaction:' || md5(n::text) || md5(n::text), decode(repeat('ab', 60), 'hex'),
        now() - interval '1 day' + n * interval '1 millisecond' FROM generate_series(1, {expired}) n"
    );
    sqlx::raw_sql(AssertSqlSafe(fill)).execute(&bank.pool).await?;
    // A tenth as many valid rows, which the removal should not read.
    let valid = expired / 10;
    let fill = format!(
        "INSERT INTO onceward_records SELECT 'onceward:transaction:valid-' || n, decode(repeat('ab', 60), 'hex'),
        now() + interval '1 day' FROM generate_series(1, {valid}) n"
    );
    sqlx::raw_sql(AssertSqlSafe(fill)).execute(&bank.pool).await?;
    sqlx::raw_sql("ANALYZE onceward_records; CHECKPOINT").execute(&bank.pool).await?;
    println!("\n{expired} expired and {valid} valid rows, inserted in {:.0?}", begun.elapsed());
    let lying = rate(bank, PaymentKind::ClaimedWithReply).await?;
    let before = left(bank).await?;
    let pool = bank.pool.clone();
    let cleaner = tokio::spawn(async move { keep_clean(&pool).await });
    let begun = Instant::now();
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        rates.push(rate(bank, PaymentKind::ClaimedWithReply).await?);
    }
    let removed = (before - left(bank).await?) as f64 / begun.elapsed().as_secs_f64();
    cleaner.abort();
    let cleaned = Spread::of(rates.iter().copied()).ok_or("no rounds")?;
    let mut table = MarkdownTable::new(["with a claim and its reply", "payments/s", "relative to before"]);
    table.push(["before the removal".to_owned(), format!("{lying:.0}"), "1".to_owned()]);
    let ratio = format!("{:.2}", cleaned.median / lying);
    table.push(["during the removal".to_owned(), cleaned.cell(0), ratio]);
    println!("\n{table}\n");
    println!("removed {removed:.0} rows/s: all of them in about {:.0} s", expired as f64 / removed.max(1.0));
    Ok(())
}

async fn left(bank: &Bank) -> Result<i64, Failure> {
    Ok(sqlx::query_scalar("SELECT count(*) FROM onceward_records WHERE expires_at < now()")
        .fetch_one(&bank.pool)
        .await?)
}

/// Returns the payments per second.
async fn rate(bank: &Arc<Bank>, kind: PaymentKind) -> Result<f64, Failure> {
    let (begun, mut payers) = (Instant::now(), Vec::new());
    for _ in 0..PAYERS {
        let bank = Arc::clone(bank);
        payers.push(tokio::spawn(async move {
            let mut count = 0;
            while begun.elapsed() < TIME {
                bank.pay(kind).await.map_err(|failure| failure.to_string())?;
                count += 1;
            }
            Ok::<_, String>(count)
        }));
    }
    let mut count = 0;
    for payer in payers {
        count += payer.await??;
    }
    Ok(f64::from(count) / begun.elapsed().as_secs_f64())
}

impl Bank {
    async fn pay(&self, kind: PaymentKind) -> Result<(), Failure> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let key = Key::new(number.to_string())?;
        let intent = Intent::new("pay", Subject::named("alice")).key(&key);
        if kind == PaymentKind::ClaimedWithReply {
            let work = |mut transaction: TxHandle<Postgres>| async move { transfer(&mut transaction, number).await };
            let ran = self.guard.transact(&self.pool, &KeyRules::retryable(), &intent, work).await?;
            return if matches!(ran, RunOutcome::Executed(_)) {
                Ok(())
            } else {
                Err("a payment was treated as a duplicate".into())
            };
        }
        let mut transaction = self.pool.begin().await?;
        if kind == PaymentKind::Claimed {
            match claim_in(&mut transaction, &KeyRules::retryable(), &intent).await? {
                TxVerdict::Run(_) => {}
                other => return Err(format!("a payment was treated as a duplicate: {other:?}").into()),
            }
        }
        transfer(&mut transaction, number).await?;
        Ok(transaction.commit().await?)
    }
}

/// Makes a payment.
async fn transfer(connection: &mut PgConnection, number: u64) -> Result<u64, sqlx::Error> {
    let (number, account) = (number as i64, (number % ACCOUNTS) as i64);
    sqlx::query("INSERT INTO payments VALUES ($1, $2)").bind(number).bind(account).execute(&mut *connection).await?;
    let paid = sqlx::query("UPDATE accounts SET balance = balance - 1 WHERE id = $1").bind(account);
    Ok(paid.execute(connection).await?.rows_affected())
}

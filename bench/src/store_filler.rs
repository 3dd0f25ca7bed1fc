//! Fills a store with records of a guard, much faster than by requests: in this process, by pipelines, or by bulk inserts.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use onceward::store::{Bytes, Memory, Room, Store};
use onceward::{Kind, Ticket};
use sqlx::{Connection as _, PgConnection, SqliteConnection};

use crate::Failure;
use crate::record_samples::RecordSamples;

/// Number of commands in a pipeline: few, so that Redis has time for other connections in between.
pub(crate) const PIPELINE: u64 = 100;
/// Number of rows in an insert.
const ROWS: u64 = 10_000;
/// Number of threads that fill a memory store, or Redis.
const THREADS: u64 = 2;

/// The records to fill with: one ticket per number, each with the same value.
#[derive(Clone)]
pub(crate) struct RecordFill {
    pub(crate) kind: Kind,
    pub(crate) value: Bytes,
    pub(crate) ttl: Duration,
}

impl RecordFill {
    /// Tokens that were not used yet, or keys with a stored response.
    pub(crate) async fn of(kind: Kind) -> Result<Self, Failure> {
        let samples = RecordSamples::taken().await?;
        Ok(match kind {
            Kind::Token => Self { kind, value: samples.issued, ttl: RecordSamples::TOKEN_TTL },
            _ => Self { kind, value: samples.reply, ttl: RecordSamples::RETENTION },
        })
    }

    pub(crate) fn ticket(&self, number: u64) -> Ticket {
        Ticket::of(self.kind, &number.to_be_bytes())
    }

    /// The name of a record on Redis or in a database.
    fn name(&self, number: u64) -> String {
        self.ticket(number).name("onceward")
    }
}

/// A store to fill.
pub(crate) enum StoreFiller {
    Memory(Arc<Memory>),
    /// The URL of the server.
    Redis(String),
    Sqlite(String),
    Postgres(String),
}

impl StoreFiller {
    /// Writes this many records.
    pub(crate) async fn fill(&self, fill: &RecordFill, count: u64) -> Result<(), Failure> {
        match self {
            Self::Memory(memory) => in_parallel(count, |numbers| fill_memory(memory, fill, numbers)),
            Self::Redis(url) => in_parallel(count, |numbers| fill_redis(url, fill, numbers)),
            Self::Sqlite(address) => fill_sqlite(address, fill, count).await,
            Self::Postgres(url) => fill_postgres(url, fill, count).await,
        }
    }
}

/// Divides the numbers among threads.
fn in_parallel(count: u64, work: impl Fn(Range<u64>) -> Result<(), String> + Sync) -> Result<(), Failure> {
    let parts = (0..THREADS).map(|thread| count * thread / THREADS..count * (thread + 1) / THREADS);
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = parts.map(|numbers| scope.spawn(move || work(numbers))).collect();
        threads.into_iter().try_for_each(|thread| Ok(thread.join().map_err(|_| "a thread panicked")??))
    })
}

fn fill_memory(memory: &Memory, fill: &RecordFill, numbers: Range<u64>) -> Result<(), String> {
    for number in numbers {
        let ticket = fill.ticket(number);
        let written = memory.insert(&ticket, &fill.value, fill.ttl, Room::Free).now_or_never();
        match written.ok_or("a memory store does not wait")? {
            Ok(None) => {}
            other => return Err(format!("{ticket} was not written: {other:?}")),
        }
    }
    Ok(())
}

fn fill_redis(url: &str, fill: &RecordFill, numbers: Range<u64>) -> Result<(), String> {
    let open = || redis::Client::open(url)?.get_connection();
    let mut connection = open().map_err(|error| error.to_string())?;
    let millis = fill.ttl.as_millis() as u64;
    let mut first = numbers.start;
    while first < numbers.end {
        let mut pipeline = redis::Pipeline::with_capacity(PIPELINE as usize);
        let end = numbers.end.min(first + PIPELINE);
        for number in first..end {
            pipeline.cmd("SET").arg(fill.name(number)).arg(&fill.value[..]).arg("PX").arg(millis).ignore();
        }
        pipeline.query::<()>(&mut connection).map_err(|error| error.to_string())?;
        first = end;
    }
    Ok(())
}

/// Inserts rows by the clock of the file, in one transaction.
async fn fill_sqlite(address: &str, fill: &RecordFill, count: u64) -> Result<(), Failure> {
    let mut connection = SqliteConnection::connect(address).await?;
    sqlx::raw_sql("PRAGMA cache_size = -500000; BEGIN IMMEDIATE").execute(&mut connection).await?;
    for names in names(fill, count) {
        // No name contains a character that JSON escapes.
        let names = format!("[\"{}\"]", names.join("\",\""));
        let insert = sqlx::query(
            "INSERT INTO onceward_records SELECT names.value, ?2, (SELECT time_ms FROM onceward_clock) + ?3
            FROM json_each(?1) AS names",
        );
        insert.bind(names).bind(&fill.value[..]).bind(fill.ttl.as_millis() as i64).execute(&mut connection).await?;
    }
    sqlx::raw_sql("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await?;
    Ok(connection.close().await?)
}

async fn fill_postgres(url: &str, fill: &RecordFill, count: u64) -> Result<(), Failure> {
    let mut connection = PgConnection::connect(url).await?;
    for names in names(fill, count) {
        let insert = sqlx::query(
            "INSERT INTO onceward_records SELECT name, $2, clock_timestamp() + $3 * interval '1 millisecond'
            FROM unnest($1::text[]) AS name",
        );
        insert.bind(names).bind(&fill.value[..]).bind(fill.ttl.as_millis() as f64).execute(&mut connection).await?;
    }
    sqlx::raw_sql("VACUUM ANALYZE onceward_records").execute(&mut connection).await?;
    sqlx::raw_sql("CHECKPOINT").execute(&mut connection).await?;
    Ok(connection.close().await?)
}

/// The names of all records in parts of some thousands, each part in order.
fn names(fill: &RecordFill, count: u64) -> impl Iterator<Item = Vec<String>> {
    (0..count.div_ceil(ROWS)).map(move |part| {
        let mut names: Vec<_> = (part * ROWS..count.min((part + 1) * ROWS)).map(|number| fill.name(number)).collect();
        names.sort_unstable();
        names
    })
}

#[cfg(test)]
mod tests {
    use onceward::store::Sql;

    use super::*;

    #[tokio::test]
    async fn memory_and_sqlite_hold_the_records_of_a_fill() {
        let folder = tempfile::tempdir().unwrap();
        let address = format!("sqlite:{}", folder.path().join("records.db").display());
        Sql::migrate(&address).await.unwrap();
        let (memory, sql) = (Arc::new(Memory::new()), Sql::open(&address).await.unwrap());
        for kind in [Kind::Token, Kind::Key] {
            let fill = RecordFill::of(kind).await.unwrap();
            StoreFiller::Memory(Arc::clone(&memory)).fill(&fill, 101).await.unwrap();
            StoreFiller::Sqlite(address.clone()).fill(&fill, 101).await.unwrap();
            for store in [&memory as &dyn Store, &sql] {
                assert_eq!(store.look(&fill.ticket(0)).await.unwrap().as_ref(), Some(&fill.value));
                assert_eq!(store.look(&fill.ticket(100)).await.unwrap().as_ref(), Some(&fill.value));
                assert_eq!(store.look(&fill.ticket(101)).await.unwrap(), None);
            }
        }
        assert_eq!(memory.len(), 202);
    }

    #[tokio::test]
    async fn names_are_divided_into_parts_without_gaps() {
        let fill = RecordFill::of(Kind::Key).await.unwrap();
        let parts: Vec<_> = names(&fill, ROWS + 1).collect();
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [ROWS as usize, 1]);
        assert!(parts[0].is_sorted() && parts[1] == [fill.name(ROWS)]);
    }
}

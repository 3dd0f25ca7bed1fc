//! Row changes that are repeated, concurrent, late or out of order, on real databases. Next to each pattern is the naive code that
//! is usually written instead, which must fail.

mod bad_input;
mod delete;
mod insert;
mod isolation;
mod lock;
mod statement_count;
mod status;
mod stock;
mod version;

use std::future::Future;
use std::sync::Arc;

use onceward_patterns::{Answer, Why};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const RACERS: i64 = 32;

/// Declares each test for both databases, with `Connection` as the type of their connections.
macro_rules! on_both {
    ($($(#[$doc:meta])* async fn $name:ident($tables:expr => $database:ident) $body:block)+) => {
        crate::patterns::on_both!(@one postgres, Postgres, sqlx::PgConnection, $($(#[$doc])* $name $tables => $database $body)+);
        crate::patterns::on_both!(@one sqlite, Sqlite, sqlx::SqliteConnection, $($(#[$doc])* $name $tables => $database $body)+);
    };
    (@one $module:ident, $kind:ident, $connection:ty, $($(#[$doc:meta])* $name:ident $tables:expr => $database:ident $body:block)+) => {
        mod $module {
            #[allow(unused_imports, reason = "not every test needs everything")]
            use super::*;

            #[allow(dead_code, reason = "the same")]
            type Connection = $connection;
            #[allow(dead_code, reason = "the same")]
            const BEGIN: &str = onceward_tests::database::$kind::BEGIN;

            $(
                $(#[$doc])*
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let $database = onceward_tests::database::$kind::with($tables).await;
                    $body
                }
            )+
        }
    };
}
use on_both;

/// Retries a transaction while the database reports a conflict with another.
macro_rules! repeated {
    ($transaction:expr) => {
        loop {
            let tried: Result<_, onceward_patterns::PatternError> = $transaction.await;
            match tried {
                Ok(value) => break value,
                Err(error) if error.is_temporary() => tokio::task::yield_now().await,
                Err(error) => panic!("{error}: {error:?}"),
            }
        }
    };
}
use repeated;

/// Returns the name of an answer, for tests that do not check the row.
fn said<R>(answer: &Answer<R>) -> &'static str {
    match answer {
        Answer::Applied(_) => "applied",
        Answer::AlreadyApplied(_) => "already applied",
        Answer::Rejected(Why::Missing(_)) => "missing",
        Answer::Rejected(Why::Different(_)) => "different",
        Answer::Rejected(Why::Unmet(_)) => "unmet",
    }
}

/// Returns the number of answers with this name.
fn count<R>(answers: &[Answer<R>], name: &str) -> usize {
    answers.iter().filter(|answer| said(answer) == name).count()
}

/// Runs `act` concurrently for each prepared value, and returns the results.
async fn race<T, R, F>(ready: Vec<T>, act: impl Fn(T) -> F + Clone + Send + 'static) -> Vec<R>
where
    T: Send + 'static,
    R: Send + 'static,
    F: Future<Output = R> + Send,
{
    let gate = Arc::new(Barrier::new(ready.len()));
    let mut racers = JoinSet::new();
    for each in ready {
        let (gate, act) = (Arc::clone(&gate), act.clone());
        racers.spawn(async move {
            gate.wait().await;
            act(each).await
        });
    }
    racers.join_all().await
}

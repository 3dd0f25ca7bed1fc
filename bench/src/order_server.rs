//! The server under load: one order route, bare or protected by token, key or interval, and the route that issues tokens.
//!
//! It runs in its own process, and shares nothing with the process that measures it. Each framework has the same routes, and two worker
//! threads.

mod actix;
mod axum;

use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use actix_web::rt;
use onceward::Guard;
use onceward::store::{Memory, Redis};
use tokio::runtime::Builder;

pub(crate) use self::actix::order_at;
use crate::Failure;
use crate::allocation_count::AllocationCount;
use crate::case::{Case, Store, Tokens};
use crate::framework::Framework;
use crate::token_files;

const WORKERS: usize = 2;
/// Timeout of the store: other load on the machine may make a run slow, but not invalid.
const PATIENCE: Duration = Duration::from_secs(5);
/// Retention of the responses to tokens, and the interval at which the secret is shared: longer than any run.
const RETAIN: Duration = Duration::from_secs(60 * 60);

/// Writes the token files, prints the URL, and serves until standard input is closed. Prints its allocations after each line of the input.
pub(crate) fn serve(
    framework: Framework,
    case: &'static Case,
    redis: &str,
    tokens: &Path,
    per_thread: usize,
) -> Result<(), Failure> {
    let prepared = async {
        let guard = open(case.store, redis)?;
        write_tokens(case.tokens, guard.as_ref(), tokens, per_thread).await?;
        Ok::<_, Failure>((listen()?, guard))
    };
    match framework {
        Framework::Actix => rt::System::new().block_on(async {
            let (listener, guard) = prepared.await?;
            actix::serve(listener, guard, case.path).await
        }),
        Framework::Axum => Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?.block_on(async {
            let (listener, guard) = prepared.await?;
            axum::serve(listener, guard, case.path).await
        }),
    }
}

/// Binds a free port and prints the URL. Connections wait until the server accepts them.
fn listen() -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    end_with_input();
    let mut out = std::io::stdout();
    writeln!(out, "http://{}", listener.local_addr()?)?;
    out.flush()?;
    Ok(listener)
}

async fn write_tokens(kind: Tokens, guard: Option<&Guard>, folder: &Path, per_thread: usize) -> Result<(), Failure> {
    let issuer = match kind {
        Tokens::Good => guard.cloned().ok_or("valid tokens require a guard")?,
        // A separate guard has another secret.
        Tokens::New | Tokens::Forged | Tokens::Few => Guard::new(memory()),
    };
    token_files::write(&issuer, folder, per_thread).await
}

fn open(store: Store, redis: &str) -> Result<Option<Guard>, Failure> {
    let redis = || Redis::open(redis).map(|store| store.timeout(PATIENCE));
    Ok(match store {
        Store::None => None,
        Store::Memory => Some(guard(memory())),
        Store::Redis | Store::Native => Some(guard(redis()?)),
        Store::Unbatched => Some(guard(redis()?.without_batches())),
        Store::OneConnection => Some(guard(redis()?.on_one_connection())),
        Store::Unpinned => Some(guard(redis()?.unpinned())),
    })
}

/// A guard that shares its secret only once: commands in the background would be counted as those of requests.
fn guard(store: impl onceward::store::Store) -> Guard {
    Guard::builder(store).share_every(RETAIN).build()
}

/// A memory store with room for the tokens or replies of the longest run.
fn memory() -> Memory {
    Memory::new().limit(4 * Memory::DEFAULT_LIMIT)
}

/// Prints the allocations after each line of standard input. Exits when the parent process has ended: its end of the input is closed then.
fn end_with_input() {
    std::thread::spawn(|| {
        let mut line = String::with_capacity(8);
        while std::io::stdin().read_line(&mut line).is_ok_and(|length| length > 0) {
            println!("{}", AllocationCount::now());
            line.clear();
        }
        std::process::exit(0);
    });
}

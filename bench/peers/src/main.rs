//! The order route of the benchmark on axum: bare, or with the layer of the crate `idempotent`.
//!
//! `idempotent-on-axum none|memory|redis PATH REDIS_URL` prints its URL, and serves until standard input is closed.
//!
//! The settings are the fastest correct ones that the documentation of `idempotent` and axum names:
//!
//! | setting | reason |
//! |---|---|
//! | two worker threads | the server of Onceward has as many |
//! | release profile with thin LTO and one codegen unit, the system's allocator | as for Onceward |
//! | no feature `tracing` of `idempotent` and axum | a span and events per request would cost time |
//! | no `scope` | all keys are of one client; Onceward has no subject in this benchmark either |
//! | `TCP_NODELAY` for HTTP | as in axum's documentation; it makes no difference here, since a connection has one response in flight |
//! | `ValkeyStore::with_url` without options | `TCP_NODELAY` for Redis, off by default in the crate `redis`, took a third more CPU time; no response timeout made no difference |
//! | `MemoryStore::builder` without options | its channel has room for the 64 requests in flight; 1024 places made no difference |

use std::io::{Read as _, Write as _};
use std::process::ExitCode;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use axum::serve::ListenerExt as _;
use idempotent::memory::MemoryStore;
use idempotent::middleware::IdempotencyLayer;
use idempotent::valkey::ValkeyStore;
use tokio::net::TcpListener;
use tokio::runtime::Builder;

/// Any error.
type Failure = Box<dyn std::error::Error>;

const WORKERS: usize = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match begin(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn begin(arguments: &[&str]) -> Result<(), Failure> {
    let [store, path, redis] = *arguments else {
        return Err("usage: idempotent-on-axum none|memory|redis PATH REDIS_URL".into());
    };
    Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?.block_on(serve(store, path, redis))
}

async fn serve(store: &str, path: &str, redis: &str) -> Result<(), Failure> {
    let routes = routes(store, path, redis).await?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let listener = listener.tap_io(|stream| {
        // The connection may have been closed already.
        let _ = stream.set_nodelay(true);
    });
    end_with_input();
    let mut out = std::io::stdout();
    writeln!(out, "{url}")?;
    out.flush()?;
    Ok(axum::serve(listener, routes).await?)
}

async fn routes(store: &str, path: &str, redis: &str) -> Result<Router, Failure> {
    let routes = Router::new().route(path, post(order));
    Ok(match store {
        "none" => routes,
        "memory" => routes.layer(IdempotencyLayer::new(MemoryStore::builder().try_build()?)),
        "redis" => routes.layer(IdempotencyLayer::new(ValkeyStore::with_url(redis).try_build().await?)),
        _ => return Err(format!("unknown store: {store}").into()),
    })
}

/// The handler: the same response as that of the server with Onceward.
async fn order(body: Bytes) -> impl IntoResponse {
    let headers = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    (StatusCode::CREATED, headers, Body::from(format!(r#"{{"bytes":{}}}"#, body.len())))
}

/// Exits when the parent process has ended: its end of standard input is closed then.
fn end_with_input() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
}

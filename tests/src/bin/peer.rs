//! The shop as a separate process, so that tests can race several processes: `peer KIND STORE LEDGER [LOG [SECRET PREVIOUS [ADDRESS]]]`.
//!
//! `KIND` is the name of a flaw, or one of:
//! - `onceward`: the shop with a drain limit of 30 s; `impatient`: with one of 300 ms; `undrained`: without a graceful shutdown
//! - `patient`: like `onceward`, with a store timeout of 1 s
//! - `axum`, `axum-impatient`, `axum-undrained`, `axum-patient`: the same on axum; `axum-undrained` with axum's own graceful shutdown
//! - `annotated`, `axum-annotated`: the shop whose handlers have `#[once]`
//! - `annotated-without-guard`: the same, where the application has no guard
//! - `inside`: builds a guard on a memory store inside the closure of `HttpServer::new`
//! - `consumer`: takes messages from a queue
//! - `payer`: makes one payment, named by `LEDGER`
//! - `database`: starts a PostgreSQL server
//!
//! The process logs to `LOG`, signs with `SECRET`, also accepts `PREVIOUS` (which may be `shared`), and listens on `ADDRESS` or on a
//! free port. `-` stands for an argument that is not given.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use actix_web::{App, HttpServer};
use onceward::store::{Memory, Redis, Sql};
use onceward::{Guard, GuardBuilder, Secret, WeakSecret};
use onceward_tests::annotated_shop;
use onceward_tests::axum_framework::router;
use onceward_tests::consumer::Consumer;
use onceward_tests::flawed::{Flaw, FlawedShop, KeyFlaw, NaiveKeyLayer, WallClockLayer};
use onceward_tests::ledger::Ledger;
use onceward_tests::shop::{actix_routes, routes};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// Maximum time to open a SQLite file on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

type Ended = Result<(), Box<dyn std::error::Error>>;

fn main() -> Ended {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|kind| kind.starts_with("axum")) {
        return Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(run(arguments));
    }
    actix_web::rt::System::new().block_on(run(arguments))
}

async fn run(arguments: Vec<String>) -> Ended {
    let [kind, store, ledger, more @ ..] = arguments.as_slice() else {
        return Err("usage: peer KIND STORE LEDGER [LOG [SECRET PREVIOUS [ADDRESS]]]".into());
    };
    let given = |at: usize| more.get(at).filter(|given| *given != "-");
    if let Some(log) = given(0) {
        // Like an application that logs JSON with the defaults.
        tracing_subscriber::fmt().json().with_writer(std::fs::File::create(log)?).init();
    }
    if kind == "payer" && store.starts_with("sqlite:") {
        let pool = sqlx::SqlitePool::connect(store).await?;
        let ran = onceward_tests::sqlite_payments::pay_step_by_step(&pool, ledger, || {
            say("next")?;
            std::io::stdin().read_line(&mut String::new()).map(drop)
        });
        ran.await?;
        return Ok(say("paid")?);
    }
    if kind == "payer" {
        let pool = sqlx::PgPool::connect(store).await?;
        let ran = onceward_tests::postgres_payments::pay_once(&Guard::new(Memory::new()), &pool, ledger).await?;
        return Ok(say(&ran.into_value())?);
    }
    if kind == "database" {
        let server = onceward_tests::postgres::PostgresServer::start();
        say(&server.port().to_string())?;
        return std::future::pending().await;
    }
    let ledger = Ledger::at(Path::new(ledger));
    let listener = TcpListener::bind(given(3).map_or("127.0.0.1:0", String::as_str))?;
    let url = format!("http://{}", listener.local_addr()?);

    if let Some((_, flaw)) = Flaw::ALL.into_iter().find(|(name, _)| name == kind) {
        let routes = FlawedShop::open(flaw, store)?.routes(&ledger);
        let server = HttpServer::new(move || App::new().configure(routes.clone())).workers(2).listen(listener)?;
        say(&url)?;
        return Ok(server.run().await?);
    }
    if let Some((_, flaw)) = KeyFlaw::ALL.into_iter().find(|(name, _)| name == kind) {
        let routes = NaiveKeyLayer::open(flaw, store)?.routes(&ledger);
        let server = HttpServer::new(move || App::new().configure(routes.clone())).workers(2).listen(listener)?;
        say(&url)?;
        return Ok(server.run().await?);
    }
    if kind == "inside" {
        let server = HttpServer::new(move || {
            let guard = Guard::new(Memory::new());
            App::new().configure(actix_routes(&guard, &ledger))
        });
        let server = server.workers(2).listen(listener)?;
        say(&url)?;
        return Ok(server.run().await?);
    }
    if kind == WallClockLayer::NAME {
        let routes = WallClockLayer::open(store).await?.routes(&ledger);
        let server = HttpServer::new(move || App::new().configure(routes.clone())).workers(2).listen(listener)?;
        say(&url)?;
        return Ok(server.run().await?);
    }
    if kind == "annotated-without-guard" {
        let routes = annotated_shop::without_guard(&ledger);
        let server = HttpServer::new(move || App::new().configure(routes.clone())).workers(2).listen(listener)?;
        say(&url)?;
        return Ok(server.run().await?);
    }
    let builder = match store.as_str() {
        "memory:" => Guard::builder(Memory::new()),
        address if address.starts_with("sqlite:") => Guard::builder(Sql::open_within(address, PATIENCE).await?),
        address if kind.ends_with("patient") && !kind.ends_with("impatient") => {
            Guard::builder(Redis::open(address)?.timeout(Duration::from_secs(1)))
        }
        address => Guard::builder(Redis::open(address)?),
    };
    let builder = signing(builder, given(1), given(2))?;
    if kind == "consumer" {
        let consumer = Consumer::new(builder.build(), &ledger, store).await?;
        say(consumer.queue())?;
        return Ok(consumer.run().await?);
    }
    let limit = if kind.ends_with("impatient") { Duration::from_millis(300) } else { Duration::from_secs(30) };
    let guard = builder.drain_limit(limit).waiters(2_000).build();
    if kind.starts_with("axum") {
        return serve_axum(kind, listener, &guard, &ledger, &url).await;
    }
    if kind == "annotated" {
        let routes = annotated_shop::configure(&guard, &ledger);
        let server = HttpServer::new(move || App::new().configure(routes.clone())).workers(2).listen(listener)?;
        say(&url)?;
        return Ok(onceward::actix::serve(server, &guard).await?);
    }
    let routes = actix_routes(&guard, &ledger);
    let server = HttpServer::new(move || App::new().configure(routes.clone())).workers(2).listen(listener)?;
    say(&url)?;
    match kind.as_str() {
        "onceward" | "impatient" | "patient" => Ok(onceward::actix::serve(server, &guard).await?),
        "undrained" => Ok(server.run().await?),
        other => Err(format!("unknown kind of peer: {other}").into()),
    }
}

/// Serves the shop on axum.
async fn serve_axum(kind: &str, listener: TcpListener, guard: &Guard, ledger: &Ledger, url: &str) -> Ended {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let router = match kind {
        "axum-annotated" => annotated_shop::router(guard, ledger),
        _ => router(&routes(guard), ledger),
    };
    let router = router.into_make_service_with_connect_info::<SocketAddr>();
    let server = axum::serve(listener, router);
    let (mut stop, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stopped = async move {
        stop.recv().await;
    };
    say(url)?;
    match kind {
        "axum" | "axum-annotated" | "axum-impatient" | "axum-patient" => {
            Ok(onceward::axum::serve(server, guard).await?)
        }
        // Like actix-web, SIGTERM stops it gracefully, and SIGINT at once.
        "axum-undrained" => tokio::select! {
            ended = server.with_graceful_shutdown(stopped) => Ok(ended?),
            _ = interrupt.recv() => Ok(()),
        },
        other => Err(format!("unknown kind of peer: {other}").into()),
    }
}

/// Adds the given secrets to the builder.
fn signing(
    mut builder: GuardBuilder,
    secret: Option<&String>,
    previous: Option<&String>,
) -> Result<GuardBuilder, WeakSecret> {
    if let Some(secret) = secret {
        builder = builder.secret(Secret::new(secret)?);
    }
    Ok(match previous.map(String::as_str) {
        None => builder,
        Some("shared") => builder.secret_previous_shared(),
        Some(previous) => builder.secret_previous(Secret::new(previous)?),
    })
}

/// Prints one line to standard output, which the test waits for.
fn say(url: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{url}")?;
    out.flush()
}

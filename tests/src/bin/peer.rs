//! `peer KIND STORE LEDGER [LOG]`: the shop as a process of its own, so that races are between processes. `KIND` is `onceward`,
//! `impatient` for one that waits a moment only before it ends, `patient` for one that waits a second for its store, `undrained` for one
//! that does not wait at all, `consumer` for one that takes messages from a queue instead, `payer` for one that makes the one payment
//! that is named in place of the ledger, `database` for one that has a PostgreSQL, or the name of a flaw.
//! Its events go to `LOG`.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use actix_web::{App, HttpServer};
use onceward::Guard;
use onceward::store::{Memory, Redis};
use onceward_tests::consumer::Consumer;
use onceward_tests::flawed::{Flaw, Flawed, KeyFlaw, Naive};
use onceward_tests::ledger::Ledger;
use onceward_tests::shop::routes;

#[actix_web::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, store, ledger, log @ ..] = arguments.as_slice() else {
        return Err("usage: peer KIND STORE LEDGER [LOG]".into());
    };
    if let [log] = log {
        // As an application would have it that logs JSON and thinks no more of it.
        tracing_subscriber::fmt().json().with_writer(std::fs::File::create(log)?).init();
    }
    if kind == "payer" && store.starts_with("sqlite:") {
        let pool = sqlx::SqlitePool::connect(store).await?;
        let ran = onceward_tests::piggy_bank::pay_step_by_step(&pool, ledger, || {
            say("next")?;
            std::io::stdin().read_line(&mut String::new()).map(drop)
        });
        ran.await?;
        return Ok(say("paid")?);
    }
    if kind == "payer" {
        let pool = sqlx::PgPool::connect(store).await?;
        let ran = onceward_tests::bank::pay_once(&Guard::new(Memory::new()), &pool, ledger).await?;
        return Ok(say(&ran.into_value())?);
    }
    if kind == "database" {
        let server = onceward_tests::postgres::PostgresServer::start();
        say(&server.port().to_string())?;
        return std::future::pending().await;
    }
    let ledger = Ledger::at(Path::new(ledger));
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let url = format!("http://{}", listener.local_addr()?);

    if let Some((_, flaw)) = Flaw::ALL.into_iter().find(|(name, _)| name == kind) {
        let routes = Flawed::open(flaw, store)?.routes(&ledger);
        let server = HttpServer::new(move || App::new().configure(routes.clone())).workers(2).listen(listener)?;
        say(&url)?;
        return Ok(server.run().await?);
    }
    if let Some((_, flaw)) = KeyFlaw::ALL.into_iter().find(|(name, _)| name == kind) {
        let routes = Naive::open(flaw, store)?.routes(&ledger);
        let server = HttpServer::new(move || App::new().configure(routes.clone())).workers(2).listen(listener)?;
        say(&url)?;
        return Ok(server.run().await?);
    }
    let builder = match store.as_str() {
        "memory:" => Guard::builder(Memory::new()),
        address if kind == "patient" => Guard::builder(Redis::open(address)?.timeout(Duration::from_secs(1))),
        address => Guard::builder(Redis::open(address)?),
    };
    if kind == "consumer" {
        let consumer = Consumer::new(builder.build(), &ledger, store).await?;
        say(consumer.queue())?;
        return Ok(consumer.run().await?);
    }
    let limit = if kind == "impatient" { Duration::from_millis(300) } else { Duration::from_secs(30) };
    let guard = builder.drain_limit(limit).waiters(2_000).build();
    let routes = routes(&guard, &ledger);
    let server = HttpServer::new(move || App::new().configure(routes.clone())).workers(2).listen(listener)?;
    say(&url)?;
    match kind.as_str() {
        "onceward" | "impatient" | "patient" => Ok(onceward::actix::serve(server, &guard).await?),
        "undrained" => Ok(server.run().await?),
        other => Err(format!("there is no peer of the kind {other}").into()),
    }
}

/// Says where it is, on a line of its own.
fn say(url: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{url}")?;
    out.flush()
}

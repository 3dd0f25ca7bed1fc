//! The contract shop of a Rust stack: `contract_shop actix`, `contract_shop axum`, or the name of a flaw.
//!
//! The environment has its settings: `STORE` (URL of a Redis), `LEDGER`, and optionally `LEASE`, `WAIT` (milliseconds), `PORT`
//! and `PROTECTION`.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use actix_web::middleware::from_fn;
use actix_web::{App, HttpServer};
use onceward::Guard;
use onceward::actix::Actix;
use onceward::store::Redis;
use onceward_tests::actix_framework::mount;
use onceward_tests::axum_framework::router;
use onceward_tests::contract::library_shop::{ShopSettings, open_routes, routes};
use onceward_tests::contract::naive_shop::{NaiveFlaw, NaiveLayer};
use onceward_tests::ledger::Ledger;
use tokio::runtime::Builder;

type Ended = Result<(), Box<dyn std::error::Error>>;

fn main() -> Ended {
    let kind = std::env::args().nth(1).unwrap_or_default();
    tracing_subscriber::fmt().json().with_writer(std::io::stderr).init();
    if kind == "axum" {
        return Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(run(&kind));
    }
    actix_web::rt::System::new().block_on(run(&kind))
}

async fn run(kind: &str) -> Ended {
    let (store, ledger) = (required("STORE")?, required("LEDGER")?);
    let ledger = Ledger::at(Path::new(&ledger));
    let listener = TcpListener::bind(format!("127.0.0.1:{}", setting("PORT").unwrap_or_else(|| "0".to_owned())))?;
    let mut out = std::io::stdout();
    writeln!(out, "http://{}", listener.local_addr()?)?;
    out.flush()?;
    if let Some((_, flaw)) = NaiveFlaw::ALL.into_iter().find(|(name, _)| *name == kind) {
        let layer = NaiveLayer::open(flaw, &store, millis("LEASE")?)?;
        let app = move || {
            let (layer, ledger) = (layer.clone(), ledger.clone());
            let pass = from_fn(move |request, next| layer.clone().pass(request, next));
            App::new().wrap(pass).configure(move |config| mount(config, &open_routes::<Actix>(), &ledger))
        };
        // Without half-closed connections, actix-web drops the handler of a client that has closed its connection.
        return Ok(HttpServer::new(app).workers(2).h1_allow_half_closed(false).listen(listener)?.run().await?);
    }
    let guard = Guard::builder(Redis::open(&store)?.timeout(Duration::from_secs(1))).build();
    let settings = ShopSettings {
        lease: millis("LEASE")?,
        wait: millis("WAIT")?.unwrap_or_default(),
        is_protected: setting("PROTECTION").as_deref() != Some("off"),
    };
    match kind {
        "actix" => {
            let (routes, guard_of_routes) = (routes::<Actix>(&guard, settings), guard.clone());
            let app = move || App::new().configure(|config| mount(config, &routes, &ledger));
            Ok(onceward::actix::serve(HttpServer::new(app).workers(2).listen(listener)?, &guard_of_routes).await?)
        }
        "axum" => {
            listener.set_nonblocking(true)?;
            let router = router(&routes(&guard, settings), &ledger);
            let service = router.into_make_service_with_connect_info::<SocketAddr>();
            let server = axum::serve(tokio::net::TcpListener::from_std(listener)?, service);
            Ok(onceward::axum::serve(server, &guard).await?)
        }
        other => Err(format!("unknown stack: {other}").into()),
    }
}

#[expect(clippy::disallowed_methods, reason = "the contract passes the settings of a shop in the environment")]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn required(name: &str) -> Result<String, String> {
    setting(name).ok_or_else(|| format!("{name} is missing"))
}

fn millis(name: &str) -> Result<Option<Duration>, std::num::ParseIntError> {
    setting(name).map(|millis| millis.parse().map(Duration::from_millis)).transpose()
}

//! The server under load: one order route, bare or protected by token, key or interval, and the route that issues tokens.
//!
//! It runs in its own process, and shares nothing with the process that measures it.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use actix_web::error::ErrorServiceUnavailable;
use actix_web::http::header::HeaderName;
use actix_web::web::{self, Bytes, ServiceConfig};
use actix_web::{App, HttpResponse, HttpServer, Resource, rt};
use onceward::actix::{Protect, SubjectFrom, token_route};
use onceward::api::IssuedTokens;
use onceward::api::header::IDEMPOTENCY_KEY;
use onceward::http::issued;
use onceward::store::{Memory, Redis};
use onceward::{Binding, Guard, IntervalRules, KeyRules};
use serde::Deserialize;

use crate::Failure;
use crate::allocation_count::AllocationCount;
use crate::case::{Case, Store, Tokens};
use crate::token_files;

const WORKERS: usize = 2;
/// Timeout of the store: other load on the machine may make a run slow, but not invalid.
const PATIENCE: Duration = Duration::from_secs(5);
/// Retention of the responses to tokens, and the interval at which the secret is shared: longer than any run.
const RETAIN: Duration = Duration::from_secs(60 * 60);

/// Writes the token files, prints the URL, and serves until standard input is closed. Prints its allocations after each line of the input.
pub(crate) fn serve(case: &Case, redis: &str, tokens: &Path, per_thread: usize) -> Result<(), Failure> {
    rt::System::new().block_on(async {
        let guard = open(case.store, redis)?;
        let issuer = match case.tokens {
            Tokens::Good => guard.clone().ok_or("valid tokens require a guard")?,
            // A separate guard has another secret.
            Tokens::New | Tokens::Forged | Tokens::Few => Guard::new(memory()),
        };
        token_files::write(&issuer, tokens, per_thread).await?;

        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let url = format!("http://{}", listener.local_addr()?);
        let routes = routes(guard, case.path);
        let server = HttpServer::new(move || App::new().configure(routes.clone())).workers(WORKERS).listen(listener)?;
        end_with_input();
        let mut out = std::io::stdout();
        writeln!(out, "{url}")?;
        out.flush()?;
        Ok(server.run().await?)
    })
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

/// The routes. They are matched in order, so the route under load comes first.
fn routes(guard: Option<Guard>, path: &'static str) -> impl FnOnce(&mut ServiceConfig) + Clone {
    move |config| match &guard {
        None => {
            config.service(order_at(path));
        }
        Some(guard) => {
            protect(config, guard, path);
            config.service(token_route(guard, SubjectFrom::anonymous()));
            config.app_data(web::Data::new(guard.clone())).route("/tokens", web::post().to(issue_many));
        }
    }
}

/// Adds the order route with the protection for its path; none for the route that issues tokens.
fn protect(config: &mut ServiceConfig, guard: &Guard, path: &'static str) {
    let (order, anonymous) = (order_at(path), SubjectFrom::anonymous());
    match path {
        "/orders" => config.service(order.wrap(Protect::token(guard, anonymous))),
        "/keyed" => config.service(order.wrap(Protect::key(guard, anonymous, KeyRules::retryable()))),
        "/keyed-at-most-once" => config.service(order.wrap(Protect::key(guard, anonymous, KeyRules::at_most_once()))),
        "/remembered" => config.service(order.wrap(Protect::token(guard, anonymous).remember(RETAIN))),
        "/spaced" => config.service(order.wrap(Protect::interval(guard, each_another(), IntervalRules::new()))),
        _ => config,
    };
}

/// The order route, without protection.
pub(crate) fn order_at(path: &str) -> Resource {
    web::resource(path).route(web::post().to(order))
}

/// A different subject for each request, since all bodies are equal.
fn each_another() -> SubjectFrom {
    let name = HeaderName::from_static(IDEMPOTENCY_KEY);
    SubjectFrom::resolver(move |request| Some(request.headers().get(&name)?.to_str().ok()?.to_owned()))
}

/// The handler. It reads the body: a connection with an unread body is not reused, which would make the bare route too slow.
async fn order(body: Bytes) -> HttpResponse {
    HttpResponse::Created().content_type("application/json").body(format!(r#"{{"bytes":{}}}"#, body.len()))
}

/// Body of `POST /tokens`.
#[derive(Deserialize)]
struct BulkTokenRequest {
    count: u32,
}

/// Issues several tokens, like the service.
async fn issue_many(
    guard: web::Data<Guard>,
    wanted: web::Json<BulkTokenRequest>,
) -> actix_web::Result<web::Json<IssuedTokens>> {
    let mut tokens = Vec::new();
    for _ in 0..wanted.count {
        let token = guard.issue(guard.token_ttl(), Binding::none()).await.map_err(ErrorServiceUnavailable)?;
        tokens.push(issued(&token, guard.token_ttl()));
    }
    Ok(web::Json(IssuedTokens { tokens }))
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

//! The server under load: one order route, bare or behind the guard, by token, by key and by interval, and the route that
//! issues tokens.
//!
//! It runs in a process of its own, so that it shares nothing with the process that measures it.

use std::io::{Read as _, Write as _};
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
use crate::case::{Case, Store, Tokens};
use crate::token_files;

const WORKERS: usize = 2;
/// A machine that is busy otherwise may make a run slow, but not invalid.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the answers to tokens are kept: longer than any run.
const RETAIN: Duration = Duration::from_secs(60 * 60);

/// Fills the token files, says where it is on a line of its own, and serves until its input ends.
pub(crate) fn serve(case: &Case, redis: &str, tokens: &Path, per_thread: usize) -> Result<(), Failure> {
    rt::System::new().block_on(async {
        let guard = open(case.store, redis)?;
        let issuer = match case.tokens {
            Tokens::Good => guard.clone().ok_or("without a guard there are no good tokens")?,
            // Another guard has another secret.
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
    Ok(match store {
        Store::None => None,
        Store::Memory => Some(Guard::new(memory())),
        Store::Redis => Some(Guard::new(Redis::open(redis)?.timeout(PATIENCE))),
        Store::Unbatched => Some(Guard::new(Redis::open(redis)?.timeout(PATIENCE).without_batches())),
        Store::OneConnection => Some(Guard::new(Redis::open(redis)?.timeout(PATIENCE).on_one_connection())),
        Store::Unpinned => Some(Guard::new(Redis::open(redis)?.timeout(PATIENCE).unpinned())),
    })
}

/// Room for the tokens of the longest run, or for its replies.
fn memory() -> Memory {
    Memory::new().limit(4 * Memory::DEFAULT_LIMIT)
}

/// The route under load comes first: they are tried in order, and no case is to pay for the routes of the others.
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

/// The order route behind the guard, in the way that goes with its path; none, if it is tokens that are asked for.
fn protect(config: &mut ServiceConfig, guard: &Guard, path: &'static str) {
    let (order, anonymous) = (order_at(path), SubjectFrom::anonymous());
    match path {
        "/orders" => config.service(order.wrap(Protect::token(guard, anonymous))),
        "/keyed" => config.service(order.wrap(Protect::key(guard, anonymous, KeyRules::retryable()))),
        "/remembered" => config.service(order.wrap(Protect::token(guard, anonymous).remember(RETAIN))),
        "/spaced" => config.service(order.wrap(Protect::interval(guard, each_another(), IntervalRules::new()))),
        _ => config,
    };
}

fn order_at(path: &str) -> Resource {
    web::resource(path).route(web::post().to(order))
}

/// All bodies are alike, so that each is from another caller.
fn each_another() -> SubjectFrom {
    let name = HeaderName::from_static(IDEMPOTENCY_KEY);
    SubjectFrom::resolver(move |request| Some(request.headers().get(&name)?.to_str().ok()?.to_owned()))
}

/// Reads its body: a connection whose body was left unread is not used again, and everything would look fast beside it.
async fn order(body: Bytes) -> HttpResponse {
    HttpResponse::Created().content_type("application/json").body(format!(r#"{{"bytes":{}}}"#, body.len()))
}

/// Body of `POST /tokens`.
#[derive(Deserialize)]
struct BulkTokenRequest {
    count: u32,
}

/// Issues several tokens, as the service does.
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

/// Ends the process when whoever started it has gone, however that came about.
fn end_with_input() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
}

//! The guard among other middleware, in any order, and request bodies that pass through it unchanged.

use std::time::Duration;

use actix_cors::Cors;
use actix_multipart::Multipart;
use actix_web::middleware::{Compress, Logger, NormalizePath};
use actix_web::{App, HttpResponse, HttpServer, web};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use onceward::actix::{Protect, SubjectFrom};
use onceward::store::Memory;
use onceward::{Binding, Guard, KeyRules};
use onceward_api::header::{ALLOWED, EXPOSED, FIELD, IDEMPOTENCY_KEY, TOKEN};
use onceward_tests::actix_handlers;
use onceward_tests::client::{Answer, MULTIPART, URLENCODED, http, multipart, send, submit, token};
use onceward_tests::ledger::Ledger;
use onceward_tests::shop::{ORDER, Shop, TestServer};
use reqwest::{Body, Method, RequestBuilder};

const ORIGIN: &str = "https://shop.example";
const KIB: usize = 1024;

fn cors() -> Cors {
    let cors = Cors::default().allowed_origin(ORIGIN).allowed_methods(["POST"]);
    cors.allowed_headers(ALLOWED).allowed_header(ORDER).expose_headers(EXPOSED)
}

async fn panics(ledger: web::Data<Ledger>) -> HttpResponse {
    ledger.record("panic");
    panic!("the handler panics on purpose")
}

/// The routes of every application in this file.
fn routes(config: &mut web::ServiceConfig) {
    config.route("/orders", web::post().to(actix_handlers::order)).route("/panic", web::post().to(panics));
}

/// A running application with its guard and ledger.
struct WrappedApp {
    served: TestServer,
    guard: Guard,
    ledger: Ledger,
}

/// Starts a [`WrappedApp`] from an application that is built with a guard.
macro_rules! wrapped {
    (|$protect:ident| $app:expr) => {{
        let (guard, ledger) = (Guard::new(Memory::new()), Ledger::new());
        let (own, data) = (guard.clone(), web::Data::new(ledger.clone()));
        let served = TestServer::run(move |listener| {
            let server = HttpServer::new(move || {
                let $protect = || Protect::token(&own, SubjectFrom::anonymous());
                $app.app_data(data.clone())
            });
            Ok(server.workers(1).disable_signals().listen(listener)?.run())
        });
        WrappedApp { served, guard, ledger }
    }};
}

impl WrappedApp {
    async fn token(&self) -> String {
        self.guard.issue(Duration::from_secs(60), Binding::none()).await.expect("memory has room").as_str().to_owned()
    }

    async fn submit(&self, path: &str, token: &str) -> Answer {
        send(submit(&self.served.url, path, token, path).header("origin", ORIGIN)).await
    }

    /// Asserts that each of these paths runs once per token, and that a script of another origin can read the response of every
    /// run, and also those of rejections and panics if CORS is outside of the guard.
    async fn holds(&self, paths: &[&str], is_cors_outside: bool) {
        for path in paths {
            let token = self.token().await;
            let preflight = http().request(Method::OPTIONS, format!("{}{path}", self.served.url));
            let preflight = preflight.header("origin", ORIGIN).header("access-control-request-method", "POST");
            let preflight = send(preflight.header("access-control-request-headers", TOKEN)).await;
            assert_eq!((preflight.status, preflight.outcome.as_str()), (200, ""), "{path}");
            assert_eq!(preflight.headers["access-control-allow-origin"], ORIGIN, "{path}");

            let request = submit(&self.served.url, path, &token, path).header("origin", ORIGIN);
            let first = send(request.header("accept-encoding", "gzip").body("a".repeat(5_000))).await;
            assert_eq!(first.said(), "200 executed", "{path}");
            assert_eq!(first.headers["content-encoding"], "gzip", "{path}");
            assert_readable(&first);
            let second = self.submit(path, &token).await;
            let missing = self.submit(path, "").await;
            assert_eq!((second.said().as_str(), missing.said().as_str()), ("409 token_used", "400 token_missing"));
            assert_eq!((second.problem().status, missing.problem().status), (409, 400), "{path}");
            assert_eq!(self.ledger.count(path), 1, "{path}");

            let panicking = path.replace("orders", "panic");
            let token = self.token().await;
            let panicked = self.submit(&panicking, &token).await;
            assert_eq!(panicked.said(), "500 internal", "{panicking}");
            assert_eq!(self.submit(&panicking, &token).await.said(), "409 token_used", "{panicking}");
            if is_cors_outside {
                [second, missing, panicked].iter().for_each(assert_readable);
            }
        }
        assert_eq!(self.ledger.count("panic"), paths.len());
    }
}

/// Asserts that a script of another origin can read a response with all of Onceward's headers.
fn assert_readable(answer: &Answer) {
    assert_eq!(answer.headers["access-control-allow-origin"], ORIGIN, "{answer:?}");
    let exposed = answer.headers["access-control-expose-headers"].to_str().expect("text").to_lowercase();
    for name in EXPOSED {
        assert!(exposed.split(',').any(|exposed| exposed.trim() == name), "{name}: {exposed}");
    }
}

#[tokio::test]
async fn application_guard_works_inside_other_middleware() {
    let app = wrapped!(|protect| {
        let app = App::new().wrap(protect()).wrap(NormalizePath::trim()).wrap(Compress::default());
        app.wrap(cors()).wrap(Logger::default()).configure(routes)
    });
    app.holds(&["/orders", "/orders/", "//orders"], true).await;
}

#[tokio::test]
async fn application_guard_works_outside_other_middleware() {
    let app = wrapped!(|protect| {
        let app = App::new().wrap(Logger::default()).wrap(cors()).wrap(Compress::default());
        app.wrap(NormalizePath::trim()).wrap(protect()).configure(routes)
    });
    app.holds(&["/orders", "/orders/", "//orders"], false).await;
}

#[tokio::test]
async fn application_guard_works_between_other_middleware() {
    let app = wrapped!(|protect| {
        let app = App::new().wrap(Compress::default()).wrap(NormalizePath::trim());
        app.wrap(protect()).wrap(Logger::default()).wrap(cors()).configure(routes)
    });
    app.holds(&["/orders", "/orders/"], true).await;
    let app = wrapped!(|protect| {
        let app = App::new().wrap(cors()).wrap(Logger::default());
        app.wrap(protect()).wrap(Compress::default()).wrap(NormalizePath::trim()).configure(routes)
    });
    app.holds(&["/orders", "/orders/"], false).await;
}

#[tokio::test]
async fn route_guard_works_inside_application_middleware() {
    let app = wrapped!(|protect| {
        let orders = web::resource("/orders").wrap(protect()).route(web::post().to(actix_handlers::order));
        let panic = web::resource("/panic").wrap(protect()).route(web::post().to(panics));
        let app = App::new().wrap(NormalizePath::trim()).wrap(Compress::default()).wrap(cors()).wrap(Logger::default());
        app.service(orders).service(panic).service(web::scope("/scope").wrap(protect()).configure(routes))
    });
    app.holds(&["/orders", "/orders/", "/scope/orders", "/scope//orders"], true).await;
}

#[tokio::test]
async fn scope_guard_works_in_any_middleware_order() {
    let app = wrapped!(|protect| {
        let inside = web::scope("/inside").wrap(protect()).wrap(Logger::default()).wrap(Compress::default());
        let between = web::scope("/between").wrap(Compress::default()).wrap(protect()).wrap(Logger::default());
        App::new()
            .service(inside.wrap(cors()).configure(routes))
            .service(between.wrap(cors()).configure(routes))
            .service(web::scope("/around").wrap(protect()).wrap(cors()).wrap(Compress::default()).configure(routes))
    });
    app.holds(&["/inside/orders", "/between/orders", "/around/orders"], true).await;
    let app = wrapped!(|protect| {
        let outside = web::scope("/outside").wrap(Compress::default()).wrap(Logger::default()).wrap(cors());
        let between = web::scope("/between").wrap(Logger::default()).wrap(cors()).wrap(protect());
        App::new()
            .service(outside.wrap(protect()).configure(routes))
            .service(between.wrap(Compress::default()).configure(routes))
    });
    app.holds(&["/outside/orders", "/between/orders"], false).await;
}

/// Returns random alphanumeric bytes, the same for each size.
fn content(size: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(size as u64);
    (0..size).map(|_| random.alphanumeric() as u8).collect()
}

/// Asserts that the handler echoes the body unchanged, once.
async fn assert_echoed(what: &str, request: impl Fn() -> RequestBuilder, body: &[u8]) {
    let answer = send(request().body(body.to_vec())).await;
    assert_eq!(answer.said(), "200 executed", "{what}");
    assert!(answer.body == body, "{what}: {} bytes of {} came back", answer.body.len(), body.len());
    let duplicate = send(request().body(body.to_vec())).await;
    assert_eq!(duplicate.said(), "409 token_used", "{what}");
}

#[tokio::test]
async fn body_reaches_the_handler_byte_for_byte() {
    let shop = Shop::on(Memory::new());
    let echo = format!("{}/echo", shop.url());
    let sizes = [0, 1, 100, 64 * KIB, 256 * KIB - 1, 256 * KIB, 256 * KIB + 1, 300 * KIB, 5 * KIB * KIB];
    for size in sizes {
        let content = content(size);
        let text = String::from_utf8(content.clone()).unwrap();
        let part: Vec<u8> = content.iter().map(|byte| byte.wrapping_mul(7)).collect();
        for (kind, body) in [
            ("application/json", format!("{{\"note\": \"{text}\",\r\n\"_onceward\":  \"x\"}}").into_bytes()),
            ("application/octet-stream", part.clone()),
            (URLENCODED, format!("note={text}&b=%zz&&c").into_bytes()),
            (MULTIPART, multipart(&[("note", b"tea"), ("file", &part), (FIELD, b"not the first part")])),
        ] {
            let token = token(shop.url()).await;
            let in_header = || http().post(&echo).header(TOKEN, &token).header("content-type", kind);
            assert_echoed(&format!("{kind} of {size}, header"), in_header, &body).await;
            let token = token_in_query(&shop).await;
            let in_query = || http().post(format!("{echo}?{token}")).header("content-type", kind);
            assert_echoed(&format!("{kind} of {size}, query"), in_query, &body).await;
        }
        let good = token(shop.url()).await;
        let form = format!("{FIELD}={good}&note={text}").into_bytes();
        assert_echoed(
            &format!("first field of {size}"),
            || http().post(&echo).header("content-type", URLENCODED),
            &form,
        )
        .await;
        let good = token(shop.url()).await;
        let parts = multipart(&[(FIELD, good.as_bytes()), ("file", &part)]);
        assert_echoed(
            &format!("first part of {size}"),
            || http().post(&echo).header("content-type", MULTIPART),
            &parts,
        )
        .await;
    }
}

async fn token_in_query(shop: &Shop) -> String {
    format!("a=1&{FIELD}={}&b=2", token(shop.url()).await)
}

/// Returns a chunked body without a length.
fn streamed(body: Vec<u8>, piece: usize) -> Body {
    let pieces: Vec<_> = body.chunks(piece).map(|piece| Ok::<_, std::io::Error>(piece.to_vec())).collect();
    Body::wrap_stream(stream::iter(pieces))
}

#[tokio::test]
async fn chunked_body_reaches_the_handler_byte_for_byte() {
    let shop = Shop::on(Memory::new());
    let echo = format!("{}/echo", shop.url());
    for (size, piece) in [(1, 1), (500, 1), (70_000, 333), (256 * KIB, 4 * KIB), (5 * KIB * KIB, 60_000)] {
        let content = content(size);
        let text = String::from_utf8(content.clone()).unwrap();
        let [header, field, part] = [token(shop.url()).await, token(shop.url()).await, token(shop.url()).await];
        for (kind, token, body) in [
            ("text/plain", &*header, content.clone()),
            (URLENCODED, "", format!("{FIELD}={field}&note={text}").into_bytes()),
            (MULTIPART, "", multipart(&[(FIELD, part.as_bytes()), ("file", &content)])),
        ] {
            let request = || http().post(&echo).header(TOKEN, token).header("content-type", kind);
            let answer = send(request().body(streamed(body.clone(), piece))).await;
            assert_eq!(answer.said(), "200 executed", "{kind} of {size} by {piece}");
            assert!(answer.body == body, "{kind} of {size} by {piece}: {} bytes came back", answer.body.len());
            let duplicate = send(request().body(streamed(body, piece))).await;
            assert_eq!(duplicate.said(), "409 token_used", "{kind} of {size} by {piece}");
        }
    }
}

/// `_onceward=another&item=tea`, compressed by `gzip`.
const ZIPPED: &[u8] = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x8b\xcf\xcf\x4b\x4e\x2d\x4f\x2c\x4a\xb1\x4d\xcc\xcb\x2f\xc9\x48\x2d\x52\xcb\x2c\x49\xcd\xb5\x2d\x49\x4d\x04\x00\x57\x47\x16\xae\x1a\x00\x00\x00";

#[tokio::test]
async fn compressed_form_is_forwarded_unread() {
    let shop = Shop::on(Memory::new());
    let echo = format!("{}/echo", shop.url());
    let zipped = |request: RequestBuilder| {
        send(request.header("content-type", URLENCODED).header("content-encoding", "gzip").body(ZIPPED))
    };
    let refused = zipped(http().post(&echo)).await;
    assert_eq!(refused.said(), "400 token_missing", "the token inside is not read");
    let token = token(shop.url()).await;
    let answer = zipped(http().post(&echo).header(TOKEN, &token)).await;
    assert_eq!((answer.said().as_str(), &answer.body[..]), ("200 executed", ZIPPED));
    assert_eq!(zipped(http().post(&echo).header(TOKEN, &token)).await.said(), "409 token_used");
}

/// Responds with the name and content of each part.
async fn parts(ledger: web::Data<Ledger>, mut parts: Multipart) -> actix_web::Result<HttpResponse> {
    let mut read = Vec::new();
    while let Some(part) = parts.next().await {
        let part = part?;
        let name = part.name().unwrap_or_default().to_owned();
        let content = part.map_ok(|piece| piece.to_vec()).try_concat().await?;
        read.extend([format!("{name}={}:", content.len()).into_bytes(), content].concat());
    }
    ledger.record("parts");
    Ok(HttpResponse::Ok().body(read))
}

/// Responds with the fields as JSON.
async fn fields(ledger: web::Data<Ledger>, form: web::Form<Vec<(String, String)>>) -> HttpResponse {
    ledger.record("fields");
    HttpResponse::Ok().json(form.into_inner())
}

#[tokio::test]
async fn form_with_the_token_first_reaches_the_handler_whole() {
    let app = wrapped!(|protect| {
        let parts = web::resource("/parts").wrap(protect()).route(web::post().to(parts));
        App::new().service(parts).service(web::resource("/fields").wrap(protect()).route(web::post().to(fields)))
    });
    let file: Vec<u8> = content(5 * KIB * KIB).iter().map(|byte| byte.wrapping_mul(7)).collect();
    let token = app.token().await;
    let body = multipart(&[(FIELD, token.as_bytes()), ("item", b"tea"), ("file", &file), ("note", b"")]);
    let request = || http().post(format!("{}/parts", app.served.url)).header("content-type", MULTIPART);
    let answer = send(request().body(body.clone())).await;
    let head = format!("{FIELD}={}:{token}item=3:teafile={}:", token.len(), file.len());
    assert_eq!(answer.said(), "200 executed");
    assert!(answer.body == [head.as_bytes(), &file, b"note=0:"].concat(), "{} bytes", answer.body.len());
    assert_eq!(send(request().body(body)).await.said(), "409 token_used");

    let token = app.token().await;
    let fields = [(FIELD, token.as_str()), ("item", "tea & cake"), ("amount", "")];
    let request = || http().post(format!("{}/fields", app.served.url)).form(&fields);
    let answer = send(request()).await;
    assert_eq!(answer.said(), "200 executed");
    assert_eq!(answer.body, serde_json::to_vec(&fields).unwrap());
    assert_eq!(send(request()).await.said(), "409 token_used");
    assert_eq!(app.ledger.runs(), ["parts", "fields"]);
}

async fn paid(ledger: web::Data<Ledger>) -> HttpResponse {
    ledger.record("paid");
    HttpResponse::Created().json("paid")
}

#[tokio::test]
async fn replay_is_cross_origin_readable_with_cors_outside() {
    let (guard, ledger) = (Guard::new(Memory::new()), web::Data::new(Ledger::new()));
    let data = ledger.clone();
    let served = TestServer::run(move |listener| {
        let server = HttpServer::new(move || {
            let protect = || Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable());
            let inside = web::resource("/inside").wrap(cors()).wrap(protect());
            let outside = web::resource("/outside").wrap(protect()).wrap(cors());
            App::new()
                .app_data(data.clone())
                .service(inside.route(web::post().to(paid)))
                .service(outside.route(web::post().to(paid)))
        });
        Ok(server.workers(1).disable_signals().listen(listener)?.run())
    });
    let pay = async |path: &str| {
        let request = http().post(format!("{}{path}", served.url)).header("origin", ORIGIN);
        send(request.header(IDEMPOTENCY_KEY, path)).await
    };
    for (path, is_readable) in [("/inside", false), ("/outside", true)] {
        let (first, replay) = (pay(path).await, pay(path).await);
        assert_eq!((first.said().as_str(), replay.said().as_str()), ("201 executed", "201 replayed"), "{path}");
        assert_readable(&first);
        let allowed = replay.headers.get_all("access-control-allow-origin").iter().count();
        assert_eq!(allowed, usize::from(is_readable), "{path}: {replay:?}");
    }
    assert_readable(&pay("/outside").await);
    assert_eq!(ledger.count("paid"), 2);
}

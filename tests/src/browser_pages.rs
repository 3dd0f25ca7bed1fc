//! Pages of the shop for browsers: guarded forms under a strict Content-Security-Policy. Each order writes every form field to
//! the ledger.

use std::path::PathBuf;
use std::time::Duration;

use actix_multipart::Multipart;
use actix_web::dev::HttpServiceFactory;
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, LOCATION};
use actix_web::middleware::DefaultHeaders;
use actix_web::web::{self, Data, Path, Query, ServiceConfig};
use actix_web::{Either, HttpResponse, HttpResponseBuilder};
use futures_util::TryStreamExt as _;
use onceward::actix::{HiddenToken, Protect, SubjectFrom, token_route};
use onceward::store::Memory;
use onceward::{Binding, Guard};
use onceward_api::header::FIELD;
use serde::Deserialize;

use crate::ledger::Ledger;

/// Allows nothing from other origins and nothing inline.
const POLICY: &str = "default-src 'self'";
/// Lifetime of a token under `/brief`.
const BRIEF: Duration = Duration::from_secs(2);
/// Retention of a stored response.
const RETAIN: Duration = Duration::from_secs(600);
/// Maximum time a duplicate waits for the first request.
const WAIT: Duration = Duration::from_secs(20);

/// Query parameters that control the handler.
#[derive(Deserialize)]
struct OrderQuery {
    /// Duration of the handler in milliseconds.
    #[serde(default)]
    takes: u64,
    /// Kind of response.
    #[serde(default)]
    answer: String,
}

/// The shop's pages.
pub fn routes(guard: &Guard) -> impl Fn(&mut ServiceConfig) + Clone + Send + use<> {
    let (guard, brief) =
        (guard.clone(), Guard::builder(Memory::new()).token_ttl(BRIEF).expect("a token may live so long").build());
    move |config| {
        config.service(shop("/brief", &brief)).service(shop("/web", &guard));
    }
}

fn shop(path: &str, guard: &Guard) -> impl HttpServiceFactory + use<> {
    let protect = Protect::token(guard, SubjectFrom::anonymous()).remember(RETAIN).wait(WAIT);
    let plain = Protect::token(guard, SubjectFrom::anonymous());
    web::scope(path)
        .wrap(DefaultHeaders::new().add(("content-security-policy", POLICY)))
        .app_data(Data::new(guard.clone()))
        .service(token_route(guard, SubjectFrom::anonymous()))
        .service(web::resource("/orders").wrap(protect).route(web::post().to(order)))
        .service(web::resource("/plain").wrap(plain).route(web::post().to(order)))
        .route("/open", web::post().to(order))
        .route("/sdk/onceward.js", web::get().to(async || script("dist/onceward.js")))
        .route("/sdk/onceward.zh-CN.js", web::get().to(async || script("dist/onceward.zh-CN.js")))
        .route("/scripts/{name}", web::get().to(async |name: Path<String>| script(&format!("browser/scripts/{name}"))))
        .route("/pages/{name}", web::get().to(page))
}

fn file(path: &str) -> Option<String> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../client-sdk/web"));
    std::fs::read_to_string(folder.join(path)).ok()
}

fn script(path: &str) -> HttpResponse {
    match file(path) {
        Some(text) => HttpResponse::Ok().content_type("text/javascript").body(text),
        None => HttpResponse::NotFound().finish(),
    }
}

/// Serves a page, with a token in place of `<!-- token -->`.
async fn page(name: Path<String>, guard: Data<Guard>) -> HttpResponse {
    let Some(text) = file(&format!("browser/pages/{name}.html")) else { return HttpResponse::NotFound().finish() };
    let text = match text.contains("<!-- token -->") {
        true => {
            let hidden = HiddenToken::issue(&guard, Binding::none()).await.expect("the memory store issues");
            text.replace("<!-- token -->", &hidden.to_string())
        }
        false => text,
    };
    HttpResponse::Ok().content_type("text/html; charset=utf-8").body(text)
}

/// Places the order and responds as the query says. An order with `item=wrong` receives 422 and the form.
async fn order(
    told: Query<OrderQuery>,
    ledger: Data<Ledger>,
    sent: Either<web::Form<Vec<(String, String)>>, Multipart>,
) -> HttpResponse {
    let fields = match sent {
        Either::Left(form) => form.into_inner(),
        Either::Right(parts) => read(parts).await,
    };
    let fields: Vec<String> = fields
        .iter()
        .filter(|(name, _)| name != FIELD)
        .map(|(name, value)| format!("{name}={}", value.escape_default()))
        .collect();
    let line = fields.join("&");
    if line.contains("item=wrong") {
        return HttpResponse::UnprocessableEntity().content_type("text/html").body(page_of("wrong", &form_again()));
    }
    if told.answer == "broken" {
        let body = page_of("broken", "<p>Something went wrong.</p>");
        return HttpResponse::InternalServerError().content_type("text/html").body(body);
    }
    ledger.record(&format!("begun {line}"));
    actix_web::rt::time::sleep(Duration::from_millis(told.takes)).await;
    ledger.record(&line);
    let receipt = uuid::Uuid::new_v4();
    let said = format!("<p id=\"receipt\">{receipt}</p>");
    let html = |mut answer: HttpResponseBuilder, body: String| answer.content_type("text/html").body(body);
    match told.answer.as_str() {
        "nothing" => HttpResponse::NoContent().finish(),
        "file" => HttpResponse::Ok()
            .insert_header((CONTENT_TYPE, "text/csv"))
            .insert_header((CONTENT_DISPOSITION, "attachment; filename=\"receipt.csv\""))
            .body(receipt.to_string()),
        "elsewhere" => HttpResponse::SeeOther().insert_header((LOCATION, "pages/receipt")).finish(),
        "bare" => html(HttpResponse::Ok(), format!("<!doctype html><title>bare</title>{said}")),
        "frame" => html(HttpResponse::Ok(), format!("<turbo-frame id=\"place\">{said}</turbo-frame>")),
        "stream" => HttpResponse::Ok().content_type("text/vnd.turbo-stream.html").body(format!(
            "<turbo-stream action=\"update\" target=\"place\"><template>{said}</template></turbo-stream>"
        )),
        "gateway" => html(HttpResponse::build(StatusCode::BAD_GATEWAY), page_of("gateway", &said)),
        _ => html(HttpResponse::Ok(), page_of("receipt", &said)),
    }
}

fn page_of(title: &str, body: &str) -> String {
    format!("<!doctype html><title>{title}</title><script src=\"sdk/onceward.js\" defer></script>{body}")
}

fn form_again() -> String {
    "<form method=\"post\" action=\"orders\" data-onceward><input name=\"item\" value=\"wrong\"><button>Order</button></form>".into()
}

/// Reads the fields of a multipart form. The value of a file is its name and its size in bytes.
async fn read(mut parts: Multipart) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    while let Some(part) = parts.try_next().await.expect("a form") {
        let name = part.name().unwrap_or_default().to_owned();
        let file = part.content_disposition().and_then(|how| how.get_filename()).map(str::to_owned);
        let bytes: Vec<u8> =
            part.try_fold(Vec::new(), async |all, some| Ok([all, some.to_vec()].concat())).await.expect("a part");
        let value = match file {
            Some(file) => format!("{file}:{}", bytes.len()),
            None => String::from_utf8_lossy(&bytes).into_owned(),
        };
        fields.push((name, value));
    }
    fields
}

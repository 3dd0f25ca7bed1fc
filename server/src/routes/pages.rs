//! Pages for people: where to begin, what a problem means, and the way to the documentation.

use actix_web::http::header::LOCATION;
use actix_web::{HttpRequest, HttpResponse, get, web};
use onceward::Rejection;
use onceward_api::{Code, Retry};

use crate::context::Context;

const STYLE: &str = "body{font:1.1rem/1.6 system-ui,sans-serif;max-width:44rem;margin:8vh auto;padding:0 1.5rem;color:#222}\
    h1{font-size:1.7rem;line-height:1.25}pre{background:#f4f4f2;padding:1rem;overflow-x:auto;font-size:.9rem}\
    code{font-family:ui-monospace,monospace}a{color:#0b57d0}dt{font-weight:600}dd{margin:0 0 .8rem}";

/// One token's life, to be copied into a terminal.
const START: &str = r#"<h1>Onceward is running</h1>
<p>It makes a submission take effect once, however often it is sent. One token's life, from a terminal:</p>
<pre><code>TOKEN=$(curl -s -X POST HOST/token |
  sed 's/.*"token":"\([^"]*\)".*/\1/')

curl -s HOST/token/redeem KEY \
  -H 'content-type: application/json' -d "{\"token\":\"$TOKEN\"}"

curl -s HOST/token/redeem KEY \
  -H 'content-type: application/json' -d "{\"token\":\"$TOKEN\"}"</code></pre>
<p>The first redeem says <code>redeemed</code>, the second <code>token_used</code>.</p>
<p><a href="/docs/">API documentation</a> · <a href="/openapi.json">openapi.json</a> · <a href="/readyz">ready?</a></p>"#;

#[get("/")]
pub(crate) async fn start(request: HttpRequest, context: web::Data<Context>) -> HttpResponse {
    let host = context.access().host(&request);
    let is_plain =
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:-[]".contains(&byte));
    let key = if context.access().has_key() { " -H \"Authorization: Bearer $ONCEWARD_API_KEY\"" } else { "" };
    page("Onceward", &START.replace("HOST", if is_plain { &host } else { "localhost:8080" }).replace(" KEY", key))
}

#[get("/docs")]
pub(crate) async fn docs() -> HttpResponse {
    HttpResponse::PermanentRedirect().insert_header((LOCATION, "/docs/")).finish()
}

#[get("/problems/{code}")]
pub(crate) async fn problem(
    request: HttpRequest,
    context: web::Data<Context>,
    code: web::Path<String>,
) -> HttpResponse {
    let Some(code) = Code::ALL.into_iter().find(|known| known.as_str() == *code) else {
        let rejection = Rejection::new(Code::NotFound).detail("There is no problem of this name.");
        return context.respond(&request, Err(rejection.into()));
    };
    let next = match code.retry() {
        Retry::Same => "<code>same</code>: send the same again, after <code>Retry-After</code>.",
        Retry::NewToken => {
            "<code>new_token</code>: this request ran nothing. Fetch a new token and send again, if no earlier try is without an answer."
        }
        Retry::No => "<code>no</code>: do not repeat it.",
    };
    page(
        code.title(),
        &format!(
            "<h1>{title}</h1><p>{detail}</p><dl><dt>code</dt><dd><code>{code}</code></dd><dt>status</dt><dd>{status}</dd>\
             <dt>retry</dt><dd>{next}</dd></dl>",
            title = code.title(),
            detail = code.detail(),
            status = code.status(),
        ),
    )
}

fn page(title: &str, body: &str) -> HttpResponse {
    HttpResponse::Ok().content_type("text/html; charset=utf-8").body(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"><title>{title}</title><style>{STYLE}</style></head>\
         <body><main>{body}</main></body></html>\n"
    ))
}

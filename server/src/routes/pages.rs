//! HTML pages: the start page and the error codes.

use std::fmt::Write as _;
use std::sync::LazyLock;

use actix_web::http::header::{CONTENT_SECURITY_POLICY, LOCATION};
use actix_web::{HttpRequest, HttpResponse, get, web};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onceward::Rejection;
use onceward_api::{Code, Retry};
use sha2::{Digest as _, Sha256};

use crate::context::Context;

const STYLE: &str = include_str!("../../assets/pages.css");

/// The start page, with commands to copy into a terminal.
const START: &str = r#"<h1>Onceward is running</h1>
<p>It makes a submission take effect once, however often it is sent.</p>
<h2>Quick start</h2>
<p>Issue a token and redeem it twice:</p>
<pre><code>TOKEN=$(curl -s -X POST HOST/token |
  sed 's/.*"token":"\([^"]*\)".*/\1/')

curl -s HOST/token/redeem KEY \
  -H 'content-type: application/json' -d "{\"token\":\"$TOKEN\"}"

curl -s HOST/token/redeem KEY \
  -H 'content-type: application/json' -d "{\"token\":\"$TOKEN\"}"</code></pre>
<p>The first redeem returns <code>redeemed</code>, the second <code>token_used</code>.</p>
<p><a href="/docs/">API documentation</a> · <a href="/openapi.json">openapi.json</a> · <a href="/problems">Error codes</a> · <a href="/readyz">Readiness</a></p>"#;

/// The links on the pages about error codes.
const NAVIGATION: &str = r#"<nav aria-label="More"><a href="/">Start page</a><a href="/problems">All error codes</a><a href="/docs/">API documentation</a></nav>"#;

#[get("/")]
pub(crate) async fn start(request: HttpRequest, context: web::Data<Context>) -> HttpResponse {
    let host = context.access().host(&request);
    let is_plain =
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:-[]".contains(&byte));
    let key = if context.access().has_key() { " -H \"Authorization: Bearer $ONCEWARD_API_KEY\"" } else { "" };
    page("Onceward", "", &START.replace("HOST", if is_plain { &host } else { "localhost:8080" }).replace(" KEY", key))
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
        let rejection = Rejection::new(Code::NotFound)
            .detail("There is no error code with this name. All codes are listed at /problems.");
        return context.respond(&request, Err(rejection.into()));
    };
    let (policy, html) = explanation(code, NAVIGATION);
    send(policy, html)
}

/// Returns the page that explains a code, and its content security policy.
pub(crate) fn explanation(code: Code, navigation: &str) -> (&'static str, String) {
    let html = html(
        code.title(),
        navigation,
        &format!(
            "<h1>{title}</h1><p>{detail}</p><dl><dt>Code</dt><dd><code>{code}</code></dd><dt>Status</dt><dd>{status}</dd>\
             <dt>Retry</dt><dd><code>{retry}</code><br>{advice}</dd></dl>",
            title = code.title(),
            detail = code.detail(),
            status = code.status(),
            retry = retry_name(code.retry()),
            advice = retry_advice(code.retry()),
        ),
    );
    (policy(), html)
}

/// Lists every code, with a link to the page that explains it.
#[get("/problems")]
pub(crate) async fn problems() -> HttpResponse {
    let mut rows = String::new();
    for code in Code::ALL {
        let _ = write!(
            rows,
            "<tr><th scope=\"row\"><a href=\"/problems/{code}\"><code>{code}</code></a></th><td>{title}</td>\
             <td data-label=\"Status\">{status}</td><td data-label=\"Retry\"><code>{retry}</code></td></tr>",
            title = code.title(),
            status = code.status(),
            retry = retry_name(code.retry()),
        );
    }
    let mut advice = String::new();
    for retry in [Retry::Same, Retry::NewToken, Retry::No] {
        let _ = write!(advice, "<dt><code>{}</code></dt><dd>{}</dd>", retry_name(retry), retry_advice(retry));
    }
    page(
        "Error codes",
        NAVIGATION,
        &format!(
            "<h1>Error codes</h1><p>A rejected request receives a problem (RFC 9457) with one of these codes. \
             <code>retry</code> tells a client what to do next:</p><dl>{advice}</dl>\
             <table><thead><tr><th scope=\"col\">Code</th><th scope=\"col\">Meaning</th><th scope=\"col\">Status</th>\
             <th scope=\"col\">Retry</th></tr></thead><tbody>{rows}</tbody></table>"
        ),
    )
}

/// Returns the name on the wire.
fn retry_name(retry: Retry) -> &'static str {
    match retry {
        Retry::Same => "same",
        Retry::NewToken => "new_token",
        Retry::No => "no",
    }
}

/// Returns the advice for a client.
fn retry_advice(retry: Retry) -> &'static str {
    match retry {
        Retry::Same => "Send the same request again, after <code>Retry-After</code>.",
        Retry::NewToken => {
            "This request ran nothing. Fetch a new token and send the request again, unless an earlier attempt is still without a response."
        }
        Retry::No => "Do not send the request again.",
    }
}

/// Returns the content security policy of the pages: they load nothing and allow only their own style.
fn policy() -> &'static str {
    static POLICY: LazyLock<String> = LazyLock::new(|| {
        let digest = STANDARD.encode(Sha256::digest(STYLE));
        format!(
            "default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
    });
    &POLICY
}

fn page(title: &str, navigation: &str, body: &str) -> HttpResponse {
    send(policy(), html(title, navigation, body))
}

fn send(policy: &str, html: String) -> HttpResponse {
    let mut answer = HttpResponse::Ok();
    answer.insert_header((CONTENT_SECURITY_POLICY, policy));
    answer.content_type("text/html; charset=utf-8").body(html)
}

fn html(title: &str, navigation: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\">\
         <title>{title}</title><style>{STYLE}</style></head><body>{navigation}<main>{body}</main></body></html>\n"
    )
}

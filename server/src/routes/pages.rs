//! HTML pages: the start page, in English, and the error codes.

mod words;

use std::fmt::Write as _;
use std::sync::LazyLock;

use actix_web::http::header::{CONTENT_LANGUAGE, CONTENT_SECURITY_POLICY, LOCATION, VARY};
use actix_web::{HttpRequest, HttpResponse, get, web};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onceward::http::Preferences;
use onceward::{Language, Languages, Rejection};
use onceward_api::{Code, Retry};
use onceward_demo::{chosen_language, has_choice};
use sha2::{Digest as _, Sha256};

use self::words::PageWords;
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

#[get("/")]
pub(crate) async fn start(request: HttpRequest, context: web::Data<Context>) -> HttpResponse {
    let host = context.access().host(&request);
    let is_plain =
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:-[]".contains(&byte));
    let key = if context.access().has_key() { " -H \"Authorization: Bearer $ONCEWARD_API_KEY\"" } else { "" };
    let body = START.replace("HOST", if is_plain { &host } else { "localhost:8080" }).replace(" KEY", key);
    let page =
        Page { policy: policy(), language: Language::ENGLISH, html: html(Language::ENGLISH, "Onceward", "", &body) };
    page.send(&request, &Languages::fixed(Language::english()))
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
            .detail("There is no error code with this name. All codes are listed at /problems.")
            .detail_in(Language::SIMPLIFIED_CHINESE, "没有这个错误码。所有错误码列在 /problems。");
        return context.respond(&request, Err(rejection.into()));
    };
    let languages = context.guard().languages();
    let preferred = preferred(&request);
    let navigation = PageWords::of(languages.tag_for(preferred)).navigation();
    let page = explanation(code, languages, preferred, &navigation);
    page.send(&request, languages)
}

/// Returns the languages that a request prefers: the one that a visitor has chosen in the demo, or those of the browser.
fn preferred(request: &HttpRequest) -> Option<&[u8]> {
    chosen_language(request).map(str::as_bytes).or(Preferences::of(request).accept_language)
}

/// A page, and the tag of its language.
pub(crate) struct Page {
    pub(crate) policy: &'static str,
    pub(crate) language: &'static str,
    pub(crate) html: String,
}

/// Returns the page that explains a code, in the language for this `Accept-Language`.
pub(crate) fn explanation(code: Code, languages: &Languages, preferred: Option<&[u8]>, navigation: &str) -> Page {
    let texts = languages.texts(code, preferred);
    let words = PageWords::of(texts.tag());
    let title = texts.title();
    let html = html(
        words.lang,
        title,
        navigation,
        &format!(
            "<h1>{title}</h1><p>{detail}</p><dl><dt>{label}</dt><dd><code>{code}</code></dd><dt>{status_label}</dt><dd>{status}</dd>\
             <dt>{retry_label}</dt><dd><code>{retry}</code><br>{advice}</dd></dl>",
            label = words.code,
            status_label = words.status,
            retry_label = words.retry,
            detail = texts.detail(),
            status = code.status(),
            retry = code.retry().as_str(),
            advice = words.advice(code.retry()),
        ),
    );
    Page { policy: policy(), language: words.lang, html }
}

/// Lists every code, with a link to the page that explains it.
#[get("/problems")]
pub(crate) async fn problems(request: HttpRequest, context: web::Data<Context>) -> HttpResponse {
    let languages = context.guard().languages();
    let preferred = preferred(&request);
    let words = PageWords::of(languages.tag_for(preferred));
    let mut rows = String::new();
    for code in Code::ALL {
        let _ = write!(
            rows,
            "<tr><th scope=\"row\"><a href=\"/problems/{code}\"><code>{code}</code></a></th><td>{title}</td>\
             <td data-label=\"{status_label}\">{status}</td><td data-label=\"{retry_label}\"><code>{retry}</code></td></tr>",
            title = languages.texts(code, preferred).title(),
            status_label = words.status,
            status = code.status(),
            retry_label = words.retry,
            retry = code.retry().as_str(),
        );
    }
    let mut advice = String::new();
    for retry in [Retry::Same, Retry::NewToken, Retry::No] {
        let _ = write!(advice, "<dt><code>{}</code></dt><dd>{}</dd>", retry.as_str(), words.advice(retry));
    }
    let PageWords { error_codes, introduction, code, meaning, status, retry, .. } = words;
    let body = format!(
        "<h1>{error_codes}</h1><p>{introduction}</p><dl>{advice}</dl>\
         <table><thead><tr><th scope=\"col\">{code}</th><th scope=\"col\">{meaning}</th><th scope=\"col\">{status}</th>\
         <th scope=\"col\">{retry}</th></tr></thead><tbody>{rows}</tbody></table>"
    );
    let html = html(words.lang, error_codes, &words.navigation(), &body);
    Page { policy: policy(), language: words.lang, html }.send(&request, languages)
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

impl Page {
    fn send(self, request: &HttpRequest, languages: &Languages) -> HttpResponse {
        let mut answer = HttpResponse::Ok();
        answer.insert_header((CONTENT_SECURITY_POLICY, self.policy)).insert_header((CONTENT_LANGUAGE, self.language));
        if languages.is_negotiated() {
            answer
                .insert_header((VARY, if has_choice(request) { "Accept-Language, Cookie" } else { "Accept-Language" }));
        }
        answer.content_type("text/html; charset=utf-8").body(self.html)
    }
}

fn html(lang: &str, title: &str, navigation: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"{lang}\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\">\
         <title>{title}</title><style>{STYLE}</style></head><body>{navigation}<main>{body}</main></body></html>\n"
    )
}

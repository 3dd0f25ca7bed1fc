//! What a client is told.

use std::sync::LazyLock;
use std::time::Duration;

use actix_web::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
};
use actix_web::http::{StatusCode, Uri};
use actix_web::{HttpRequest, HttpResponse};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onceward_api::{Code, Outcome, Problem, Retry, header};
use sha2::{Digest as _, Sha256};

use crate::effect::Effect;
use crate::guard::Guard;
use crate::rejection::Rejection;
use crate::reply::Reply;

/// Lets a handler say of its own answer whether it took effect, where the status does not tell.
///
/// ```
/// use actix_web::HttpResponse;
/// use onceward::Effect;
/// use onceward::actix::MarkEffect as _;
///
/// let answer = HttpResponse::Ok().body("sold out").effect(Effect::NotApplied);
/// # let _ = answer;
/// ```
pub trait MarkEffect {
    /// Says whether the submission took effect.
    #[must_use]
    fn effect(self, effect: Effect) -> Self;
}

impl<B> MarkEffect for HttpResponse<B> {
    fn effect(mut self, effect: Effect) -> Self {
        self.extensions_mut().insert(effect);
        self
    }
}

/// The first answer again.
pub(super) fn replay(reply: &Reply) -> HttpResponse {
    let status = StatusCode::from_u16(reply.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = HttpResponse::build(status);
    let mut answer = answer.body(reply.body().clone());
    let headers = answer.headers_mut();
    for (name, value) in reply.headers() {
        // A reply that was made by hand may have what no header can have.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    headers.insert(HeaderName::from_static(header::IDEMPOTENT_REPLAYED), HeaderValue::from_static("true"));
    mark(headers, Outcome::Replayed);
    answer.extensions_mut().insert(InnerOutcome(Outcome::Replayed));
    answer
}

/// The outcome of an inner guard, in the extensions of its response. An outer guard reports the same outcome instead of judging by the status.
#[derive(Clone, Copy)]
pub(super) struct InnerOutcome(pub(super) Outcome);

/// Answers a rejection: a problem for programs, a short page for people. From a handler it says that nothing has happened, so that
/// nothing of it is kept; `outcome_unknown` leaves the effect unknown, and `internal` says nothing of it.
pub fn reject(request: &HttpRequest, guard: &Guard, rejection: &Rejection) -> HttpResponse {
    reject_at(request, request.uri().path(), guard, rejection)
}

/// The same where another path was asked for than that of the request, as a gateway does.
pub fn reject_at(request: &HttpRequest, path: &str, guard: &Guard, rejection: &Rejection) -> HttpResponse {
    refused(request.headers().get(ACCEPT), path, guard, rejection)
}

/// Who reads an answer, as far as the request tells. Made for every request and hardly ever asked, so it is only noted here.
pub(super) struct Audience {
    accept: Option<HeaderValue>,
    uri: Uri,
}

impl Audience {
    pub(super) fn of(request: &HttpRequest) -> Self {
        Self { accept: request.headers().get(ACCEPT).cloned(), uri: request.uri().clone() }
    }

    pub(super) fn path(&self) -> &str {
        self.uri.path()
    }

    pub(super) fn reject(&self, guard: &Guard, rejection: &Rejection) -> HttpResponse {
        refused(self.accept.as_ref(), self.path(), guard, rejection)
    }
}

fn refused(accept: Option<&HeaderValue>, path: &str, guard: &Guard, rejection: &Rejection) -> HttpResponse {
    let problem = rejection.problem().base(guard.problem_base()).instance(path);
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = HttpResponse::build(status);
    answer.insert_header((CACHE_CONTROL, "no-store"));
    if let Some(wait) = rejection.retry_after() {
        answer.insert_header((header::RETRY_AFTER, whole_seconds(wait)));
    }
    let mut answer = if accept.is_some_and(prefers_html) {
        answer.insert_header((CONTENT_SECURITY_POLICY, policy()));
        answer.insert_header((CONTENT_TYPE, "text/html; charset=utf-8")).body(page(&problem))
    } else {
        answer.insert_header((CONTENT_TYPE, Problem::CONTENT_TYPE)).body(json(&problem))
    };
    mark(answer.headers_mut(), Outcome::Rejected(rejection.code()));
    match rejection.code() {
        Code::Internal => {}
        Code::OutcomeUnknown => tell_guards(&mut answer, Effect::Unknown, Code::OutcomeUnknown),
        code => tell_guards(&mut answer, Effect::NotApplied, code),
    }
    answer
}

/// Tells guards further out what became of a run that was refused, and why.
pub(super) fn tell_guards(answer: &mut HttpResponse, effect: Effect, code: Code) {
    let mut said = answer.extensions_mut();
    said.insert(effect);
    said.insert(InnerOutcome(Outcome::Rejected(code)));
}

/// Rounded up: whoever comes early comes for nothing.
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// Says what became of the request, in a header and where a page's script can read it after a navigation.
pub(super) fn mark(headers: &mut HeaderMap, outcome: Outcome) {
    headers.insert(HeaderName::from_static(header::OUTCOME), HeaderValue::from_static(outcome.as_str()));
    let timing = HeaderName::from_static(header::SERVER_TIMING);
    // After a run that took effect the status tells enough, unless a guard further in has said something else.
    let is_told = matches!(outcome, Outcome::Executed | Outcome::Replayed) && !headers.contains_key(&timing);
    if !is_told && let Ok(value) = HeaderValue::try_from(outcome.server_timing()) {
        headers.append(timing, value);
    }
}

/// Whether a caller would rather read a page than parse an object. Whoever takes anything gets the object.
fn prefers_html(accept: &HeaderValue) -> bool {
    let mut best = (0.0, false);
    for range in accept.to_str().unwrap_or_default().split(',') {
        let mut pieces = range.split(';').map(str::trim);
        let is_html = match pieces.next() {
            Some("text/html" | "application/xhtml+xml") => true,
            Some("application/problem+json" | "application/json" | "application/*" | "*/*") => false,
            _ => continue,
        };
        let weight = pieces.find_map(|piece| piece.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
        if weight > best.0 {
            best = (weight, is_html);
        }
    }
    best.1
}

fn json(problem: &Problem) -> String {
    serde_json::to_string(problem).unwrap_or_default()
}

const STYLE: &str = "body{font:1.1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:12vh auto;padding:0 1.5rem;color:#222}\
    h1{font-size:1.6rem;line-height:1.25}small{color:#666}";

/// What the page may load: nothing, and no style but its own. Said here, since an application's own policy would hardly know it.
fn policy() -> &'static str {
    static POLICY: LazyLock<String> = LazyLock::new(|| {
        let digest = STANDARD.encode(Sha256::digest(STYLE));
        format!("default-src 'none'; style-src 'sha256-{digest}'")
    });
    &POLICY
}

/// A page that says the same as the problem, needs nothing else to be loaded, and names the next step.
fn page(problem: &Problem) -> String {
    let next = match problem.retry {
        Retry::Same => "<p>Wait a moment, then reload this page to send the same again.</p>",
        Retry::NewToken => "<p>Go back, reload the form, and send it again.</p>",
        Retry::No => "",
    };
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{title}</title>\
         <style>{STYLE}</style></head>\
         <body><main><h1>{title}</h1><p>{detail}</p>{next}<p><small>{code}</small></p></main></body></html>\n",
        title = escape(&problem.title),
        detail = escape(&problem.detail),
        code = problem.code,
    )
}

/// Text that is taken for nothing but text, in a page and in an attribute.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_for_those_who_would_rather_have_one() {
        let prefers = |accept: &str| prefers_html(&HeaderValue::from_str(accept).unwrap());
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8";
        assert!(prefers(browser) && prefers("text/html") && prefers("text/html;q=0.9, application/json;q=0.8"));
        assert!(!prefers("*/*") && !prefers("application/json") && !prefers("") && !prefers("image/png"));
        assert!(!prefers("application/problem+json, text/html;q=0.9") && !prefers("text/html;q=0, */*"));
        assert!(!prefers("text/html;q=x;q=0.1, application/json;q=0.5"));
    }

    #[test]
    fn nothing_in_a_page_is_taken_for_markup() {
        let problem = Problem::new(Code::BadRequest).detail("<script>alert(\"&\")</script>");
        let page = page(&problem);
        assert!(page.contains("&lt;script&gt;alert(&quot;&amp;&quot;)&lt;/script&gt;") && !page.contains("<script"));
    }
}

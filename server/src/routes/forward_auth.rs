//! A gateway asks whether a request may go on to an application that knows nothing of tokens.

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, CACHE_CONTROL, CONTENT_TYPE, HeaderName,
    HeaderValue, ORIGIN,
};
use actix_web::middleware::Next;
use actix_web::{Error, HttpRequest, HttpResponse, get, web};
use onceward::http::{action_of, token_in};
use onceward::{Intent, Policy, Rejection, Subject};
use onceward_api::{Code, Outcome, Problem, header};

use crate::context::Context;
use crate::http::forwarded_request::{ForwardedRequest, PATH, is_gateway_path};
use crate::http::gateway_options::{GatewayOptions, Style};
use crate::http::request_log::LoggedPolicy;

/// The longest path that a header tells again.
const LONGEST: usize = 256;

/// Ask for a request, as a gateway
///
/// For nginx, Caddy, Traefik, Envoy and HAProxy, with any method. The token is that of the original request, in its
/// `Onceward-Token` header or under `_onceward` in its query. Let the request pass only if the answer says
/// `Onceward-Outcome: redeemed`, or if its method is GET, HEAD or OPTIONS, of which the answer says `unprotected`. With the
/// API key, or from one of `trusted_proxies`, `Onceward-Attempt` names the gateway's request, which is accepted again for 60
/// seconds; `Onceward-Run-Id` of the answer names the use of the token, for an application that releases it. The gateway makes that name itself and overwrites what the client sends: a client that could choose it could have one
/// token accepted twice. A gateway that receives no answer forwards nothing and answers `redeem_unknown`, since the token may be
/// used up. A gateway whose API key is missing or wrong is answered `redeem_unknown` as well, and the log says why: its clients can do
/// nothing about it. No answer is a 5xx, which some gateways take for leave, unless `style` asks for it. `deploy` has a file for each gateway.
#[utoipa::path(
    tag = "gateways",
    operation_id = "forward_auth",
    security((), ("api_key" = [])),
    params(
        ("style" = Option<String>, Query, pattern = "^(nginx|traefik)$", description = "`nginx`: the status is 204 or 403, as `auth_request` understands no other, and the problem stands in a header. `traefik`: the status is that of the problem, also 503, as Traefik passes it on"),
        ("next_token" = Option<bool>, Query, description = "Have a fresh token sent along, for the next submission"),
        ("x-original-method" = Option<String>, Header, example = "POST", description = "The method of the original request; else `x-forwarded-method`, else that of this one"),
        ("x-original-uri" = Option<String>, Header, example = "/orders", description = "Its path and query; else `x-forwarded-uri`, else what stands behind `/forward-auth`"),
        ("onceward-token" = Option<String>, Header, example = "ow1_token", description = "Its token"),
        ("onceward-attempt" = Option<String>, Header, example = "4711", min_length = 1, max_length = 255, pattern = "^[!-~]+$", description = "Names it"),
    ),
    responses(
        (status = 200, description = "It may pass"),
        (status = 204, description = "It may pass, told to nginx"),
        (status = 400, description = "`token_missing`, `token_malformed` or `bad_request`", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "`token_invalid`; any other code, told to nginx; and whatever else would be a 5xx, as `store_unavailable` and `redeem_unknown`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`token_used`: this submission was received already", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "`token_expired`, `token_stale` or `token_revoked`", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "`store_unavailable`, `redeem_unknown` or `overloaded`, told to Traefik", body = Problem, content_type = "application/problem+json"),
    ),
)]
#[get("/forward-auth")]
pub(crate) async fn documented(request: HttpRequest, context: web::Data<Context>) -> HttpResponse {
    ask(request, context).await
}

/// The same with any method, and with an address behind it. A body was read before, and has nothing to say here.
pub(crate) async fn ask(request: HttpRequest, context: web::Data<Context>) -> HttpResponse {
    LoggedPolicy::Token.note(&request);
    let access = context.access().require_backend(&request).map_err(|_| misconfigured());
    let original = ForwardedRequest::of(&request);
    let path = original.as_ref().map_or(PATH, |original| &original.path).to_owned();
    let passed = match access.and(original) {
        Ok(original) => pass(&request, &original, &context).await,
        Err(rejection) => Err(rejection),
    };
    let problem = passed.as_ref().err().map(Rejection::problem);
    let is_nginx = GatewayOptions::style(&request) == Style::Nginx;
    // The page of nginx stands in a header too.
    let shown = if is_nginx && path.len() > LONGEST { "" } else { &path };
    let answer = context.respond_at(&request, shown, passed.map_err(Into::into));
    match problem {
        Some(problem) if is_nginx => in_headers(answer, problem, &path),
        _ => answer,
    }
}

/// What the client of a gateway is told whose API key is missing or wrong. It is not the client that has to sign in, so this is no 401.
fn misconfigured() -> Rejection {
    Rejection::new(Code::RedeemUnknown).detail(
        "The gateway that checks submissions is not set up correctly, so nothing was forwarded. The operator finds the reason in the log of \
         Onceward.",
    )
}

/// Puts the problem into headers, and the page if there is one: nginx drops the body.
fn in_headers(answer: HttpResponse, problem: Problem, path: &str) -> HttpResponse {
    let is_page = answer.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
    let (mut answer, body) = answer.into_parts();
    let page =
        body.try_into_bytes().ok().filter(|_| is_page).and_then(|page| page_line(&String::from_utf8_lossy(&page)));
    for (name, line) in [(header::PROBLEM, line(problem, path)), (header::PAGE, page)] {
        if let Some(line) = line {
            answer.headers_mut().insert(HeaderName::from_static(name), line);
        }
    }
    answer.set_body(BoxBody::new(()))
}

/// A problem as a header can carry it: `deploy/nginx.conf` takes 8 KB of them, so a long path is left out.
fn line(problem: Problem, path: &str) -> Option<HeaderValue> {
    let problem = if path.len() <= LONGEST { problem.instance(path) } else { problem };
    let mut text = String::new();
    for character in serde_json::to_string(&problem).ok()?.chars() {
        match character {
            ' '..='~' => text.push(character),
            other => other.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text.push_str(&format!("\\u{unit:04x}"))),
        }
    }
    HeaderValue::from_str(&text).ok()
}

/// A page as a header can carry it.
fn page_line(page: &str) -> Option<HeaderValue> {
    let mut text = String::new();
    for character in page.trim_end().chars() {
        match character {
            ' '..='~' => text.push(character),
            '\n' => text.push(' '),
            other => text.push_str(&format!("&#{};", u32::from(other))),
        }
    }
    HeaderValue::from_str(&text).ok()
}

async fn pass(
    request: &HttpRequest,
    original: &ForwardedRequest,
    context: &Context,
) -> Result<HttpResponse, Rejection> {
    let options = GatewayOptions::of(request, original)?;
    let attempt = context.access().attempt(request)?;
    if original.is_safe() {
        return Ok(passed(Outcome::Unprotected));
    }
    let token = token_in(request.headers().get_all(header::TOKEN).map(HeaderValue::as_bytes), &original.query)?;
    let action = action_of(original.method.as_str(), &original.path);
    let mut intent = Intent::new(&action, Subject::anonymous());
    if let Some(token) = &token {
        intent = intent.credential(token);
    }
    if let Some(attempt) = &attempt {
        intent = intent.gateway_attempt(attempt);
    }
    let (binding, run) = context.redeem(&Policy::token(), &intent).await?;
    let mut answer = passed(Outcome::Redeemed);
    if let Some(Ok(run)) = run.map(|run| HeaderValue::from_str(&run.to_string())) {
        answer.headers_mut().insert(HeaderName::from_static(header::RUN_ID), run);
    }
    if options.next_token {
        let next = context.guard().issue(context.guard().token_ttl(), binding).await;
        let next = next.inspect_err(|error| tracing::debug!(%error, "no next token could be issued")).ok();
        if let Some(Ok(next)) = next.map(|token| HeaderValue::from_str(token.as_str())) {
            answer.headers_mut().insert(HeaderName::from_static(header::NEXT_TOKEN), next);
        }
    }
    Ok(answer)
}

fn passed(outcome: Outcome) -> HttpResponse {
    let mut answer = HttpResponse::Ok();
    answer.insert_header((header::OUTCOME, outcome.as_str())).insert_header((CACHE_CONTROL, "no-store")).finish()
}

/// Sees to it that a gateway gets only what it understands, from whichever layer it comes.
pub async fn translate<B: MessageBody>(
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    if !is_gateway_path(request.path()) {
        return next.call(request).await;
    }
    let style = GatewayOptions::style(request.request());
    // They are those of the page that the gateway serves, which does not call here.
    for name in [ORIGIN, ACCESS_CONTROL_REQUEST_METHOD, ACCESS_CONTROL_REQUEST_HEADERS] {
        request.headers_mut().remove(name);
    }
    match next.call(request).await {
        Ok(mut answer) => {
            let status = style.status(answer.status());
            *answer.response_mut().status_mut() = status;
            Ok(answer)
        }
        Err(mut error) => {
            error.add_response_mapper(move |mut answer| {
                *answer.status_mut() = style.status(answer.status());
                answer
            });
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_of_any_characters_fits_into_a_header_and_says_the_same() {
        let problem = Problem::new(Code::BadRequest).detail("ü \"😀\"\n\u{7f}");
        let read = |path: &str| {
            serde_json::from_str::<Problem>(line(problem.clone(), path).unwrap().to_str().unwrap()).unwrap()
        };
        assert_eq!(read("/\u{0}"), problem.clone().instance("/\u{0}"));
        assert_eq!(read(&"/a".repeat(2000)), problem);
    }

    #[test]
    fn a_page_of_any_characters_fits_into_a_header() {
        assert_eq!(page_line("<p>ü\n😀</p>\n").unwrap(), "<p>&#252; &#128512;</p>");
    }
}

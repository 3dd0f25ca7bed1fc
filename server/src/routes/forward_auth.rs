//! Forward auth: a gateway checks a request before it forwards it to an application that does not handle tokens itself.

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, CACHE_CONTROL, CONTENT_TYPE, HeaderName,
    HeaderValue, ORIGIN,
};
use actix_web::middleware::Next;
use actix_web::{Error, HttpRequest, HttpResponse, get, web};
use onceward::http::{Preferences, action_of, token_in};
use onceward::{Intent, Language, Policy, Rejection, Subject};
use onceward_api::{Code, Outcome, Problem, header};

use crate::context::Context;
use crate::http::forwarded_request::{ForwardedRequest, PATH, is_gateway_path};
use crate::http::gateway_options::{GatewayOptions, Style};
use crate::http::request_log::LoggedPolicy;

/// Maximum length of a path in a header.
const LONGEST: usize = 256;

/// The detail of `token_missing`: unlike the guard, a gateway does not forward form fields.
const TOKEN_MISSING: &str = "This request needs a one-time token in the Onceward-Token header or as _onceward in the query. Form fields are not \
     visible to the gateway. Fetch a token and send again.";
const TOKEN_MISSING_CHINESE: &str = "此请求需要一次性令牌，请放在 Onceward-Token 请求头中，或作为查询参数 _onceward 发送。网关看不到表单字段。请获取令牌后重新提交。";

/// Forward auth, for gateways
///
/// For nginx, Caddy, Traefik, Envoy and HAProxy, with any method. The token is that of the original request, in its `Onceward-Token` header or as
/// `_onceward` in its query. Forward the request only if the response has `Onceward-Outcome: redeemed`, or `unprotected`, which is sent for GET,
/// HEAD and OPTIONS.
///
/// With the API key, or from one of `trusted_proxies`, `Onceward-Attempt` names the gateway's request, which is accepted again for 60 seconds. The
/// gateway creates that name itself and overwrites the header of the client: a client that could choose it could have one token accepted twice. The
/// response header `Onceward-Run-Id` names the use of the token, for an application that releases it.
///
/// A gateway that receives no response forwards nothing and responds with `redeem_unknown`, because the token may be used. A gateway whose API key is
/// missing or wrong receives `redeem_unknown` as well, and the log has the reason. Never returns 5xx, unless `style` is `traefik`: some gateways
/// treat a 5xx from the auth endpoint as "allow". `deploy` has a configuration for each gateway.
#[utoipa::path(
    tag = "gateways",
    operation_id = "forward_auth",
    security((), ("api_key" = [])),
    params(
        ("style" = Option<String>, Query, pattern = "^(nginx|traefik)$", description = "`nginx`: the status is 204 or 403, because `auth_request` supports no other, and the problem is in a header. `traefik`: the status is that of the problem, also 503, because Traefik passes it on"),
        ("next_token" = Option<bool>, Query, description = "Add a new token for the next submission to the response"),
        ("x-original-method" = Option<String>, Header, example = "POST", description = "Method of the original request. Alternatives: `x-forwarded-method`, or the method of this request"),
        ("x-original-uri" = Option<String>, Header, example = "/orders", description = "Path and query of the original request. Alternatives: `x-forwarded-uri`, or the part after `/forward-auth`"),
        ("onceward-token" = Option<String>, Header, example = "ow1_token", description = "Token of the original request"),
        ("onceward-attempt" = Option<String>, Header, example = "4711", min_length = 1, max_length = 255, pattern = "^[!-~]+$", description = "Name of the original request, created by the gateway"),
    ),
    responses(
        (status = 200, description = "Forward the request"),
        (status = 204, description = "Forward the request (`style=nginx`)"),
        (status = 400, description = "`token_missing`, `token_malformed` or `bad_request`", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "`token_invalid`; any other code with `style=nginx`; and, unless `style=traefik`, every code with a 5xx status, such as `store_unavailable` and `redeem_unknown`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`token_used`: this submission was already received", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "`token_expired`, `token_stale` or `token_revoked`", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "`store_unavailable`, `redeem_unknown` or `overloaded` (`style=traefik`)", body = Problem, content_type = "application/problem+json"),
    ),
)]
#[get("/forward-auth")]
pub(crate) async fn documented(request: HttpRequest, context: web::Data<Context>) -> HttpResponse {
    ask(request, context).await
}

/// Handles any method, and a URI appended to the path. The body was discarded before.
pub(crate) async fn ask(request: HttpRequest, context: web::Data<Context>) -> HttpResponse {
    LoggedPolicy::Token.note(&request);
    let access = context.access().require_backend(&request).map_err(|_| misconfigured());
    let original = ForwardedRequest::of(&request);
    let path = original.as_ref().map_or(PATH, |original| &original.path).to_owned();
    let passed = match access.and(original) {
        Ok(original) => pass(&request, &original, &context).await,
        Err(rejection) => Err(rejection),
    };
    let languages = Preferences::of(&request).accept_language;
    let problem = passed
        .as_ref()
        .err()
        .map(|rejection| rejection.problem_in(&context.guard().languages().texts(rejection.code(), languages)));
    let is_nginx = GatewayOptions::style(&request) == Style::Nginx;
    // For nginx, the page is in a header too.
    let shown = if is_nginx && path.len() > LONGEST { "" } else { &path };
    let answer = context.respond_at(&request, shown, passed.map_err(Into::into));
    match problem {
        Some(problem) if is_nginx => in_headers(answer, problem, &path),
        _ => answer,
    }
}

/// Returns the rejection for a gateway whose API key is missing or wrong. It is not a 401, because the client has nothing to sign in to.
fn misconfigured() -> Rejection {
    Rejection::new(Code::RedeemUnknown).detail(
        "The gateway is misconfigured, so nothing was forwarded. The operator finds the reason in the log of Onceward.",
    ).detail_in(Language::SIMPLIFIED_CHINESE, "网关配置有误，因此没有转发请求。运维人员可在 Onceward 的日志中查看原因。")
}

/// Moves the problem, and the page if there is one, into headers: nginx drops the body.
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

/// Encodes a problem as a header value. A long path is left out, because the headers have 8 KB in `deploy/nginx.conf`.
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

/// Encodes a page as a header value.
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
    let redeemed = context.redeem(&Policy::token(), &intent).await;
    let (binding, run) = redeemed.map_err(|rejection| match rejection.code() {
        Code::TokenMissing => {
            rejection.detail(TOKEN_MISSING).detail_in(Language::SIMPLIFIED_CHINESE, TOKEN_MISSING_CHINESE)
        }
        _ => rejection,
    })?;
    let mut answer = passed(Outcome::Redeemed);
    if let Some(Ok(run)) = run.map(|run| HeaderValue::from_str(&run.to_string())) {
        answer.headers_mut().insert(HeaderName::from_static(header::RUN_ID), run);
    }
    if options.next_token {
        let next = context.guard().issue(context.guard().token_ttl(), binding).await;
        let next = next.inspect_err(|error| tracing::debug!(%error, "could not issue the next token")).ok();
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

/// Translates the status of every response for the gateway, whichever middleware creates it.
pub async fn translate<B: MessageBody>(
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    if !is_gateway_path(request.path()) {
        return next.call(request).await;
    }
    let style = GatewayOptions::style(request.request());
    // These headers belong to the request to the gateway: the page does not call this service.
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
    fn problem_with_any_characters_round_trips_through_a_header() {
        let problem = Problem::new(Code::BadRequest).detail("ü \"😀\"\n\u{7f}");
        let read = |path: &str| {
            serde_json::from_str::<Problem>(line(problem.clone(), path).unwrap().to_str().unwrap()).unwrap()
        };
        assert_eq!(read("/\u{0}"), problem.clone().instance("/\u{0}"));
        assert_eq!(read(&"/a".repeat(2000)), problem);
    }

    #[test]
    fn page_with_any_characters_fits_into_a_header() {
        assert_eq!(page_line("<p>ü\n😀</p>\n").unwrap(), "<p>&#252; &#128512;</p>");
    }
}

//! A gateway asks whether a request may go on to an application that knows nothing of tokens.

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::http::header::{
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, CACHE_CONTROL, HeaderName, HeaderValue, ORIGIN,
};
use actix_web::middleware::Next;
use actix_web::{Error, HttpRequest, HttpResponse, get, web};
use onceward::http::{action_of, token_in};
use onceward::{Intent, Policy, Rejection, Subject};
use onceward_api::path::canonical;
use onceward_api::{Outcome, Problem, header};

use super::documented_responses::AuthenticationFailure;
use crate::context::Context;
use crate::http::bad_request;
use crate::http::forwarded_request::{ForwardedRequest, PATH, is_gateway_path};

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
/// used up. No answer is a 5xx, which some gateways take for leave. `deploy` has a file for each gateway.
#[utoipa::path(
    tag = "gateways",
    operation_id = "forward_auth",
    security((), ("api_key" = [])),
    params(
        ("style" = Option<String>, Query, pattern = "^nginx$", description = "`nginx`: the status is 204 or 403, as `auth_request` understands no other"),
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
        AuthenticationFailure,
        (status = 403, description = "`token_invalid`; any other code, told to nginx; and whatever else would be a 5xx, as `store_unavailable` and `redeem_unknown`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`token_used`: this submission was received already", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "`token_expired`, `token_stale` or `token_revoked`", body = Problem, content_type = "application/problem+json"),
    ),
)]
#[get("/forward-auth")]
pub(crate) async fn documented(request: HttpRequest, context: web::Data<Context>) -> HttpResponse {
    ask(request, context).await
}

/// The same with any method, and with an address behind it. A body was read before, and has nothing to say here.
pub(crate) async fn ask(request: HttpRequest, context: web::Data<Context>) -> HttpResponse {
    let original = context.access().require_backend(&request).and_then(|()| ForwardedRequest::of(&request));
    let path = original.as_ref().map_or(PATH, |original| &original.path).to_owned();
    let passed = match original {
        Ok(original) => pass(&request, &original, &context).await,
        Err(rejection) => Err(rejection),
    };
    let problem = passed.as_ref().err().and_then(|rejection| line(rejection.problem(), &path));
    let mut answer = context.respond_at(&request, &path, passed.map_err(Into::into));
    if let (Style::Nginx, Some(problem)) = (GatewayOptions::style(request.path(), request.query_string()), problem) {
        answer.headers_mut().insert(HeaderName::from_static(header::PROBLEM), problem);
    }
    answer
}

/// A problem as a header can carry it: nginx takes 4 KB of them, so a long path is left out.
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
        let next = next.inspect_err(|error| tracing::warn!(%error, "no next token could be issued")).ok();
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

/// Which statuses a gateway understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Style {
    /// Every status but a 5xx.
    #[default]
    Plain,
    /// 204 and 403.
    Nginx,
}

impl Style {
    /// What is sent in the place of a status. Only success may look like one, and no failure like one of the service, which
    /// some gateways take for leave.
    fn status(self, meant: StatusCode) -> StatusCode {
        match self {
            Self::Nginx if meant == StatusCode::OK => StatusCode::NO_CONTENT,
            Self::Nginx => StatusCode::FORBIDDEN,
            Self::Plain if meant.is_server_error() => StatusCode::FORBIDDEN,
            Self::Plain => meant,
        }
    }
}

/// What the gateway asks for in its query.
#[derive(Debug, Default, PartialEq, Eq)]
struct GatewayOptions {
    style: Style,
    next_token: bool,
}

impl GatewayOptions {
    /// As the query says, unless it is that of the original request: it stands behind an address, and Caddy leaves it there.
    fn of(request: &HttpRequest, original: &ForwardedRequest) -> Result<Self, Rejection> {
        let query = request.query_string();
        if canonical(request.path()) == PATH && query != original.query {
            Self::read(query)
        } else {
            Ok(Self::default())
        }
    }

    fn read(query: &str) -> Result<Self, Rejection> {
        let mut options = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair {
                "style=nginx" => options.style = Style::Nginx,
                "next_token=true" => options.next_token = true,
                "next_token=false" => options.next_token = false,
                _ => {
                    let name = pair.split('=').next().unwrap_or_default();
                    return Err(match name {
                        "style" => bad_request("`style` can only be `nginx`."),
                        "next_token" => bad_request("`next_token` has to be `true` or `false`."),
                        _ => bad_request("There is `style` and `next_token`, and nothing else to ask for here."),
                    });
                }
            }
        }
        Ok(options)
    }

    /// The style, also if the rest is not to be understood.
    fn style(path: &str, query: &str) -> Style {
        let is_nginx = canonical(path) == PATH && query.split('&').any(|pair| pair == "style=nginx");
        if is_nginx { Style::Nginx } else { Style::Plain }
    }
}

/// Sees to it that a gateway gets only what it understands, from whichever layer it comes.
pub async fn translate<B: MessageBody>(
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    if !is_gateway_path(request.path()) {
        return next.call(request).await;
    }
    let style = GatewayOptions::style(request.path(), request.query_string());
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
    fn no_gateway_sees_a_5xx_and_nginx_sees_two_statuses() {
        for meant in (200..600).filter_map(|status| StatusCode::from_u16(status).ok()) {
            let (plain, nginx) = (Style::Plain.status(meant), Style::Nginx.status(meant));
            assert_eq!(plain == StatusCode::OK, meant == StatusCode::OK);
            assert_eq!(nginx == StatusCode::NO_CONTENT, meant == StatusCode::OK);
            assert!(!plain.is_server_error() && (nginx.is_success() || nginx == StatusCode::FORBIDDEN));
        }
    }

    #[test]
    fn a_problem_of_any_characters_fits_into_a_header_and_says_the_same() {
        let problem = Problem::new(onceward_api::Code::BadRequest).detail("ü \"😀\"\n\u{7f}");
        let read = |path: &str| {
            serde_json::from_str::<Problem>(line(problem.clone(), path).unwrap().to_str().unwrap()).unwrap()
        };
        assert_eq!(read("/\u{0}"), problem.clone().instance("/\u{0}"));
        assert_eq!(read(&"/a".repeat(2000)), problem);
    }

    #[test]
    fn a_wish_that_is_not_known_is_refused_by_name() {
        assert_eq!(GatewayOptions::read(""), Ok(GatewayOptions::default()));
        assert_eq!(
            GatewayOptions::read("style=nginx&next_token=true"),
            Ok(GatewayOptions { style: Style::Nginx, next_token: true })
        );
        for (query, named) in
            [("style=apache", "`style`"), ("style", "`style`"), ("next_token=1", "`next_token`"), ("a=1", "`style`")]
        {
            let detail = GatewayOptions::read(query).unwrap_err().problem().detail;
            assert!(detail.contains(named), "{query}: {detail}");
        }
    }
}

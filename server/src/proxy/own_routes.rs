//! The routes that the proxy serves itself: tokens, the script, health checks, the description of its rules and the pages that explain an
//! error code.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use onceward::http::Preferences;
use onceward::tower::{issue_token, reject};
use onceward::{Guard, Language, Languages, Rejection};
use onceward_api::{Code, Description, TokenRequest};

use super::body::{AnyBody, whole};
use super::forward::Origin;
use super::route::RouteSubject;
use super::route_table::RouteTable;
use super::rule::{ClientBody, subject_from};
use super::settings::ProxySettings;
use crate::context::{Context, HandlerError};
use crate::http::rate_limit::RateLimitHeaders;
use crate::routes::sdk::ScriptUrl;
use crate::routes::{health, pages};

/// Maximum size of a token request.
const TOKEN_REQUEST: usize = 16 * 1024;

/// The routes that the proxy serves itself.
pub(crate) struct OwnRoutes {
    /// The path in front of all of them, without a slash at the end.
    path: String,
    /// True if the description is served at its well-known path too.
    is_well_known: bool,
    /// The body of the description.
    description: Bytes,
}

/// A path that belongs to the proxy; `None` if it has no such route.
pub(crate) struct OwnPath(Option<OwnRoute>);

impl OwnPath {
    /// Returns whether a request has to be answered however many are in flight.
    pub(super) fn is_health_check(&self) -> bool {
        matches!(self.0, Some(OwnRoute::Alive | OwnRoute::Ready))
    }
}

/// One of these routes.
enum OwnRoute {
    Token,
    Alive,
    Ready,
    Description,
    Script(ScriptUrl),
    Explanation(Code),
}

impl OwnRoute {
    fn find(path: &str) -> Option<Self> {
        match path {
            "/token" => Some(Self::Token),
            "/healthz" => Some(Self::Alive),
            "/readyz" => Some(Self::Ready),
            Description::PATH => Some(Self::Description),
            path => ScriptUrl::find(path).map(Self::Script).or_else(|| {
                let name = path.strip_prefix("/problems/")?;
                Code::ALL.into_iter().find(|code| code.as_str() == name).map(Self::Explanation)
            }),
        }
    }

    /// Returns the value of `Allow`.
    fn allow(&self) -> &'static str {
        if matches!(self, Self::Token) { "POST" } else { "GET, HEAD" }
    }

    fn allows(&self, method: &Method) -> bool {
        self.allow().split(", ").any(|allowed| method.as_str() == allowed)
    }
}

impl OwnRoutes {
    pub(crate) fn new(settings: &ProxySettings) -> Self {
        Self { path: settings.proxy_path.clone(), is_well_known: settings.well_known, description: Bytes::new() }
    }

    /// Sets the description of the rules.
    pub(super) fn describing(mut self, description: &Description) -> Self {
        self.description = serde_json::to_vec(description).unwrap_or_default().into();
        self
    }

    /// Returns the route of a path that belongs to the proxy.
    pub(crate) fn find(&self, path: &str) -> Option<OwnPath> {
        if self.is_well_known && path == Description::PATH {
            return Some(OwnPath(Some(OwnRoute::Description)));
        }
        let rest = path.strip_prefix(&self.path).filter(|rest| rest.starts_with('/'))?;
        Some(OwnPath(OwnRoute::find(rest)))
    }

    /// Responds to a request.
    pub(super) async fn respond(
        &self,
        OwnPath(route): OwnPath,
        parts: Parts,
        body: ClientBody,
        context: &Context,
        routes: &RouteTable,
    ) -> Response<AnyBody> {
        let Some(route) = route else {
            let rejection = Rejection::new(Code::NotFound)
                .detail("The proxy has no such route.")
                .detail_in(Language::SIMPLIFIED_CHINESE, "代理没有此路由。");
            return rejected(&parts, context.guard(), &rejection);
        };
        if !route.allows(&parts.method) {
            let response = rejected(&parts, context.guard(), &Rejection::new(Code::MethodNotAllowed));
            return with_headers(response, vec![("allow", route.allow().to_owned())]);
        }
        match route {
            OwnRoute::Token => token(parts, body, context, routes).await,
            OwnRoute::Alive => text("alive\n"),
            OwnRoute::Ready => ready(&parts, context).await,
            OwnRoute::Description => described(self.description.clone()),
            OwnRoute::Script(url) => script(&url, &parts.headers, &self.path),
            OwnRoute::Explanation(code) => explanation(code, &parts, context.guard().languages()),
        }
    }
}

/// Issues a token. A token for an action is bound to the subject that the route of that action has.
async fn token(parts: Parts, body: ClientBody, context: &Context, routes: &RouteTable) -> Response<AnyBody> {
    let guard = context.guard();
    let rate_limit = match context.take_tokens_for(client(&parts), NonZeroU32::MIN) {
        Ok(headers) => headers,
        Err(HandlerError { rejection, rate_limit }) => {
            return with_rate_limit(rejected(&parts, guard, &rejection), rate_limit);
        }
    };
    let body = match Limited::new(body, TOKEN_REQUEST).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            let code = if error.is::<LengthLimitError>() { Code::BodyTooLarge } else { Code::BadRequest };
            return rejected(&parts, guard, &Rejection::new(code));
        }
    };
    let subject = subject_from(&subject_of(&body, routes));
    let request = Request::from_parts(parts, Full::new(body));
    with_rate_limit(issue_token(request, guard, &subject).await.map(whole), rate_limit)
}

/// Returns the client of a request, as trusted proxies report it.
fn client(parts: &Parts) -> IpAddr {
    parts.extensions.get::<Origin>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |origin| origin.client)
}

/// Returns the source of the subject for the action that a token request names.
fn subject_of(body: &Bytes, routes: &RouteTable) -> RouteSubject {
    let action = serde_json::from_slice::<TokenRequest>(body).ok().and_then(|asked| asked.action);
    let route = action.as_deref().and_then(|action| action.split_once(' ')).and_then(|(method, path)| {
        let method = method.parse().ok()?;
        routes.find(&method, path).map(|found| found.route.subject.clone())
    });
    route.unwrap_or(RouteSubject::Anonymous)
}

async fn ready(parts: &Parts, context: &Context) -> Response<AnyBody> {
    match health::readiness(context).await {
        Ok(()) => text("ready\n"),
        Err(rejection) => rejected(parts, context.guard(), &rejection),
    }
}

fn described(body: Bytes) -> Response<AnyBody> {
    let headers = [("cache-control", "no-store"), ("content-type", "application/json")];
    with_headers(Response::new(whole(body)), headers.map(|(name, value)| (name, value.to_owned())).into())
}

fn script(url: &ScriptUrl, headers: &HeaderMap, base: &str) -> Response<AnyBody> {
    let known = headers.get(IF_NONE_MATCH).and_then(|known| known.to_str().ok());
    let script = url.response(base, known);
    let mut response = Response::new(whole(script.body));
    *response.status_mut() = StatusCode::from_u16(script.status).unwrap_or_default();
    with_headers(response, script.headers)
}

/// The page that explains an error code.
fn explanation(code: Code, parts: &Parts, languages: &Languages) -> Response<AnyBody> {
    let page = pages::explanation(code, languages, Preferences::of(parts).accept_language, "");
    let mut headers = vec![
        ("content-security-policy", page.policy.to_owned()),
        ("content-type", "text/html; charset=utf-8".to_owned()),
        ("content-language", page.language.to_owned()),
    ];
    if languages.is_negotiated() {
        headers.push(("vary", "Accept-Language".to_owned()));
    }
    with_headers(Response::new(whole(page.html)), headers)
}

fn text(body: &'static str) -> Response<AnyBody> {
    let mut response = Response::new(whole(body));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

fn with_headers(mut response: Response<AnyBody>, headers: Vec<(&'static str, String)>) -> Response<AnyBody> {
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response
}

fn with_rate_limit(response: Response<AnyBody>, headers: Option<RateLimitHeaders>) -> Response<AnyBody> {
    use onceward_api::header::{RATE_LIMIT, RATE_LIMIT_POLICY};
    let headers =
        headers.map(|RateLimitHeaders { policy, left }| vec![(RATE_LIMIT_POLICY, policy), (RATE_LIMIT, left)]);
    with_headers(response, headers.unwrap_or_default())
}

/// Creates the response to a rejection.
pub(super) fn rejected(parts: &Parts, guard: &Guard, rejection: &Rejection) -> Response<AnyBody> {
    let response: Response<Bytes> = reject(parts, guard, rejection);
    response.map(whole)
}

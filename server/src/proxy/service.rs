//! The path of a request through the proxy: checked, sent to its rule, logged.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ALLOW, CONNECTION, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use onceward::{Guard, Language, Rejection};
use onceward_api::{Code, header};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::audience::Audience;
use super::body::{AnyBody, TimedBody};
use super::cors::{self, AllowedOrigins};
use super::description::describe;
use super::forward::Origin;
use super::in_flight::{CountedBody, InFlight};
use super::normal_path::{normal, show};
use super::own_routes::{OwnPath, OwnRoutes, rejected};
use super::request_head;
use super::route_table::RouteTable;
use super::rule::{PathParameters, ProxyRule, RuleError};
use super::settings::UpstreamAddress;
use super::upstream::Upstream;
use crate::config::Config;
use crate::context::Context;
use crate::http::request_log::problem_code;
use crate::logging;
use crate::metrics::COUNTERS;

const REQUEST_ID: HeaderName = HeaderName::from_static(header::REQUEST_ID);
const OUTCOME: HeaderName = HeaderName::from_static(header::OUTCOME);

/// The proxy, as one worker runs it.
pub(super) struct ProxyService {
    context: Arc<Context>,
    routes: Arc<RouteTable>,
    own_routes: OwnRoutes,
    /// The rule of each route, in the order of the table.
    rules: Vec<ProxyRule>,
    default: ProxyRule,
    request_timeout: Duration,
    origins: AllowedOrigins,
}

/// The proxy of a worker cannot be built.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServiceError {
    #[error(transparent)]
    Upstream(#[from] std::io::Error),
    #[error(transparent)]
    Rule(#[from] RuleError),
}

impl ProxyService {
    /// Creates the proxy of a worker, with a pool of connections to the upstream.
    pub(super) fn new(
        context: Arc<Context>,
        routes: Arc<RouteTable>,
        config: &Config,
        upstream: &UpstreamAddress,
    ) -> Result<Self, ServiceError> {
        let (guard, settings) = (context.guard(), &config.proxy);
        let upstream = Upstream::new(settings, upstream, guard)?;
        let rules = settings.routes.iter().map(|route| ProxyRule::of_route(route, settings, guard, &upstream));
        Ok(Self {
            rules: rules.collect::<Result<_, _>>()?,
            default: ProxyRule::default(settings, guard, &upstream),
            own_routes: OwnRoutes::new(settings).describing(&describe(settings, guard)?),
            context,
            routes,
            request_timeout: config.request_timeout,
            origins: AllowedOrigins::new(&config.cors_origins),
        })
    }

    /// Responds to a request, and logs it.
    pub(super) async fn respond(&self, peer: SocketAddr, mut request: Request<Incoming>) -> Response<AnyBody> {
        let id = logging::request_id(request.headers().get(&REQUEST_ID).map(HeaderValue::as_bytes));
        let id_value = HeaderValue::from_str(&id).unwrap_or_else(|_| HeaderValue::from_static("-"));
        request.headers_mut().insert(REQUEST_ID, id_value.clone());
        let (method, uri) = (request.method().clone(), request.uri().clone());
        // The highest level, so that every line has the id at every log level.
        let span = tracing::error_span!("request", id = %id);
        let begun = Instant::now();
        let origin = self.origins.origin(request.headers());
        let mut response = self.dispatch(peer, request).instrument(span.clone()).await;
        if !self.origins.is_empty() {
            cors::allow(origin, self.own_routes.find(uri.path()).is_some(), &mut response);
        }
        let status = response.status().as_u16();
        COUNTERS.answered(status);
        if self.context.request_log().has(status) {
            let micros = begun.elapsed().as_micros() as u64;
            let outcome = response.headers().get(&OUTCOME).map(HeaderValue::as_bytes);
            let code = problem_code(outcome);
            let outcome = outcome.filter(|_| code.is_none()).and_then(|outcome| std::str::from_utf8(outcome).ok());
            span.in_scope(|| tracing::info!(%method, path = uri.path(), status, code, outcome, micros, "answered"));
        }
        response.headers_mut().insert(REQUEST_ID, id_value);
        if self.guard().is_draining() && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    async fn dispatch(&self, peer: SocketAddr, request: Request<Incoming>) -> Response<AnyBody> {
        let (mut parts, body) = request.into_parts();
        if let Err(rejection) = request_head::check(&mut parts) {
            let mut response = rejected(&parts, self.guard(), &rejection);
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            if rejection.code() == Code::MethodNotAllowed {
                response.headers_mut().insert(ALLOW, HeaderValue::from_static(request_head::FORWARDED_METHODS));
            }
            return response;
        }
        self.note_origin(peer, &mut parts);
        let own = self.own_routes.find(parts.uri.path());
        let is_exempt = own.as_ref().is_some_and(OwnPath::is_health_check);
        let place = InFlight::enter(&self.context);
        if place.is_none() && !is_exempt {
            COUNTERS.shed.increment(1);
            let rejection = Rejection::new(Code::Overloaded)
                .detail("Too many requests are in flight. Nothing ran. Send the same request again in a moment.")
                .detail_in(Language::SIMPLIFIED_CHINESE, "正在处理的请求过多。请求没有执行。请稍后重新发送同一请求。");
            return rejected(&parts, self.guard(), &rejection);
        }
        let body = CountedBody::new(TimedBody::new(body, self.request_timeout), place.clone());
        if let Some(own) = own {
            if self.origins.origin(&parts.headers).is_some() && cors::is_preflight(&parts.method, &parts.headers) {
                return cors::permission();
            }
            return self.own_routes.respond(own, parts, body, &self.context, &self.routes).await;
        }
        let rule = self.rule(&mut parts);
        let buffered = place.clone().filter(|_| rule.buffers(&parts.method)).map(|place| {
            place.buffer_body();
            (place, Audience::of(&parts))
        });
        place.map(|place| parts.extensions.insert(place));
        let response = rule.call(Request::from_parts(parts, body)).await;
        match buffered {
            Some((place, audience)) if place.is_cut_off() => {
                COUNTERS.shed.increment(1);
                audience.rejected(self.guard(), &no_memory_left())
            }
            _ => response,
        }
    }

    /// Finds the rule of a request, and attaches the parameters of its path.
    fn rule(&self, parts: &mut Parts) -> &ProxyRule {
        let Some(found) = self.routes.find(&parts.method, parts.uri.path()) else {
            let path = normal(parts.uri.path()).into_owned();
            show(parts, &path);
            return &self.default;
        };
        let parameters = found.parameters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let rule = self.rules.get(found.index).unwrap_or(&self.default);
        parts.extensions.insert(PathParameters(parameters));
        show(parts, &found.path);
        rule
    }

    /// Attaches the address of the client to a request.
    fn note_origin(&self, peer: SocketAddr, parts: &mut Parts) {
        parts.extensions.insert(peer);
        let access = self.context.access();
        let address = peer.ip().to_canonical();
        let client = access.client(parts);
        parts.extensions.insert(Origin { peer: address, client, is_trusted: access.is_trusted(&address) });
        // The subject of a route by client address.
        parts.extensions.insert(SocketAddr::new(client, peer.port()));
    }

    fn guard(&self) -> &Guard {
        self.context.guard()
    }
}

/// Creates the rejection of a body for which there is no memory left. The guard has read a part of it, and has not claimed anything.
fn no_memory_left() -> Rejection {
    Rejection::new(Code::Overloaded)
        .detail("Too many large requests are arriving. Nothing ran. Send the same request again in a moment.")
        .detail_in(Language::SIMPLIFIED_CHINESE, "正在接收的大请求过多。请求没有执行。请稍后重新发送同一请求。")
}

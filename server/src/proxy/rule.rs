//! The rules of the proxy as services: one per route, and the default rule for all other paths.

use std::time::Duration;

use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{HeaderName, Method, Request, Response};
use hyper::body::Incoming;
use onceward::http::{Profile, RejectionFormat};
use onceward::tower::{Entered, KeyFrom, MarkedService, Protect, Protected, ProtectedBody, SubjectFrom};
use onceward::{BadPointer, Guard, Key, KeyRules, SettingError};
use onceward_api::header;
use tower_layer::Layer as _;
use tower_service::Service as _;

use super::body::{AnyBody, TimedBody, any};
use super::claim_rules::{renewed, stored};
use super::forward::Origin;
use super::identity::{self, Identity};
use super::in_flight::CountedBody;
use super::route::{KeyLocation, ProxyRoute, RoutePolicy, RouteSubject, StatusEffects, is_safe};
use super::settings::{ProxySettings, RejectionShape, Require};
use super::upstream::{REPLY_LIMIT, Upstream};

/// The body of a client's request.
pub(super) type ClientBody = CountedBody<TimedBody<Incoming>>;

/// Retention of the responses to tokens, on paths without a route of their own.
const REMEMBER: Duration = Duration::from_secs(24 * 60 * 60);

/// The parameters of a route's path, by name.
#[derive(Debug, Clone)]
pub(super) struct PathParameters(pub(super) Vec<(String, String)>);

/// Marks a request with a plain token. Its guard requires the token, and keeps no record that could name the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlainToken;

/// The upstream behind a guard. It is marked as the handler: the proxy puts nothing between them that could respond for it.
type Guarded = Box<Protected<MarkedService<Upstream>>>;

/// A rule, with the upstream behind it.
pub(super) enum ProxyRule {
    /// The request passes.
    Pass(Upstream),
    /// A guard decides.
    Guarded(Guarded),
    /// A guard requires a plain token.
    PlainToken(Guarded),
    /// A request with a key is claimed by its key, any other by its token. A POST needs a key if the profile says so.
    KeyOrToken { key: Guarded, token: Guarded, posts_need_key: bool },
}

impl ProxyRule {
    /// Creates the rule of a route.
    ///
    /// # Errors
    /// If the source of the key is invalid; reading the settings has checked it.
    pub(super) fn of_route(
        route: &ProxyRoute,
        settings: &ProxySettings,
        guard: &Guard,
        upstream: &Upstream,
    ) -> Result<Self, RuleError> {
        let Some(protect) = guard_of_route(route, settings, guard)? else {
            return Ok(Self::Pass(upstream.clone()));
        };
        let guarded = behind(&protect, upstream);
        Ok(match route.policy {
            RoutePolicy::Token { remember: None, .. } => Self::PlainToken(guarded),
            _ => Self::Guarded(guarded),
        })
    }

    /// Creates the rule for paths without a route of their own.
    pub(super) fn default(settings: &ProxySettings, guard: &Guard, upstream: &Upstream) -> Self {
        let DefaultGuards { key, token } = DefaultGuards::new(settings, guard);
        match settings.require {
            Require::Token => Self::Guarded(behind(&token, upstream)),
            Require::Key => Self::Guarded(behind(&key, upstream)),
            Require::Either | Require::Nothing => {
                let posts_need_key = settings.require_for(&Method::POST) == Require::Key;
                Self::KeyOrToken { key: behind(&key, upstream), token: behind(&token, upstream), posts_need_key }
            }
        }
    }

    /// Returns whether a guard may read the body of a request with this method before the upstream receives it.
    pub(super) fn buffers(&self, method: &Method) -> bool {
        !matches!(self, Self::Pass(_)) && !is_safe(method)
    }

    /// Handles a request.
    pub(super) fn call(&self, mut request: Request<ClientBody>) -> BoxFuture<'static, Response<AnyBody>> {
        match self {
            Self::Pass(upstream) => Box::pin(upstream.clone().forward(request)),
            Self::Guarded(guarded) => run(guarded, request),
            Self::PlainToken(guarded) => {
                if !is_safe(request.method()) {
                    request.extensions_mut().insert(PlainToken);
                }
                run(guarded, request)
            }
            Self::KeyOrToken { key, token, posts_need_key } => {
                let is_keyed = request.headers().contains_key(header::IDEMPOTENCY_KEY);
                let guarded =
                    if is_keyed || (*posts_need_key && request.method() == Method::POST) { key } else { token };
                run(guarded, request)
            }
        }
    }
}

/// Builds the guard of a route; `None` if its requests pass.
pub(crate) fn guard_of_route(
    route: &ProxyRoute,
    settings: &ProxySettings,
    guard: &Guard,
) -> Result<Option<Protect>, RuleError> {
    let profile = route.profile.unwrap_or(settings.profile);
    let retention = route.retention_header.as_ref().unwrap_or(&settings.retention_header);
    let common = CommonRules { profile, retention: retention.as_ref(), settings };
    let Some(protect) = protect(&route.policy, &route.subject, &common, guard)? else {
        return Ok(None);
    };
    let protect = protect.body_limit(route.body_limit.unwrap_or(settings.body_limit)).whole_body();
    let protect = protect.rejections(format(route.rejections.unwrap_or(settings.rejections), profile, settings));
    Ok(Some(judged(protect, route.effects.clone())))
}

/// The guards of paths without a route of their own.
pub(super) struct DefaultGuards {
    pub(super) key: Protect,
    pub(super) token: Protect,
}

impl DefaultGuards {
    /// Creates the guards. The one for tokens lets a submission without an id pass, unless the settings require one.
    pub(super) fn new(settings: &ProxySettings, guard: &Guard) -> Self {
        let retention = settings.retention_header.as_ref();
        let [of_token, of_key] = [(); 2].map(|()| Identity::new(settings).compared(&RouteSubject::Credentials));
        let remembered = stored(KeyRules::retryable().retain(REMEMBER), settings);
        let token = Protect::token(guard, SubjectFrom::anonymous()).remember_by(remembered).keep_all_headers();
        let token = token.fingerprint_with(of_token);
        let token = retention.into_iter().fold(token, |token, name| token.retention_header(name));
        let claimed = stored(KeyRules::at_most_once(), settings);
        let key = Protect::key(guard, SubjectFrom::anonymous(), claimed).keep_all_headers();
        let key = key.fingerprint_with(of_key).profile(settings.profile);
        let key = retention.into_iter().fold(key, |key, name| key.retention_header(name));
        let token = if settings.require == Require::Nothing { token.optional() } else { token };
        let format = format(settings.rejections, settings.profile, settings);
        let limited =
            |protect: Protect| protect.body_limit(settings.body_limit).whole_body().rejections(format.clone());
        Self { key: limited(key.into_any()), token: limited(token.into_any()) }
    }
}

/// A rule cannot be built.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RuleError {
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error(transparent)]
    Pointer(#[from] BadPointer),
}

/// Puts the upstream behind a guard.
fn behind(protect: &Protect, upstream: &Upstream) -> Guarded {
    Box::new(protect.layer(Entered.layer(upstream.clone())))
}

fn run(
    guarded: &Protected<MarkedService<Upstream>>,
    request: Request<ClientBody>,
) -> BoxFuture<'static, Response<AnyBody>> {
    let call = guarded.clone().call(request);
    Box::pin(async move {
        let Ok(response) = call.await;
        response.map(|body: ProtectedBody<AnyBody>| any(body))
    })
}

/// The rules of a route that do not depend on its policy.
struct CommonRules<'a> {
    profile: Profile,
    retention: Option<&'a HeaderName>,
    settings: &'a ProxySettings,
}

/// Builds the guard of a policy; `None` if its requests pass.
fn protect(
    policy: &RoutePolicy,
    subject: &RouteSubject,
    &CommonRules { profile, retention, settings }: &CommonRules<'_>,
    guard: &Guard,
) -> Result<Option<Protect>, RuleError> {
    let from = subject_from(subject);
    let identity = Identity::new(settings);
    let compared = identity.compared(subject);
    Ok(Some(match policy {
        RoutePolicy::None => return Ok(None),
        RoutePolicy::Token { bound, remember: None, .. } => {
            let token = Protect::token(guard, from);
            if *bound { token.bound().into_any() } else { token.into_any() }
        }
        RoutePolicy::Token { bound, remember: Some(rules), wait, fields } => {
            let token = Protect::token(guard, from).remember_by(stored(rules.clone(), settings)).keep_all_headers();
            let token = if *bound { token.bound() } else { token };
            let token = token.fingerprint(fields.clone()).fingerprint_with(compared);
            let token = retention.into_iter().fold(token, |token, name| token.retention_header(name));
            wait.iter().fold(token, |token, wait| token.wait(*wait)).into_any()
        }
        RoutePolicy::Key { rules, from: location, wait, fields } => {
            let key =
                Protect::key(guard, from, stored(rules.clone(), settings)).keep_all_headers().from(key_from(location)?);
            let key = key.fingerprint(fields.clone()).fingerprint_with(compared).profile(profile);
            let key = retention.into_iter().fold(key, |key, name| key.retention_header(name));
            wait.iter().fold(key, |key, wait| key.wait(*wait)).into_any()
        }
        RoutePolicy::Interval { rules, remember: true, from: location, wait, fields } => {
            let is_named = location.is_some();
            let from = if is_named { named_by(subject, &identity) } else { from };
            let rules = renewed(rules, settings).reply_limit(REPLY_LIMIT);
            let interval = Protect::interval(guard, from, rules).remember();
            let interval = interval.keep_all_headers().fingerprint(fields.clone()).fingerprint_with(compared);
            let interval = retention.into_iter().fold(interval, |interval, name| interval.retention_header(name));
            let interval = wait.iter().fold(interval, |interval, wait| interval.wait(*wait));
            match location {
                Some(location) => interval.from(key_from(location)?).into_any(),
                None => interval.into_any(),
            }
        }
        RoutePolicy::Interval { rules, from: Some(location), .. } => {
            // A name is compared without any content, so the credentials have to be the subject.
            let from = named_by(subject, &identity);
            Protect::interval(guard, from, renewed(rules, settings)).from(key_from(location)?).into_any()
        }
        RoutePolicy::Interval { rules, from: None, fields, .. } => {
            let interval = Protect::interval(guard, from, renewed(rules, settings));
            interval.fingerprint(fields.clone()).fingerprint_with(compared).into_any()
        }
    }))
}

/// Returns the format of rejections.
fn format(shape: RejectionShape, profile: Profile, settings: &ProxySettings) -> RejectionFormat {
    match shape {
        RejectionShape::Profile => profile.into(),
        RejectionShape::Problem => RejectionFormat::problem(),
        RejectionShape::Envelope => settings.envelope.clone().into(),
        // Reading the settings has required a template.
        RejectionShape::Template => settings.template.clone().map_or_else(RejectionFormat::problem, Into::into),
    }
}

/// Adds the effects that the route states.
fn judged(protect: Protect, effects: StatusEffects) -> Protect {
    if effects.0.is_empty() { protect } else { protect.judge(move |head| effects.of(head.status.as_u16())) }
}

/// Returns the subject of a named interval: a name may be compared without any content, so the credentials are the subject if the route
/// has no other. Clients without any are one subject.
fn named_by(subject: &RouteSubject, identity: &Identity) -> SubjectFrom {
    if *subject != RouteSubject::Credentials {
        return subject_from(subject);
    }
    let identity = identity.clone();
    SubjectFrom::resolver(move |parts: &Parts| {
        let credentials = identity.credentials(&parts.headers);
        Some(credentials.map_or("none".to_owned(), |digest| identity::text(&digest)))
    })
}

/// Returns the subject of a route's requests.
pub(super) fn subject_from(subject: &RouteSubject) -> SubjectFrom {
    match subject.clone() {
        RouteSubject::Credentials | RouteSubject::Anonymous => SubjectFrom::anonymous(),
        RouteSubject::ClientAddress => SubjectFrom::client_address(),
        RouteSubject::Cookie(name) => SubjectFrom::resolver(move |parts| identity::of_cookie(&parts.headers, &name)),
        RouteSubject::Header(name) => SubjectFrom::resolver(move |parts| {
            // From any other client, the header is a claim.
            parts.extensions.get::<Origin>().filter(|origin| origin.is_trusted)?;
            let mut values = parts.headers.get_all(&name).iter();
            let value = values.next().filter(|_| values.next().is_none())?;
            value.to_str().ok().filter(|value| !value.is_empty()).map(str::to_owned)
        }),
    }
}

fn key_from(location: &KeyLocation) -> Result<KeyFrom, RuleError> {
    Ok(match location {
        KeyLocation::Header(name) => KeyFrom::header(name.as_str())?,
        KeyLocation::Query(name) => KeyFrom::query(name),
        KeyLocation::Body(pointer) => KeyFrom::body(pointer)?,
        KeyLocation::Path(name) => {
            let name = name.clone();
            KeyFrom::chosen(move |parts| {
                let PathParameters(all) = parts.extensions.get::<PathParameters>()?;
                all.iter().find(|(other, _)| *other == name).map(|(_, value)| Key::new(value.as_str()))
            })
        }
    })
}

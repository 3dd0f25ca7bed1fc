//! The builder of the middleware, typed by policy: a setter that does not apply to the policy does not compile.

mod policy;

#[cfg(feature = "macros")]
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use onceward_api::DescribedRoute;

pub use self::policy::{
    AnyPolicy, ContentIntervalPolicy, IntervalPolicy, KeyPolicy, NamedIntervalPolicy, RememberedIntervalPolicy,
    RememberedNamedIntervalPolicy, RememberedPolicy, TokenPolicy,
};
use self::policy::{ComparesContent, ReadsId, RequiresToken, SkipsLargeBodies, StoresResponses, TakesKey};
use super::describe::describe;
use super::framework::Framework;
use super::key_source::KeySource;
use super::profile::Profile;
use super::rejection_format::RejectionFormat;
use super::retention_header::RetentionHeader;
use super::route_rules::RouteRules;
use super::subject_source::SubjectSource;
use crate::effect::Effect;
use crate::fingerprint::Fields;
use crate::guard::Guard;
use crate::mode::Mode;
use crate::policy::{IntervalRules, KeyRules, Policy, TokenRules};

/// The default time that a duplicate waits for the first request, if the response to a token or in an interval is stored.
const WAIT: Duration = Duration::from_secs(10);

/// Maximum number of bytes of a response that are read on a route that judges by the body.
const JUDGED: usize = 1024 * 1024;

/// Middleware that runs each submission at most once: the builder of a route's rules, for every web framework.
///
/// `F` is the framework. Name it through the type of an adapter: [`actix::Protect`](crate::actix::Protect) is middleware for `wrap`,
/// [`axum::Protect`](crate::axum::Protect) and [`tower::Protect`](crate::tower::Protect) are a layer for `layer`. All have the same
/// constructors and setters.
///
/// On axum:
///
/// ```
/// # #[cfg(feature = "axum")] {
/// use axum::Router;
/// use axum::routing::post;
/// use onceward::axum::{KeyFrom, Protect, SubjectFrom, entered};
/// use onceward::store::Memory;
/// use onceward::{Guard, KeyRules};
///
/// let guard = Guard::new(Memory::new());
/// let orders = Protect::token(&guard, SubjectFrom::anonymous()).bound().next_token();
/// let payments = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::at_most_once()).from(KeyFrom::path("order"));
/// let app: Router = Router::new()
///     .route("/orders", post(entered(async || "ordered")).layer(orders))
///     .route("/payments/{order}", post(entered(async || "paid")).layer(payments));
/// # let _ = app;
/// # }
/// ```
///
/// On actix-web:
///
/// ```
/// use actix_web::{HttpResponse, web};
/// use onceward::actix::{KeyFrom, Protect, SubjectFrom};
/// use onceward::store::Memory;
/// use onceward::{Guard, KeyRules};
///
/// let guard = Guard::new(Memory::new());
/// let orders = web::resource("/orders")
///     .wrap(Protect::token(&guard, SubjectFrom::anonymous()).bound().next_token())
///     .route(web::post().to(HttpResponse::Created));
/// let payments = web::resource("/payments/{order}")
///     .wrap(Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::at_most_once()).from(KeyFrom::path("order")))
///     .route(web::post().to(HttpResponse::Created));
/// # let _ = (orders, payments);
/// ```
///
/// GET, HEAD and OPTIONS pass through unchecked. A handler that has started runs to completion, even if its client disconnects.
///
/// # CORS
///
/// Install CORS middleware outside of the guard: its `wrap` or `layer` comes after the guard's, as in `.wrap(protect).wrap(cors)`, or is on
/// the outer `App` or `Router`. Every response then carries the CORS headers, including replays and rejections, which the guard sends
/// without calling the inner services. Inside of the guard, CORS would add its headers to the first response only: they are not stored,
/// and a script of another origin could not read the replay.
///
/// ```
/// use actix_web::middleware::DefaultHeaders;
/// use actix_web::{App, HttpResponse, web};
/// use onceward::actix::{Protect, SubjectFrom};
/// use onceward::{KeyRules, testing};
///
/// let (guard, _clock) = testing::guard();
/// // In place of `actix_cors::Cors`.
/// let cors = DefaultHeaders::new().add(("access-control-allow-origin", "https://shop.example"));
/// let app = App::new()
///     .service(
///         web::resource("/payments")
///             .wrap(Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::at_most_once()))
///             .route(web::post().to(HttpResponse::Created)),
///     )
///     .wrap(cors);
/// # let _ = app;
/// ```
///
/// # Several guards
///
/// Two guards may wrap one handler if they claim different tickets: a token around an interval, a key around a token. If both claim the
/// same ticket, for example one guard on a scope and one on a resource, the handler does not run: the client receives a 500 `internal`, the
/// log names both guards, and the token or key is valid again.
///
/// # One guard for all workers
///
/// On actix-web, build the guard before `HttpServer::new` and move a clone into the closure: the closure runs once in every worker. If each
/// worker builds its own [`Memory`](crate::store::Memory), the server panics at startup; a `Memory` inside your own
/// [`Store`](crate::store::Store) is not detected. On axum the router is built once.
///
/// # Setters by policy
///
/// `P` is the policy. A setter that has no effect under a policy does not exist there:
///
/// | constructor | `P` | setters, besides those of every policy |
/// |---|---|---|
/// | [`token`](Protect::token) | [`TokenPolicy`] | `bound`, `next_token`, `optional`, `remember`, `remember_by` |
/// | …`.remember(…)` | [`RememberedPolicy`] | `bound`, `next_token`, `optional`, `wait`, `keep_header`, `keep_all_headers`, `show_retention`, `retention_header`, `fingerprint`, `fingerprint_with`, `skip_large_bodies` |
/// | [`key`](Protect::key) | [`KeyPolicy`] | `from`, `optional`, `wait`, `keep_header`, `keep_all_headers`, `show_retention`, `retention_header`, `fingerprint`, `fingerprint_with`, `skip_large_bodies` |
/// | [`interval`](Protect::interval) | [`IntervalPolicy`] | `remember`, `from`, or `fingerprint`, `fingerprint_with` and `skip_large_bodies` |
/// | …`.from(…)` | [`NamedIntervalPolicy`] | `optional` |
/// | …`.fingerprint(…)` | [`ContentIntervalPolicy`] | `fingerprint`, `fingerprint_with`, `skip_large_bodies` |
/// | …`.remember()` | [`RememberedIntervalPolicy`] | `from`, `wait`, `keep_header`, `keep_all_headers`, `show_retention`, `retention_header`, `fingerprint`, `fingerprint_with` |
/// | …`.remember().from(…)` | [`RememberedNamedIntervalPolicy`] | `optional`, `wait`, `keep_header`, `keep_all_headers`, `show_retention`, `retention_header`, `fingerprint`, `fingerprint_with`, `skip_large_bodies` |
///
/// ```compile_fail,E0599
/// # use onceward::{KeyRules, actix::{Protect, SubjectFrom}, testing};
/// # let (guard, _clock) = testing::guard();
/// Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable()).bound();
/// ```
///
/// A function that returns routes with different policies erases `P` with [`into_any`](Protect::into_any); the result has the type
/// `Protect`.
pub struct Protect<F: Framework, P = AnyPolicy> {
    rules: RouteRules<F>,
    policy: PhantomData<fn() -> P>,
}

impl<F: Framework> Protect<F, TokenPolicy> {
    /// Like [`token`](Self::token), for a guard that was found to be shared by all workers.
    pub(super) fn token_of_shared(guard: &Guard, subject: SubjectSource<F::Request>) -> Self {
        Self::of_shared(guard, subject, Policy::token(), 0)
    }

    /// Requires a one-time token. A token that is bound to a subject is accepted only from the subject that `subject` resolves;
    /// [`bound`](Self::bound) rejects unbound tokens.
    ///
    /// # Panics
    /// If every worker of an actix-web server builds its own memory store: build the guard before `HttpServer::new`.
    #[track_caller]
    pub fn token(guard: &Guard, subject: SubjectSource<F::Request>) -> Self {
        F::assert_shared(guard);
        Self::token_of_shared(guard, subject)
    }

    /// Stores the response for `retain`, and replays it to duplicates: a browser shows the response to the second click. The same token
    /// with different content is rejected.
    ///
    /// A duplicate that arrives while the first request runs waits for its response, for 10 seconds at most; [`wait`](Protect::wait)
    /// changes that. If the first was not applied, one of the waiting duplicates runs.
    #[must_use]
    pub fn remember(self, retain: Duration) -> Protect<F, RememberedPolicy> {
        self.remember_by(KeyRules::retryable().retain(retain))
    }

    /// Like [`remember`](Self::remember), with your own lease, ceiling and limit.
    #[must_use]
    pub fn remember_by(mut self, rules: KeyRules) -> Protect<F, RememberedPolicy> {
        self.rules.answer_limit = self.rules.answer_limit.max(rules.reply_limit);
        self.rules.route.wait = Some(WAIT);
        self.change_token(|token| token.remember_by(rules)).retyped()
    }
}

impl<F: Framework> Protect<F, KeyPolicy> {
    /// Like [`key`](Self::key), for a guard that was found to be shared by all workers.
    pub(super) fn key_of_shared(guard: &Guard, subject: SubjectSource<F::Request>, rules: KeyRules) -> Self {
        let answer_limit = rules.reply_limit;
        Self::of_shared(guard, subject, Policy::key(rules), answer_limit)
    }

    /// Requires a key: `Idempotency-Key`, unless [`from`](Self::from) names another source. The first response for a key is stored and
    /// replayed; a request with the same key and different content is rejected.
    ///
    /// Mark the handler with `entered` ([actix-web](crate::actix::entered()), [axum](crate::axum::entered())). Then a request that an
    /// extractor rejects releases the key, whatever the error, and every response of the handler counts by its status. Without the mark, a
    /// 4xx from an extractor looks like a 4xx from a handler that passes on another party's error. On axum, every response then counts as
    /// the handler's, except that a 408 is unknown. On actix-web, only these errors count as created before the handler:
    ///
    /// - an error wrapped in [`ExtractorError`](crate::actix::ExtractorError), which declares it;
    /// - without [at most once](KeyRules::at_most_once), and if the body was read to its end: an error of `Json` (syntax, type, size),
    ///   of `Form` (type, size, encoding, not its fields), and `PathError`, each as actix-web created it, not wrapped by an
    ///   `error_handler`.
    ///
    /// Every other response counts as the handler's, including the router's 404 and 405, since an application's `default_service` may
    /// have taken effect: a 4xx is then stored and replayed, according to the table of effects, and its outcome is `replayable` instead
    /// of `executed`.
    ///
    /// According to that table a 401, 403, 425 or 429 releases the key, also with at most once: the handler rejected the request before
    /// anything took effect. A handler that passes on such a status from another party *after* something took effect declares it with
    /// [`MarkEffect`](super::MarkEffect):
    ///
    /// ```
    /// use actix_web::HttpResponse;
    /// use actix_web::http::StatusCode;
    /// use onceward::Effect;
    /// use onceward::actix::MarkEffect as _;
    ///
    /// fn pass_on(status: StatusCode) -> HttpResponse {
    ///     HttpResponse::build(status).finish().effect(Effect::Unknown)
    /// }
    /// # let _ = pass_on;
    /// ```
    ///
    /// # Panics
    /// As [`Protect::token`] does.
    #[track_caller]
    pub fn key(guard: &Guard, subject: SubjectSource<F::Request>, rules: KeyRules) -> Self {
        F::assert_shared(guard);
        Self::key_of_shared(guard, subject, rules)
    }

    /// Applies a published contract; the table of [`Profile`] has its differences. Call it last: a later setter overrides it.
    #[must_use]
    pub fn profile(self, profile: Profile) -> Self {
        self.with_profile(profile).rejections(profile)
    }
}

impl<F: Framework> Protect<F, IntervalPolicy> {
    /// Like [`interval`](Self::interval), for a guard that was found to be shared by all workers.
    pub(super) fn interval_of_shared(guard: &Guard, subject: SubjectSource<F::Request>, rules: IntervalRules) -> Self {
        let remember = rules.remember;
        let mut protect = Self::of_shared(guard, subject, Policy::interval(rules), remember.unwrap_or(0));
        protect.rules.route.wait = remember.map(|_| WAIT);
        protect
    }

    /// Accepts at most one equivalent request per subject and interval. Requests are equivalent if they have the same content, or, with
    /// [`from`](Self::from), the same name.
    ///
    /// # Panics
    /// As [`Protect::token`] does.
    #[track_caller]
    pub fn interval(guard: &Guard, subject: SubjectSource<F::Request>, rules: IntervalRules) -> Self {
        F::assert_shared(guard);
        Self::interval_of_shared(guard, subject, rules)
    }

    /// Stores the response until the interval ends, and replays it to duplicates, which are rejected as `too_soon` otherwise. See
    /// [`IntervalRules::remember`] for the end of the interval and for what a duplicate receives after each effect.
    ///
    /// A duplicate that arrives while the first request runs waits for its response, for 10 seconds at most; [`wait`](Protect::wait)
    /// changes that. If the first was not applied, one of the duplicates that wait in the process of the first runs. At another process,
    /// which cannot tell a released interval from one whose owner died, they are rejected as `in_progress`.
    ///
    /// All requests of one subject with the same content receive the same response. With an anonymous subject these are the requests of all
    /// clients.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use onceward::{IntervalRules, actix::{KeyFrom, Protect, SubjectFrom}, testing};
    /// # let (guard, _clock) = testing::guard();
    /// # let rules = IntervalRules::new();
    /// let alice = || SubjectFrom::resolver(|_| Some("alice".to_owned()));
    /// let by_content = Protect::interval(&guard, alice(), rules.clone()).remember().wait(Duration::from_secs(2));
    /// let by_name = Protect::interval(&guard, alice(), rules).remember().from(KeyFrom::header("x-order").unwrap()).optional();
    /// # let _ = (by_content, by_name);
    /// ```
    ///
    /// Setters that select the content come after it, and bodies that are not compared cannot share a response:
    ///
    /// ```compile_fail,E0599
    /// # use onceward::{Fields, IntervalRules, actix::{Protect, SubjectFrom}, testing};
    /// # let (guard, _clock) = testing::guard();
    /// Protect::interval(&guard, SubjectFrom::anonymous(), IntervalRules::new()).fingerprint(Fields::all()).remember();
    /// ```
    ///
    /// ```compile_fail,E0599
    /// # use onceward::{IntervalRules, actix::{Protect, SubjectFrom}, testing};
    /// # let (guard, _clock) = testing::guard();
    /// Protect::interval(&guard, SubjectFrom::anonymous(), IntervalRules::new()).remember().skip_large_bodies();
    /// ```
    #[must_use]
    pub fn remember(mut self) -> Protect<F, RememberedIntervalPolicy> {
        if let Policy::Interval(rules) = &mut self.rules.route.policy {
            let limit = rules.remember;
            *rules = rules.clone().remember();
            rules.remember = limit.or(rules.remember);
            self.rules.answer_limit = self.rules.answer_limit.max(rules.remember.unwrap_or(0));
        }
        self.rules.route.wait = Some(WAIT);
        self.retyped()
    }
}

/// Setters for routes that require a token.
impl<F: Framework, P: RequiresToken> Protect<F, P> {
    /// Accepts only tokens that were issued for this action, and for this subject unless it is anonymous.
    ///
    /// ```compile_fail,E0599
    /// # use onceward::{IntervalRules, actix::{Protect, SubjectFrom}, testing};
    /// # let (guard, _clock) = testing::guard();
    /// Protect::interval(&guard, SubjectFrom::anonymous(), IntervalRules::new()).bound();
    /// ```
    #[must_use]
    pub fn bound(self) -> Self {
        self.change_token(TokenRules::bound)
    }

    /// Adds a new token, bound like the first, to every handler response that leaves the first token used.
    ///
    /// ```compile_fail,E0599
    /// # use onceward::{KeyRules, actix::{Protect, SubjectFrom}, testing};
    /// # let (guard, _clock) = testing::guard();
    /// Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable()).next_token();
    /// ```
    #[must_use]
    pub fn next_token(mut self) -> Self {
        self.rules.route.next_token = true;
        self
    }

    fn change_token(mut self, change: impl FnOnce(TokenRules) -> TokenRules) -> Self {
        if let Policy::Token(rules) = &mut self.rules.route.policy {
            *rules = change(std::mem::take(rules));
        }
        self
    }
}

/// Setters for routes that read a key or a name.
impl<F: Framework, P: TakesKey> Protect<F, P> {
    /// Sets the source of the key, or of the interval's name: requests with the same name are equivalent, whatever their content.
    ///
    /// ```compile_fail,E0599
    /// # use onceward::{actix::{KeyFrom, Protect, SubjectFrom}, testing};
    /// # let (guard, _clock) = testing::guard();
    /// Protect::token(&guard, SubjectFrom::anonymous()).from(KeyFrom::header("x-order").unwrap());
    /// ```
    #[must_use]
    pub fn from(mut self, key: KeySource<F::Request>) -> Protect<F, P::Named> {
        self.rules.reader.key = Some(key);
        self.retyped()
    }
}

/// Setters for routes that read a token, a key or a name.
impl<F: Framework, P: ReadsId> Protect<F, P> {
    /// Runs a request without a token or key, unprotected. By default it is rejected.
    ///
    /// A form that cannot be parsed has no token. A urlencoded form without a token in the first bytes, up to the
    /// [limit](Self::body_limit), is still rejected: the token may be behind them.
    ///
    /// An interval by content has no key that could be missing:
    ///
    /// ```compile_fail,E0599
    /// # use onceward::{IntervalRules, actix::{Protect, SubjectFrom}, testing};
    /// # let (guard, _clock) = testing::guard();
    /// Protect::interval(&guard, SubjectFrom::anonymous(), IntervalRules::new()).optional();
    /// ```
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.rules.reader.is_optional = true;
        self
    }
}

/// Setters for routes that compare requests by their content.
impl<F: Framework, P: ComparesContent> Protect<F, P> {
    /// Sets the body fields included in the fingerprint. Default: all.
    ///
    /// A plain token stores nothing to compare with, and a named interval compares names:
    ///
    /// ```compile_fail,E0599
    /// # use onceward::{Fields, actix::{Protect, SubjectFrom}, testing};
    /// # let (guard, _clock) = testing::guard();
    /// Protect::token(&guard, SubjectFrom::anonymous()).fingerprint(Fields::all());
    /// ```
    ///
    /// ```compile_fail,E0599
    /// # use onceward::{Fields, IntervalRules, actix::{KeyFrom, Protect, SubjectFrom}, testing};
    /// # let (guard, _clock) = testing::guard();
    /// let interval = Protect::interval(&guard, SubjectFrom::anonymous(), IntervalRules::new());
    /// interval.fingerprint(Fields::all()).from(KeyFrom::header("x-order").unwrap());
    /// ```
    #[must_use]
    pub fn fingerprint(mut self, fields: Fields) -> Protect<F, P::Compared> {
        self.rules.reader.fields = fields;
        self.retyped()
    }

    /// Includes these bytes in the fingerprint too: requests for which the function returns different bytes have different content, and the
    /// stored response of one is never sent to the other. `None` adds nothing. A lookup (`Onceward-Look`) then has to repeat the body too.
    ///
    /// A stored response is then sent only to requests with the same `Cookie`, or with none if the first had none:
    ///
    /// ```
    /// # use onceward::{KeyRules, tower::{Protect, SubjectFrom}, testing};
    /// # let (guard, _clock) = testing::guard();
    /// Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::at_most_once())
    ///     .fingerprint_with(|request| request.headers.get("cookie").map(|cookie| cookie.as_bytes().to_vec()));
    /// ```
    #[must_use]
    pub fn fingerprint_with(
        mut self,
        bytes: impl Fn(&F::Request) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Protect<F, P::Compared> {
        self.rules.reader.fingerprint_with = Some(Arc::new(bytes));
        self.retyped()
    }
}

/// Setters for routes that compare content and have another id, such as a key.
impl<F: Framework, P: SkipsLargeBodies> Protect<F, P> {
    /// Accepts a body over the limit without comparing it. By default it is rejected. A body that contains the [key](KeySource::body) is
    /// always rejected if it is over the limit, and so is one in an interval without a name whose rules
    /// [remember](IntervalRules::remember) the response: all large bodies would receive the same one.
    ///
    /// ```compile_fail,E0599
    /// # use onceward::{actix::{Protect, SubjectFrom}, testing};
    /// # let (guard, _clock) = testing::guard();
    /// Protect::token(&guard, SubjectFrom::anonymous()).skip_large_bodies();
    /// ```
    #[must_use]
    pub fn skip_large_bodies(mut self) -> Protect<F, P::Compared> {
        self.rules.reader.skips_large = true;
        self.retyped()
    }
}

/// Setters for routes that store responses.
impl<F: Framework, P: StoresResponses> Protect<F, P> {
    /// Stores this response header too, besides those that describe the body. `Set-Cookie` and similar headers are never stored.
    ///
    /// ```compile_fail,E0599
    /// # use actix_web::http::header::SERVER;
    /// # use onceward::{actix::{Protect, SubjectFrom}, testing};
    /// # let (guard, _clock) = testing::guard();
    /// Protect::token(&guard, SubjectFrom::anonymous()).keep_header(SERVER);
    /// ```
    #[must_use]
    pub fn keep_header(mut self, name: F::HeaderName) -> Self {
        self.rules.kept_headers.add(name);
        self
    }

    /// Stores all headers of a response, such as `Content-Security-Policy` and `Access-Control-Allow-Origin`, besides those that describe
    /// the body. For middleware that other layers do not wrap: a layer outside of the guard adds its headers to a replay too. `Set-Cookie`
    /// and similar headers are never stored, nor are those that belong to one response, such as `Age`, `Via` and `X-Request-Id`.
    #[must_use]
    pub fn keep_all_headers(mut self) -> Self {
        self.rules.kept_headers.add_all();
        self
    }

    /// Says how long a response is stored, in `Onceward-Retention`: whole seconds, rounded down, counted from the first
    /// response; in an interval, from the first request. Each response that is stored has the header, and each replay of it. A response
    /// that is streamed or too large is not stored. By default, no response has the header.
    ///
    /// ```compile_fail,E0599
    /// # use onceward::{actix::{Protect, SubjectFrom}, testing};
    /// # let (guard, _clock) = testing::guard();
    /// Protect::token(&guard, SubjectFrom::anonymous()).show_retention();
    /// ```
    #[must_use]
    pub fn show_retention(mut self) -> Self {
        self.rules.retention_header = Some(RetentionHeader::NAME);
        self
    }

    /// Like [`show_retention`](Self::show_retention), in a header with this name.
    #[must_use]
    pub fn retention_header(mut self, name: &F::HeaderName) -> Self {
        self.rules.retention_header = Some(name.as_ref().to_owned().into());
        self
    }

    /// Sets the maximum time that a duplicate of a request in flight waits for its response. Default: 10 seconds if the response is
    /// [remembered](Protect::remember), no waiting with a key. `Duration::ZERO` disables waiting: a duplicate receives `in_progress`.
    ///
    /// If the first was not applied, the waiting duplicates are checked again, once: one runs, and the others wait for its response for
    /// the rest of their time. [`GuardBuilder::waiters`](crate::GuardBuilder::waiters) limits how many may wait;
    /// [`Guard::check_and_wait`] documents what each receives.
    ///
    /// A duplicate stops waiting if its client resets or closes the connection. On actix-web, closing counts only if the server
    /// [records its peers](crate::actix::Peer).
    ///
    /// Without stored responses there is nothing to wait for:
    ///
    /// ```compile_fail,E0599
    /// # use std::time::Duration;
    /// # use onceward::{actix::{Protect, SubjectFrom}, testing};
    /// # let (guard, _clock) = testing::guard();
    /// Protect::token(&guard, SubjectFrom::anonymous()).wait(Duration::from_secs(1));
    /// ```
    ///
    /// ```compile_fail,E0599
    /// # use std::time::Duration;
    /// # use onceward::{IntervalRules, actix::{Protect, SubjectFrom}, testing};
    /// # let (guard, _clock) = testing::guard();
    /// Protect::interval(&guard, SubjectFrom::anonymous(), IntervalRules::new()).wait(Duration::from_secs(1));
    /// ```
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use onceward::{KeyRules, actix::{Protect, SubjectFrom}, testing};
    /// # let (guard, _clock) = testing::guard();
    /// let second = Duration::from_secs(1);
    /// let remembered = Protect::token(&guard, SubjectFrom::anonymous()).remember(second).wait(second);
    /// let key = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable()).wait(second);
    /// # let _ = (remembered, key);
    /// ```
    #[must_use]
    pub fn wait(mut self, longest: Duration) -> Self {
        self.rules.route.wait = Some(longest);
        self
    }
}

/// Setters of every policy.
impl<F: Framework, P> Protect<F, P> {
    fn of_shared(guard: &Guard, subject: SubjectSource<F::Request>, policy: Policy, answer_limit: usize) -> Self {
        Self { rules: RouteRules::new(guard, subject, policy, answer_limit), policy: PhantomData }
    }

    /// Describes the rules of this route, for [`Description::route`](onceward_api::Description::route): the body of
    /// `GET /.well-known/onceward`. `route` is its methods and its path, as in `POST /orders`; without a method, it is all but GET,
    /// HEAD and OPTIONS.
    ///
    /// The [mode](Self::mode) is no part of it: a guard that only observes has the same description.
    pub fn describe(&self, route: &str) -> DescribedRoute {
        describe(&self.rules, route)
    }

    /// Returns the rules, as each service behind this layer shares them.
    pub(crate) fn shared_rules(&self) -> Arc<RouteRules<F>> {
        Arc::new(self.rules.clone())
    }

    /// Returns the policy of the route, with what its profile demands.
    pub fn policy(&self) -> &Policy {
        &self.rules.route.policy
    }

    /// Applies the rules of a profile to a route with a key, without its format.
    pub(super) fn with_profile(mut self, profile: Profile) -> Self {
        let Policy::Key(rules) = &mut self.rules.route.policy else { return self };
        *rules = profile.rules(rules.clone());
        if let Some(fields) = profile.fields() {
            self.rules.reader.fields = fields;
        }
        self.rules.profile = profile;
        self.rules.reader.is_optional &= !profile.requires_key();
        self
    }

    /// Sets the name of the header that says how long a response is stored. Without stored responses it has no effect.
    #[cfg(feature = "macros")]
    pub(super) fn with_retention_header(mut self, name: Option<Cow<'static, str>>) -> Self {
        self.rules.retention_header = name;
        self
    }

    fn retyped<Q>(self) -> Protect<F, Q> {
        Protect { rules: self.rules, policy: PhantomData }
    }

    /// Erases the policy, for functions and collections with routes of different policies. Only the setters of every policy remain.
    #[must_use]
    pub fn into_any(self) -> Protect<F> {
        self.retyped()
    }

    /// Names the action. The default is the method and the path of the request, as in `POST /orders`. All percent-encoded spellings of
    /// a path are the same action ([`canonical`](onceward_api::path::canonical)).
    ///
    /// Middleware that rewrites the path, such as `NormalizePath`, has to run before the guard; otherwise `/pay`, `/pay/` and `//pay`
    /// are three actions. On axum, the middleware of a `Router` runs after a route has matched, so wrap `NormalizePath` around the whole
    /// router. On actix-web, middleware of the application runs before that of a route; of two at the same level, the one that is
    /// wrapped last runs first:
    ///
    /// ```
    /// use actix_web::middleware::NormalizePath;
    /// use actix_web::{App, HttpResponse, web};
    /// use onceward::actix::{Protect, SubjectFrom};
    /// use onceward::{KeyRules, testing};
    ///
    /// let (guard, _clock) = testing::guard();
    /// let protect = || Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::at_most_once());
    /// let pay = || web::resource("/pay").route(web::post().to(HttpResponse::Created));
    ///
    /// let around_a_route = App::new().wrap(NormalizePath::trim()).service(pay().wrap(protect()));
    /// let around_the_application = App::new().wrap(protect()).wrap(NormalizePath::trim()).service(pay());
    /// # let _ = (around_a_route, around_the_application);
    /// ```
    ///
    /// If a path is rewritten inside of the guard, and the action has no name, an error is logged on actix-web. The tower layer cannot
    /// notice it.
    ///
    /// Name the action of a route with a tail pattern, as in `/files/{tail:.*}` of actix-web or `/files/{*tail}` of axum: `a/b` and
    /// `a%2Fb` are two paths, and the `Path` extractor decodes both to the same parameter. The same applies to octets that are not UTF-8:
    /// they remain distinct paths, and `web::Path` of actix-web decodes all of them to U+FFFD.
    #[must_use]
    pub fn action(mut self, action: impl Into<Arc<str>>) -> Self {
        self.rules.reader.action = Some(action.into());
        self
    }

    /// Decides the effect of a response on this route; `None` means that the status decides. The handler's own
    /// [`MarkEffect`](super::MarkEffect) takes precedence.
    #[must_use]
    pub fn judge(mut self, judge: impl Fn(&F::ResponseHead) -> Option<Effect> + Send + Sync + 'static) -> Self {
        self.rules.judge = Some(Arc::new(move |head, _| judge(head)));
        self
    }

    /// Like [`judge`](Self::judge), for responses that report a failure in their body: a 200 with an error in it. A body of more than 1
    /// MiB, or a streamed one, is not read, and the status decides.
    #[must_use]
    pub fn judge_body(
        mut self,
        judge: impl Fn(&F::ResponseHead, &[u8]) -> Option<Effect> + Send + Sync + 'static,
    ) -> Self {
        self.rules.answer_limit = self.rules.answer_limit.max(JUDGED);
        self.rules.judge = Some(Arc::new(move |head, body| judge(head, body?)));
        self
    }

    /// Sets the format of this route's rejections: an [`Envelope`](super::Envelope), a [`Profile`], or a function of the application
    /// ([`RejectionFormat::new`]). Default: a problem of RFC 9457, or a page for a client that prefers HTML.
    ///
    /// ```
    /// use onceward::api::Code;
    /// use onceward::actix::{Protect, SubjectFrom};
    /// use onceward::http::Envelope;
    /// # let (guard, _clock) = onceward::testing::guard();
    ///
    /// let envelope = Envelope::new().code(Code::TokenUsed, 20001).default_code(20000);
    /// Protect::token(&guard, SubjectFrom::anonymous()).rejections(envelope);
    /// ```
    #[must_use]
    pub fn rejections(mut self, format: impl Into<RejectionFormat>) -> Self {
        self.rules.format = format.into();
        self
    }

    /// Sets the mode of this route; the guard's mode is the upper limit.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.rules.route.mode = mode;
        self
    }

    /// Sets the maximum number of bytes that are read of a body, to find a form's token or to compare requests. Default: 256 KiB.
    #[must_use]
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.rules.reader.limit = bytes;
        self
    }

    /// Reads the body of every protected request to its end before the handler is called, and rejects one over the
    /// [limit](Self::body_limit) with 413 `body_too_large`. The token or key stays valid, also if the client disconnects during the
    /// upload. Without it, a plain token and an interval by name leave the body, or the rest of a form, to the handler.
    ///
    /// It is meant for proxies, whose upstream may act on the part of a body that it has received.
    ///
    /// ```
    /// # use onceward::{actix::{Protect, SubjectFrom}, testing};
    /// # let (guard, _clock) = testing::guard();
    /// Protect::token(&guard, SubjectFrom::anonymous()).body_limit(1024 * 1024).whole_body();
    /// ```
    #[must_use]
    pub fn whole_body(mut self) -> Self {
        self.rules.reader.needs_whole_body = true;
        self
    }
}

impl<F: Framework, P> Clone for Protect<F, P> {
    fn clone(&self) -> Self {
        Self { rules: self.rules.clone(), policy: PhantomData }
    }
}

impl<F: Framework, P> fmt::Debug for Protect<F, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Protect")
            .field("policy", &self.rules.route.policy)
            .field("subject", &self.rules.subject)
            .field("reader", &self.rules.reader)
            .field("wait", &self.rules.route.wait)
            .finish_non_exhaustive()
    }
}

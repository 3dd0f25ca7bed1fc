mod nested;
mod observe;
mod run;

use std::fmt;
use std::future::{Ready, ready};
use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use actix_web::Error;
use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ResponseHead, Service, ServiceRequest, ServiceResponse, Transform, forward_ready};
use actix_web::http::Method;
use actix_web::http::header::HeaderName;
use futures_util::future::LocalBoxFuture;

use self::run::{broke_off, run};
use super::answer::Audience;
use super::key_from::KeyFrom;
use super::reading::RequestReader;
use super::require_protection::mark_seen;
use super::run_to_completion::{Idle, Panicked, RunToCompletion};
use super::subject::SubjectFrom;
use super::worker::assert_shared;
use crate::effect::Effect;
use crate::fingerprint::Fields;
use crate::guard::Guard;
use crate::mode::Mode;
use crate::policy::{IntervalRules, KeyRules, Policy, TokenRules};

/// How long a duplicate waits for the first where answers to tokens are remembered.
const WAIT: Duration = Duration::from_secs(10);

type Judge = Arc<dyn Fn(&ResponseHead, Option<&[u8]>) -> Option<Effect> + Send + Sync>;

/// Middleware that lets each submission run once.
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
/// GET, HEAD and OPTIONS pass untouched. A handler that has begun runs to its end, whatever its client does meanwhile.
///
/// Two guards may stand around one handler if they claim different things: a token around an interval, a key around a token. If both
/// claim the same, as one on a scope and one on a resource easily do, nothing runs: the client receives a 500 `internal`, the log names
/// both guards, and the token or key is valid again.
///
/// Build the guard before `HttpServer::new` and move a clone into the closure: the closure runs once in every worker. If each worker builds
/// a [`Memory`](crate::store::Memory) of its own, the server panics at start; a `Memory` inside a [`Store`](crate::store::Store) of your own
/// is not recognised.
#[derive(Clone)]
pub struct Protect(Rules);

#[derive(Clone)]
struct Rules {
    guard: Guard,
    policy: Policy,
    subject: SubjectFrom,
    reading: RequestReader,
    judge: Option<Judge>,
    /// How much of an answer's body is looked into.
    answer_limit: usize,
    kept_headers: Vec<HeaderName>,
    next_token: bool,
    /// How long a duplicate waits for the first. None, or no time at all: it does not.
    wait: Option<Duration>,
    mode: Mode,
    /// Whether it was logged that the path is rewritten inside.
    is_rewriting_logged: Arc<AtomicBool>,
}

impl Protect {
    /// Asks for a one-time token, from whoever `subject` finds.
    ///
    /// # Panics
    /// If every worker of a server builds a memory store of its own: build the guard before `HttpServer::new`.
    #[track_caller]
    pub fn token(guard: &Guard, subject: SubjectFrom) -> Self {
        Self::new(guard, subject, Policy::token(), 0)
    }

    /// Takes the same from the same caller once in a while. What is the same is told by its content, or by a name of your own
    /// choosing with [`from`](Self::from).
    ///
    /// # Panics
    /// As [`token`](Self::token) does.
    #[track_caller]
    pub fn interval(guard: &Guard, subject: SubjectFrom, rules: IntervalRules) -> Self {
        Self::new(guard, subject, Policy::interval(rules), 0)
    }

    /// Asks for a key, `Idempotency-Key` unless [`from`](Self::from) says otherwise. The first answer under it is kept and
    /// given again; a second request with other content is refused.
    ///
    /// Mark the handler with [`entered`](super::entered()). Then a request that an extractor rejects leaves the key free, whatever the
    /// error, and every response of the handler counts as its status says. Without the mark, a 4xx that an extractor made looks like one
    /// of a handler which passes on another party's error. So without it only these count as made before the handler:
    ///
    /// - an error in [`ExtractorError`](super::ExtractorError), which says so itself;
    /// - without [at most once](KeyRules::at_most_once), and if the body was read to its end: an error of `Json` (syntax, type, size), of `Form` (type, size,
    ///   encoding, not its fields), and `PathError`, each as actix-web made it, not wrapped by an `error_handler`.
    ///
    /// Everything else is the handler's, also the 404 and 405 of the router, since an application's `default_service` may have taken
    /// effect: a 4xx is then stored and replayed, as the table of effects says, and its outcome is `replayable` instead of `executed`.
    ///
    /// By that table a 401, 403, 425 or 429 frees the key, with `hold` too: the handler refused before anything took effect. A handler
    /// that passes on such a status of another party *after* it took effect says so with [`MarkEffect`](super::MarkEffect):
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
    /// As [`token`](Self::token) does.
    #[track_caller]
    pub fn key(guard: &Guard, subject: SubjectFrom, rules: KeyRules) -> Self {
        let answer_limit = rules.reply_limit;
        Self::new(guard, subject, Policy::key(rules), answer_limit)
    }

    #[track_caller]
    fn new(guard: &Guard, subject: SubjectFrom, policy: Policy, answer_limit: usize) -> Self {
        assert_shared(guard);
        Self(Rules {
            guard: guard.clone(),
            policy,
            subject,
            reading: RequestReader::default(),
            judge: None,
            answer_limit,
            kept_headers: Vec::new(),
            next_token: false,
            wait: None,
            mode: Mode::Enforce,
            is_rewriting_logged: Arc::default(),
        })
    }

    /// Accepts only tokens that were issued for this action, and for this caller where there is one.
    ///
    /// # Panics
    /// If the route does not ask for a token.
    #[must_use]
    pub fn bound(self) -> Self {
        self.token_rules(TokenRules::bound)
    }

    /// Keeps the answer this long, and gives it again to the same submission: a browser shows the answer to the second click.
    /// The same token with other content is refused.
    ///
    /// A duplicate that arrives while the first runs waits for its answer, for 10 seconds at most; [`wait`](Self::wait) changes
    /// that. If the first was not applied, one of the waiters runs.
    ///
    /// # Panics
    /// If the route does not ask for a token.
    #[must_use]
    pub fn remember(self, retain: Duration) -> Self {
        self.remember_by(KeyRules::retryable().retain(retain))
    }

    /// The same, with a lease, a ceiling and a limit of your own.
    ///
    /// # Panics
    /// If the route does not ask for a token.
    #[must_use]
    pub fn remember_by(mut self, rules: KeyRules) -> Self {
        self.0.answer_limit = self.0.answer_limit.max(rules.reply_limit);
        self.0.wait = self.0.wait.or(Some(WAIT));
        self.token_rules(|token| token.remember_by(rules))
    }

    fn token_rules(mut self, change: impl FnOnce(TokenRules) -> TokenRules) -> Self {
        let Policy::Token(rules) = self.0.policy else { panic!("this is said of a route that asks for a token") };
        self.0.policy = Policy::Token(change(rules));
        self
    }

    /// Names the action. Without a name, it is the method and the path of the request, as in `POST /orders`. All
    /// percent-encoded spellings of a path are one ([`canonical`](onceward_api::path::canonical)).
    ///
    /// Middleware that rewrites the path, such as `NormalizePath`, has to run before the guard, or `/pay`, `/pay/` and `//pay` are three
    /// actions. Middleware of the application runs before that of a route; of two in one place, the one that is wrapped last runs
    /// first:
    ///
    /// ```
    /// use actix_web::middleware::NormalizePath;
    /// use actix_web::{App, HttpResponse, web};
    /// use onceward::actix::{Protect, SubjectFrom};
    /// use onceward::{KeyRules, testing};
    ///
    /// let (guard, _clock) = testing::guard();
    /// let protect = || Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable());
    /// let pay = || web::resource("/pay").route(web::post().to(HttpResponse::Created));
    ///
    /// let around_a_route = App::new().wrap(NormalizePath::trim()).service(pay().wrap(protect()));
    /// let around_the_application = App::new().wrap(protect()).wrap(NormalizePath::trim()).service(pay());
    /// # let _ = (around_a_route, around_the_application);
    /// ```
    ///
    /// Where a path is rewritten inside of the guard, and the action has no name, an error is logged.
    ///
    /// Name the action of a route with a tail pattern, as in `/files/{tail:.*}`: `a/b` and `a%2Fb` are two paths, and `web::Path`
    /// decodes both to one parameter. The same goes for octets that are not UTF-8: they stay apart, and `web::Path` shows
    /// all of them as U+FFFD.
    #[must_use]
    pub fn action(mut self, action: impl Into<Arc<str>>) -> Self {
        self.0.reading.action = Some(action.into());
        self
    }

    /// Where the key stands, or the name of an interval.
    #[must_use]
    pub fn from(mut self, key: KeyFrom) -> Self {
        self.0.reading.key = Some(key);
        self
    }

    /// Lets a request without a key run, unprotected. Otherwise it is refused.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.0.reading.is_optional = true;
        self
    }

    /// Which fields of the body a request under a key is told by from another: all of them.
    #[must_use]
    pub fn fingerprint(mut self, fields: Fields) -> Self {
        self.0.reading.fields = fields;
        self
    }

    /// Lets a body that is larger than the limit through without comparing it. Otherwise it is refused.
    #[must_use]
    pub fn skip_large_bodies(mut self) -> Self {
        self.0.reading.skips_large = true;
        self
    }

    /// Keeps this header of an answer too, beside those that describe its body. `Set-Cookie` and its like are never kept.
    #[must_use]
    pub fn keep_header(mut self, name: HeaderName) -> Self {
        self.0.kept_headers.push(name);
        self
    }

    /// Decides for this route what an answer says about the effect; `None` leaves it to the status. What a handler
    /// says of its own answer with [`MarkEffect`](super::MarkEffect) goes first.
    #[must_use]
    pub fn judge(mut self, judge: impl Fn(&ResponseHead) -> Option<Effect> + Send + Sync + 'static) -> Self {
        self.0.judge = Some(Arc::new(move |head, _| judge(head)));
        self
    }

    /// The same for answers that say in their body how it went: a 200 that tells of a failure. A body of more than 1 MiB, or
    /// that is streamed, is not looked into, and its status decides.
    #[must_use]
    pub fn judge_body(
        mut self,
        judge: impl Fn(&ResponseHead, &[u8]) -> Option<Effect> + Send + Sync + 'static,
    ) -> Self {
        self.0.answer_limit = self.0.answer_limit.max(1024 * 1024);
        self.0.judge = Some(Arc::new(move |head, body| judge(head, body?)));
        self
    }

    /// Sends a fresh token, bound as the first was, with every answer of a handler that has used one up.
    #[must_use]
    pub fn next_token(mut self) -> Self {
        self.0.next_token = true;
        self
    }

    /// Has a duplicate of a run in progress wait for its answer, for this long at most: 10 seconds where the answer to a token is
    /// [remembered](Self::remember), not at all under a key. `Duration::ZERO` turns waiting off: a duplicate is told *in progress*.
    ///
    /// If the first was not applied, the duplicates that wait decide again, once: one runs, and the others wait for its answer in
    /// what is left of their time. [`GuardBuilder::waiters`](crate::GuardBuilder::waiters) says how many may wait;
    /// [`Guard::check_and_wait`] says what each is told.
    ///
    /// A client that resets its connection gives up its place; one that closes it does so if the server
    /// [notes its peers](super::Peer).
    ///
    /// # Panics
    /// If there will be no answer to wait for: the route neither asks for a key nor for a token that it
    /// [remembers](Self::remember), which has to be said before.
    #[must_use]
    pub fn wait(mut self, longest: Duration) -> Self {
        assert!(
            self.0.policy.keeps_replies(),
            "this is said of a route that keeps its answers: it has a key, or remembers"
        );
        self.0.wait = Some(longest);
        self
    }

    /// How much is done on this route; never more than the guard does.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.0.mode = mode;
        self
    }

    /// How much of a body is read, in search of a form's token or to compare what comes under a key: 256 KiB.
    #[must_use]
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.0.reading.limit = bytes;
        self
    }
}

impl fmt::Debug for Protect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Protect")
            .field("policy", &self.0.policy)
            .field("subject", &self.0.subject)
            .field("reading", &self.0.reading)
            .field("wait", &self.0.wait)
            .finish_non_exhaustive()
    }
}

impl<S, B> Transform<S, ServiceRequest> for Protect
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Transform = Protected<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(Protected { rules: Rc::new(self.0.clone()), service: Rc::new(service) }))
    }
}

/// A service behind [`Protect`].
pub struct Protected<S> {
    rules: Rc<Rules>,
    service: Rc<S>,
}

impl<S> fmt::Debug for Protected<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Protected").field("policy", &self.rules.policy).finish_non_exhaustive()
    }
}

impl<S, B> Service<ServiceRequest> for Protected<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Future = LocalBoxFuture<'static, Result<Self::Response, Error>>;

    forward_ready!(service);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let (rules, service) = (Rc::clone(&self.rules), Rc::clone(&self.service));
        mark_seen(request.request());
        let is_untouched = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        if is_untouched || rules.mode() == Mode::Off {
            return Box::pin(async move { Ok(service.call(request).await?.map_into_left_body()) });
        }
        let audience = Audience::of(request.request());
        let idle = Idle::default();
        let run = RunToCompletion::new(run(Rc::clone(&rules), service, request, Rc::clone(&idle)), idle);
        Box::pin(async move {
            match run.await {
                Ok(answer) => answer,
                // As it would have without a guard.
                Err(Panicked(why)) if rules.mode() == Mode::Observe => resume_unwind(why),
                Err(Panicked(_)) => Err(broke_off(&rules, audience)),
            }
        })
    }
}

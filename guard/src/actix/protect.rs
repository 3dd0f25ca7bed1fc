use std::cell::Cell;
use std::fmt;
use std::future::{Ready, ready};
use std::rc::Rc;
use std::sync::Arc;

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ResponseHead, Service, ServiceRequest, ServiceResponse, Transform, forward_ready};
use actix_web::http::Method;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::{Error, HttpResponse};
use futures_util::future::LocalBoxFuture;
use onceward_api::{Code, Outcome, header};

use super::answer::{Audience, mark, refuse};
use super::asked::{Asked, drain};
use super::detached::{Detached, Panicked};
use super::subject::SubjectFrom;
use crate::guard::{Guard, Verdict};
use crate::pass::{Pass, Settled};
use crate::policy::{Effect, Policy};
use crate::refusal::Refusal;
use crate::token::Token;

type Judge = Arc<dyn Fn(&ResponseHead) -> Option<Effect> + Send + Sync>;

/// Middleware that lets each submission run once.
///
/// ```
/// use actix_web::{HttpResponse, web};
/// use onceward::Guard;
/// use onceward::actix::{Protect, SubjectFrom};
/// use onceward::store::Memory;
///
/// let guard = Guard::new(Memory::new());
/// let orders = web::resource("/orders")
///     .wrap(Protect::token(&guard, SubjectFrom::anonymous()).bound().next_token())
///     .route(web::post().to(HttpResponse::Created));
/// # let _ = orders;
/// ```
///
/// GET, HEAD and OPTIONS pass untouched. Wrap a route once: a second guard inside would find the token used. A handler that has begun runs to its end in a task of its own, whatever its
/// client does meanwhile.
#[derive(Clone)]
pub struct Protect(Rules);

#[derive(Clone)]
struct Rules {
    guard: Guard,
    policy: Policy,
    subject: SubjectFrom,
    action: Option<Arc<str>>,
    judge: Option<Judge>,
    next_token: bool,
    body_limit: usize,
}

impl Protect {
    /// Asks for a one-time token, from whoever `subject` finds.
    pub fn token(guard: &Guard, subject: SubjectFrom) -> Self {
        Self(Rules {
            guard: guard.clone(),
            policy: Policy::token(),
            subject,
            action: None,
            judge: None,
            next_token: false,
            body_limit: 256 * 1024,
        })
    }

    /// Accepts only tokens that were issued for this action, and for this caller where there is one.
    #[must_use]
    pub fn bound(mut self) -> Self {
        self.0.policy = self.0.policy.bound();
        self
    }

    /// Names the action. Unnamed, it is method and path as they get here: `POST /orders`. Middleware that rewrites the
    /// path, such as `NormalizePath`, belongs inside, or the action has to be named.
    #[must_use]
    pub fn action(mut self, action: impl Into<Arc<str>>) -> Self {
        self.0.action = Some(action.into());
        self
    }

    /// Decides for this route what an answer says about the effect; `None` leaves it to the status. What a handler
    /// says of its own answer with [`MarkEffect`](super::MarkEffect) goes first.
    #[must_use]
    pub fn judge(mut self, judge: impl Fn(&ResponseHead) -> Option<Effect> + Send + Sync + 'static) -> Self {
        self.0.judge = Some(Arc::new(judge));
        self
    }

    /// Sends a fresh token, bound as the first was, with every answer of a handler that has used one up.
    #[must_use]
    pub fn next_token(mut self) -> Self {
        self.0.next_token = true;
        self
    }

    /// How much of a form is read in search of its token: 256 KiB.
    #[must_use]
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.0.body_limit = bytes;
        self
    }
}

impl fmt::Debug for Protect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Protect")
            .field("policy", &self.0.policy)
            .field("subject", &self.0.subject)
            .field("action", &self.0.action)
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
        if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
            return Box::pin(async move { Ok(service.call(request).await?.map_into_left_body()) });
        }
        let audience = Audience::of(request.request());
        let run = Detached::new(run(Rc::clone(&rules), service, request));
        Box::pin(async move { run.await.unwrap_or_else(|Panicked| Err(broke_off(&rules, audience))) })
    }
}

/// The whole way of one request, which nobody cancels.
async fn run<S, B>(
    rules: Rc<Rules>,
    service: Rc<S>,
    mut request: ServiceRequest,
) -> Result<ServiceResponse<EitherBody<B>>, Error>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error>,
{
    let (asked, pass) = match enter(&rules, &mut request).await {
        Ok(entered) => entered,
        Err(refusal) => {
            drain(&mut request).await;
            let answer = refuse(request.request(), &rules.guard, &refusal);
            return Ok(request.into_response(answer).map_into_right_body());
        }
    };
    let answer = service.call(request).await;
    settle(&rules, &asked, pass, answer).await
}

/// Asks the guard. The error is what the client is told instead.
async fn enter(rules: &Rules, request: &mut ServiceRequest) -> Result<(Asked, Pass), Refusal> {
    let subject = rules.subject.resolve(request.request())?;
    let asked = Asked::read(request, rules.action.as_deref(), subject, rules.body_limit).await?;
    let checked = {
        let intent = asked.intent();
        let verdict = rules.guard.check(&rules.policy, &intent).await;
        verdict.map_err(|error| {
            tracing::warn!(%error, "a submission could not be checked and was not run");
            Refusal::after(&error, &rules.policy, &intent)
        })?
    };
    match checked {
        Verdict::Run(pass) => Ok((asked, pass)),
        Verdict::Refuse(refusal) => Err(refusal),
    }
}

/// Settles the pass by the answer, before the answer is sent.
async fn settle<B>(
    rules: &Rules,
    asked: &Asked,
    pass: Pass,
    answer: Result<ServiceResponse<B>, Error>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    // An error may have its answer in it and give it out once, so what is judged here is what is sent.
    let (effect, said) = match &answer {
        Ok(answer) => (rules.effect(answer.response()), None),
        Err(error) => {
            let said = error.error_response();
            (rules.effect(&said), Some(said))
        }
    };
    let successor = pass.binding(&asked.intent());
    let settled = pass.settle(effect).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "a token could not be put back and stays used");
        Settled::Spent
    });
    let next = match settled {
        Settled::Spent if rules.next_token => {
            let issued = rules.guard.issue(rules.guard.token_ttl(), successor).await;
            issued.inspect_err(|error| tracing::warn!(%error, "no next token could be issued")).ok()
        }
        _ => None,
    };
    let is_last = rules.guard.is_draining();
    match answer {
        Ok(mut answer) => {
            sign_off(answer.headers_mut(), next.as_ref());
            if is_last {
                answer.response_mut().head_mut().set_connection_type(actix_http::ConnectionType::Close);
            }
            Ok(answer.map_into_left_body())
        }
        Err(mut error) => {
            let said = Cell::new(said);
            error.add_response_mapper(move |answer| {
                let mut answer = said.take().unwrap_or(answer);
                sign_off(answer.headers_mut(), next.as_ref());
                answer
            });
            Err(error)
        }
    }
}

impl Rules {
    /// What the answer says about the effect: the handler's own word, then the route's, then the status.
    fn effect<B>(&self, answer: &HttpResponse<B>) -> Effect {
        let said = answer.extensions().get::<Effect>().copied();
        said.or_else(|| self.judge.as_ref()?(answer.head()))
            .unwrap_or_else(|| self.policy.effect(answer.status().as_u16()))
    }
}

fn sign_off(headers: &mut HeaderMap, next: Option<&Token>) {
    mark(headers, Outcome::Executed);
    if let Some(Ok(value)) = next.map(|token| HeaderValue::from_str(token.as_str())) {
        headers.insert(HeaderName::from_static(header::NEXT_TOKEN), value);
    }
}

/// The answer to a handler that panicked or was cut: whether it took effect is not known, so nothing was given back.
fn broke_off(rules: &Rules, audience: Audience) -> Error {
    let guard = rules.guard.clone();
    tracing::error!(path = audience.path(), "a handler panicked or was cut off; whether it took effect is not known");
    let mut error = actix_web::error::ErrorInternalServerError("the handler broke off");
    error.add_response_mapper(move |_| audience.refuse(&guard, &Refusal::new(Code::Internal)));
    error
}

//! Middleware for `reqwest-middleware`: every `POST`, `PUT`, `PATCH` and `DELETE` becomes a submission; other requests pass unchanged.

use async_trait::async_trait;
use http::Extensions;
use reqwest::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderName};
use reqwest::{Method, Request, Response};
use reqwest_middleware::{Error as MiddlewareError, Middleware, Next};

use crate::body::Body;
use crate::client::Client;
use crate::credential::Credential;
use crate::error::Error;
use crate::key::Key;
use crate::retry_loop;
use crate::submission::{Plan, RESERVED_HEADERS};
use crate::transport::{Transport, TransportError};

type MiddlewareResult = Result<Response, MiddlewareError>;

/// Middleware that makes a submission of every `POST`, `PUT`, `PATCH` and `DELETE`.
///
/// Build the underlying client without redirects, and add no other middleware that retries: this one does. A [`Key`] in the extensions or
/// the key header of a request is the key of that submission, and the timeout of the request is the deadline of all attempts. If there is
/// no response, the error is a [`reqwest_middleware::Error::Middleware`] that can be downcast to [`Error`](crate::Error).
///
/// ```no_run
/// use onceward_client::{Client, OncewardMiddleware};
/// use reqwest::redirect::Policy;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let http = reqwest::Client::builder().redirect(Policy::none()).build()?;
/// let onceward = Client::builder().http_without_redirects(http.clone()).build()?;
/// let client = reqwest_middleware::ClientBuilder::new(http).with(OncewardMiddleware::new(onceward)).build();
///
/// let response = client.post("https://shop.example/orders").body("tea").send().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct OncewardMiddleware {
    client: Client,
}

impl OncewardMiddleware {
    /// Creates the middleware with the settings and tokens of this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    fn plan(&self, mut request: Request, extensions: &Extensions) -> Result<Plan, Error> {
        let mut plan = Plan::new(&self.client, request.method().clone(), Some(request.url().clone()));
        plan.body = request.body_mut().take().map_or(Body::None, Body::from);
        let mut headers = std::mem::take(request.headers_mut());
        for name in [AUTHORIZATION, COOKIE] {
            if let Some(value) = headers.remove(&name) {
                plan.identity.insert(name, value);
            }
        }
        let in_header = key_in_header(&mut headers, &self.client.inner().key_header)?;
        if let Some(key) = extensions.get::<Key>().cloned().or(in_header) {
            plan.credential = Credential::Key(key);
        }
        if let Some(name) = RESERVED_HEADERS.into_iter().find(|name| headers.contains_key(*name)) {
            return Err(Error::misuse(format!(
                "`{name}` is set by this middleware: remove it, or send your own key instead"
            )));
        }
        if let Some(timeout) = request.timeout() {
            plan.limits.deadline = plan.limits.deadline.min(*timeout);
        }
        plan.headers = headers;
        Ok(plan)
    }
}

/// Removes and parses the key in a header. An invalid key is an error and is never replaced: the caller relies on it.
fn key_in_header(headers: &mut HeaderMap, name: &HeaderName) -> Result<Option<Key>, Error> {
    if headers.get_all(name).iter().nth(1).is_some() {
        return Err(Error::misuse(format!(
            "the request has more than one `{name}` header, and a submission has one key"
        )));
    }
    let wrong = |error| Error::misuse(format!("invalid key in `{name}`: {error}"));
    headers.remove(name).map(|value| Key::from_header(&value).map_err(wrong)).transpose()
}

#[async_trait]
impl Middleware for OncewardMiddleware {
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> MiddlewareResult {
        let submits = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(request.method());
        if !submits {
            return next.run(request, extensions).await;
        }
        let mut plan = self.plan(request, extensions).map_err(MiddlewareError::middleware)?;
        let mut transport = MiddlewareTransport { next, extensions };
        let response = retry_loop::submit(&self.client, &mut transport, &mut plan).await;
        response.map(Response::from).map_err(MiddlewareError::middleware)
    }
}

/// The middleware and the client below this one.
struct MiddlewareTransport<'a> {
    next: Next<'a>,
    extensions: &'a mut Extensions,
}

impl Transport for MiddlewareTransport<'_> {
    async fn send(&mut self, request: Request) -> Result<Response, TransportError> {
        self.next.clone().run(request, self.extensions).await.map_err(|error| match error {
            MiddlewareError::Reqwest(error) => TransportError::from(error),
            // The error of another middleware does not tell whether the request was sent.
            MiddlewareError::Middleware(error) => TransportError::Lost(error.into()),
        })
    }
}

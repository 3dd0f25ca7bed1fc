//! The same for clients that are built with `reqwest-middleware`: every `POST`, `PUT`, `PATCH` and `DELETE` becomes a
//! submission, and whatever else the client does stays as it is.

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
use crate::submission::{OURS, Plan};
use crate::transport::{Failed, Transport};

type MiddlewareResult = Result<Response, MiddlewareError>;

/// A layer that makes a submission of every request that is not a mere question.
///
/// The client below it has to be built without redirects, and layers that repeat requests belong nowhere: this one
/// repeats what may be repeated. A [`Key`] among the request's extensions, or in its header, is the key of that request, and its
/// timeout is a deadline for all tries. Where there is no answer, the error is a [`reqwest_middleware::Error::Middleware`] that
/// can be downcast to [`Error`](crate::Error).
///
/// ```no_run
/// use onceward_client::{Client, Submitting};
/// use reqwest::redirect::Policy;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let http = reqwest::Client::builder().redirect(Policy::none()).build()?;
/// let onceward = Client::builder().http_without_redirects(http.clone()).build()?;
/// let client = reqwest_middleware::ClientBuilder::new(http).with(Submitting::with(onceward)).build();
///
/// let answer = client.post("https://shop.example/orders").body("tea").send().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Submitting {
    client: Client,
}

impl Submitting {
    /// Goes by the settings and the tokens of this client.
    pub fn with(client: Client) -> Self {
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
        let brought = brought(&mut headers, &self.client.inner().key_header)?;
        if let Some(key) = extensions.get::<Key>().cloned().or(brought) {
            plan.credential = Credential::Key(key);
        }
        if let Some(name) = OURS.into_iter().find(|name| headers.contains_key(*name)) {
            return Err(Error::misuse(format!("`{name}` is set by this layer: bring a key of your own, or nothing")));
        }
        if let Some(timeout) = request.timeout() {
            plan.limits.deadline = plan.limits.deadline.min(*timeout);
        }
        plan.headers = headers;
        Ok(plan)
    }
}

/// The key in a header. One that cannot be used is not replaced: whoever brought it relies on it.
fn brought(headers: &mut HeaderMap, name: &HeaderName) -> Result<Option<Key>, Error> {
    if headers.get_all(name).iter().nth(1).is_some() {
        return Err(Error::misuse(format!("`{name}` is there twice, and a submission has one key")));
    }
    let wrong = |error| Error::misuse(format!("the key in `{name}` cannot be used: {error}"));
    headers.remove(name).map(|value| Key::from_header(&value).map_err(wrong)).transpose()
}

#[async_trait]
impl Middleware for Submitting {
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> MiddlewareResult {
        let submits = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(request.method());
        if !submits {
            return next.run(request, extensions).await;
        }
        let plan = self.plan(request, extensions).map_err(MiddlewareError::middleware)?;
        let mut below = Below { next, extensions };
        let answer = retry_loop::submit(&self.client, &mut below, plan).await;
        answer.map(Response::from).map_err(MiddlewareError::middleware)
    }
}

/// What is below this layer.
struct Below<'a> {
    next: Next<'a>,
    extensions: &'a mut Extensions,
}

impl Transport for Below<'_> {
    async fn carry(&mut self, request: Request) -> Result<Response, Failed> {
        self.next.clone().run(request, self.extensions).await.map_err(|error| match error {
            MiddlewareError::Reqwest(error) => Failed::from(error),
            // What another layer means by it is not known, nor how far it got.
            MiddlewareError::Middleware(error) => Failed::Lost(error.into()),
        })
    }
}

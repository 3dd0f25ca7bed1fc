//! A submission, configured and then sent.

use std::fmt;

use bytes::Bytes;
use onceward_api::header;
use onceward_api::path::canonical_action;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HeaderMap, HeaderName, HeaderValue};
use reqwest::multipart::Form;
use reqwest::{Method, Url};
use serde::Serialize;

use crate::body::{Body, SingleUseBody};
use crate::client::{Client, parse};
use crate::credential::Credential;
use crate::error::Error;
use crate::key::Key;
use crate::on_unknown::OnUnknown;
use crate::response::Response;
use crate::retry_limits::RetryLimits;
use crate::retry_loop;
use crate::token_pool::TokenBinding;
use crate::transport::ReqwestTransport;

/// Headers that only this client sets.
pub(crate) const RESERVED_HEADERS: [&str; 3] = [header::TOKEN, header::LOOK, header::ATTEMPT];

/// One submission: an operation that takes effect at most once. [`send`](Self::send) sends it, with retries, and every attempt carries the
/// same token or key. The next submission carries another one.
#[must_use = "a submission does nothing until it is sent"]
pub struct Submission {
    pub(crate) client: Client,
    /// Boxed, since every call of the builder moves it.
    pub(crate) plan: Box<Plan>,
    /// The first mistake in the call; `send` returns it.
    error: Option<Error>,
}

/// Everything needed to send a submission.
pub(crate) struct Plan {
    pub(crate) method: Method,
    pub(crate) url: Option<Url>,
    pub(crate) headers: HeaderMap,
    /// Headers that identify the caller: also sent when a token is fetched, and never to another origin.
    pub(crate) identity: HeaderMap,
    pub(crate) body: Body,
    pub(crate) credential: Credential,
    pub(crate) binding: TokenBinding,
    pub(crate) limits: RetryLimits,
    pub(crate) on_unknown: OnUnknown,
    /// Maximum number of bytes of a response that are buffered.
    pub(crate) response_limit: usize,
}

impl Submission {
    pub(crate) fn new(client: Client, method: Method, url: &str) -> Self {
        let (url, error) = match parse(url) {
            Ok(url) => (Some(url), None),
            Err(error) => (None, Some(error)),
        };
        let plan = Box::new(Plan::new(&client, method, url));
        Self { client, plan, error }
    }

    /// Sets a JSON body.
    pub fn json(self, value: &(impl Serialize + ?Sized)) -> Self {
        match serde_json::to_vec(value) {
            Ok(bytes) => self.content("application/json", bytes),
            Err(error) => self.invalid("the value cannot be serialized as JSON", error),
        }
    }

    /// Sets a urlencoded form as the body. The token is sent in a header.
    pub fn form(self, value: &(impl Serialize + ?Sized)) -> Self {
        // Only the body of this request is used: it is never sent.
        match self.client.inner().http.post("http://localhost/").form(value).build() {
            Ok(request) => {
                let bytes = request.body().and_then(reqwest::Body::as_bytes).unwrap_or_default().to_vec();
                self.content("application/x-www-form-urlencoded", bytes)
            }
            Err(error) => self.invalid("the value cannot be serialized as a form", error),
        }
    }

    /// Sets a multipart form, built for each attempt. The token is sent in a header, before any part.
    ///
    /// ```no_run
    /// # async fn example(client: onceward_client::Client) -> Result<(), onceward_client::Error> {
    /// use reqwest::multipart::{Form, Part};
    ///
    /// let invoice = || Form::new().text("number", "4711").part("scan", Part::bytes(vec![0; 1024]));
    /// client.post("https://shop.example/invoices").multipart(invoice).send().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn multipart(mut self, form: impl Fn() -> Form + Send + Sync + 'static) -> Self {
        self.plan.body = Body::Form(std::sync::Arc::new(form));
        self
    }

    /// Sets a multipart form that can be sent only once. The submission is never retried.
    pub fn multipart_once(mut self, form: Form) -> Self {
        self.plan.body = Body::SingleUse(SingleUseBody::Form(form));
        self
    }

    /// Sets the body. A body in memory can be sent again; with a stream, the submission is never retried.
    pub fn body(mut self, body: impl Into<reqwest::Body>) -> Self {
        self.plan.body = Body::from(body.into());
        self
    }

    /// Sets a body that is built for each attempt, such as a stream from a file.
    pub fn body_from(mut self, make: impl Fn() -> reqwest::Body + Send + Sync + 'static) -> Self {
        self.plan.body = Body::Stream(std::sync::Arc::new(make));
        self
    }

    fn content(mut self, kind: &'static str, bytes: Vec<u8>) -> Self {
        self.plan.headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(kind));
        self.plan.body = Body::Bytes(Bytes::from(bytes));
        self
    }

    /// Adds a header. `Authorization` and `Cookie` are treated as an [`identity`](Self::identity).
    pub fn header<N, V>(mut self, name: N, value: V) -> Self
    where
        N: TryInto<HeaderName, Error: Into<http::Error>>,
        V: TryInto<HeaderValue, Error: Into<http::Error>>,
    {
        match (name.try_into().map_err(Into::into), value.try_into().map_err(Into::into)) {
            (Ok(name), Ok(value)) if self.is_reserved(&name) => {
                drop(value);
                let message = format!("`{name}` is set by this client: set your own key with `key` or `resume`");
                self.error = self.error.or_else(|| Some(Error::misuse(message)));
            }
            (Ok(name), Ok(value)) if [AUTHORIZATION, COOKIE].contains(&name) => self.identify(name, value),
            (Ok(name), Ok(value)) if name == CONTENT_TYPE => {
                self.plan.headers.insert(name, value);
            }
            (Ok(name), Ok(value)) => {
                self.plan.headers.append(name, value);
            }
            (Err(error), _) | (_, Err(error)) => return self.invalid("invalid header", error),
        }
        self
    }

    /// Sets a header that identifies the client. It is also sent when a token is fetched from the same origin, and each identity has its
    /// own token pool. It is not sent to another origin.
    pub fn identity<N, V>(mut self, name: N, value: V) -> Self
    where
        N: TryInto<HeaderName, Error: Into<http::Error>>,
        V: TryInto<HeaderValue, Error: Into<http::Error>>,
    {
        match (name.try_into().map_err(Into::into), value.try_into().map_err(Into::into)) {
            (Ok(name), Ok(value)) => self.identify(name, value),
            (Err(error), _) | (_, Err(error)) => return self.invalid("invalid header", error),
        }
        self
    }

    /// Sets an access token in `Authorization`, as an [`identity`](Self::identity).
    pub fn bearer_auth(self, access: impl fmt::Display) -> Self {
        self.identity(AUTHORIZATION, format!("Bearer {access}"))
    }

    fn identify(&mut self, name: HeaderName, mut value: HeaderValue) {
        value.set_sensitive(true);
        self.plan.identity.insert(name, value);
    }

    fn is_reserved(&self, name: &HeaderName) -> bool {
        RESERVED_HEADERS.contains(&name.as_str()) || *name == self.client.inner().key_header
    }

    /// Carries a token, also if the client is built with keys.
    pub fn with_token(mut self) -> Self {
        self.plan.credential = Credential::Token;
        self
    }

    /// Carries a random key, also if the client is built with tokens.
    pub fn with_key(mut self) -> Self {
        if !matches!(self.plan.credential, Credential::GeneratedKey(_)) {
            self.plan.credential = Credential::GeneratedKey(None);
        }
        self
    }

    /// Carries this key, which must not have been sent before with other content.
    pub fn key(mut self, key: Key) -> Self {
        self.plan.credential = Credential::Key(key);
        self
    }

    /// Carries a key that may have been sent before with the same content: after a crash, or after an error with an
    /// [unknown](Error::is_unknown) outcome. Even if this attempt is rejected, the earlier one may have taken effect.
    pub fn resume(mut self, key: Key) -> Self {
        self.plan.credential = Credential::ResumedKey(key);
        self
    }

    /// Fetches a token that is valid for this action only. The action of a route without a name is its method and path, as in
    /// `POST /orders`. A lookup at the service ([`outcomes_from`](crate::ClientBuilder::outcomes_from)) names it too.
    pub fn action(mut self, name: impl Into<String>) -> Self {
        self.plan.binding.action = Some(canonical_action(&name.into()).into_owned());
        self
    }

    /// Fetches a token that is valid for this method and path only. A route with `bound()` requires that.
    pub fn bound(self) -> Self {
        let action = self.plan.url.as_ref().map(|url| format!("{} {}", self.plan.method, url.path()));
        match action {
            Some(action) => self.action(action),
            None => self,
        }
    }

    /// Fetches a token that is valid for this subject only. Only the service lets its clients name the subject; an application determines
    /// it from an [`identity`](Self::identity). A lookup at the service ([`outcomes_from`](crate::ClientBuilder::outcomes_from)) names it
    /// too: then it is the client, as the application that claims knows it.
    pub fn subject(mut self, name: impl Into<String>) -> Self {
        self.plan.binding.subject = Some(name.into());
        self
    }

    /// Sets the limits of retries.
    pub fn limits(mut self, limits: RetryLimits) -> Self {
        self.plan.limits = limits;
        self
    }

    /// Sets the reaction to an unknown outcome.
    pub fn on_unknown(mut self, on_unknown: OnUnknown) -> Self {
        self.plan.on_unknown = on_unknown;
        self
    }

    /// Returns the response as soon as its headers arrive, without buffering the body. If the connection fails after that, reading the body
    /// fails.
    pub fn stream_response(mut self) -> Self {
        self.plan.response_limit = 0;
        self
    }

    /// Sends the submission, with retries.
    ///
    /// # Errors
    /// If there is no response of the application. [`Error::ran_nothing`] and [`Error::is_unknown`] tell whether it may have taken effect.
    ///
    /// # Cancel safety
    /// Dropping this future stops the retries. An attempt in flight may still take effect: the outcome is unknown. To continue, send the
    /// submission again with [`resume`](Self::resume) and the same key.
    pub async fn send(mut self) -> Result<Response, Error> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let mut transport = ReqwestTransport(&self.client.inner().http);
        retry_loop::submit(&self.client, &mut transport, &mut self.plan).await
    }

    fn invalid(mut self, what: &str, error: impl Into<crate::error::BoxError>) -> Self {
        let error = error.into();
        self.error = self.error.or_else(|| Some(Error::misuse(format!("{what}: {error}")).with_source(Some(error))));
        self
    }
}

impl Plan {
    pub(crate) fn new(client: &Client, method: Method, url: Option<Url>) -> Self {
        let inner = client.inner();
        Self {
            method,
            url,
            headers: HeaderMap::new(),
            identity: HeaderMap::new(),
            body: Body::None,
            credential: inner.credential.clone(),
            binding: TokenBinding::default(),
            limits: inner.limits,
            on_unknown: inner.on_unknown,
            response_limit: inner.response_limit,
        }
    }
}

impl fmt::Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submission")
            .field("method", &self.plan.method)
            .field("path", &self.plan.url.as_ref().map(Url::path))
            .field("credential", &self.plan.credential)
            .field("body", &self.plan.body)
            .finish_non_exhaustive()
    }
}

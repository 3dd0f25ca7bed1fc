//! One submission, before it is sent.

use std::fmt;

use bytes::Bytes;
use onceward_api::header;
use onceward_api::path::canonical_action;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HeaderMap, HeaderName, HeaderValue};
use reqwest::multipart::Form;
use reqwest::{Method, Url};
use serde::Serialize;

use crate::body::{Body, Once};
use crate::client::{Client, parse};
use crate::credential::Credential;
use crate::error::Error;
use crate::key::Key;
use crate::on_unknown::Undecided;
use crate::response::Answer;
use crate::retry_limits::Limits;
use crate::retry_loop;
use crate::token_pool::Binding;
use crate::transport::Plain;

/// Headers that nobody else sets.
pub(crate) const OURS: [&str; 3] = [header::TOKEN, header::LOOK, header::ATTEMPT];

/// One submission: something that is to happen once. It is sent with [`send`](Self::send), as often as that takes, and each
/// time with the same token or key; the next call has another.
#[must_use = "a submission does nothing until it is sent"]
pub struct Submission {
    pub(crate) client: Client,
    pub(crate) plan: Plan,
    wrong: Option<Error>,
}

/// All there is to know of a submission.
pub(crate) struct Plan {
    pub(crate) method: Method,
    pub(crate) url: Option<Url>,
    pub(crate) headers: HeaderMap,
    /// Headers that say who is asking: they go with the fetch of a token too, and not to another origin.
    pub(crate) identity: HeaderMap,
    pub(crate) body: Body,
    pub(crate) credential: Credential,
    pub(crate) binding: Binding,
    pub(crate) limits: Limits,
    pub(crate) undecided: Undecided,
    /// How much of an answer is read before it is handed over.
    pub(crate) answer_limit: usize,
}

impl Submission {
    pub(crate) fn new(client: Client, method: Method, url: &str) -> Self {
        let (url, wrong) = match parse(url) {
            Ok(url) => (Some(url), None),
            Err(wrong) => (None, Some(wrong)),
        };
        let plan = Plan::new(&client, method, url);
        Self { client, plan, wrong }
    }

    /// A JSON body.
    pub fn json(self, value: &(impl Serialize + ?Sized)) -> Self {
        match serde_json::to_vec(value) {
            Ok(bytes) => self.content("application/json", bytes),
            Err(error) => self.wrong("the value cannot be written as JSON", error),
        }
    }

    /// An urlencoded form. Its token goes in the header, ahead of it.
    pub fn form(self, value: &(impl Serialize + ?Sized)) -> Self {
        // Only its body is wanted: the address is never sent to.
        match self.client.inner().http.post("http://localhost/").form(value).build() {
            Ok(request) => {
                let bytes = request.body().and_then(reqwest::Body::as_bytes).unwrap_or_default().to_vec();
                self.content("application/x-www-form-urlencoded", bytes)
            }
            Err(error) => self.wrong("the value cannot be written as a form", error),
        }
    }

    /// A multipart form, made anew for each try. Its token goes in the header, ahead of every part, however large.
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

    /// A multipart form that can be sent only once, so that the submission is never repeated.
    pub fn multipart_once(mut self, form: Form) -> Self {
        self.plan.body = Body::Once(Once::Form(form));
        self
    }

    /// A body. One with all its bytes at hand can be sent again; a stream cannot, so that the submission is never repeated.
    pub fn body(mut self, body: impl Into<reqwest::Body>) -> Self {
        self.plan.body = Body::from(body.into());
        self
    }

    /// A body, such as a stream from a file, that is made anew for each try.
    pub fn body_from(mut self, make: impl Fn() -> reqwest::Body + Send + Sync + 'static) -> Self {
        self.plan.body = Body::Made(std::sync::Arc::new(make));
        self
    }

    fn content(mut self, kind: &'static str, bytes: Vec<u8>) -> Self {
        self.plan.headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(kind));
        self.plan.body = Body::Whole(Bytes::from(bytes));
        self
    }

    /// A header. `Authorization` and `Cookie` are taken for an [`identity`](Self::identity).
    pub fn header<N, V>(mut self, name: N, value: V) -> Self
    where
        N: TryInto<HeaderName, Error: Into<http::Error>>,
        V: TryInto<HeaderValue, Error: Into<http::Error>>,
    {
        match (name.try_into().map_err(Into::into), value.try_into().map_err(Into::into)) {
            (Ok(name), Ok(value)) if self.is_ours(&name) => {
                drop(value);
                let says = format!("`{name}` is set by this client: bring a key of your own with `key` or `resume`");
                self.wrong = self.wrong.or_else(|| Some(Error::misuse(says)));
            }
            (Ok(name), Ok(value)) if [AUTHORIZATION, COOKIE].contains(&name) => self.identify(name, value),
            (Ok(name), Ok(value)) if name == CONTENT_TYPE => {
                self.plan.headers.insert(name, value);
            }
            (Ok(name), Ok(value)) => {
                self.plan.headers.append(name, value);
            }
            (Err(error), _) | (_, Err(error)) => return self.wrong("this is no header", error),
        }
        self
    }

    /// A header that says who is asking. It also goes with the fetch of the token, if that is from the same origin, and those tokens
    /// are kept apart from those of other callers. It does not go to another origin.
    pub fn identity<N, V>(mut self, name: N, value: V) -> Self
    where
        N: TryInto<HeaderName, Error: Into<http::Error>>,
        V: TryInto<HeaderValue, Error: Into<http::Error>>,
    {
        match (name.try_into().map_err(Into::into), value.try_into().map_err(Into::into)) {
            (Ok(name), Ok(value)) => self.identify(name, value),
            (Err(error), _) | (_, Err(error)) => return self.wrong("this is no header", error),
        }
        self
    }

    /// An access token, as an [`identity`](Self::identity).
    pub fn bearer_auth(self, access: impl fmt::Display) -> Self {
        self.identity(AUTHORIZATION, format!("Bearer {access}"))
    }

    fn identify(&mut self, name: HeaderName, mut value: HeaderValue) {
        value.set_sensitive(true);
        self.plan.identity.insert(name, value);
    }

    fn is_ours(&self, name: &HeaderName) -> bool {
        OURS.contains(&name.as_str()) || *name == self.client.inner().key_header
    }

    /// Carries a token, whatever the client does otherwise.
    pub fn with_token(mut self) -> Self {
        self.plan.credential = Credential::Token;
        self
    }

    /// Carries a random key, whatever the client does otherwise.
    pub fn with_key(mut self) -> Self {
        if !matches!(self.plan.credential, Credential::AnyKey(_)) {
            self.plan.credential = Credential::AnyKey(None);
        }
        self
    }

    /// Carries this key. It must not have been sent before, with anything else.
    pub fn key(mut self, key: Key) -> Self {
        self.plan.credential = Credential::Key(key);
        self
    }

    /// Carries a key that may have been sent before, with the same content: after a crash, or an error that was
    /// [unknown](Error::is_unknown). Whatever refuses it now, the earlier one may have happened.
    pub fn resume(mut self, key: Key) -> Self {
        self.plan.credential = Credential::Resumed(key);
        self
    }

    /// Fetches a token that is good for this action only. A route that has no name of its own is called by method and path, as in
    /// `POST /orders`.
    pub fn action(mut self, name: impl Into<String>) -> Self {
        self.plan.binding.action = Some(canonical_action(&name.into()).into_owned());
        self
    }

    /// Fetches a token that is good for this method and path only, as routes want it that say `bound()`.
    pub fn bound(self) -> Self {
        let action = self.plan.url.as_ref().map(|url| format!("{} {}", self.plan.method, url.path()));
        match action {
            Some(action) => self.action(action),
            None => self,
        }
    }

    /// Fetches a token that is good for this caller only. Only the service lets its clients say so; an application finds out
    /// by itself, from an [`identity`](Self::identity).
    pub fn subject(mut self, name: impl Into<String>) -> Self {
        self.plan.binding.subject = Some(name.into());
        self
    }

    /// How often and how long it is tried.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.plan.limits = limits;
        self
    }

    /// What is done once nobody can tell whether it happened.
    pub fn undecided(mut self, undecided: Undecided) -> Self {
        self.plan.undecided = undecided;
        self
    }

    /// Hands the answer over as soon as it begins, for one that is endless or read piece by piece. If it breaks off then, it
    /// does so in the caller's hands.
    pub fn stream_answer(mut self) -> Self {
        self.plan.answer_limit = 0;
        self
    }

    /// Sends it, as often as it takes and is allowed.
    ///
    /// # Errors
    /// If there is no answer of the application: the error says whether it is certain that nothing happened.
    pub async fn send(self) -> Result<Answer, Error> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        let mut transport = Plain(self.client.inner().http.clone());
        retry_loop::submit(&self.client, &mut transport, self.plan).await
    }

    fn wrong(mut self, what: &str, error: impl Into<crate::error::BoxError>) -> Self {
        let error = error.into();
        self.wrong = self.wrong.or_else(|| Some(Error::misuse(format!("{what}: {error}")).with_source(Some(error))));
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
            binding: Binding::default(),
            limits: inner.limits,
            undecided: inner.undecided,
            answer_limit: inner.answer_limit,
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

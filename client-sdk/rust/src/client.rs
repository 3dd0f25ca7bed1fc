//! The client: the settings and token pools that its submissions share.

mod builder;
mod pool_set;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::header::{HeaderMap, HeaderName};
use reqwest::{Method, Url};
use url::Position;

pub use self::builder::ClientBuilder;
pub(crate) use self::builder::parse_base;
use self::pool_set::{PoolKey, PoolSet};
use crate::authorization::Authorization;
use crate::credential::Credential;
use crate::error::{Error, ErrorKind};
use crate::on_unknown::OnUnknown;
use crate::outcome_service::OutcomeService;
use crate::redirect::same_origin;
use crate::retry_limits::RetryLimits;
use crate::submission::Submission;
use crate::token_pool::{TokenBinding, TokenError, TokenPool};

/// A client whose submissions take effect at most once, also across retries. Cheap to clone; clones share tokens and the connection pool.
#[derive(Clone)]
pub struct Client(Arc<ClientInner>);

pub(crate) struct ClientInner {
    pub(crate) http: reqwest::Client,
    pub(crate) credential: Credential,
    pub(crate) key_header: HeaderName,
    pub(crate) limits: RetryLimits,
    pub(crate) on_unknown: OnUnknown,
    pub(crate) authorization: Option<Authorization>,
    pub(crate) response_limit: usize,
    /// The service that looks up unknown outcomes, instead of the application.
    pub(crate) outcomes: Option<OutcomeService>,
    token_base: Option<Url>,
    /// Further origins that tokens may be sent to.
    origins: Vec<Url>,
    pool_size: u32,
    pools: Mutex<PoolSet>,
}

impl Client {
    /// Creates a client that fetches its tokens from the origin that it submits to.
    ///
    /// # Errors
    /// If reqwest cannot build the HTTP client, for example without a source of randomness.
    pub fn new() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// Returns a builder to configure a client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    /// Starts a submission with `POST`.
    pub fn post(&self, url: impl AsRef<str>) -> Submission {
        self.submit(Method::POST, url)
    }

    /// Starts a submission with `PUT`.
    pub fn put(&self, url: impl AsRef<str>) -> Submission {
        self.submit(Method::PUT, url)
    }

    /// Starts a submission with `PATCH`.
    pub fn patch(&self, url: impl AsRef<str>) -> Submission {
        self.submit(Method::PATCH, url)
    }

    /// Starts a submission with `DELETE`.
    pub fn delete(&self, url: impl AsRef<str>) -> Submission {
        self.submit(Method::DELETE, url)
    }

    /// Starts a submission with any method.
    pub fn submit(&self, method: Method, url: impl AsRef<str>) -> Submission {
        Submission::new(self.clone(), method, url.as_ref())
    }

    /// Fetches up to `count` tokens for submissions to this URL ahead of time. [`pool_size`](ClientBuilder::pool_size) is the limit.
    ///
    /// # Errors
    /// If the URL is invalid, or no token can be fetched.
    pub async fn warm_up(&self, url: impl AsRef<str>, count: u32) -> Result<(), Error> {
        let pool = self.pool(&parse(url.as_ref())?, &TokenBinding::default(), &HeaderMap::new())?;
        pool.warm_up(count).await.map_err(no_token)
    }

    pub(crate) fn inner(&self) -> &ClientInner {
        &self.0
    }

    /// The token pool for submissions to this URL with this binding and identity.
    pub(crate) fn pool(&self, url: &Url, binding: &TokenBinding, who: &HeaderMap) -> Result<Arc<TokenPool>, Error> {
        let inner = &self.0;
        let origin = &url[..Position::BeforePath];
        if let Some(pool) = inner.pools().last(origin, binding, who) {
            return Ok(pool);
        }
        let base = inner.token_base(url)?;
        // The identity is sent only to the origin that it is meant for.
        let is_same_origin = same_origin(&base, url);
        let identity = if is_same_origin { who.clone() } else { HeaderMap::new() };
        let key = PoolKey::of(base, binding.clone(), &identity, is_same_origin && inner.authorization.is_some());
        let mut pools = inner.pools();
        let pool = pools.get_or_open(key, identity, inner);
        pools.set_last(origin, binding, who, &pool);
        Ok(pool)
    }
}

impl ClientInner {
    fn pools(&self) -> MutexGuard<'_, PoolSet> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The base URL that tokens for `url` are fetched from.
    fn token_base(&self, url: &Url) -> Result<Url, Error> {
        match &self.token_base {
            None => {
                let mut base = url.clone();
                base.set_path("");
                base.set_query(None);
                base.set_fragment(None);
                Ok(base)
            }
            Some(base) if same_origin(base, url) => Ok(base.clone()),
            Some(base) if self.origins.iter().any(|origin| same_origin(origin, url)) => Ok(base.clone()),
            Some(base) => Err(Error::misuse(format!(
                "tokens from {} are not sent to {}: allow it with `ClientBuilder::send_tokens_to`, or use a key",
                base.origin().ascii_serialization(),
                url.origin().ascii_serialization()
            ))),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("credential", &self.0.credential)
            .field("limits", &self.0.limits)
            .field("on_unknown", &self.0.on_unknown)
            .finish_non_exhaustive()
    }
}

/// Parses a URL to send to.
pub(crate) fn parse(text: &str) -> Result<Url, Error> {
    let wrong = |why: &str| Error::misuse(format!("`{}` is not a valid URL: {why}", redacted(text)));
    let url = Url::parse(text)
        .map_err(|error| wrong(&format!("{error}. Use an absolute URL such as `https://shop.example/orders`")))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(wrong("it must start with `http://` or `https://` and contain a host"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("it must not contain a user name or password; identify the client with `identity`"));
    }
    Ok(url)
}

/// The URL for error messages: without its query, which may contain secrets.
fn redacted(text: &str) -> String {
    let end = text.find(['?', '#']).unwrap_or(text.len());
    let shown = &text[..end];
    // Nor the part before an @, which may be a password.
    shown.rsplit_once('@').map_or(shown, |(_, rest)| rest).chars().take(200).collect()
}

pub(crate) fn no_token(TokenError { message, rejection, .. }: TokenError) -> Error {
    Error::new(ErrorKind::NoToken, format!("no token could be fetched, so nothing was sent: {message}"))
        .with_rejection(rejection.map(|rejection| *rejection))
}

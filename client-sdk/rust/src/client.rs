//! The client: the settings and token pools its submissions share.

mod builder;
mod pool_set;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::header::{HeaderMap, HeaderName};
use reqwest::{Method, Url};
use url::Position;

pub use self::builder::ClientBuilder;
use self::pool_set::{PoolKey, PoolSet};
use crate::authorization::Authorization;
use crate::credential::Credential;
use crate::error::{Error, ErrorKind};
use crate::on_unknown::OnUnknown;
use crate::redirect::same_origin;
use crate::retry_limits::RetryLimits;
use crate::submission::Submission;
use crate::token_pool::{TokenBinding, TokenError, TokenPool};

/// A client whose submissions take effect once, however often they are sent. Cheap to clone; clones share tokens and connections.
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
    token_base: Option<Url>,
    /// Where else tokens may be sent.
    origins: Vec<Url>,
    pool_size: u32,
    pools: Mutex<PoolSet>,
}

impl Client {
    /// A client that fetches its tokens from the origin that it submits to.
    ///
    /// # Errors
    /// If reqwest cannot be set up, such as without a source of randomness.
    pub fn new() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// Builds a client with settings of its own.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    /// A `POST`: one submission.
    pub fn post(&self, url: impl AsRef<str>) -> Submission {
        self.submit(Method::POST, url)
    }

    /// A `PUT`: one submission.
    pub fn put(&self, url: impl AsRef<str>) -> Submission {
        self.submit(Method::PUT, url)
    }

    /// A `PATCH`: one submission.
    pub fn patch(&self, url: impl AsRef<str>) -> Submission {
        self.submit(Method::PATCH, url)
    }

    /// A `DELETE`: one submission.
    pub fn delete(&self, url: impl AsRef<str>) -> Submission {
        self.submit(Method::DELETE, url)
    }

    /// One submission with any method.
    pub fn submit(&self, method: Method, url: impl AsRef<str>) -> Submission {
        Submission::new(self.clone(), method, url.as_ref())
    }

    /// Fetches tokens for submissions to this address ahead of time: `count` of them, as far as the pool's size allows.
    ///
    /// # Errors
    /// If the address is invalid, or no token can be fetched.
    pub async fn warm_up(&self, url: impl AsRef<str>, count: u32) -> Result<(), Error> {
        let pool = self.pool(&parse(url.as_ref())?, &TokenBinding::default(), &HeaderMap::new())?;
        pool.warm_up(count).await.map_err(no_token)
    }

    pub(crate) fn inner(&self) -> &ClientInner {
        &self.0
    }

    /// The token pool for a submission to this address, with this binding, by this caller.
    pub(crate) fn pool(&self, url: &Url, binding: &TokenBinding, who: &HeaderMap) -> Result<Arc<TokenPool>, Error> {
        let inner = &self.0;
        let origin = &url[..Position::BeforePath];
        if let Some(pool) = inner.pools().last(origin, binding, who) {
            return Ok(pool);
        }
        let base = inner.token_base(url)?;
        // The caller's identity goes only to the origin it was meant for.
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

    /// The address that tokens for this one are fetched from.
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

/// Parses an address to send to.
pub(crate) fn parse(text: &str) -> Result<Url, Error> {
    let wrong = |why: &str| Error::misuse(format!("`{}` is no address to send to: {why}", redacted(text)));
    let url = Url::parse(text)
        .map_err(|error| wrong(&format!("{error}. Write it in full, as in `https://shop.example/orders`")))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(wrong("it has to begin with `http://` or `https://` and name a host"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("a name or password does not belong into it; say who is asking with `identity`"));
    }
    Ok(url)
}

/// An address for error messages: without its query, which may hold secrets.
fn redacted(text: &str) -> String {
    let end = text.find(['?', '#']).unwrap_or(text.len());
    let shown = &text[..end];
    // Nor anything before an @, which may be a password.
    shown.rsplit_once('@').map_or(shown, |(_, rest)| rest).chars().take(200).collect()
}

pub(crate) fn no_token(TokenError { message, rejection, .. }: TokenError) -> Error {
    Error::new(ErrorKind::NoToken, format!("there is no token, so nothing was sent: {message}"))
        .with_rejection(rejection.map(|rejection| *rejection))
}

//! The client: what all its submissions have in common.

mod builder;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::header::{HeaderMap, HeaderName};
use reqwest::{Method, Url};
use url::Position;

pub use self::builder::ClientBuilder;
use crate::authorization::Authorization;
use crate::credential::Credential;
use crate::error::{Error, Kind};
use crate::on_unknown::Undecided;
use crate::redirect::same_origin;
use crate::retry_limits::Limits;
use crate::submission::Submission;
use crate::token_pool::{Binding, NoToken, Pool, Source};

/// How many pools there are at most before they are forgotten, those that are empty first.
const POOLS: usize = 1000;

/// A client whose submissions take effect once, however often they have to be sent. Cheap to clone; clones share their
/// tokens and connections.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) http: reqwest::Client,
    pub(crate) credential: Credential,
    pub(crate) key_header: HeaderName,
    pub(crate) limits: Limits,
    pub(crate) undecided: Undecided,
    pub(crate) authorization: Option<Authorization>,
    pub(crate) answer_limit: usize,
    token_base: Option<Url>,
    /// Where else tokens may be sent.
    origins: Vec<Url>,
    pool_size: u32,
    pools: Mutex<Pools>,
}

#[derive(Default)]
struct Pools {
    all: HashMap<Sort, Arc<Pool>>,
    /// The last one that was asked for, by the address up to its path: mostly it is asked for again, by the same caller for
    /// the same thing, and found without copying what it is told by.
    last: Option<(String, Binding, HeaderMap, Arc<Pool>)>,
}

impl Pools {
    fn last(&self, origin: &str, binding: &Binding, identity: &HeaderMap) -> Option<Arc<Pool>> {
        let (last, bound, who, pool) = self.last.as_ref()?;
        (last == origin && bound == binding && who == identity).then(|| Arc::clone(pool))
    }
}

/// What tells the tokens of one pool from those of another.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Sort {
    base: Url,
    binding: Binding,
    /// Sorted by name.
    identity: Vec<(HeaderName, Vec<u8>)>,
    is_authorized: bool,
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
    /// If the address is none, or no token can be had.
    pub async fn warm_up(&self, url: impl AsRef<str>, count: u32) -> Result<(), Error> {
        let pool = self.pool(&parse(url.as_ref())?, &Binding::default(), &HeaderMap::new())?;
        pool.warm_up(count).await.map_err(no_token)
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.0
    }

    /// The tokens for a submission to this address, of this kind, by this caller.
    pub(crate) fn pool(&self, url: &Url, binding: &Binding, who: &HeaderMap) -> Result<Arc<Pool>, Error> {
        let inner = &self.0;
        let origin = &url[..Position::BeforePath];
        if let Some(pool) = inner.pools().last(origin, binding, who) {
            return Ok(pool);
        }
        let base = inner.token_base(url)?;
        // Who is asking is told to the origin that it was meant for, and to no other.
        let is_home = same_origin(&base, url);
        let identity = if is_home { who.clone() } else { HeaderMap::new() };
        let sort = Sort::of(base, binding.clone(), &identity, is_home && inner.authorization.is_some());
        let mut pools = inner.pools();
        let pool = match pools.all.get(&sort) {
            Some(pool) => Arc::clone(pool),
            None => pools.open(sort, identity, inner),
        };
        pools.last = Some((origin.to_owned(), binding.clone(), who.clone(), Arc::clone(&pool)));
        Ok(pool)
    }
}

impl Pools {
    fn open(&mut self, sort: Sort, identity: HeaderMap, inner: &Inner) -> Arc<Pool> {
        if self.all.len() >= POOLS {
            self.all.retain(|_, pool| !pool.is_idle());
            // Whoever holds one of these goes on with it; their tokens expire unused.
            if self.all.len() >= POOLS {
                self.all.clear();
            }
        }
        let mut source =
            Source::new(inner.http.clone(), sort.base.clone(), sort.binding.clone(), inner.limits.try_timeout);
        source.identity = identity;
        source.authorization = inner.authorization.clone().filter(|_| sort.is_authorized);
        let pool = Pool::new(source, inner.pool_size, inner.limits);
        self.all.insert(sort, Arc::clone(&pool));
        pool
    }
}

impl Inner {
    fn pools(&self) -> MutexGuard<'_, Pools> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the tokens for this address come from.
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

impl Sort {
    fn of(base: Url, binding: Binding, identity: &HeaderMap, is_authorized: bool) -> Self {
        let mut identity: Vec<_> =
            identity.iter().map(|(name, value)| (name.clone(), value.as_bytes().to_vec())).collect();
        identity.sort_by(|one, other| (one.0.as_str(), &one.1).cmp(&(other.0.as_str(), &other.1)));
        Self { base, binding, identity, is_authorized }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("credential", &self.0.credential)
            .field("limits", &self.0.limits)
            .field("undecided", &self.0.undecided)
            .finish_non_exhaustive()
    }
}

/// An address that something can be sent to.
pub(crate) fn parse(text: &str) -> Result<Url, Error> {
    let wrong = |why: &str| Error::misuse(format!("`{}` is no address to send to: {why}", shown(text)));
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

/// An address as it may be shown: without its query, which may have secrets in it.
fn shown(text: &str) -> String {
    let end = text.find(['?', '#']).unwrap_or(text.len());
    let shown = &text[..end];
    // Nor what stands before an @, which may be a password.
    shown.rsplit_once('@').map_or(shown, |(_, rest)| rest).chars().take(200).collect()
}

pub(crate) fn no_token(NoToken { says, refusal, .. }: NoToken) -> Error {
    Error::new(Kind::NoToken, format!("there is no token, so nothing was sent: {says}"))
        .with_refusal(refusal.map(|refusal| *refusal))
}

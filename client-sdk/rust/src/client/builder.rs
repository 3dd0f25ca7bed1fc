use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};

use reqwest::Url;
use reqwest::header::HeaderName;
use reqwest::redirect::Policy;

use super::{Client, Inner, parse};
use crate::authorization::Authorization;
use crate::credential::Credential;
use crate::error::{BoxError, Error};
use crate::on_unknown::Undecided;
use crate::retry_limits::Limits;

/// Builds a [`Client`].
///
/// ```
/// use std::time::Duration;
/// use onceward_client::{Client, Limits, Undecided};
///
/// let client = Client::builder()
///     .http(reqwest::Client::builder().user_agent("billing/1.0"))
///     .with_keys_of("billing")
///     .limits(Limits::new().tries(8).deadline(Duration::from_secs(120)))
///     .undecided(Undecided::Retry)
///     .build()?;
/// # Ok::<(), onceward_client::Error>(())
/// ```
pub struct ClientBuilder {
    http: Http,
    credential: Credential,
    key_header: HeaderName,
    limits: Limits,
    undecided: Undecided,
    authorization: Option<Authorization>,
    answer_limit: usize,
    token_base: Option<String>,
    origins: Vec<String>,
    pool_size: u32,
}

enum Http {
    Builder(Box<reqwest::ClientBuilder>),
    Built(reqwest::Client),
}

impl ClientBuilder {
    pub(super) fn new() -> Self {
        Self {
            http: Http::Builder(Box::new(reqwest::Client::builder())),
            credential: Credential::Token,
            key_header: HeaderName::from_static(onceward_api::header::IDEMPOTENCY_KEY),
            limits: Limits::new(),
            undecided: Undecided::Report,
            authorization: None,
            answer_limit: 1024 * 1024,
            token_base: None,
            origins: Vec::new(),
            pool_size: 32,
        }
    }

    /// Sends with what this builder makes. Its redirect policy is replaced: redirects are followed here, so that no token
    /// and no key gets to another origin. Its default headers do go everywhere.
    #[must_use]
    pub fn http(mut self, builder: reqwest::ClientBuilder) -> Self {
        self.http = Http::Builder(Box::new(builder));
        self
    }

    /// Sends with a client that is there already. It must have been built with `redirect(Policy::none())`; a submission that
    /// it leads elsewhere by itself ends with an error that says so.
    #[must_use]
    pub fn http_without_redirects(mut self, client: reqwest::Client) -> Self {
        self.http = Http::Built(client);
        self
    }

    /// Submissions carry a token, fetched when needed. This is so unless said otherwise.
    #[must_use]
    pub fn with_tokens(mut self) -> Self {
        self.credential = Credential::Token;
        self
    }

    /// Submissions carry a random key of their own.
    #[must_use]
    pub fn with_keys(mut self) -> Self {
        self.credential = Credential::AnyKey(None);
        self
    }

    /// Submissions carry a random key of their own, behind the name of this application.
    #[must_use]
    pub fn with_keys_of(mut self, application: impl Into<String>) -> Self {
        self.credential = Credential::AnyKey(Some(application.into()));
        self
    }

    /// The header that keys are sent in: `Idempotency-Key`, unless the server has named another.
    #[must_use]
    pub fn key_header(mut self, name: HeaderName) -> Self {
        self.key_header = name;
        self
    }

    /// Fetches tokens from `base` + `/token`, instead of from the origin that is submitted to. They are sent to that origin, and
    /// to those that are named with [`send_tokens_to`](Self::send_tokens_to).
    #[must_use]
    pub fn tokens_from(mut self, base: impl Into<String>) -> Self {
        self.token_base = Some(base.into());
        self
    }

    /// Allows tokens to be sent to this origin too, which has to share its store with whoever issues them.
    #[must_use]
    pub fn send_tokens_to(mut self, origin: impl Into<String>) -> Self {
        self.origins.push(origin.into());
        self
    }

    /// How many tokens of a kind are kept in stock at most: 32. It begins with one, and becomes twice as many whenever
    /// somebody had to wait.
    #[must_use]
    pub fn pool_size(mut self, tokens: u32) -> Self {
        self.pool_size = tokens;
        self
    }

    /// How often and how long submissions are tried.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// What is done once nobody can tell whether a submission happened.
    #[must_use]
    pub fn undecided(mut self, undecided: Undecided) -> Self {
        self.undecided = undecided;
        self
    }

    /// Where the `Authorization` header comes from. It is asked before each try, with `true` once after an answer of 401: then
    /// the value has to be a fresh one. The submission keeps its token or key meanwhile.
    ///
    /// ```
    /// use onceward_client::Client;
    ///
    /// let client = Client::builder()
    ///     .authorization(|is_refused| async move {
    ///         let access = if is_refused { "fetched anew" } else { "kept" };
    ///         Ok(format!("Bearer {access}"))
    ///     })
    ///     .build()?;
    /// # Ok::<(), onceward_client::Error>(())
    /// ```
    #[must_use]
    pub fn authorization<F, R>(mut self, fetch: F) -> Self
    where
        F: Fn(bool) -> R + Send + Sync + 'static,
        R: Future<Output = Result<String, BoxError>> + Send + 'static,
    {
        self.authorization = Some(Authorization::new(fetch));
        self
    }

    /// How many bytes of an answer are read before it is handed over: 1 MiB. A longer one is handed over as it comes, and may
    /// break off in the caller's hands.
    #[must_use]
    pub fn answer_limit(mut self, bytes: usize) -> Self {
        self.answer_limit = bytes;
        self
    }

    /// The client.
    ///
    /// # Errors
    /// If an address is none, if the settings contradict each other, or if reqwest cannot be set up.
    pub fn build(self) -> Result<Client, Error> {
        self.credential.allows(self.undecided)?;
        if let Credential::AnyKey(Some(name)) = &self.credential {
            let wrong = |error| Error::misuse(format!("an application's name is part of its keys, and {error}"));
            crate::key::generate_key(Some(name)).map_err(wrong)?;
        }
        let http = match self.http {
            Http::Built(client) => client,
            Http::Builder(builder) => builder.redirect(Policy::none()).build().map_err(|error| {
                Error::misuse("reqwest cannot be set up as it was asked to").with_source(Some(error.into()))
            })?,
        };
        Ok(Client(Arc::new(Inner {
            http,
            credential: self.credential,
            key_header: self.key_header,
            limits: self.limits,
            undecided: self.undecided,
            authorization: self.authorization,
            answer_limit: self.answer_limit,
            token_base: self.token_base.as_deref().map(base).transpose()?,
            origins: self.origins.iter().map(|origin| parse(origin)).collect::<Result<_, _>>()?,
            pool_size: self.pool_size,
            pools: Mutex::default(),
        })))
    }
}

impl fmt::Debug for ClientBuilder {
    /// Without what reqwest would show: default headers may be secret, and so may addresses that were not looked at yet.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("credential", &self.credential)
            .field("limits", &self.limits)
            .field("undecided", &self.undecided)
            .finish_non_exhaustive()
    }
}

/// An address that `/token` can be appended to.
fn base(text: &str) -> Result<Url, Error> {
    let url = parse(text)?;
    if url.query().is_some() || url.fragment().is_some() {
        let why = "`/token` is appended to it, so it has no query and no fragment";
        return Err(Error::misuse(format!("the address that tokens come from has a part too many: {why}")));
    }
    Ok(url)
}

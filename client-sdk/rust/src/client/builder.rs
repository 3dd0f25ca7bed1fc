use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};

use reqwest::Url;
use reqwest::header::HeaderName;
use reqwest::redirect::Policy;

use super::{Client, ClientInner, parse};
use crate::authorization::Authorization;
use crate::credential::Credential;
use crate::error::{BoxError, Error};
use crate::on_unknown::OnUnknown;
use crate::outcome_service::OutcomeService;
use crate::retry_limits::RetryLimits;

/// Builds a [`Client`].
///
/// ```
/// use std::time::Duration;
/// use onceward_client::{Client, OnUnknown, RetryLimits};
///
/// let client = Client::builder()
///     .http(reqwest::Client::builder().user_agent("billing/1.0"))
///     .with_keys_of("billing")
///     .limits(RetryLimits::new().attempts(8).deadline(Duration::from_secs(120)))
///     .on_unknown(OnUnknown::Retry)
///     .build()?;
/// # Ok::<(), onceward_client::Error>(())
/// ```
pub struct ClientBuilder {
    http: HttpClientSource,
    credential: Credential,
    key_header: HeaderName,
    limits: RetryLimits,
    on_unknown: OnUnknown,
    authorization: Option<Authorization>,
    response_limit: usize,
    token_base: Option<String>,
    origins: Vec<String>,
    pool_size: u32,
    outcomes: Option<Result<OutcomeService, Error>>,
}

enum HttpClientSource {
    Builder(Box<reqwest::ClientBuilder>),
    Client(reqwest::Client),
}

impl ClientBuilder {
    pub(super) fn new() -> Self {
        Self {
            http: HttpClientSource::Builder(Box::new(reqwest::Client::builder())),
            credential: Credential::Token,
            key_header: HeaderName::from_static(onceward_api::header::IDEMPOTENCY_KEY),
            limits: RetryLimits::new(),
            on_unknown: OnUnknown::Report,
            authorization: None,
            response_limit: 1024 * 1024,
            token_base: None,
            origins: Vec::new(),
            pool_size: 32,
            outcomes: None,
        }
    }

    /// Sends requests with the client that this reqwest builder creates. Its redirect policy is replaced: this SDK follows redirects
    /// itself, so that no token or key reaches another origin. Its default headers are sent to every origin.
    #[must_use]
    pub fn http(mut self, builder: reqwest::ClientBuilder) -> Self {
        self.http = HttpClientSource::Builder(Box::new(builder));
        self
    }

    /// Sends requests with an existing client. It must have been built with `redirect(Policy::none())`; a submission for which it follows a
    /// redirect fails.
    #[must_use]
    pub fn http_without_redirects(mut self, client: reqwest::Client) -> Self {
        self.http = HttpClientSource::Client(client);
        self
    }

    /// Submissions carry a token from the token pool. This is the default.
    #[must_use]
    pub fn with_tokens(mut self) -> Self {
        self.credential = Credential::Token;
        self
    }

    /// Each submission carries a random key.
    #[must_use]
    pub fn with_keys(mut self) -> Self {
        self.credential = Credential::GeneratedKey(None);
        self
    }

    /// Each submission carries a random key, prefixed with the name of this application.
    #[must_use]
    pub fn with_keys_of(mut self, application: impl Into<String>) -> Self {
        self.credential = Credential::GeneratedKey(Some(application.into()));
        self
    }

    /// Sets the header that carries keys. Default: `Idempotency-Key`.
    #[must_use]
    pub fn key_header(mut self, name: HeaderName) -> Self {
        self.key_header = name;
        self
    }

    /// Fetches tokens from `base` + `/token` instead of from the origin of the submission. Tokens are sent to the origin of `base`, and to
    /// those added with [`send_tokens_to`](Self::send_tokens_to).
    #[must_use]
    pub fn tokens_from(mut self, base: impl Into<String>) -> Self {
        self.token_base = Some(base.into());
        self
    }

    /// Allows tokens to be sent to this origin too. It must share its store with the issuer.
    #[must_use]
    pub fn send_tokens_to(mut self, origin: impl Into<String>) -> Self {
        self.origins.push(origin.into());
        self
    }

    /// Maximum number of tokens in a token pool. Default: 32. A pool starts with one token, and doubles whenever a submission had to wait.
    #[must_use]
    pub fn pool_size(mut self, tokens: u32) -> Self {
        self.pool_size = tokens;
        self
    }

    /// Sets the limits of retries.
    #[must_use]
    pub fn limits(mut self, limits: RetryLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the reaction to an unknown outcome.
    #[must_use]
    pub fn on_unknown(mut self, on_unknown: OnUnknown) -> Self {
        self.on_unknown = on_unknown;
        self
    }

    /// Looks up unknown outcomes at `base` + `/outcome` of the Onceward service, with its API key if it has one, instead of sending the
    /// request again with `Onceward-Look`. For applications that claim at the service and do not offer a lookup themselves. Used with
    /// [`OnUnknown::Look`]. The API key is sent to this URL only.
    ///
    /// A record belongs to an action and a subject, those that the application claims with. Set [`subject`](crate::Submission::subject) for
    /// each submission with a key, and with a token unless the application claims without a subject: the SDKs for Node.js and Python claim
    /// with one. Set [`action`](crate::Submission::action) if it is not method and path. A stored redirect is returned and not followed.
    ///
    /// ```no_run
    /// use onceward_client::{Client, OnUnknown};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let api_key = std::env::var("ONCEWARD_API_KEY")?;
    /// let client = Client::builder()
    ///     .with_keys()
    ///     .outcomes_from("https://onceward.internal", Some(&api_key))
    ///     .on_unknown(OnUnknown::Look)
    ///     .build()?;
    /// let response = client.post("https://shop.example/orders").subject("alice").body("tea").send().await?;
    /// println!("{} (replayed: {})", response.status(), response.is_replayed());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn outcomes_from(mut self, base: impl AsRef<str>, api_key: Option<&str>) -> Self {
        self.outcomes = Some(OutcomeService::new(base.as_ref(), api_key));
        self
    }

    /// Sets the function that returns the `Authorization` header. It is called before each attempt, with `true` once after a 401: then it
    /// must return a new value. The submission keeps its token or key.
    ///
    /// ```
    /// use onceward_client::Client;
    ///
    /// let client = Client::builder()
    ///     .authorization(|is_rejected| async move {
    ///         let access = if is_rejected { "refreshed" } else { "cached" };
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

    /// Maximum number of bytes of a response that are buffered before it is returned. Default: 1 MiB. A longer body is streamed, and
    /// reading it may fail.
    #[must_use]
    pub fn response_limit(mut self, bytes: usize) -> Self {
        self.response_limit = bytes;
        self
    }

    /// Builds a client that blocks, with the same settings.
    ///
    /// # Errors
    /// Like [`build`](Self::build), or if no thread can be started.
    #[cfg(feature = "blocking")]
    pub fn build_blocking(self) -> Result<crate::blocking::Client, Error> {
        crate::blocking::Client::with(self.build()?)
    }

    /// Builds the client.
    ///
    /// # Errors
    /// If a URL is invalid, if the settings contradict each other, or if reqwest cannot build the HTTP client.
    pub fn build(self) -> Result<Client, Error> {
        self.credential.allows(self.on_unknown)?;
        if let Credential::GeneratedKey(Some(name)) = &self.credential {
            let wrong = |error| Error::misuse(format!("the application name is part of each key: {error}"));
            crate::key::generate_key(Some(name)).map_err(wrong)?;
        }
        let http = match self.http {
            HttpClientSource::Client(client) => client,
            HttpClientSource::Builder(builder) => builder.redirect(Policy::none()).build().map_err(|error| {
                Error::misuse("reqwest could not build the HTTP client").with_source(Some(error.into()))
            })?,
        };
        Ok(Client(Arc::new(ClientInner {
            http,
            credential: self.credential,
            key_header: self.key_header,
            limits: self.limits,
            on_unknown: self.on_unknown,
            authorization: self.authorization,
            response_limit: self.response_limit,
            token_base: self.token_base.as_deref().map(|base| parse_base(base, "tokens_from", "/token")).transpose()?,
            origins: self.origins.iter().map(|origin| parse(origin)).collect::<Result<_, _>>()?,
            pool_size: self.pool_size,
            outcomes: self.outcomes.transpose()?,
            pools: Mutex::default(),
        })))
    }
}

impl fmt::Debug for ClientBuilder {
    /// Omits the reqwest builder and the URLs: default headers and URLs that are not yet checked may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("credential", &self.credential)
            .field("limits", &self.limits)
            .field("on_unknown", &self.on_unknown)
            .finish_non_exhaustive()
    }
}

/// Parses the URL in this setting, which `path` can be appended to.
pub(crate) fn parse_base(text: &str, setting: &str, path: &str) -> Result<Url, Error> {
    let url = parse(text)?;
    if url.query().is_some() || url.fragment().is_some() {
        let message = format!("the URL in `{setting}` must not have a query or fragment: `{path}` is appended to it");
        return Err(Error::misuse(message));
    }
    Ok(url)
}

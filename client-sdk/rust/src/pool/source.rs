//! Where tokens come from: `POST /tokens`, or `POST /token` where there is no such thing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use onceward_api::{Code, TokenRequest, TokensRequest};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Method, Request, Response, StatusCode, Url};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::authorization::Authorization;
use crate::refusal::{self, Refusal, Told, told};
use crate::token::Token;

/// The most that is read of an answer with tokens.
const LIMIT: usize = 256 * 1024;
/// How many requests for one token each are under way at a time.
const AT_ONCE: usize = 8;

/// Whom and what the tokens are for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Binding {
    pub(crate) action: Option<String>,
    pub(crate) subject: Option<String>,
}

/// Asks one endpoint for tokens of one kind.
pub(crate) struct Source {
    pub(crate) http: Client,
    /// What `/token` is appended to.
    pub(crate) base: Url,
    pub(crate) binding: Binding,
    /// Headers that say who is asking.
    pub(crate) identity: HeaderMap,
    pub(crate) authorization: Option<Authorization>,
    pub(crate) timeout: Duration,
    has_no_batches: AtomicBool,
}

/// A token, when it was asked for, and how long it lives from then on.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) token: Token,
    pub(crate) asked: Instant,
    pub(crate) life: Duration,
}

/// Why there is no token.
#[derive(Debug, Clone)]
pub(crate) struct NoToken {
    pub(crate) says: String,
    /// Whether it may be otherwise in a moment.
    pub(crate) is_passing: bool,
    pub(crate) refusal: Option<Refusal>,
}

/// What is read of an issued token. Its date is not looked at.
#[derive(Deserialize)]
struct Issued {
    token: String,
    expires_in: u64,
}

#[derive(Deserialize)]
struct IssuedAll {
    tokens: Vec<Issued>,
}

impl Source {
    pub(crate) fn new(http: Client, base: Url, binding: Binding, timeout: Duration) -> Self {
        let (identity, authorization) = (HeaderMap::new(), None);
        Self { http, base, binding, identity, authorization, timeout, has_no_batches: AtomicBool::new(false) }
    }

    /// Fetches up to this many, and hands each over as it comes.
    ///
    /// # Errors
    /// If there is none at all.
    pub(crate) async fn fetch(&self, count: u32, hand_over: impl Fn(Vec<Fetched>)) -> Result<(), NoToken> {
        if count > 1 && !self.has_no_batches.load(Ordering::Relaxed) {
            if let Some(tokens) = self.fetch_batch(count).await? {
                hand_over(tokens);
                return Ok(());
            }
            self.has_no_batches.store(true, Ordering::Relaxed);
        }
        let mut fetched = stream::iter(0..count).map(|_| self.fetch_one()).buffer_unordered(AT_ONCE);
        let (mut none, mut last) = (true, None);
        while let Some(one) = fetched.next().await {
            match one {
                Ok(token) => {
                    none = false;
                    hand_over(vec![token]);
                }
                Err(error) => {
                    last = Some(error);
                    break;
                }
            }
        }
        last.filter(|_| none).map_or(Ok(()), Err)
    }

    /// `None` if this server has no such endpoint.
    async fn fetch_batch(&self, count: u32) -> Result<Option<Vec<Fetched>>, NoToken> {
        let Binding { action, subject } = self.binding.clone();
        let url = self.at("tokens");
        let asked = Instant::now();
        let response = self.ask(&url, Some(&TokensRequest { count, action, subject, ttl: None })).await?;
        let is_absent = [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED, StatusCode::NOT_IMPLEMENTED];
        if is_absent.contains(&response.status()) {
            return Ok(None);
        }
        let all: IssuedAll = self.read(&url, response).await?;
        all.tokens.into_iter().map(|issued| fetched(&url, issued, asked)).collect::<Result<_, _>>().map(Some)
    }

    async fn fetch_one(&self) -> Result<Fetched, NoToken> {
        let Binding { action, subject } = self.binding.clone();
        let url = self.at("token");
        let is_bound = action.is_some() || subject.is_some();
        let asked = Instant::now();
        let body = is_bound.then_some(TokenRequest { action, subject, ttl: None });
        let response = self.ask(&url, body.as_ref()).await?;
        fetched(&url, self.read(&url, response).await?, asked)
    }

    fn at(&self, name: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}/{name}", self.base.path().trim_end_matches('/')));
        url
    }

    /// Sends a question, and once more with refreshed credentials if the first were not good enough.
    async fn ask(&self, url: &Url, body: Option<&impl Serialize>) -> Result<Response, NoToken> {
        let response = self.send(url, body, false).await?;
        if response.status() == StatusCode::UNAUTHORIZED && self.authorization.is_some() {
            return self.send(url, body, true).await;
        }
        Ok(response)
    }

    async fn send(&self, url: &Url, body: Option<&impl Serialize>, again: bool) -> Result<Response, NoToken> {
        let mut request = Request::new(Method::POST, url.clone());
        let headers = request.headers_mut();
        headers.extend(self.identity.clone());
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(authorization) = &self.authorization {
            let value = authorization.value(again).await.map_err(|error| NoToken {
                says: format!("the credentials for {} could not be had: {error}", named(url)),
                is_passing: false,
                refusal: None,
            })?;
            headers.insert(AUTHORIZATION, value);
        }
        if let Some(body) = body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *request.body_mut() = Some(serde_json::to_vec(body).unwrap_or_default().into());
        }
        *request.timeout_mut() = Some(self.timeout);
        self.http.execute(request).await.map_err(|error| unreachable(url, error))
    }

    async fn read<T: for<'de> Deserialize<'de>>(&self, url: &Url, response: Response) -> Result<T, NoToken> {
        let status = response.status();
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("no content type");
        let kind = kind.chars().take(60).collect::<String>();
        let retry_after = refusal::retry_after(response.headers());
        let mut response = match told(response).await.map_err(|error| unreachable(url, error))? {
            Told::Refused(refusal) => return Err(refused(url, refusal)),
            Told::Answer(response) => response,
        };
        if !status.is_success() {
            return Err(other_status(url, status, retry_after));
        }
        let read = refusal::read(&mut response, LIMIT).await.map_err(|error| unreachable(url, error))?;
        serde_json::from_slice(read.bytes()).ok().filter(|_| read.is_whole()).ok_or_else(|| NoToken {
            says: format!("{} answered {status} with {kind}, and no token is in it. {ADVICE}", named(url)),
            is_passing: false,
            refusal: None,
        })
    }
}

/// What to do about a server that is another one.
const ADVICE: &str = "Is Onceward there? An application needs `token_route`; if its tokens come from elsewhere, name that \
    address with `tokens_from`; if it goes by keys, use `with_keys`.";

/// An address as it may be shown: without what may be secret.
fn named(url: &Url) -> String {
    format!("POST {}{}", url.origin().ascii_serialization(), url.path())
}

fn unreachable(url: &Url, error: reqwest::Error) -> NoToken {
    use std::error::Error as _;
    let error = error.without_url();
    let mut why = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        why = format!("{why}: {cause}");
        source = cause.source();
    }
    let says = format!("{} does not answer ({why}). Is it running, and is the address right?", named(url));
    NoToken { says, is_passing: !error.is_builder(), refusal: None }
}

fn refused(url: &Url, refusal: Refusal) -> NoToken {
    let problem = &refusal.problem;
    let is_passing = problem.retry == onceward_api::Retry::Same;
    let next = match problem.code {
        Code::RateLimited => " Ask for fewer at a time (`pool_size`), or have `rate_limit` raised.",
        Code::Unauthorized => " Say who is asking, with `authorization` or `identity`.",
        _ => "",
    };
    let says = format!("{} refused ({}): {}{next}", named(url), problem.code, problem.detail);
    NoToken { says, is_passing, refusal: Some(refusal) }
}

fn other_status(url: &Url, status: StatusCode, retry_after: Option<Duration>) -> NoToken {
    let is_passing = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
    let says = match status {
        _ if status.is_redirection() => {
            format!("{} leads elsewhere ({status}). Name the address it leads to with `tokens_from`.", named(url))
        }
        _ if is_passing => format!("{} answered {status}. Try again in a moment.", named(url)),
        _ => format!("{} answered {status}. {ADVICE}", named(url)),
    };
    let code = if status == StatusCode::TOO_MANY_REQUESTS { Code::RateLimited } else { Code::Overloaded };
    let wait = |after| Refusal { problem: onceward_api::Problem::new(code), retry_after: Some(after) };
    NoToken { says, is_passing, refusal: retry_after.filter(|_| is_passing).map(wait) }
}

fn fetched(url: &Url, issued: Issued, asked: Instant) -> Result<Fetched, NoToken> {
    let wrong = |what: &str| NoToken {
        says: format!("{} answered with {what}. Is Onceward there?", named(url)),
        is_passing: false,
        refusal: None,
    };
    // A day is the longest that a token may live: more is a mistake, and could not be counted.
    let life = Duration::from_secs(issued.expires_in.min(24 * 60 * 60));
    if life.is_zero() {
        return Err(wrong("a token that has expired already"));
    }
    let token = Token::new(issued.token.as_bytes()).ok_or_else(|| wrong("a token that no header can carry"))?;
    Ok(Fetched { token, asked, life })
}

//! Where tokens come from: `POST /tokens`, or `POST /token` where there is no such thing.

use std::future::ready;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use onceward_api::{TokenRequest, TokensRequest};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Method, Request, Response, StatusCode, Url};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::error::{self, NoToken};
use crate::authorization::Authorization;
use crate::rejection::{self, Told, told};
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
        // After a failure no other is begun, and those that are under way still count.
        let has_failed = AtomicBool::new(false);
        let begun = stream::iter(0..count).take_while(|_| ready(!has_failed.load(Ordering::Relaxed)));
        let mut fetched = begun.map(|_| self.fetch_one()).buffer_unordered(AT_ONCE);
        let (mut none, mut last) = (true, None);
        while let Some(one) = fetched.next().await {
            match one {
                Ok(token) => {
                    none = false;
                    hand_over(vec![token]);
                }
                Err(error) => {
                    has_failed.store(true, Ordering::Relaxed);
                    last = Some(error);
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
        if all.tokens.is_empty() {
            // Else whoever waits would have it asked for again and again.
            return Err(error::of_no_use(&url, "no token at all"));
        }
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
            let value = authorization.value(again, self.timeout).await;
            headers.insert(AUTHORIZATION, value.map_err(|error| error::without_credentials(url, &error))?);
        }
        if let Some(body) = body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *request.body_mut() = Some(serde_json::to_vec(body).unwrap_or_default().into());
        }
        *request.timeout_mut() = Some(self.timeout);
        self.http.execute(request).await.map_err(|error| error::unreachable(url, error))
    }

    async fn read<T: for<'de> Deserialize<'de>>(&self, url: &Url, response: Response) -> Result<T, NoToken> {
        let status = response.status();
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("no content type");
        let kind = kind.chars().take(60).collect::<String>();
        let retry_after = rejection::retry_after(response.headers());
        let mut response = match told(response).await.map_err(|error| error::unreachable(url, error))? {
            Told::Refused(refusal) => return Err(error::refused(url, refusal)),
            Told::Answer(response) => response,
        };
        if !status.is_success() {
            return Err(error::other_status(url, status, retry_after));
        }
        let read = rejection::read(&mut response, LIMIT).await.map_err(|error| error::unreachable(url, error))?;
        serde_json::from_slice(read.bytes())
            .ok()
            .filter(|_| read.is_whole())
            .ok_or_else(|| error::of_another_kind(url, status, &kind))
    }
}

fn fetched(url: &Url, issued: Issued, asked: Instant) -> Result<Fetched, NoToken> {
    let wrong = |what: &str| error::of_no_use(url, what);
    // A day is the longest that a token may live: more is a mistake, and could not be counted.
    let life = Duration::from_secs(issued.expires_in.min(24 * 60 * 60));
    if life.is_zero() {
        return Err(wrong("a token that has expired already"));
    }
    let token = Token::new(issued.token.as_bytes()).ok_or_else(|| wrong("a token that no header can carry"))?;
    Ok(Fetched { token, asked, life })
}

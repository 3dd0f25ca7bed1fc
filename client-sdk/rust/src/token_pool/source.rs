//! Fetches tokens: with `POST /tokens`, or with `POST /token` from a server that has no batches.

use std::future::ready;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use onceward_api::{TokenRequest, TokensRequest};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Method, Request, Response, StatusCode, Url};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::error::{self, TokenError};
use crate::authorization::Authorization;
use crate::buffered_body::BufferedBody;
use crate::rejection::{self, ResponseClass, classify};
use crate::token::Token;

/// Maximum number of bytes read of a response with tokens.
const MAX_BODY: usize = 256 * 1024;
/// Maximum number of `POST /token` requests in flight.
const MAX_IN_FLIGHT: usize = 8;

/// The action and subject that the tokens are bound to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct TokenBinding {
    pub(crate) action: Option<String>,
    pub(crate) subject: Option<String>,
}

/// Fetches tokens for one binding from one endpoint.
pub(crate) struct TokenSource {
    pub(crate) http: Client,
    /// The URL that `/token` is appended to.
    pub(crate) base: Url,
    pub(crate) binding: TokenBinding,
    /// Headers that identify the client.
    pub(crate) identity: HeaderMap,
    pub(crate) authorization: Option<Authorization>,
    pub(crate) timeout: Duration,
    has_no_batches: AtomicBool,
}

/// A token with the time of its request and its lifetime from then on.
#[derive(Debug)]
pub(crate) struct FreshToken {
    pub(crate) token: Token,
    pub(crate) requested: Instant,
    pub(crate) lifetime: Duration,
}

/// The fields read of an issued token. Its date is ignored.
#[derive(Deserialize)]
struct TokenBody {
    token: String,
    expires_in: u64,
}

#[derive(Deserialize)]
struct TokensBody {
    tokens: Vec<TokenBody>,
}

impl TokenSource {
    pub(crate) fn new(http: Client, base: Url, binding: TokenBinding, timeout: Duration) -> Self {
        let (identity, authorization) = (HeaderMap::new(), None);
        Self { http, base, binding, identity, authorization, timeout, has_no_batches: AtomicBool::new(false) }
    }

    /// Fetches up to `count` tokens, and delivers them as they arrive.
    ///
    /// # Errors
    /// If no token was fetched.
    pub(crate) async fn fetch(&self, count: u32, deliver: impl Fn(Vec<FreshToken>)) -> Result<(), TokenError> {
        if count > 1 && !self.has_no_batches.load(Ordering::Relaxed) {
            if let Some(tokens) = self.fetch_batch(count).await? {
                deliver(tokens);
                return Ok(());
            }
            self.has_no_batches.store(true, Ordering::Relaxed);
        }
        // After a failure no further request is sent. Requests in flight may still deliver a token.
        let is_failed = AtomicBool::new(false);
        let requests = stream::iter(0..count).take_while(|_| ready(!is_failed.load(Ordering::Relaxed)));
        let mut results = requests.map(|_| self.fetch_one()).buffer_unordered(MAX_IN_FLIGHT);
        let (mut none, mut last) = (true, None);
        while let Some(result) = results.next().await {
            match result {
                Ok(token) => {
                    none = false;
                    deliver(vec![token]);
                }
                Err(error) => {
                    is_failed.store(true, Ordering::Relaxed);
                    last = Some(error);
                }
            }
        }
        last.filter(|_| none).map_or(Ok(()), Err)
    }

    /// Fetches a batch. Returns `None` if the server has no `/tokens`.
    async fn fetch_batch(&self, count: u32) -> Result<Option<Vec<FreshToken>>, TokenError> {
        let TokenBinding { action, subject } = self.binding.clone();
        let url = self.endpoint("tokens");
        let requested = Instant::now();
        let response = self.request(&url, Some(&TokensRequest { count, action, subject, ttl: None })).await?;
        let is_absent = [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED, StatusCode::NOT_IMPLEMENTED];
        if is_absent.contains(&response.status()) {
            return Ok(None);
        }
        let all: TokensBody = self.read(&url, response).await?;
        if all.tokens.is_empty() {
            // Without this error, the pool would fetch in a loop while a submission waits.
            return Err(error::unusable_token(&url, "no token at all"));
        }
        let texts = in_one_buffer(&all.tokens);
        let tokens = all.tokens.iter().zip(texts);
        tokens
            .map(|(issued, text)| fresh_token(&url, text, issued.expires_in, requested))
            .collect::<Result<_, _>>()
            .map(Some)
    }

    async fn fetch_one(&self) -> Result<FreshToken, TokenError> {
        let TokenBinding { action, subject } = self.binding.clone();
        let url = self.endpoint("token");
        let is_bound = action.is_some() || subject.is_some();
        let requested = Instant::now();
        let body = is_bound.then_some(TokenRequest { action, subject, ttl: None });
        let response = self.request(&url, body.as_ref()).await?;
        let issued: TokenBody = self.read(&url, response).await?;
        fresh_token(&url, issued.token.into(), issued.expires_in, requested)
    }

    fn endpoint(&self, name: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}/{name}", self.base.path().trim_end_matches('/')));
        url
    }

    /// Sends a request, and once more with refreshed credentials after a 401.
    async fn request(&self, url: &Url, body: Option<&impl Serialize>) -> Result<Response, TokenError> {
        let response = self.send(url, body, false).await?;
        if response.status() == StatusCode::UNAUTHORIZED && self.authorization.is_some() {
            return self.send(url, body, true).await;
        }
        Ok(response)
    }

    async fn send(&self, url: &Url, body: Option<&impl Serialize>, is_rejected: bool) -> Result<Response, TokenError> {
        let mut request = Request::new(Method::POST, url.clone());
        let headers = request.headers_mut();
        headers.extend(self.identity.clone());
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(authorization) = &self.authorization {
            let value = authorization.value(is_rejected, self.timeout).await;
            headers.insert(AUTHORIZATION, value.map_err(|error| error::without_credentials(url, &error))?);
        }
        if let Some(body) = body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *request.body_mut() = Some(serde_json::to_vec(body).unwrap_or_default().into());
        }
        *request.timeout_mut() = Some(self.timeout);
        self.http.execute(request).await.map_err(|error| error::unreachable(url, error))
    }

    async fn read<T: for<'de> Deserialize<'de>>(&self, url: &Url, response: Response) -> Result<T, TokenError> {
        let status = response.status();
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("no content type");
        let kind = kind.chars().take(60).collect::<String>();
        let retry_after = rejection::retry_after(response.headers());
        let mut response = match classify(response).await.map_err(|error| error::unreachable(url, error))? {
            ResponseClass::Rejected(rejection) => return Err(error::rejected(url, rejection)),
            ResponseClass::Application(response) => response,
        };
        if !status.is_success() {
            return Err(error::unexpected_status(url, status, retry_after));
        }
        let body = BufferedBody::read(&mut response, MAX_BODY).await.map_err(|error| error::unreachable(url, error))?;
        serde_json::from_slice(body.bytes())
            .ok()
            .filter(|_| body.is_whole())
            .ok_or_else(|| error::no_token_in_body(url, status, &kind))
    }
}

/// Copies the tokens of a batch into one buffer, and returns the part of each token. The thread that drops a token is rarely the one that
/// fetched it; if each token had its own memory, both would contend for the allocator's lock.
fn in_one_buffer(issued: &[TokenBody]) -> impl Iterator<Item = Bytes> {
    let mut rest = Bytes::from(issued.iter().map(|one| one.token.as_str()).collect::<String>());
    issued.iter().map(move |one| rest.split_to(one.token.len()))
}

fn fresh_token(url: &Url, text: Bytes, expires_in: u64, requested: Instant) -> Result<FreshToken, TokenError> {
    let unusable = |what: &str| error::unusable_token(url, what);
    // A token lives for at most a day: more is an error of the server, and might overflow an `Instant`.
    let lifetime = Duration::from_secs(expires_in.min(24 * 60 * 60));
    if lifetime.is_zero() {
        return Err(unusable("a token that has expired already"));
    }
    let token = Token::new(text).ok_or_else(|| unusable("a token that no header can carry"))?;
    Ok(FreshToken { token, requested, lifetime })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_a_batch_share_one_buffer() {
        let issued = ["ow1_a", "", "ow1_long", "x"].map(|token| TokenBody { token: token.to_owned(), expires_in: 1 });
        let texts: Vec<_> = in_one_buffer(&issued).collect();
        assert_eq!(texts, ["ow1_a", "", "ow1_long", "x"]);
        assert_eq!(texts[0].as_ptr().wrapping_add(5), texts[2].as_ptr());
    }
}

//! Adds the script to the HTML pages of the application, so that every POST form on them is guarded without a change to it.
//!
//! A page is a whole, unencoded response of type `text/html` in a charset that contains ASCII. Every other response passes unchanged, and
//! so does a fragment without doctype, `<html>` and `<head>`. The page is not parsed: only its start is scanned, and the tag is inserted
//! while the body streams.
//!
//! If a `Content-Security-Policy` header forbids the script, the page stays unchanged, and a warning names the directive.

mod attributes;
mod body;
mod comment;
mod csp;
mod insertion;
mod page;

use std::sync::{Mutex, PoisonError};

use http::header::{ACCEPT, ACCEPT_ENCODING, HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderValue, Method, Response};

pub(crate) use self::body::MaybeInjected;
use self::body::Tags;
use self::csp::{Nonce, Obstacle};

/// Headers by which a client reads a page in part, or only if it has changed.
const CONDITIONS: [HeaderName; 4] = [IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE];

/// Adds the script to HTML pages.
#[derive(Debug)]
pub(crate) struct Injector {
    /// The path of the scripts, escaped for an attribute.
    path: String,
    /// The tags without a nonce.
    tags: Tags,
    /// The obstacles that were logged: a policy affects every page, and is changed once.
    logged: Mutex<Vec<Obstacle>>,
}

impl Injector {
    /// Creates an injector for the script under the path of the proxy, such as `/_onceward`.
    pub(crate) fn new(proxy_path: &str) -> Self {
        let path = escape(&format!("{proxy_path}/sdk"));
        Self { tags: tags(&path, None), path, logged: Mutex::default() }
    }

    /// Prepares the headers of a request to the upstream, if its response may be a page: asks for a whole, unencoded body.
    ///
    /// Removes `Range`, since offsets in the changed page differ from those in the page of the upstream. Removes the conditions of a GET
    /// or HEAD, since the copy that a 304 would confirm may be older than the tag. Those of other methods protect the application's
    /// data, and stay.
    pub(crate) fn prepare(&self, method: &Method, headers: &mut HeaderMap) {
        if !may_be_page(headers) {
            return;
        }
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if method == Method::GET || method == Method::HEAD {
            CONDITIONS.iter().for_each(|name| drop(headers.remove(name)));
        }
    }

    /// Adds the tag to an HTML page; every other response passes unchanged.
    ///
    /// The response to a HEAD request has no body, and receives the headers that the page has.
    pub(crate) fn apply<B>(&self, response: Response<B>) -> Response<MaybeInjected<B>> {
        if !page::is_page(response.status(), response.headers()) {
            return response.map(MaybeInjected::unchanged);
        }
        let tags = match csp::check(response.headers()) {
            Ok(None) => self.tags.clone(),
            Ok(nonce) => tags(&self.path, nonce.as_ref()),
            Err(obstacle) => {
                self.warn(obstacle);
                return response.map(MaybeInjected::unchanged);
            }
        };
        let mut response = response.map(|body| MaybeInjected::with_tags(body, tags));
        page::describe_change(response.headers_mut());
        response
    }

    /// Logs an obstacle once. Returns whether it was logged now.
    fn warn(&self, obstacle: Obstacle) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !logged.contains(&obstacle);
        if is_new {
            logged.push(obstacle);
            tracing::warn!(
                "did not add the script to a page, since its Content-Security-Policy forbids it; {obstacle}, or remove \
                 --inject and add the script to the pages yourself"
            );
        }
        is_new
    }
}

/// Returns whether the client asks for a page: a browser that navigates names HTML.
fn may_be_page(headers: &HeaderMap) -> bool {
    let names_html =
        |value: &HeaderValue| value.to_str().is_ok_and(|text| text.to_ascii_lowercase().contains("text/html"));
    headers.get_all(ACCEPT).iter().any(names_html)
}

/// Returns the tags. They come first in the page, so `defer` runs the scripts before other deferred scripts.
fn tags(path: &str, nonce: Option<&Nonce>) -> Tags {
    let nonce = nonce.map(|nonce| format!(" nonce=\"{}\"", nonce.as_str())).unwrap_or_default();
    Tags {
        script: format!("<script src=\"{path}/onceward.js\" defer data-forms=\"all\"{nonce}></script>").into(),
        chinese: format!("<script src=\"{path}/onceward.zh-CN.js\" defer{nonce}></script>").into(),
    }
}

/// Escapes a text for an attribute in double quotes.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;

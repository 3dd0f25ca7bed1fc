//! The form that a client prefers for a rejection, by the headers of its request.

use super::request::RequestHead;

/// The preferences of a client for rejections, by the headers of its request.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Preferences<'a> {
    /// The value of `Accept`: a page, or a problem for programs.
    pub accept: Option<&'a [u8]>,
    /// The value of `Accept-Language`.
    pub accept_language: Option<&'a [u8]>,
    /// True if a browser navigates, by `Sec-Fetch-Mode`: it shows the response, and follows a redirect to another page.
    pub is_navigation: bool,
}

impl<'a> Preferences<'a> {
    /// Creates preferences without any header.
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads the headers of a request.
    pub fn of(request: &'a impl RequestHead) -> Self {
        let value = |name| request.header(name).next();
        let is_navigation = is_navigation(value("sec-fetch-mode"));
        Self { accept: value("accept"), accept_language: value("accept-language"), is_navigation }
    }

    /// Sets the value of `Accept`.
    #[must_use]
    pub fn accept(mut self, accept: Option<&'a [u8]>) -> Self {
        self.accept = accept;
        self
    }

    /// Sets the value of `Accept-Language`.
    #[must_use]
    pub fn accept_language(mut self, languages: Option<&'a [u8]>) -> Self {
        self.accept_language = languages;
        self
    }

    /// Sets whether a browser navigates.
    #[must_use]
    pub fn navigation(mut self, is_navigation: bool) -> Self {
        self.is_navigation = is_navigation;
        self
    }
}

/// Returns whether the value of `Sec-Fetch-Mode` is the one of a navigation. Every current browser sends it, over HTTPS and on localhost.
pub(super) fn is_navigation(mode: Option<&[u8]>) -> bool {
    mode == Some(b"navigate")
}

//! The form that a client prefers for a rejection, by the headers of its request.

use super::request::RequestHead;

/// The preferences of a client for rejections: the values of two headers of its request.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Preferences<'a> {
    /// The value of `Accept`: a page, or a problem for programs.
    pub accept: Option<&'a [u8]>,
    /// The value of `Accept-Language`.
    pub accept_language: Option<&'a [u8]>,
}

impl<'a> Preferences<'a> {
    /// Creates preferences without either header.
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads the headers of a request.
    pub fn of(request: &'a impl RequestHead) -> Self {
        let value = |name| request.header(name).next();
        Self { accept: value("accept"), accept_language: value("accept-language") }
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
}

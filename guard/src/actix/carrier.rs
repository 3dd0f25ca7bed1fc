//! Where a token stands in a request: header, form field, first part of a multipart body, or query.

use actix_web::http::header::{HeaderMap, HeaderName};
use onceward_api::{Code, header};

use crate::rejection::Rejection;

/// Made once: a header that is looked up by its text is parsed each time.
static TOKEN: HeaderName = HeaderName::from_static(header::TOKEN);

/// The token that stands in these headers or in this query; `None` if there is none.
///
/// # Errors
/// If there are two that differ, or if what stands there is no text.
pub fn token_in(headers: &HeaderMap, query: &str) -> Result<Option<String>, Rejection> {
    let mut carried = TokenSources::default();
    carried.and_headers(headers)?;
    carried.and_query(query)?;
    Ok(carried.into_token())
}

/// The one token that a request carries, from all the places it could stand in.
#[derive(Default)]
pub(super) struct TokenSources {
    token: Option<String>,
}

impl TokenSources {
    /// Takes in what another place carries. Empty is nothing: a form whose script has not run sends its field empty.
    fn and(&mut self, other: &str) -> Result<(), Rejection> {
        match &self.token {
            _ if other.is_empty() => Ok(()),
            Some(token) if token != other => Err(Rejection::new(Code::TokenMalformed)
                .detail("The request carries two different tokens. Send one, in the header or in the form.")),
            Some(_) => Ok(()),
            None => {
                self.token = Some(other.to_owned());
                Ok(())
            }
        }
    }

    /// Takes in the header, also if it was sent more than once.
    pub(super) fn and_headers(&mut self, headers: &HeaderMap) -> Result<(), Rejection> {
        headers.get_all(&TOKEN).try_for_each(|value| match value.to_str() {
            Ok(text) => self.and(text),
            Err(_) => Err(Code::TokenMalformed.into()),
        })
    }

    /// Takes in the query.
    pub(super) fn and_query(&mut self, query: &str) -> Result<(), Rejection> {
        form_urlencoded::parse(query.as_bytes())
            .filter(|(name, _)| name == header::FIELD)
            .try_for_each(|(_, value)| self.and(&value))
    }

    /// Takes in what was found in the body.
    pub(super) fn and_body(&mut self, found: &str) -> Result<(), Rejection> {
        self.and(found)
    }

    pub(super) fn is_some(&self) -> bool {
        self.token.is_some()
    }

    pub(super) fn into_token(self) -> Option<String> {
        self.token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_places_may_agree_and_must_not_differ() {
        let mut carried = TokenSources::default();
        carried.and("").unwrap();
        assert!(!carried.is_some());
        carried.and("t").unwrap();
        carried.and("t").unwrap();
        carried.and_query("a=1&_onceward=t&_onceward=").unwrap();
        assert_eq!(carried.and_body("u").unwrap_err().code(), Code::TokenMalformed);
        assert_eq!(carried.into_token().as_deref(), Some("t"));
    }
}

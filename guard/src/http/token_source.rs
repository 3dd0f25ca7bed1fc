//! The sources of a request's token: header, form field, first part of a multipart body, or query.

pub(super) mod form;

use std::borrow::Cow;

use bytes::BytesMut;
use futures_util::StreamExt as _;
use onceward_api::{Code, header};

use self::form::{Form, Scan};
use super::body::{BodyEnd, RequestBody, broken_off};
use super::request::{RequestHead, visible};
use crate::language::Language;
use crate::rejection::Rejection;
use crate::token::Credential;

/// Finds the token in the values of the `Onceward-Token` header and in the query; `None` if there is none.
///
/// # Errors
/// If there are two different tokens, or a value is not visible ASCII.
pub fn token_in<'a>(
    header: impl IntoIterator<Item = &'a [u8]>,
    query: &'a str,
) -> Result<Option<Cow<'a, str>>, Rejection> {
    let mut carried = TokenSources::default();
    carried.and_header(header)?;
    carried.and_query(query)?;
    Ok(carried.token)
}

/// Finds the token of a request. The body is read only if it is a form, and is put back for the handler.
pub(super) async fn find_token<B: RequestBody>(
    request: &impl RequestHead,
    body: &mut B,
    limit: usize,
    unparsed: UnparsedForm,
) -> Result<Credential, Rejection> {
    let mut carried = TokenSources::default();
    carried.and_header(request.header(header::TOKEN))?;
    carried.and_query(request.query())?;
    match Form::of(request) {
        Some(Ok(form)) => Box::pin(read_form(body, form, &mut carried, limit, unparsed)).await?,
        Some(Err(rejection)) if unparsed == UnparsedForm::Rejected => return Err(rejection),
        Some(Err(_)) | None => {}
    }
    Ok(carried.token.map_or(Credential::Missing, |token| Credential::of(&token)))
}

/// Reads a form until its token is found, and puts back the data that was read.
async fn read_form<B: RequestBody>(
    body: &mut B,
    mut form: Form,
    carried: &mut TokenSources<'_>,
    limit: usize,
    unparsed: UnparsedForm,
) -> Result<(), Rejection> {
    let mut read = BytesMut::new();
    let scan = loop {
        let chunk = body.next().await;
        let ended = chunk.is_none();
        match chunk.transpose() {
            Ok(chunk) => read.extend_from_slice(&chunk.unwrap_or_default()),
            Err(error) => {
                let rejection = broken_off::<B>(&error);
                body.put_back(read.freeze(), BodyEnd::Broken(error));
                return Err(rejection);
            }
        }
        match form.scan(&read, ended) {
            Scan::More if read.len() <= limit => {}
            scan => break scan,
        }
    };
    // Also correct for a form that was read to its end: the next reader finds the end there.
    body.put_back(read.freeze(), BodyEnd::Open);
    match scan {
        Scan::Found(token) => carried.and(Cow::Owned(token)),
        Scan::Absent => Ok(()),
        Scan::More if carried.token.is_some() => Ok(()),
        Scan::More => Err(not_within(limit)),
        Scan::Broken(_) if unparsed == UnparsedForm::HasNoToken => Ok(()),
        Scan::Broken(how) => Err(how.rejection()),
    }
}

fn not_within(limit: usize) -> Rejection {
    Rejection::new(Code::BodyTooLarge)
        .detail(format!(
            "No token was found in the first {limit} bytes of the form. Send it as the first field, or in the Onceward-Token header."
        ))
        .detail_in(
            Language::SIMPLIFIED_CHINESE,
            format!("在表单的前 {limit} 字节中没有找到令牌。请将令牌作为第一个字段发送，或放在 Onceward-Token 请求头中。"),
        )
}

/// The treatment of a form that cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnparsedForm {
    Rejected,
    HasNoToken,
}

/// The token of a request, collected from all sources.
#[derive(Default)]
struct TokenSources<'a> {
    token: Option<Cow<'a, str>>,
}

impl<'a> TokenSources<'a> {
    /// Adds the token of another source. An empty value is ignored: a form whose script has not run sends its field empty.
    fn and(&mut self, other: Cow<'a, str>) -> Result<(), Rejection> {
        match &self.token {
            _ if other.is_empty() => Ok(()),
            Some(token) if *token != other => Err(Rejection::new(Code::TokenMalformed)
                .detail("The request carries two different tokens. Send one, in the header or in the form.")
                .detail_in(
                    Language::SIMPLIFIED_CHINESE,
                    "请求携带了两个不同的令牌。请只发送一个，放在请求头或表单中。",
                )),
            Some(_) => Ok(()),
            None => {
                self.token = Some(other);
                Ok(())
            }
        }
    }

    /// Adds the values of the header, which may be sent more than once.
    fn and_header(&mut self, values: impl IntoIterator<Item = &'a [u8]>) -> Result<(), Rejection> {
        values.into_iter().try_for_each(|value| match visible(value) {
            Some(text) => self.and(Cow::Borrowed(text)),
            None => Err(Code::TokenMalformed.into()),
        })
    }

    /// Adds the values in the query.
    fn and_query(&mut self, query: &'a str) -> Result<(), Rejection> {
        form_urlencoded::parse(query.as_bytes())
            .filter(|(name, _)| name == header::FIELD)
            .try_for_each(|(_, value)| self.and(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sources_may_agree_and_must_not_differ() {
        let mut carried = TokenSources::default();
        carried.and("".into()).unwrap();
        assert!(carried.token.is_none());
        carried.and("t".into()).unwrap();
        carried.and("t".into()).unwrap();
        carried.and_query("a=1&_onceward=t&_onceward=").unwrap();
        assert_eq!(carried.and("u".into()).unwrap_err().code(), Code::TokenMalformed);
        assert_eq!(carried.token.as_deref(), Some("t"));
    }

    #[test]
    fn token_is_found_in_header_or_query() {
        let found = |header: &[&'static [u8]], query| {
            token_in(header.iter().copied(), query).map_err(|rejection| rejection.code())
        };
        assert_eq!(found(&[], ""), Ok(None));
        assert_eq!(found(&[b"t"], "_onceward=t"), Ok(Some("t".into())));
        assert_eq!(found(&[b""], "_onceward=t"), Ok(Some("t".into())));
        assert_eq!(found(&[b"t", b"u"], ""), Err(Code::TokenMalformed));
        assert_eq!(found(&[b"t"], "_onceward=u"), Err(Code::TokenMalformed));
        assert_eq!(found(&[b"\xff"], ""), Err(Code::TokenMalformed));
    }
}

//! The identity on whose behalf a request acts.

use std::borrow::Cow;
use std::net::IpAddr;

/// The identity that an action, token or key belongs to. An anonymous subject has to be stated explicitly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject<'a>(SubjectKind<'a>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum SubjectKind<'a> {
    Anonymous,
    Named(Cow<'a, str>),
    Address(IpAddr),
}

impl<'a> Subject<'a> {
    /// Returns the subject of clients that are not identified.
    pub fn anonymous() -> Self {
        Self(SubjectKind::Anonymous)
    }

    /// Returns a subject by the name that the application uses for it, such as a user id. Do not use an access token: it changes when it is
    /// refreshed, although the user is the same.
    pub fn named(name: impl Into<Cow<'a, str>>) -> Self {
        Self(SubjectKind::Named(name.into()))
    }

    /// Returns the subject of all clients at this address; several people may share it.
    pub fn client_address(address: IpAddr) -> Self {
        Self(SubjectKind::Address(address.to_canonical()))
    }

    /// Returns whether the subject is not identified.
    pub fn is_anonymous(&self) -> bool {
        self.0 == SubjectKind::Anonymous
    }

    /// Returns the same subject without a copy of its name.
    pub(crate) fn borrowed(&self) -> Subject<'_> {
        Subject(match &self.0 {
            SubjectKind::Anonymous => SubjectKind::Anonymous,
            SubjectKind::Named(name) => SubjectKind::Named(Cow::Borrowed(name)),
            SubjectKind::Address(address) => SubjectKind::Address(*address),
        })
    }

    /// Returns bytes that no other subject has: a name that looks like an address differs from that address.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let (tag, text) = match &self.0 {
            SubjectKind::Anonymous => (0, Cow::Borrowed("")),
            SubjectKind::Named(name) => (1, Cow::Borrowed(name.as_ref())),
            SubjectKind::Address(address) => (2, Cow::Owned(address.to_string())),
        };
        [&[tag], text.as_bytes()].concat()
    }
}

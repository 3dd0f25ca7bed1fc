//! The visitor: a random id in a cookie, used only to count per visitor.

use actix_web::HttpRequest;
use actix_web::http::header::COOKIE;
use uuid::Uuid;

/// The cookie's name.
const NAME: &str = "onceward-demo";

/// A visitor of the shop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Visitor(Uuid);

impl Visitor {
    /// A new visitor.
    pub(crate) fn new() -> Self {
        Self(Uuid::new_v4())
    }

    /// The visitor who sent a request. All requests without an id count as one visitor.
    pub(crate) fn of(request: &HttpRequest) -> Self {
        Self::known(request).unwrap_or(Self(Uuid::nil()))
    }

    /// The visitor who sent a request, if it has an id.
    pub(crate) fn known(request: &HttpRequest) -> Option<Self> {
        let cookies = request.headers().get_all(COOKIE).filter_map(|line| line.to_str().ok());
        let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find_map(|(name, value)| Uuid::try_parse(value).ok().filter(|_| name == NAME)).map(Self)
    }

    /// The id.
    pub(crate) fn id(self) -> String {
        self.0.simple().to_string()
    }

    /// The `Set-Cookie` header, valid for a day and for this shop only. The page reads the id from `/demo/state`, for its curl lines; no
    /// other page can.
    pub(crate) fn cookie(self) -> String {
        format!("{NAME}={}; Path=/; Max-Age=86400; HttpOnly; SameSite=Strict", self.id())
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn known(cookies: &str) -> Option<Visitor> {
        Visitor::known(&TestRequest::default().insert_header((COOKIE, cookies)).to_http_request())
    }

    #[test]
    fn visitor_is_identified_by_its_cookie_only() {
        let visitor = Visitor::new();
        let sent = visitor.cookie().split(';').next().unwrap().to_owned();
        assert_eq!(known(&format!("a=b; {sent}; c")), Some(visitor));
        assert_eq!(known(&sent.replace(NAME, "other")), None);
        assert_eq!(known(&format!("{NAME}=<script>")), None);
        assert_eq!(Visitor::of(&TestRequest::default().to_http_request()).id(), "0".repeat(32));
    }
}

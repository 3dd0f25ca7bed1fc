//! Who is playing: a random id in a cookie, which keeps the visitors' counts apart and says nothing else.

use actix_web::HttpRequest;
use actix_web::http::header::COOKIE;
use uuid::Uuid;

/// The cookie's name.
const NAME: &str = "onceward-demo";

/// A visitor of the shop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Visitor(Uuid);

impl Visitor {
    /// Somebody new.
    pub(crate) fn new() -> Self {
        Self(Uuid::new_v4())
    }

    /// Whoever has sent this request; all who bring no id are one.
    pub(crate) fn of(request: &HttpRequest) -> Self {
        Self::known(request).unwrap_or(Self(Uuid::nil()))
    }

    /// The same, if there is an id.
    pub(crate) fn known(request: &HttpRequest) -> Option<Self> {
        let cookies = request.headers().get_all(COOKIE).filter_map(|line| line.to_str().ok());
        let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find_map(|(name, value)| Uuid::try_parse(value).ok().filter(|_| name == NAME)).map(Self)
    }

    /// The id.
    pub(crate) fn id(self) -> String {
        self.0.simple().to_string()
    }

    /// What has the browser bring the id again for a day, to this shop only. The page learns it from `/demo/state`, for its
    /// lines of curl; no other page does.
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
    fn a_visitor_is_known_by_the_cookie_and_by_no_other() {
        let visitor = Visitor::new();
        let sent = visitor.cookie().split(';').next().unwrap().to_owned();
        assert_eq!(known(&format!("a=b; {sent}; c")), Some(visitor));
        assert_eq!(known(&sent.replace(NAME, "other")), None);
        assert_eq!(known(&format!("{NAME}=<script>")), None);
        assert_eq!(Visitor::of(&TestRequest::default().to_http_request()).id(), "0".repeat(32));
    }
}

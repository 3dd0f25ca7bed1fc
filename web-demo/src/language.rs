//! The language of the demo: the one that the visitor chose with the switch, or else the browser's.

use actix_web::HttpRequest;
use actix_web::dev::ServiceRequest;
use actix_web::http::header::{ACCEPT_LANGUAGE, COOKIE, HeaderValue};
use actix_web::web::Data;
use onceward::Language;
use onceward::http::Preferences;

use crate::shop::Shop;

/// The cookie's name.
const NAME: &str = "onceward-demo-language";

/// A language of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DemoLanguage {
    English,
    Chinese,
}

impl DemoLanguage {
    /// The language of a request.
    pub(crate) fn of(request: &HttpRequest, shop: &Shop) -> Self {
        let preferred = || shop.guard().languages().tag_for(Preferences::of(request).accept_language);
        Self::chosen(request).unwrap_or_else(|| Self::parse(preferred()).unwrap_or(Self::English))
    }

    /// The language that the visitor chooses with this request: the link of the switch.
    pub(crate) fn switched(request: &HttpRequest) -> Option<Self> {
        request.query_string().split('&').find_map(|pair| Self::parse(pair.strip_prefix("language=")?))
    }

    /// The language that the visitor chose before.
    fn chosen(request: &HttpRequest) -> Option<Self> {
        let cookies = request.headers().get_all(COOKIE).filter_map(|line| line.to_str().ok());
        let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find_map(|(name, value)| Self::parse(value).filter(|_| name == NAME))
    }

    fn parse(tag: &str) -> Option<Self> {
        match tag {
            Language::ENGLISH => Some(Self::English),
            Language::SIMPLIFIED_CHINESE => Some(Self::Chinese),
            _ => None,
        }
    }

    /// The tag.
    pub(crate) fn tag(self) -> &'static str {
        match self {
            Self::English => Language::ENGLISH,
            Self::Chinese => Language::SIMPLIFIED_CHINESE,
        }
    }

    /// The text in this language.
    pub(crate) fn pick<T>(self, english: T, chinese: T) -> T {
        match self {
            Self::English => english,
            Self::Chinese => chinese,
        }
    }

    /// The `Set-Cookie` header, valid for a year and for this shop only.
    pub(crate) fn cookie(self) -> String {
        format!("{NAME}={}; Path=/; Max-Age=31536000; HttpOnly; SameSite=Strict", self.tag())
    }
}

/// Returns true if the demo is mounted, so that a visitor can choose a language.
pub fn has_choice(request: &HttpRequest) -> bool {
    request.app_data::<Data<Shop>>().is_some()
}

/// Returns the tag of the language that a visitor of the demo chose; `None` without a choice, and if the demo is not mounted.
pub fn chosen_language(request: &HttpRequest) -> Option<&'static str> {
    DemoLanguage::chosen(request).filter(|_| has_choice(request)).map(DemoLanguage::tag)
}

/// Sets the header by which the guard chooses a language: a page cannot set it for a form.
pub(crate) fn prefer_chosen(request: &mut ServiceRequest) {
    if let Some(language) = DemoLanguage::chosen(request.request()) {
        request.headers_mut().insert(ACCEPT_LANGUAGE, HeaderValue::from_static(language.tag()));
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn cookie_is_read_back_and_others_are_ignored() {
        let chosen = |cookies: &str| {
            DemoLanguage::chosen(&TestRequest::default().insert_header((COOKIE, cookies)).to_http_request())
        };
        let sent = DemoLanguage::Chinese.cookie().split(';').next().unwrap().to_owned();
        assert_eq!(chosen(&format!("a=b; {sent}")), Some(DemoLanguage::Chinese));
        assert_eq!(chosen(&sent.replace(NAME, "other")), None);
        assert_eq!(chosen(&format!("{NAME}=<script>")), None);
    }

    #[test]
    fn switch_names_a_known_language() {
        let switched = |uri: &str| DemoLanguage::switched(&TestRequest::with_uri(uri).to_http_request());
        assert_eq!(switched("/?language=zh-CN"), Some(DemoLanguage::Chinese));
        assert_eq!(switched("/?a=b&language=en"), Some(DemoLanguage::English));
        assert_eq!((switched("/?language=fr"), switched("/")), (None, None));
    }
}

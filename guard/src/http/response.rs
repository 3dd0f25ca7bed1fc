//! The responses that a guard sends in place of the handler's: a rejection, or the stored response.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use onceward_api::{Code, IssuedToken, Outcome, Problem, header};

use super::preferences::Preferences;
use super::rejection_format::{RejectedRequest, RejectionFormat, RejectionResponse};
use super::rejection_page;
use super::request::RequestHead;
use super::retention_header::RetentionHeader;
use super::signature::OutcomeHeaders;
use crate::effect::Effect;
use crate::guard::Guard;
use crate::language::{Language, Languages, Texts};
use crate::rejection::Rejection;
use crate::reply::Reply;
use crate::token::Token;

/// A response that a guard sends in place of the handler's, as plain data for an adapter.
#[derive(Debug, Clone)]
pub struct GuardResponse {
    status: StatusCode,
    headers: Headers,
    body: Bytes,
    /// The label of the request's id on the default page of a rejection; `None` for every other response.
    id_label: Option<Cow<'static, str>>,
    effect: Option<Effect>,
    outcome: Option<Outcome>,
}

type Headers = Vec<(Cow<'static, str>, Bytes)>;

/// The content type of a page.
const HTML: &str = "text/html; charset=utf-8";

impl GuardResponse {
    /// Creates the rejection of a request for `path`: problem JSON, or a short page if the client prefers HTML; in one of the guard's
    /// languages.
    pub fn rejection(guard: &Guard, rejection: &Rejection, path: &str, preferences: Preferences<'_>) -> Self {
        Self::formatted(&RejectionFormat::problem(), guard, rejection, path, preferences)
    }

    /// Like [`rejection`](Self::rejection), in the format of a route.
    pub fn formatted(
        format: &RejectionFormat,
        guard: &Guard,
        rejection: &Rejection,
        path: &str,
        preferences: Preferences<'_>,
    ) -> Self {
        let texts = guard.languages().texts(rejection.code(), preferences.accept_language);
        let problem = rejection.problem_in(&texts).base(guard.problem_base()).instance(path);
        let response = Self::response(&problem, rejection, preferences, format, &texts);
        response.said_in(&texts, guard.languages().is_negotiated())
    }

    /// Like [`rejection`](Self::rejection), if no guard is available.
    pub(crate) fn without_guard(request: &impl RequestHead, rejection: &Rejection) -> Self {
        let preferences = Preferences::of(request);
        let texts = Languages::negotiated().texts(rejection.code(), preferences.accept_language);
        let problem = rejection.problem_in(&texts).instance(request.path());
        Self::response(&problem, rejection, preferences, &RejectionFormat::problem(), &texts).said_in(&texts, true)
    }

    /// Like [`rejection`](Self::rejection), as a response to this request.
    pub(crate) fn rejection_to(request: &impl RequestHead, guard: &Guard, rejection: &Rejection) -> Self {
        Self::formatted_to(request, &RejectionFormat::problem(), guard, rejection)
    }

    /// Like [`formatted`](Self::formatted), as a response to this request.
    pub(crate) fn formatted_to(
        request: &impl RequestHead,
        format: &RejectionFormat,
        guard: &Guard,
        rejection: &Rejection,
    ) -> Self {
        let response = Self::formatted(format, guard, rejection, request.path(), Preferences::of(request));
        response.with_request_id(request.header(header::REQUEST_ID).next())
    }

    /// Like [`rejection`](Self::rejection), without a guard and a request: problem JSON in English, without the path.
    pub(crate) fn without_request(rejection: &Rejection) -> Self {
        let texts = Languages::fixed(Language::english()).texts(rejection.code(), None);
        let problem = rejection.problem_in(&texts);
        let response = Self::response(&problem, rejection, Preferences::none(), &RejectionFormat::problem(), &texts);
        response.said_in(&texts, false)
    }

    /// The format only changes how the rejection is said: the headers that SDKs and gateways use are the same in every format.
    fn response(
        problem: &Problem,
        rejection: &Rejection,
        preferences: Preferences<'_>,
        format: &RejectionFormat,
        texts: &Texts,
    ) -> Self {
        let prefers_html = preferences.accept.is_some_and(prefers_html);
        let written = format.write(&RejectedRequest::new(problem, rejection, texts.tag(), &preferences, prefers_html));
        let is_page = prefers_html && written.is_none();
        let said = written.unwrap_or_else(|| if is_page { page(problem, rejection, texts) } else { plain(problem) });
        let RejectionResponse { status, mut headers, body } = said;
        headers.retain(|(name, _)| !is_reserved(name));
        add(&mut headers, "cache-control", "no-store");
        if let Some(wait) = rejection.retry_after() {
            add(&mut headers, header::RETRY_AFTER, whole_seconds(wait).to_string());
        }
        let code = rejection.code();
        add(&mut headers, header::RETRY, code.retry().as_str());
        add_outcome(&mut headers, Outcome::Rejected(code));
        let id_label = is_page.then(|| texts.page().2.request);
        let response = Self { status, headers, body, id_label, effect: None, outcome: None };
        match code {
            // No statement: the policy judges the status of the code.
            Code::Internal => Self { outcome: Some(Outcome::Rejected(code)), ..response },
            Code::OutcomeUnknown | Code::UpstreamTimeout | Code::UpstreamFailed => {
                response.with_effect(Effect::Unknown, code)
            }
            _ => response.with_effect(Effect::NotApplied, code),
        }
    }

    /// Creates the replay of a stored response.
    pub fn replay(reply: &Reply) -> Self {
        let mut headers: Headers = Vec::with_capacity(8);
        headers.extend(reply.shared_headers());
        if !headers.iter().any(|(name, _)| name == "cache-control") {
            add(&mut headers, "cache-control", "no-store");
        }
        add(&mut headers, header::IDEMPOTENT_REPLAYED, "true");
        add_outcome(&mut headers, Outcome::Replayed);
        let (status, body) = (status(reply.status()), reply.body().clone());
        Self { status, headers, body, id_label: None, effect: None, outcome: Some(Outcome::Replayed) }
    }

    /// Creates the response to a token request.
    pub(super) fn of_issued(token: &Token, ttl: Duration) -> Self {
        let mut headers: Headers = Vec::with_capacity(2);
        add(&mut headers, "cache-control", "no-store");
        add(&mut headers, "content-type", "application/json");
        let body = serde_json::to_vec(&issued(token, ttl)).unwrap_or_default().into();
        Self { status: StatusCode::CREATED, headers, body, id_label: None, effect: None, outcome: None }
    }

    /// Creates the response to a method that a route does not have.
    pub(crate) fn method_not_allowed(request: &impl RequestHead, guard: &Guard, allowed: &'static str) -> Self {
        let mut response = Self::rejection_to(request, guard, &Rejection::new(Code::MethodNotAllowed));
        add(&mut response.headers, "allow", allowed);
        response
    }

    /// Adds the id of the request, the value of `X-Request-Id`, to the default page of a rejection, for support. Has no effect on a
    /// response that is not such a page, or if the id is not plain text.
    #[must_use]
    pub fn with_request_id(mut self, id: Option<&[u8]>) -> Self {
        let id = id.map(std::str::from_utf8);
        if let (Some(label), Some(Ok(id)), Ok(page)) = (&self.id_label, id, std::str::from_utf8(&self.body))
            && let Some(page) = rejection_page::with_request_id(page, label, id)
        {
            self.body = page.into();
        }
        self
    }

    /// Adds the headers of the language, unless the format has set them itself.
    fn said_in(mut self, texts: &Texts, is_negotiated: bool) -> Self {
        let tag = if self.id_label.is_some() { texts.page().0 } else { texts.tag() };
        if !self.headers.iter().any(|(name, _)| name == "content-language") {
            add(&mut self.headers, "content-language", tag.to_owned());
        }
        if is_negotiated {
            add(&mut self.headers, "vary", "Accept-Language");
        }
        self
    }

    /// Sends the client's key back.
    #[must_use]
    pub(super) fn with_key(mut self, key: Option<Bytes>) -> Self {
        if let Some(key) = key {
            // The handler may have sent it back too, and a replay repeats that.
            set(&mut self.headers, header::IDEMPOTENCY_KEY.into(), key);
        }
        self
    }

    /// Says how long the response is stored.
    #[must_use]
    pub(super) fn with_retention(mut self, retention: Option<RetentionHeader>) -> Self {
        if let Some(RetentionHeader { name, value }) = retention {
            set(&mut self.headers, name, value);
        }
        self
    }

    /// Sets the effect and the outcome that outer guards use for the rejected run.
    #[must_use]
    pub(crate) fn with_effect(mut self, effect: Effect, code: Code) -> Self {
        (self.effect, self.outcome) = (Some(effect), Some(Outcome::Rejected(code)));
        self
    }

    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the headers in order, with names in lower case. A stored response that was constructed manually may contain an invalid
    /// header name or value; skip such headers.
    pub fn headers(&self) -> impl Iterator<Item = (&Cow<'static, str>, &Bytes)> {
        self.headers.iter().map(|(name, value)| (name, value))
    }

    /// Returns the body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Returns the effect that outer guards assume; `None` means that the status decides, for a rejection that of its code.
    pub fn effect(&self) -> Option<Effect> {
        self.effect
    }

    /// Returns the outcome that outer guards report as well; `None` means that they decide.
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }
}

/// Creates the page for a client that prefers HTML.
fn page(problem: &Problem, rejection: &Rejection, texts: &Texts) -> RejectionResponse {
    let page = rejection_page::render(problem, rejection.message_for_people(), texts);
    let response = RejectionResponse::new(status(problem.status)).body(HTML, page);
    response.header("content-security-policy", rejection_page::policy())
}

/// Creates the problem for a program.
fn plain(problem: &Problem) -> RejectionResponse {
    RejectionResponse::new(status(problem.status)).body(Problem::CONTENT_TYPE, json(problem))
}

/// Returns whether only the guard sets this header of a rejection.
fn is_reserved(name: &str) -> bool {
    matches!(name, "cache-control" | "content-length" | "transfer-encoding" | header::RETRY_AFTER)
        || name.starts_with("onceward-")
}

/// Serializes a problem, most of which fit into this buffer.
fn json(problem: &Problem) -> Bytes {
    let mut json = Vec::with_capacity(512);
    serde_json::to_writer(&mut json, problem).map(|()| json.into()).unwrap_or_default()
}

fn status(number: u16) -> StatusCode {
    StatusCode::from_u16(number).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn add(headers: &mut Headers, name: &'static str, value: impl Into<Bytes>) {
    headers.push((Cow::Borrowed(name), value.into()));
}

fn add_outcome(headers: &mut Headers, outcome: Outcome) {
    let has_timing = headers.iter().any(|(name, _)| name == header::SERVER_TIMING);
    let OutcomeHeaders { outcome, server_timing } = OutcomeHeaders::of(outcome, has_timing);
    headers.retain(|(name, _)| name != header::OUTCOME);
    add(headers, header::OUTCOME, outcome);
    if let Some(timing) = server_timing {
        add(headers, header::SERVER_TIMING, timing);
    }
}

/// Creates the body of the response to a token request.
pub fn issued(token: &Token, ttl: Duration) -> IssuedToken {
    IssuedToken {
        token: token.as_str().to_owned(),
        expires_at: jiff::Timestamp::try_from(token.expires_at()).unwrap_or(jiff::Timestamp::MAX),
        expires_in: ttl.as_secs(),
    }
}

/// Sets a header, in place of earlier ones.
fn set(headers: &mut Vec<(Cow<'static, str>, Bytes)>, name: Cow<'static, str>, value: Bytes) {
    headers.retain(|(other, _)| *other != name);
    headers.push((name, value));
}

/// Rounds up: a client that retries too early is rejected again.
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// Returns whether the client prefers a page to problem JSON. A client that accepts anything receives JSON.
fn prefers_html(accept: &[u8]) -> bool {
    let mut best = (0.0, false);
    for range in std::str::from_utf8(accept).unwrap_or_default().split(',') {
        let mut pieces = range.split(';').map(str::trim);
        let is_html = match pieces.next() {
            Some("text/html" | "application/xhtml+xml") => true,
            Some("application/problem+json" | "application/json" | "application/*" | "*/*") => false,
            _ => continue,
        };
        let weight = pieces.find_map(|piece| piece.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
        if weight > best.0 {
            best = (weight, is_html);
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn header<'a>(response: &'a GuardResponse, name: &str) -> Option<&'a [u8]> {
        response.headers().find(|(other, _)| *other == name).map(|(_, value)| &value[..])
    }

    #[test]
    fn page_is_for_clients_that_prefer_html() {
        let prefers = |accept: &str| prefers_html(accept.as_bytes());
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8";
        assert!(prefers(browser) && prefers("text/html") && prefers("text/html;q=0.9, application/json;q=0.8"));
        assert!(!prefers("*/*") && !prefers("application/json") && !prefers("") && !prefers("image/png"));
        assert!(!prefers("application/problem+json, text/html;q=0.9") && !prefers("text/html;q=0, */*"));
        assert!(!prefers("text/html;q=x;q=0.1, application/json;q=0.5"));
    }

    #[test]
    fn rejection_is_a_problem_that_outer_guards_understand() {
        let (guard, _clock) = testing::guard();
        let reject = |code: Code, accept| {
            GuardResponse::rejection(&guard, &code.into(), "/orders", Preferences::none().accept(accept))
        };
        let used = reject(Code::TokenUsed, None);
        assert_eq!(used.status(), StatusCode::CONFLICT);
        assert_eq!(header(&used, "content-type"), Some(&b"application/problem+json"[..]));
        assert_eq!(header(&used, "onceward-outcome"), Some(&b"token_used"[..]));
        assert!(header(&used, "server-timing").is_some() && header(&used, "cache-control") == Some(b"no-store"));
        let problem: serde_json::Value = serde_json::from_slice(used.body()).unwrap();
        assert_eq!((&problem["code"], &problem["instance"]), (&"token_used".into(), &"/orders".into()));
        let reported = |code| (reject(code, None).effect(), reject(code, None).outcome());
        assert_eq!(reported(Code::TokenUsed), (Some(Effect::NotApplied), Some(Outcome::Rejected(Code::TokenUsed))));
        assert_eq!(reported(Code::OutcomeUnknown).0, Some(Effect::Unknown));
        assert_eq!(reported(Code::Internal), (None, Some(Outcome::Rejected(Code::Internal))));
        let page = reject(Code::TokenUsed, Some(b"text/html"));
        assert_eq!(header(&page, "content-type"), Some(&b"text/html; charset=utf-8"[..]));
        assert!(header(&page, "content-security-policy").is_some());
    }

    #[test]
    fn request_id_is_on_the_page_of_a_rejection_only() {
        let (guard, _clock) = testing::guard();
        let reject = |accept| {
            GuardResponse::rejection(&guard, &Code::TokenUsed.into(), "/orders", Preferences::none().accept(accept))
        };
        let shows = |response: GuardResponse| {
            let response = response.with_request_id(Some(b"id-4711"));
            String::from_utf8_lossy(response.body()).contains("id-4711")
        };
        assert!(shows(reject(Some(b"text/html"))) && !shows(reject(None)));
        assert!(!shows(GuardResponse::replay(&Reply::new(200, "</dl></details>").header("content-type", HTML))));
    }

    #[test]
    fn user_message_replaces_the_sentence_on_the_page() {
        let (guard, _clock) = testing::guard();
        let page = |rejection: Rejection| {
            let response =
                GuardResponse::rejection(&guard, &rejection, "/orders", Preferences::none().accept(Some(b"text/html")));
            let page = String::from_utf8_lossy(response.body()).into_owned();
            page.split_once("<details>").unwrap().0.to_owned()
        };
        let (own, ours) = ("One tea at a time is enough.", "We received the same form a moment ago.");
        let visible = page(Rejection::new(Code::TooSoon).message(own));
        assert!(visible.contains(own) && !visible.contains(ours), "{visible}");
        let visible = page(Rejection::new(Code::TooSoon).detail(own));
        assert!(!visible.contains(own) && visible.contains(ours), "{visible}");
    }

    #[test]
    fn retry_after_is_rounded_up_to_whole_seconds() {
        let (guard, _clock) = testing::guard();
        let rejection = Rejection::new(Code::TooSoon).wait(Duration::from_millis(1_001));
        let response = GuardResponse::rejection(&guard, &rejection, "/", Preferences::none());
        assert_eq!(header(&response, "retry-after"), Some(&b"2"[..]));
    }

    #[test]
    fn replay_is_marked_and_not_cached_unless_it_says_so() {
        let replay = GuardResponse::replay(&Reply::new(201, "made").header("Link", "</a>").header("link", "</b>"));
        assert_eq!((replay.status(), &replay.body()[..]), (StatusCode::CREATED, &b"made"[..]));
        let names: Vec<_> = replay.headers().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["link", "link", "cache-control", "idempotent-replayed", "onceward-outcome"]);
        assert_eq!((replay.effect(), replay.outcome()), (None, Some(Outcome::Replayed)));
        let cached = GuardResponse::replay(&Reply::new(200, "").header("Cache-Control", "max-age=60"));
        assert_eq!(header(&cached, "cache-control"), Some(&b"max-age=60"[..]));
    }

    #[test]
    fn language_changes_words_and_nothing_that_decides() {
        let (guard, _clock) = testing::guard();
        for code in Code::ALL {
            for accept in [None, Some(&b"text/html"[..])] {
                let response = |language: &'static str| {
                    let preferences = Preferences::none().accept(accept).accept_language(Some(language.as_bytes()));
                    GuardResponse::rejection(&guard, &code.into(), "/orders", preferences)
                };
                let (english, chinese, unknown) = (response("en"), response("zh-CN"), response("fr"));
                assert_eq!(header(&english, "content-language"), Some(&b"en"[..]));
                assert_eq!(header(&chinese, "content-language"), Some(&b"zh-CN"[..]));
                let others = |response: &GuardResponse| {
                    let headers = response.headers().filter(|(name, _)| *name != "content-language");
                    (response.status(), headers.map(|(name, value)| (name.clone(), value.clone())).collect::<Vec<_>>())
                };
                assert_eq!(header(&chinese, "vary"), Some(&b"Accept-Language"[..]));
                assert_eq!(others(&english), others(&chinese), "{code}");
                assert_eq!(english.body(), unknown.body(), "{code}");
                assert_ne!(english.body(), chinese.body(), "{code}");
            }
            let problem = |language: &'static [u8]| -> serde_json::Value {
                let preferences = Preferences::none().accept_language(Some(language));
                let response = GuardResponse::rejection(&guard, &code.into(), "/orders", preferences);
                let mut problem: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
                for text in ["title", "detail"] {
                    problem.as_object_mut().unwrap().remove(text).unwrap();
                }
                problem
            };
            assert_eq!(problem(b"en"), problem(b"zh"), "{code}");
        }
    }

    #[test]
    fn text_of_the_application_stays_as_it_is() {
        let (guard, _clock) = testing::guard();
        let detail = |rejection: Rejection, language: &'static [u8]| {
            let preferences = Preferences::none().accept_language(Some(language));
            let response = GuardResponse::rejection(&guard, &rejection, "/", preferences);
            let problem: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
            problem["detail"].as_str().unwrap().to_owned()
        };
        for own in [Rejection::new(Code::TooSoon).detail("own"), Rejection::new(Code::TooSoon).message("own")] {
            assert_eq!((detail(own.clone(), b"en"), detail(own, b"zh")), ("own".into(), "own".into()));
        }
        let both = || Rejection::new(Code::TooSoon).detail("own").detail_in("zh-CN", "自己的");
        assert_eq!((detail(both(), b"en"), detail(both(), b"zh")), ("own".into(), "自己的".into()));
        let replaced = both().detail("other");
        assert_eq!(detail(replaced, b"zh"), "other", "a translation of the former detail");
    }

    #[test]
    fn format_receives_the_language_and_its_words() {
        let (guard, _clock) = testing::guard();
        let format = RejectionFormat::new(|rejected| {
            let body = format!("{} {}", rejected.language(), rejected.title());
            Some(RejectionResponse::new(StatusCode::OK).body("text/plain", body))
        });
        let said = |language: &'static [u8]| {
            let preferences = Preferences::none().accept_language(Some(language));
            GuardResponse::formatted(&format, &guard, &Code::TokenUsed.into(), "/", preferences)
        };
        assert_eq!(&said(b"zh").body()[..], "zh-CN 请勿重复提交".as_bytes());
        assert_eq!(&said(b"en").body()[..], b"en This was already sent");
        assert_eq!(header(&said(b"zh"), "content-language"), Some(&b"zh-CN"[..]));
    }

    #[test]
    fn fixed_language_does_not_vary() {
        let store = crate::store::Memory::new();
        let languages = Languages::fixed(Language::simplified_chinese());
        let guard = Guard::builder(store).by_hand().languages(languages).build();
        let preferences = Preferences::none().accept(Some(b"text/html")).accept_language(Some(b"en"));
        let page = GuardResponse::rejection(&guard, &Code::TokenUsed.into(), "/", preferences);
        assert_eq!((header(&page, "content-language"), header(&page, "vary")), (Some(&b"zh-CN"[..]), None));
        let page = page.with_request_id(Some(b"id-1"));
        let text = String::from_utf8_lossy(page.body());
        assert!(text.contains("<html lang=\"zh-CN\">") && text.contains("<dt>请求编号</dt>"), "{text}");
        assert!(!text.contains("Explanation") && !text.contains("Details"), "{text}");
    }
}

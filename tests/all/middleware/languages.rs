//! The language of a rejection: chosen by `Accept-Language`, fixed, or added by the application. It changes words only.

use onceward::http::{Envelope, Protect, RejectionFormat, SubjectSource};
use onceward::store::Memory;
use onceward::{Guard, IntervalRules, KeyRules, Language, Languages, Wording};
use onceward_api::Code;
use onceward_api::header::{OUTCOME, RETRY};
use onceward_tests::client::{Answer, http, send};
use onceward_tests::handler::Handler;
use onceward_tests::key_routes::KEY;
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::routes::Routes;
use onceward_tests::shop::TestServer;
use onceward_tests::shop_handlers::order;
use onceward_tests::web_framework::WebFramework;
use serde_json::Value;

on_every_framework! {
    language_of_a_rejection_follows_the_request,
    page_is_in_the_language_of_the_browser,
    fixed_language_is_the_same_for_every_request,
    application_language_is_chosen_and_falls_back_to_english,
    envelope_has_the_words_of_the_language,
    message_of_a_route_is_the_same_in_every_language,
    response_of_the_handler_has_no_language_of_ours,
}

/// A route that requires a key.
fn routes<F: WebFramework>(guard: &Guard, format: RejectionFormat) -> Routes<F> {
    let protect = Protect::<F, _>::key(guard, SubjectSource::anonymous(), KeyRules::retryable()).rejections(format);
    let rules = IntervalRules::new().message("One tea at a time.");
    let interval = Protect::<F, _>::interval(guard, SubjectSource::anonymous(), rules);
    Routes::new().post("/orders", protect, Handler::of_body(order)).post("/teas", interval, Handler::of_body(order))
}

fn shop<F: WebFramework>(languages: Languages, format: impl Into<RejectionFormat>) -> TestServer {
    let guard = Guard::builder(Memory::new()).languages(languages).build();
    F::serve(&Ledger::new(), routes(&guard, format.into()))
}

/// Sends a request without a key.
async fn rejected(served: &TestServer, language: Option<&str>, accept: &str) -> Answer {
    let request = http().post(format!("{}/orders", served.url)).header("accept", accept);
    send(language.iter().fold(request, |request, language| request.header("accept-language", *language))).await
}

/// The value of a header; empty if it is absent.
fn value<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
}

async fn language_of_a_rejection_follows_the_request<F: WebFramework>() {
    let served = shop::<F>(Languages::default(), RejectionFormat::problem());
    for (language, tag, title) in [
        (None, "en", "The idempotency key is missing"),
        (Some("fr"), "en", "The idempotency key is missing"),
        (Some("en-GB,zh;q=0.5"), "en", "The idempotency key is missing"),
        (Some("zh-CN,zh;q=0.9,en;q=0.8"), "zh-CN", "缺少幂等键"),
        (Some("fr, zh-Hans;q=0.1"), "zh-CN", "缺少幂等键"),
    ] {
        let answer = rejected(&served, language, "*/*").await;
        assert_eq!(answer.problem().title, title, "{language:?}");
        assert_eq!(
            (value(&answer, "content-language"), value(&answer, "vary")),
            (tag, "Accept-Language"),
            "{language:?}"
        );
        let decided = (answer.status, value(&answer, OUTCOME), value(&answer, RETRY), answer.problem().code);
        assert_eq!(decided, (400, "key_missing", "no", Code::KeyMissing), "{language:?}");
    }
}

async fn page_is_in_the_language_of_the_browser<F: WebFramework>() {
    let served = shop::<F>(Languages::default(), RejectionFormat::problem());
    let page = async |language| {
        let answer = rejected(&served, Some(language), "text/html,*/*;q=0.8").await;
        (value(&answer, "content-language").to_owned(), String::from_utf8(answer.body.to_vec()).unwrap())
    };
    let (english, chinese) = (page("en").await, page("zh").await);
    assert!(english.0 == "en" && english.1.contains("<html lang=\"en\">") && english.1.contains("Details for support"));
    assert_eq!(chinese.0, "zh-CN");
    assert!(chinese.1.contains("<html lang=\"zh-CN\">") && chinese.1.contains("无法读取表单"), "{}", chinese.1);
    assert!(!chinese.1.contains("Go to") && !chinese.1.contains("Details"), "{}", chinese.1);
}

async fn fixed_language_is_the_same_for_every_request<F: WebFramework>() {
    let served = shop::<F>(Languages::fixed(Language::simplified_chinese()), RejectionFormat::problem());
    for language in [None, Some("en"), Some("zh;q=0, en")] {
        let answer = rejected(&served, language, "*/*").await;
        assert_eq!(answer.problem().title, "缺少幂等键");
        assert_eq!((value(&answer, "content-language"), value(&answer, "vary")), ("zh-CN", ""), "{language:?}");
    }
}

async fn application_language_is_chosen_and_falls_back_to_english<F: WebFramework>() {
    let german = Language::new("de", |code| match code {
        Code::KeyMissing => Some(Wording::new("Der Schlüssel fehlt", "Bitte einen Schlüssel senden.")),
        _ => None,
    });
    let served = shop::<F>(Languages::negotiated().with(german), RejectionFormat::problem());
    let missing = rejected(&served, Some("de-AT, zh;q=0.5"), "*/*").await;
    assert_eq!((value(&missing, "content-language"), &*missing.problem().title), ("de", "Der Schlüssel fehlt"));
    // The same language has no text for this code, and no page.
    let url = format!("{}/orders", served.url);
    let malformed = send(http().post(url).header("accept-language", "de").header(KEY, "\"")).await;
    assert_eq!((value(&malformed, "content-language"), malformed.problem().code), ("en", Code::KeyMalformed));
    let page = rejected(&served, Some("de"), "text/html").await;
    assert_eq!(value(&page, "content-language"), "en");
    assert_eq!(rejected(&served, Some("zh"), "*/*").await.problem().title, "缺少幂等键");
}

async fn envelope_has_the_words_of_the_language<F: WebFramework>() {
    let served = shop::<F>(Languages::default(), Envelope::new().code(Code::KeyMissing, 40001).status_ok());
    for (language, message) in [("en", "The idempotency key is missing"), ("zh", "缺少幂等键")] {
        let answer = rejected(&served, Some(language), "*/*").await;
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((&body["code"], &body["message"]), (&40001.into(), &message.into()));
        assert_eq!((answer.status, value(&answer, OUTCOME)), (200, "key_missing"));
        assert_eq!(value(&answer, "vary"), "Accept-Language");
    }
}

async fn message_of_a_route_is_the_same_in_every_language<F: WebFramework>() {
    let served = shop::<F>(Languages::default(), RejectionFormat::problem());
    let order = async |language| {
        send(http().post(format!("{}/teas", served.url)).header("accept-language", language).body("tea")).await
    };
    order("en").await;
    for language in ["en", "zh"] {
        assert_eq!(order(language).await.problem().detail, "One tea at a time.");
    }
}

async fn response_of_the_handler_has_no_language_of_ours<F: WebFramework>() {
    let served = shop::<F>(Languages::default(), RejectionFormat::problem());
    for outcome in ["executed", "replayed"] {
        let request = http().post(format!("{}/orders", served.url)).header("accept-language", "zh").header(KEY, "one");
        let answer = send(request).await;
        assert_eq!(
            (answer.outcome.as_str(), value(&answer, "content-language"), value(&answer, "vary")),
            (outcome, "", "")
        );
    }
}

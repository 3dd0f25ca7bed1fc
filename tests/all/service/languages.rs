//! The languages of the service and the proxy: rejections, the pages about error codes, the SDK's messages, and the setting `language`.

use onceward_api::Code;
use onceward_tests::client::{Answer, http, send};
use onceward_tests::legacy_shop::LegacyShop;
use onceward_tests::service::OncewardServer;
use serde_json::Value;

async fn get(url: &str, path: &str, language: &str) -> Answer {
    send(http().get(format!("{url}{path}")).header("accept-language", language)).await
}

fn text(answer: &Answer) -> &str {
    std::str::from_utf8(&answer.body).unwrap()
}

fn language(answer: &Answer) -> (&str, bool) {
    let tag = answer.headers.get("content-language").map_or("", |tag| tag.to_str().unwrap());
    let varies = answer.headers.get_all("vary").iter().any(|line| line.to_str().unwrap().contains("Accept-Language"));
    (tag, varies)
}

#[tokio::test]
async fn pages_of_every_code_are_in_the_language_of_the_browser() {
    let service = OncewardServer::start(&[]);
    for code in Code::ALL {
        let path = format!("/problems/{code}");
        let (english, chinese) = (get(&service.url, &path, "en").await, get(&service.url, &path, "zh-CN").await);
        assert_eq!((language(&english), language(&chinese)), (("en", true), ("zh-CN", true)), "{code}");
        assert!(text(&english).contains(code.title()) && text(&english).contains("<html lang=\"en\">"), "{code}");
        assert!(text(&chinese).contains("<html lang=\"zh-CN\">"), "{code}");
        assert!(!text(&chinese).contains(code.title()) && !text(&chinese).contains(code.detail()), "{code}");
        for shown in [code.as_str(), &code.status().to_string(), code.retry().as_str()] {
            assert!(text(&chinese).contains(shown), "{code}: {shown}");
        }
    }
    let (english, chinese) = (get(&service.url, "/problems", "fr").await, get(&service.url, "/problems", "zh").await);
    assert!(text(&english).contains("Error codes") && text(&chinese).contains("<h1>错误码</h1>"));
    assert!(text(&chinese).contains("请勿重复提交") && !text(&chinese).contains("All error codes"));
}

#[tokio::test]
async fn rejections_of_the_service_follow_the_header() {
    let service = OncewardServer::start(&[]);
    let redeem = async |body: &'static str, language: &str| {
        let request = http().post(format!("{}/token/redeem", service.url)).header("accept-language", language);
        send(request.header("content-type", "application/json").body(body)).await
    };
    let (english, chinese) = (redeem("[]", "en").await, redeem("[]", "zh-SG").await);
    assert_eq!((language(&english), language(&chinese)), (("en", true), ("zh-CN", true)));
    assert_eq!(english.problem().detail, "The body has to be a JSON object.");
    assert_eq!(chinese.problem().detail, "请求体必须是 JSON 对象。");
    let (english, chinese) = (get(&service.url, "/nowhere", "en").await, get(&service.url, "/nowhere", "zh").await);
    assert_eq!((english.status, chinese.status), (404, 404));
    assert!(chinese.problem().detail.contains("此 URL 不存在"), "{chinese:?}");
    assert_eq!(english.problem().code, chinese.problem().code);
}

#[tokio::test]
async fn gateway_receives_the_problem_and_the_page_in_the_language_of_the_browser() {
    let service = OncewardServer::start(&[]);
    let request = http().get(format!("{}/forward-auth?style=nginx", service.url)).header("accept-language", "zh");
    let request = request.header("x-original-method", "POST").header("x-original-uri", "/orders");
    let answer = send(request.header("accept", "text/html")).await;
    let header = |name: &str| answer.headers[name].to_str().unwrap().to_owned();
    let problem: Value = serde_json::from_str(&header("onceward-problem")).unwrap();
    assert_eq!(problem["title"], "缺少令牌");
    // The header has character references in place of Chinese characters, and fits into the 8 KB that `deploy/nginx.conf` allows.
    assert!(header("onceward-page").contains(&format!("&#{};", u32::from('请'))));
    let size: usize = answer.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    assert!(size < 7_000, "{size} bytes");
    assert_eq!(header("content-language"), "zh-CN");
}

#[tokio::test]
async fn setting_fixes_the_language() {
    let service = OncewardServer::start(&["--language", "zh-CN"]);
    let (page, rejection) = (get(&service.url, "/problems", "en").await, get(&service.url, "/nowhere", "en").await);
    assert_eq!((language(&page), language(&rejection)), (("zh-CN", false), ("zh-CN", false)));
    assert!(text(&page).contains("错误码") && rejection.problem().title == "未找到");
    let service = OncewardServer::start(&["--language", "en"]);
    let rejection = get(&service.url, "/nowhere", "zh").await;
    assert_eq!((language(&rejection), &*rejection.problem().title), (("en", false), "Not found"));
}

#[tokio::test]
async fn proxy_rejects_and_explains_in_the_language_of_the_browser() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&["--require", "token"]);
    for (asked, tag, title) in [("en", "en", "A token is missing"), ("zh", "zh-CN", "缺少令牌")] {
        let request = http().post(format!("{}/orders", proxy.url)).header("accept-language", asked).body("item=tea");
        let answer = send(request).await;
        assert_eq!((language(&answer), &*answer.problem().title), ((tag, true), title));
        let page = get(&proxy.url, "/_onceward/problems/token_missing", asked).await;
        assert_eq!(language(&page), (tag, true));
        assert!(text(&page).contains(title), "{}", text(&page));
    }
    let down = {
        let gone = shop.proxy(&["--language", "zh-CN"]);
        drop(shop);
        send(http().get(format!("{}/", gone.url)).header("accept-language", "en")).await
    };
    assert_eq!((down.status, language(&down)), (502, ("zh-CN", false)));
    assert_eq!(down.problem().title, "无法连接到应用");
}

#[tokio::test]
async fn chinese_messages_of_the_sdk_are_served_beside_the_script() {
    const COMMITTED: &[u8] = include_bytes!("../../../client-sdk/web/dist/onceward.zh-CN.js");
    let shop = LegacyShop::start();
    let (service, proxy) = (OncewardServer::start(&[]), shop.proxy(&[]));
    for url in [format!("{}/sdk", service.url), format!("{}/_onceward/sdk", proxy.url)] {
        let script = get(&url, "/onceward.zh-CN.js", "en").await;
        assert_eq!((script.status, &script.body[..]), (200, COMMITTED), "{url}");
        assert_eq!(script.headers["content-type"], "text/javascript; charset=utf-8");
        assert_eq!(script.headers["cache-control"], "public, no-cache");
        let known = script.headers["etag"].to_str().unwrap();
        let again = send(http().get(format!("{url}/onceward.zh-CN.js")).header("if-none-match", known)).await;
        assert_eq!(again.status, 304);
    }
}

#[tokio::test]
async fn pages_of_codes_are_in_the_language_that_was_chosen_in_the_demo() {
    let ask = async |service: &OncewardServer, path: &str| {
        let request = http().get(format!("{}{path}", service.url)).header("accept-language", "en");
        send(request.header("cookie", "onceward-demo-language=zh-CN")).await
    };
    let demo = OncewardServer::start(&[]);
    for path in ["/problems", "/problems/token_used"] {
        let page = ask(&demo, path).await;
        assert_eq!(language(&page), ("zh-CN", true), "{path}");
        assert!(text(&page).contains("<html lang=\"zh-CN\">"), "{path}");
        assert_eq!(page.headers["vary"], "Accept-Language, Cookie", "{path}");
        assert_eq!(language(&get(&demo.url, path, "en").await), ("en", true), "without a choice");
    }
    let service = OncewardServer::start(&["--demo", "false"]);
    let page = ask(&service, "/problems").await;
    assert_eq!((language(&page), &page.headers["vary"]), (("en", true), &"Accept-Language".parse().unwrap()));
}

//! A token that the server renders into a form protects it without any script.
//!
//! The pages of the shop are on actix-web only.

use onceward::store::Memory;
use onceward_tests::client::{http, send};
use onceward_tests::shop::Shop;

/// Returns the token in a page.
fn token_in(page: &str) -> &str {
    let (_, rest) = page.split_once("<input type=\"hidden\" name=\"_onceward\" value=\"").expect("the hidden field");
    rest.split_once('"').expect("the end of its value").0
}

#[tokio::test]
async fn rendered_form_runs_once_with_a_token_per_page() {
    let shop = Shop::on(Memory::new());
    let page = || async { send(http().get(format!("{}/web/pages/rendered", shop.url()))).await };
    let (first, second) = (page().await, page().await);
    let [first, second] = [&first, &second].map(|page| std::str::from_utf8(&page.body).unwrap());
    assert_ne!(token_in(first), token_in(second));
    assert!(first.contains("data-expires-in=\"1800\""));

    let submit = |page: &str| {
        let fields = [("_onceward", token_in(page)), ("item", "rendered")];
        send(http().post(format!("{}/web/orders", shop.url())).form(&fields))
    };
    let one = submit(first).await;
    assert_eq!(one.said(), "200 executed");
    let again = submit(first).await;
    assert_eq!((again.said().as_str(), &again.body), ("200 replayed", &one.body));
    assert_eq!(shop.ledger.count("item=rendered"), 1);
    assert_eq!(submit(second).await.said(), "200 executed");
    assert_eq!(shop.ledger.count("item=rendered"), 2);

    let without = http().post(format!("{}/web/orders", shop.url())).form(&[("item", "bare")]);
    assert_eq!(send(without).await.said(), "400 token_missing");
    assert_eq!(shop.ledger.count("item=bare"), 0);
}

#[tokio::test]
async fn rejection_page_works_under_a_strict_content_security_policy() {
    let shop = Shop::on(Memory::new());
    let refused =
        http().post(format!("{}/web/orders", shop.url())).header("accept", "text/html").form(&[("item", "bare")]);
    let refused = send(refused).await;
    assert_eq!(refused.said(), "400 token_missing");
    let policies: Vec<_> = refused.headers.get_all("content-security-policy").iter().collect();
    assert_eq!(policies.len(), 1, "the policy of the application is not added");
    assert!(policies[0].to_str().unwrap().starts_with("default-src 'none'; style-src 'sha256-"), "{policies:?}");
}

//! Webhooks that a sender delivers more than once take effect once.

use onceward::http::{KeySource as KeyFrom, Protect};
use onceward::store::Memory;
use onceward::{Guard, KeyRules};
use onceward_tests::client::{Answer, http};
use onceward_tests::faulty_http_proxy::{FaultyHttpProxy, HttpFault, first, smooth};
use onceward_tests::handler::Handler;
use onceward_tests::key_routes::serve_at;
use onceward_tests::ledger::Ledger;
use onceward_tests::on_every_framework;
use onceward_tests::routes::Routes;
use onceward_tests::shop::{ORDER, STATUS, TAKES, TestServer, USER, user};
use onceward_tests::shop_handlers::purchase;
use onceward_tests::web_framework::WebFramework;
use tokio::task::JoinSet;

on_every_framework! {
    redelivery_after_a_lost_response_receives_the_stored_one,
    concurrent_deliveries_take_effect_once (threads),
    event_id_in_the_body_identifies_the_event,
    senders_with_the_same_event_id_are_independent,
    failed_event_is_redelivered_or_waits_for_a_decision,
}

const PATH: &str = "/hooks";
const EVENT_ID: &str = "webhook-id";

/// Starts an application whose webhooks go by the header with the event id.
fn by_header<F: WebFramework>(ledger: &Ledger, rules: KeyRules) -> TestServer {
    let protect = Protect::<F, _>::key(&Guard::new(Memory::new()), user::<F>(), rules);
    serve_at(ledger, PATH, protect.from(KeyFrom::header(EVENT_ID).unwrap()))
}

/// One delivery of an event. Its timestamp and signature differ from those of the delivery before. Returns `None` without a response.
async fn deliver(url: &str, sender: &str, event: &str, headers: &[(&str, &str)]) -> Option<Answer> {
    let signature = uuid::Uuid::new_v4().to_string();
    let mut request = http().post(format!("{url}{PATH}")).header(USER, sender).header(EVENT_ID, event);
    request = request.header("webhook-signature", &signature).header("webhook-timestamp", &signature);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = format!(r#"{{"id": "{event}", "type": "invoice.paid"}}"#);
    let request = request.header("content-type", "application/json").header(ORDER, event).body(body);
    Some(Answer::of(request.send().await.ok()?).await)
}

/// Delivers an event until the application responds with 2xx, as a sender does. Returns that response and the number of deliveries.
async fn deliver_until_accepted(url: &str, event: &str, headers: &[(&str, &str)]) -> (Answer, usize) {
    for delivery in 1..200 {
        if let Some(answer) = deliver(url, "billing", event, headers).await.filter(|answer| answer.status < 300) {
            return (answer, delivery);
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("{event} is never accepted");
}

async fn redelivery_after_a_lost_response_receives_the_stored_one<F: WebFramework>() {
    let ledger = Ledger::new();
    let served = by_header::<F>(&ledger, KeyRules::at_most_once());
    let proxy = FaultyHttpProxy::to(&served.url, smooth).await;
    for (number, fault) in
        [HttpFault::CutAnswer(0), HttpFault::CutAnswer(50), HttpFault::After(502)].into_iter().enumerate()
    {
        proxy.plan(first([fault]));
        let event = format!("evt_{number}");
        let (accepted, deliveries) = deliver_until_accepted(&proxy.url, &event, &[]).await;
        assert_eq!((accepted.said().as_str(), deliveries), ("200 replayed", 2));
        assert_eq!(ledger.count(&event), 1);
    }
}

async fn concurrent_deliveries_take_effect_once<F: WebFramework>() {
    let ledger = Ledger::new();
    let served = by_header::<F>(&ledger, KeyRules::at_most_once());
    let mut deliveries = JoinSet::new();
    for _ in 0..20 {
        let url = served.url.clone();
        deliveries.spawn(async move { deliver_until_accepted(&url, "evt_1", &[(TAKES, "100")]).await.0.body });
    }
    let bodies = deliveries.join_all().await;
    assert!(bodies.iter().all(|body| *body == bodies[0]), "every delivery receives the response of the one run");
    assert_eq!(ledger.count("evt_1"), 1);
}

async fn event_id_in_the_body_identifies_the_event<F: WebFramework>() {
    let ledger = Ledger::new();
    let protect = Protect::<F, _>::key(&Guard::new(Memory::new()), user::<F>(), KeyRules::at_most_once());
    let protect = protect.from(KeyFrom::body("/id").unwrap());
    let served = F::serve(&ledger, Routes::new().any(PATH, protect, Handler::of_body(purchase)));
    for (event, said) in [("evt_1", "200 executed"), ("evt_1", "200 replayed"), ("evt_2", "200 executed")] {
        assert_eq!(deliver(&served.url, "billing", event, &[]).await.unwrap().said(), said);
    }
    assert_eq!(ledger.runs(), ["evt_1", "evt_2"]);
}

async fn senders_with_the_same_event_id_are_independent<F: WebFramework>() {
    let ledger = Ledger::new();
    let served = by_header::<F>(&ledger, KeyRules::at_most_once());
    for said in ["200 executed", "200 replayed"] {
        for sender in ["billing", "shipping"] {
            assert_eq!(deliver(&served.url, sender, "1", &[]).await.unwrap().said(), said, "{sender}");
        }
    }
    assert_eq!(ledger.count("1"), 2);
}

/// A 500 asks the sender for another delivery. It runs only if the work is safe to repeat.
async fn failed_event_is_redelivered_or_waits_for_a_decision<F: WebFramework>() {
    for (rules, then, runs) in
        [(KeyRules::retryable(), "200 executed", 2), (KeyRules::at_most_once(), "409 outcome_unknown", 1)]
    {
        let ledger = Ledger::new();
        let served = by_header::<F>(&ledger, rules);
        assert_eq!(deliver(&served.url, "billing", "evt_1", &[(STATUS, "500")]).await.unwrap().status, 500);
        assert_eq!(deliver(&served.url, "billing", "evt_1", &[]).await.unwrap().said(), then);
        assert_eq!(ledger.count("evt_1"), runs);
    }
}

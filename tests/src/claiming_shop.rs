//! A shop that claims each order at the service, and offers no lookup itself.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use onceward_api::header::{IDEMPOTENCY_KEY, OUTCOME, TOKEN};
use serde_json::{Value, json};

use crate::axum_server::AxumServer;
use crate::client::{Answer, http, send};
use crate::ledger::Ledger;
use crate::service::OncewardServer;
use crate::shop::{ORDER, TAKES, USER};

/// The API key of the service.
pub const API_KEY: &str = "a-key-of-some-length";
/// Request header with the action of the claim. Default: method and path.
pub const ACTION: &str = "x-action";
/// Request header of an order after which the shop crashes, before it completes the claim.
pub const CRASHES: &str = "x-crashes";
/// The body of the response, in base64: `ordered`.
const BODY: &str = "b3JkZXJlZA==";

/// A running shop with its service.
pub struct ClaimingShop {
    /// The service, which requires [`API_KEY`].
    pub service: OncewardServer,
    /// The effects.
    pub ledger: Ledger,
    server: AxumServer,
}

#[derive(Clone)]
struct Desk {
    service: String,
    ledger: Ledger,
}

impl ClaimingShop {
    /// Starts both.
    pub fn start() -> Self {
        let (service, ledger) = (OncewardServer::start(&["--api-key", API_KEY]), Ledger::new());
        let desk = Desk { service: service.url.clone(), ledger: ledger.clone() };
        let server = AxumServer::serve(Router::new().route("/orders", post(order)).with_state(desk));
        Self { service, ledger, server }
    }

    /// The URL of the shop.
    pub fn url(&self) -> &str {
        &self.server.url
    }
}

impl Desk {
    async fn call(&self, path: &str, body: &Value) -> Answer {
        let request = http().post(format!("{}{path}", self.service)).bearer_auth(API_KEY);
        send(request.header("content-type", "application/json").body(body.to_string())).await
    }
}

async fn order(State(desk): State<Desk>, method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let action = text(ACTION).map_or_else(|| format!("{method} {}", uri.path()), str::to_owned);
    // The shop does not renew its claims. After a crash, the lease expires soon.
    let lease = if text(CRASHES).is_some() { "300ms" } else { "15s" };
    let (key, token, subject) = (text(IDEMPOTENCY_KEY), text(TOKEN), text(USER));
    let claim = json!({"key": key, "token": token, "subject": subject, "action": action, "lease": lease});
    let claimed = desk.call("/claim", &claim).await;
    let body: Value = serde_json::from_slice(&claimed.body).expect("JSON of the service");
    if claimed.status != 200 {
        let code = body["code"].as_str().unwrap_or_default().to_owned();
        return (
            StatusCode::CONFLICT,
            [(OUTCOME, code), ("content-type", "application/problem+json".to_owned())],
            claimed.body,
        )
            .into_response();
    }
    if body["outcome"] == "replay" {
        return (StatusCode::CREATED, [(OUTCOME, "replayed")], "ordered").into_response();
    }
    desk.ledger.record(text(ORDER).unwrap_or_default());
    let takes = text(TAKES).and_then(|takes| takes.parse().ok()).unwrap_or_default();
    tokio::time::sleep(Duration::from_millis(takes)).await;
    if text(CRASHES).is_none() {
        let reply = json!({"status": 201, "headers": [["location", "/orders/1"]], "body": BODY});
        desk.call("/claim/complete", &json!({"pass": body["pass"], "reply": reply})).await;
    }
    (StatusCode::CREATED, [(OUTCOME, "executed"), ("location", "/orders/1")], "ordered").into_response()
}

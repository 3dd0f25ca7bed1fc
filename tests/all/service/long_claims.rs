//! Claims with the longest action that the service accepts.

use onceward_tests::service::OncewardServer;
use onceward_tests::service_calls::post;
use serde_json::{Value, json};

#[tokio::test]
async fn pass_works_for_an_action_of_any_length() {
    let service = OncewardServer::start(&["--demo", "off"]);
    let action = "é".repeat(7_500);
    for verb in ["renew", "release", "complete"] {
        let asked = json!({"key": verb, "action": action, "subject": "alice"});
        let claimed = post(&service.url, "/claim", &asked).await;
        let claimed: Value = serde_json::from_slice(&claimed.body).unwrap();
        assert_eq!(claimed["outcome"], "run", "{verb}");
        let said = post(&service.url, &format!("/claim/{verb}"), &json!({"pass": claimed["pass"]})).await;
        assert_eq!(said.status, 204, "{verb}: {}", String::from_utf8_lossy(&said.body));
    }
}

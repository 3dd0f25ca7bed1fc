//! A handler with `#[once]` in an application of actix-web that has no guard. On axum that does not compile.

use std::fs;

use onceward_tests::client::{http, send};
use onceward_tests::ledger::Ledger;
use onceward_tests::peer::Peer;
use serde_json::{Value, json};

use crate::PEER;

#[tokio::test]
async fn handler_without_guard_responds_500_and_logs_one_error_with_the_fix() {
    let (ledger, log) = (Ledger::new(), tempfile::NamedTempFile::new().unwrap());
    let peer = Peer::start_logging(PEER, "annotated-without-guard", "memory:", &ledger, log.path());
    let english = "This handler has no guard, so it did not run. The server log names the fix.";
    let chinese = "该处理函数没有守卫，因此没有执行。服务器日志中给出了修复方法。";
    for (language, detail) in [("en", english), ("zh-CN", chinese), ("fr", english), ("en", english), ("zh", chinese)] {
        let request = http().post(format!("{}/payments", peer.url)).header("idempotency-key", "k");
        let request = request.header("accept-language", language);
        let answer = send(request.json(&json!({"order": {"id": "a"}}))).await;
        assert_eq!((answer.status, answer.problem().code.as_str()), (500, "internal"), "{answer:?}");
        assert_eq!(answer.problem().detail, detail);
    }
    assert!(ledger.runs().is_empty(), "the handler ran without a guard");
    let log = fs::read_to_string(log.path()).unwrap();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line in JSON"));
    let errors: Vec<_> = lines.filter(|line| line["level"] == "ERROR").collect();
    let [error] = &errors[..] else { panic!("one error for five requests: {errors:?}") };
    // Two modules may have a handler with the same name.
    assert_eq!(error["fields"]["handler"], "onceward_tests::annotated_shop::actix::pay");
    let message = error["fields"]["message"].as_str().unwrap();
    assert!(message.contains(".app_data(onceward::actix::Protection::new(&guard, subject))"), "{message}");
}

//! The memory for request bodies that the proxy reads before it forwards them: `buffer_limit` for all of them together.

use onceward_api::header;
use onceward_tests::client::{http, send};
use onceward_tests::legacy_shop::LegacyShop;
use onceward_tests::polling::until;
use tokio::task::JoinSet;

use super::submission::{LONG, SettingsFile, keyed, order, token, tokened};

const MIB: usize = 1024 * 1024;

/// A run holds its body until it has ended, so the number of orders tells how many bodies are in memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn protected_upload_over_buffer_limit_is_rejected_and_runs_nothing() {
    let shop = LegacyShop::start();
    let proxy = shop.proxy(&["--buffer-limit", "4MiB"]);
    let token = token(&proxy).await;
    let large = || http().post(format!("{}/orders?slow=15", proxy.url)).body(vec![b'x'; MIB - 1]);
    let mut runs = JoinSet::new();
    for key in ["a", "b", "c", "d"] {
        runs.spawn(send(large().header(header::IDEMPOTENCY_KEY, key)));
    }
    until("the bodies have arrived", LONG, || std::future::ready(shop.orders().len() == 4)).await;
    let protected = [keyed(&proxy, "/orders", "k"), tokened(&proxy, "/orders", &token)];
    for request in &protected {
        let answer = send(request.try_clone().unwrap()).await;
        assert_eq!(answer.said(), "503 overloaded");
        assert_eq!(answer.headers[header::RETRY_AFTER], "1", "{answer:?}");
    }
    assert_eq!(shop.orders().len(), 4, "nothing ran");
    let passing = http().post(format!("{}/sink", proxy.url)).body(vec![b'x'; 2 * MIB]);
    assert_eq!(send(passing).await.said(), "200 unprotected", "a body that passes is not in memory");
    assert_eq!(send(order(&proxy, "/orders", "tea")).await.said(), "201 unprotected");
    assert_eq!(send(http().get(&proxy.url)).await.status, 200);
    assert!(runs.try_join_next().is_none(), "all of this has happened beside the runs");
    for run in runs.join_all().await {
        assert_eq!(run.said(), "201 executed");
    }
    for request in protected {
        assert_eq!(send(request).await.said(), "201 executed", "the key and the token stayed valid");
    }
    assert_eq!(shop.orders().len(), 7);
}

#[tokio::test]
async fn body_limit_over_buffer_limit_is_no_setting() {
    let file = SettingsFile::new(
        "upstream = \"http://127.0.0.1:1\"\n[[proxy.route]]\npath = \"/a\"\npolicy = \"key\"\nbody_limit = \"2MiB\"\n",
    );
    let output = onceward_tests::service::run(&["proxy", "--config", file.path(), "--buffer-limit", "1MiB"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("buffer_limit: it is less than the largest body_limit"),
        "{said}"
    );
}

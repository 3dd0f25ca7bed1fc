//! The README's commands do what it says.

use std::process::Command;
use std::sync::Arc;

use futures_util::future::join_all;
use onceward_tests::client::{Answer, token};
use onceward_tests::raw_http::{connect, post, post_on};
use onceward_tests::readme_program::ReadmeProgram;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::OncewardServer;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// How often the button is clicked: fewer than may wait for one answer.
const CLICKS: usize = 200;

/// The blocks of one kind, in their order.
fn blocks(kind: &str) -> Vec<String> {
    let readme = include_str!("../../../README.md");
    let begin = format!("```{kind}\n");
    readme.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn the_block_for_nginx_is_the_recipe_that_is_tested() {
    assert_eq!(blocks("nginx"), [onceward_tests::gateway::GatewayKind::Nginx.recipe()]);
}

/// The program of an example, without the line that describes it.
fn program(example: &str) -> &str {
    example.split_once("\n\n").expect("a line that describes it").1
}

#[test]
fn first_program_is_the_example_and_runs_on_redis_with_two_lines_changed() {
    let blocks = blocks("rust,no_run");
    let (first, on_redis) = (&blocks[0], &blocks[1]);
    assert_eq!(first, program(include_str!("../../../guard/examples/orders.rs")));
    let example = program(include_str!("../../../guard/examples/orders_on_redis.rs"));
    let changed: Vec<_> = first.lines().zip(example.lines()).filter(|(before, after)| before != after).collect();
    assert_eq!(first.lines().count(), example.lines().count());
    assert_eq!(changed.len(), 2, "{changed:?}");
    for (_, line) in changed {
        assert!(on_redis.lines().any(|shown| shown == line.trim()), "{line} is not in\n{on_redis}");
    }
}

/// Posts an order with this token on a connection of its own for each click, all at the same moment, to each address in turn.
async fn click(urls: &[&str], token: &str) -> Vec<Answer> {
    let (connected, mut clicks) = (Arc::new(Barrier::new(CLICKS)), JoinSet::new());
    for url in urls.iter().cycle().take(CLICKS) {
        let (url, token, connected) = ((*url).to_owned(), token.to_owned(), Arc::clone(&connected));
        clicks.spawn(async move {
            let stream = connect(&url).await;
            connected.wait().await;
            post_on(stream, "/orders", &[("onceward-token", &token)], "").await
        });
    }
    clicks.join_all().await
}

/// One click ran the handler, and every other has its answer. The handlers number their orders: the next is the second.
async fn expect_one_order(urls: &[&str]) {
    let answers = click(urls, &token(urls[0]).await).await;
    let count = |said: &str| answers.iter().filter(|answer| answer.said() == said).count();
    assert_eq!((count("201 executed"), count("201 replayed")), (1, CLICKS - 1), "{answers:?}");
    let replayed = answers.iter().filter(|answer| answer.headers.contains_key("idempotent-replayed"));
    assert_eq!(replayed.count(), CLICKS - 1);
    assert!(answers.iter().all(|answer| answer.body == "order 1\n"), "{answers:?}");
    let next =
        join_all(urls.iter().map(async |url| post(url, "/orders", &[("onceward-token", &token(url).await)], "").await));
    let mut next: Vec<_> = next.await.into_iter().map(|answer| answer.body).collect();
    next.sort();
    let expected: Vec<_> = (1..=urls.len()).map(|_| "order 1\n").chain(["order 2\n"]).skip(1).collect();
    assert_eq!(next, expected, "one process has taken one order, and no other has taken any");
}

#[tokio::test]
async fn first_program_takes_one_order_of_200_clicks_at_once() {
    let program = ReadmeProgram::start(env!("CARGO_BIN_EXE_orders"), None);
    expect_one_order(&[&program.url]).await;
}

#[tokio::test]
async fn two_processes_on_redis_take_one_order_of_200_clicks_at_once() {
    let redis = RedisServer::start();
    let start = || ReadmeProgram::start(env!("CARGO_BIN_EXE_orders_on_redis"), Some(&redis));
    let (first, second) = (start(), start());
    expect_one_order(&[&first.url, &second.url]).await;
}

/// What the README says stands for an address and a program; here it is another port, and this build.
#[tokio::test]
async fn the_shell_blocks_of_the_readme_work() {
    let blocks = blocks("sh");
    let [start, life, claim, others] = blocks.as_slice() else { panic!("four shell blocks, not {}", blocks.len()) };
    assert_eq!(start, "cargo run --release\n");
    let run = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .expect("cargo runs");
    let metadata: serde_json::Value = serde_json::from_slice(&run.stdout).expect("JSON");
    let started = metadata["workspace_default_members"].as_array().expect("a list");
    assert!(started.len() == 1 && started[0].as_str().unwrap().contains("/server#"), "{started:?}");

    let service = OncewardServer::start(&[]);
    let said = run_in_shell(life, &service);
    let (first, second) = said.split_once("}{").unwrap_or_else(|| panic!("two answers: {said}"));
    assert_eq!(first, r#"{"outcome":"redeemed""#);
    assert!(second.contains(r#""code":"token_used""#), "{second}");

    let said = run_in_shell(claim, &service);
    let (first, second) = said.split_once('\n').unwrap_or_else(|| panic!("two lines: {said}"));
    assert!(first.starts_with(r#"{"outcome":"run","pass":"owp1_"#), "{first}");
    assert!(first.ends_with(r#","lease":"15s","renew_every":"5s"}"#), "{first}");
    assert_eq!(second, r#"{"outcome":"replay","reply":{"status":201,"headers":[],"body":""}}"#);

    let said = run_in_shell(others, &service);
    let (replay, rejection) = said.split_once("}}").unwrap_or_else(|| panic!("a replay, then a rejection: {said}"));
    assert_eq!(replay, r#"{"outcome":"replay","reply":{"status":201,"headers":[],"body":"""#);
    assert!(rejection.contains(r#""code":"too_soon""#), "{rejection}");
}

/// Runs a block against this service, and gives what it printed.
fn run_in_shell(block: &str, service: &OncewardServer) -> String {
    let script = block.replace("localhost:8080", service.url.trim_start_matches("http://"));
    assert_ne!(script, block);
    let output = Command::new("sh").args(["-eu", "-c", &script]).output().expect("sh runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

//! The README is true: its programs are the tested examples, its counts are right, and a newcomer can build them in an empty folder.

use std::fs;
use std::process::Command;
use std::sync::Arc;

use futures_util::future::join_all;
use onceward_tests::client::{Answer, token};
use onceward_tests::raw_http::{connect, post, post_on};
use onceward_tests::readme_program::ReadmeProgram;
use onceward_tests::redis_server::RedisServer;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const README: &str = include_str!("../../../README.md");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Number of clicks: fewer than the duplicates that may wait for one response.
const CLICKS: usize = 200;
/// Words in the lines of the program that a route without Onceward would not have.
const OF_ONCEWARD: [&str; 6] = ["onceward::", "guard", "Protect", "token_route", "TEN_MINUTES", "time::Duration"];

/// Returns the blocks of one language, in their order.
fn blocks(language: &str) -> Vec<String> {
    let begin = format!("```{language}\n");
    README.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap_or_default().to_owned()).collect()
}

/// Returns the program of an example, without the line that describes it.
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

#[test]
fn axum_program_is_the_example() {
    assert_eq!(blocks("rust,no_run")[2], program(include_str!("../../../guard/examples/axum_orders.rs")));
}

/// The README says how much a newcomer has to type; this test counts it.
#[test]
fn stated_numbers_of_commands_and_lines_are_right() {
    let program = &blocks("rust,no_run")[0];
    let lines: Vec<_> = program.lines().filter(|line| !line.trim().is_empty()).collect();
    let ours = lines.iter().filter(|line| OF_ONCEWARD.iter().any(|word| line.contains(word))).count();
    let stated = format!("{ours} of its {} lines are Onceward's", lines.len());
    assert!(README.contains(&stated), "the README does not say: {stated}");

    let commands = blocks("sh");
    assert_eq!(commands[..2], ["cargo run --release\n", "make test\n"]);
    assert_eq!(commands.len(), 3, "{commands:?}");
    assert!(README.contains("## The service in three commands") && commands[2].lines().count() == 3, "{commands:?}");
    let first_screen = README.lines().take(40).collect::<Vec<_>>().join("\n");
    assert!(commands[..2].iter().all(|command| first_screen.contains(command.trim())), "{first_screen}");
    assert!(README.lines().count() <= 280, "{} lines", README.lines().count());
}

/// `cargo run` in the folder of the repository starts the service.
#[test]
fn service_is_the_default_program_of_the_workspace() {
    let run = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(ROOT)
        .output()
        .expect("cargo runs");
    let metadata: serde_json::Value = serde_json::from_slice(&run.stdout).expect("JSON");
    let started = metadata["workspace_default_members"].as_array().expect("a list");
    assert!(started.len() == 1 && started[0].as_str().unwrap().contains("/server#"), "{started:?}");
}

/// Compiles a program as a newcomer does, who copies it and its dependencies into an empty folder. The path to the clone differs, and so do
/// the features of the framework: this repository uses it without its default features, so their dependencies may not be on this machine.
fn compile_in_an_empty_folder(dependencies: &str, framework: &str, minimal: &str, program: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dependencies = dependencies.replace("../onceward/guard", &format!("{ROOT}/guard")).replace(framework, minimal);
    assert!(dependencies.contains(ROOT) && dependencies.contains(minimal), "{dependencies}");
    let manifest = format!("[package]\nname = \"shop\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n{dependencies}");
    fs::write(folder.path().join("Cargo.toml"), manifest).expect("the folder is writable");
    fs::create_dir(folder.path().join("src")).expect("the folder is writable");
    fs::write(folder.path().join("src/main.rs"), program).expect("the folder is writable");
    // The same versions as here: cargo asks no registry.
    fs::copy(format!("{ROOT}/Cargo.lock"), folder.path().join("Cargo.lock")).expect("a lock file");
    let check = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--quiet"])
        .env("CARGO_TARGET_DIR", format!("{ROOT}/target/newcomer"))
        .current_dir(folder.path())
        .output()
        .expect("cargo runs");
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
}

#[test]
fn programs_compile_in_an_empty_folder() {
    let (manifests, programs) = (blocks("toml"), blocks("rust,no_run"));
    let actix = r#"actix-web = { version = "4", default-features = false, features = ["macros"] }"#;
    compile_in_an_empty_folder(&manifests[0], r#"actix-web = "4""#, actix, &programs[0]);
    let axum = r#"axum = { version = "0.8", default-features = false, features = ["http1", "tokio"] }"#;
    compile_in_an_empty_folder(&manifests[1], r#"axum = "0.8""#, axum, &programs[2]);
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
async fn axum_program_takes_one_order_of_200_clicks_at_once() {
    let program = ReadmeProgram::start(env!("CARGO_BIN_EXE_axum_orders"), None);
    expect_one_order(&[&program.url]).await;
}

#[tokio::test]
async fn two_processes_on_redis_take_one_order_of_200_clicks_at_once() {
    let redis = RedisServer::start();
    let start = || ReadmeProgram::start(env!("CARGO_BIN_EXE_orders_on_redis"), Some(&redis));
    let (first, second) = (start(), start());
    expect_one_order(&[&first.url, &second.url]).await;
}

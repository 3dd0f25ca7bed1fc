//! The README's commands do what it says.

use std::process::Command;

use onceward_tests::service::OncewardServer;

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

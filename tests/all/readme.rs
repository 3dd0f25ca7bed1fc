//! The README's commands do what it says.

use std::process::Command;

use onceward_tests::service::OncewardServer;

/// The blocks of one kind, in their order.
fn blocks(kind: &str) -> Vec<String> {
    let readme = include_str!("../../README.md");
    let begin = format!("```{kind}\n");
    readme.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn the_block_for_nginx_is_the_recipe_that_is_tested() {
    assert_eq!(blocks("nginx"), [onceward_tests::gateway::Kind::Nginx.recipe()]);
}

/// What the README says stands for an address and a program; here it is another port, and this build.
#[tokio::test]
async fn the_shell_blocks_of_the_readme_work() {
    let blocks = blocks("sh");
    let [start, life] = blocks.as_slice() else { panic!("two shell blocks, not {}", blocks.len()) };
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
    let here = service.url.trim_start_matches("http://");
    let script = life.replace("localhost:8080", here);
    assert_ne!(&script, life);
    let output = Command::new("sh").args(["-eu", "-c", &script]).output().expect("sh runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (first, second) = said.split_once("}{").unwrap_or_else(|| panic!("two answers: {said}"));
    assert_eq!(first, r#"{"outcome":"redeemed""#);
    assert!(second.contains(r#""code":"token_used""#), "{second}");
}

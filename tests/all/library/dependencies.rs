//! Dependencies of the packages with few features.

use std::process::Command;

fn tree(features: &str) -> String {
    tree_of("onceward", features)
}

fn tree_of(package: &str, features: &str) -> String {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--package", package, "--edges", "normal", "--prefix", "none"])
        .args(["--no-default-features", "--features", features])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn has(tree: &str, name: &str) -> bool {
    tree.lines().any(|line| line.split(' ').next() == Some(name))
}

#[test]
fn actix_feature_alone_has_few_dependencies() {
    let lean = tree("actix");
    assert!(has(&lean, "actix-web"));
    for heavy in [
        "redis",
        "sqlx",
        "sqlx-core",
        "utoipa",
        "utoipa-swagger-ui",
        "reqwest",
        "hyper",
        "h2",
        "metrics-exporter-prometheus",
    ] {
        assert!(!has(&lean, heavy), "{heavy} is a dependency");
    }
    assert!(has(&tree("actix,redis"), "redis"));
    assert!(!has(&tree(""), "actix-web"));
}

/// The crates of each web framework, by their prefixes.
const FRAMEWORKS: [(&str, &[&str]); 3] =
    [("actix", &["actix"]), ("tower", &["tower", "http-body"]), ("axum", &["axum", "hyper", "tower", "http-body"])];

#[test]
fn adapter_compiles_no_crate_of_another_framework() {
    for (feature, own) in FRAMEWORKS {
        let tree = tree(feature);
        let is_own = |line: &str| own.iter().any(|prefix| line.starts_with(prefix));
        assert!(own.iter().all(|prefix| tree.lines().any(|line| line.starts_with(prefix))), "{feature}: {tree}");
        let foreign = FRAMEWORKS.iter().flat_map(|(_, prefixes)| *prefixes);
        for prefix in foreign.filter(|prefix| !own.contains(prefix)) {
            let found = tree.lines().find(|line| line.starts_with(prefix) && !is_own(line));
            assert_eq!(found, None, "{feature} depends on a crate of another framework");
        }
    }
    let bare = tree("");
    for prefix in FRAMEWORKS.iter().flat_map(|(_, prefixes)| *prefixes) {
        assert!(!bare.lines().any(|line| line.starts_with(prefix)), "{prefix} is a dependency without an adapter");
    }
}

#[test]
fn patterns_need_a_database_driver_and_no_guard() {
    let patterns = tree_of("onceward-patterns", "");
    assert!(has(&patterns, "sqlx"));
    for foreign in ["onceward", "onceward-api", "actix-web", "redis"] {
        assert!(!has(&patterns, foreign), "{foreign} is a dependency");
    }
}

#[test]
fn client_has_no_guard_web_framework_or_store() {
    let client = tree_of("onceward-client", "middleware");
    assert!(has(&client, "reqwest") && has(&client, "reqwest-middleware"));
    for foreign in ["onceward", "actix-web", "actix-http", "redis", "sqlx", "utoipa"] {
        assert!(!has(&client, foreign), "{foreign} is a dependency");
    }
    assert!(!has(&tree_of("onceward-client", ""), "reqwest-middleware"));
}

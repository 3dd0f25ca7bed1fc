//! The npm package of the browser SDK.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../client-sdk/web");

fn manifest() -> Value {
    let text = fs::read_to_string(Path::new(FOLDER).join("package.json")).expect("package.json");
    serde_json::from_str(&text).expect("JSON")
}

/// Returns the files that `npm publish` would upload.
fn packed() -> BTreeSet<String> {
    let cache = tempfile::tempdir().unwrap();
    let output = Command::new("npm")
        .args(["pack", "--dry-run", "--json", "--offline", "--ignore-scripts", "--cache"])
        .arg(cache.path())
        .current_dir(FOLDER)
        .output()
        .expect("npm runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let packages: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let files = packages[0]["files"].as_array().unwrap_or_else(|| panic!("no files: {packages}"));
    files.iter().map(|file| file["path"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn npm_package_contains_builds_types_readme_and_licences_only() {
    let own = ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "package.json"];
    let scripts = ["onceward.js", "onceward-htmx.js", "onceward-turbo.js", "onceward.zh-CN.js"];
    let modules =
        ["onceward.mjs", "axios.mjs", "axios-auto.mjs", "htmx.mjs", "react.mjs", "turbo.mjs", "vue.mjs", "zh-CN.mjs"];
    let mut expected: BTreeSet<_> = own.map(str::to_owned).into();
    expected.extend(scripts.into_iter().chain(modules).map(|file| format!("dist/{file}")));
    for source in fs::read_dir(Path::new(FOLDER).join("src")).unwrap() {
        let source = source.unwrap().file_name().into_string().expect("a file name in UTF-8");
        expected.insert(format!("dist/{}.d.ts", source.trim_end_matches(".ts")));
    }
    assert_eq!(packed(), expected);
}

#[test]
fn npm_metadata_is_complete_and_names_packed_files() {
    let (manifest, packed) = (manifest(), packed());
    assert_eq!(manifest["version"], env!("CARGO_PKG_VERSION"), "the version is that of the crates");
    assert_eq!(manifest["license"], "MIT OR Apache-2.0");
    assert!(manifest["description"].as_str().is_some_and(|text| !text.is_empty()));
    assert!(manifest["keywords"].as_array().is_some_and(|words| !words.is_empty()));
    assert!(manifest["engines"]["node"].as_str().is_some());
    assert_eq!(manifest["private"], Value::Null);
    assert_eq!(manifest["dependencies"], Value::Null);
    // A page that loads the script relies on its side effects; a bundler may drop everything else that is not used.
    assert_eq!(manifest["sideEffects"], json!(["./dist/onceward*.js", "./dist/axios-auto.mjs"]));
    let exports = &manifest["exports"];
    assert_eq!(exports["."]["types"], manifest["types"]);
    for file in [&manifest["main"], &manifest["types"], &exports["."]["default"], &exports["./onceward.js"]] {
        let file = file.as_str().expect("a path").trim_start_matches("./");
        assert!(packed.contains(file), "{file} is not in the package");
    }
}

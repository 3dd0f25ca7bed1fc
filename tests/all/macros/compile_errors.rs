//! Wrong uses of `#[once]`, compiled: the files in tests/compile_errors.
//!
//! A comment `//~` states the error of the line above it. All wrong uses of a file are compiled at once, against the libraries of this
//! build.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/compile_errors");

/// An error: its line, its message, and the notes below it.
type CompileError = (u64, String, String);

/// The libraries that the files name, as this build has compiled them.
static LIBRARIES: LazyLock<BTreeMap<&str, PathBuf>> = LazyLock::new(|| {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--workspace", "--all-features", "--test", "all", "--no-run", "--locked", "--offline"]);
    let output = cargo.args(["--message-format", "json"]).current_dir(FOLDER).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let artifacts = lines_of_json(&output.stdout);
    let found = ["actix_web", "axum", "onceward"].map(|name| {
        let is_library =
            |artifact: &&Value| artifact["target"]["name"] == name && artifact["target"]["kind"][0] == "lib";
        let artifact = artifacts.iter().find(is_library).unwrap_or_else(|| panic!("cargo has not compiled {name}"));
        let files = artifact["filenames"].as_array().expect("files").iter().filter_map(Value::as_str);
        (
            name,
            files.map(PathBuf::from).find(|file| file.extension().is_some_and(|end| end == "rlib")).expect("a library"),
        )
    });
    found.into()
});

fn lines_of_json(text: &[u8]) -> Vec<Value> {
    String::from_utf8_lossy(text).lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Compiles a file, and returns its errors.
fn errors(file: &str) -> Vec<CompileError> {
    let mut rustc = Command::new(option_env!("RUSTC").unwrap_or("rustc"));
    rustc.args(["--edition", "2024", "--crate-type", "bin", "--emit", "metadata", "--error-format", "json"]);
    for (name, path) in &*LIBRARIES {
        rustc.arg("--extern").arg(format!("{name}={}", path.display()));
        rustc.arg("-L").arg(format!("dependency={}", path.parent().expect("a folder").display()));
    }
    let out = tempfile::tempdir().expect("a temporary folder");
    let output = rustc.arg("--out-dir").arg(out.path()).arg(Path::new(FOLDER).join(file)).output().expect("rustc runs");
    assert!(!output.status.success(), "{file} compiles");
    let errors = lines_of_json(&output.stderr).into_iter().filter(|said| said["level"] == "error");
    let errors = errors.filter_map(|error| {
        // The summary at the end has no place.
        let place = error["spans"].as_array()?.iter().find(|span| span["is_primary"] == true)?;
        let notes = error["children"].as_array()?.iter().filter_map(|note| note["message"].as_str());
        Some((
            place["line_start"].as_u64()?,
            error["message"].as_str()?.to_owned(),
            notes.collect::<Vec<_>>().join("\n"),
        ))
    });
    errors.collect()
}

/// Returns the errors that the comments of a file state.
fn stated(file: &str) -> BTreeSet<(u64, String)> {
    let text = fs::read_to_string(Path::new(FOLDER).join(file)).expect("a file of wrong uses");
    let mut code_line = 0;
    let mut stated = BTreeSet::new();
    for (line, number) in text.lines().zip(1..) {
        match line.trim().strip_prefix("//~ ") {
            Some(message) => drop(stated.insert((code_line, message.to_owned()))),
            None => code_line = number,
        }
    }
    stated
}

#[test]
fn wrong_options_and_handlers_do_not_compile_and_the_error_names_the_right_ones() {
    let expected = stated("options.rs");
    assert!(expected.len() >= 12, "{}", expected.len());
    let found: BTreeSet<_> = errors("options.rs").into_iter().map(|(line, message, _)| (line, message)).collect();
    let (missing, more): (Vec<_>, Vec<_>) =
        (expected.difference(&found).collect(), found.difference(&expected).collect());
    assert!(missing.is_empty() && more.is_empty(), "missing: {missing:#?}\nnot stated: {more:#?}");
}

#[test]
fn router_of_axum_without_a_guard_does_not_compile() {
    let errors = errors("missing_guard.rs");
    let text = fs::read_to_string(Path::new(FOLDER).join("missing_guard.rs")).unwrap();
    let line_of = |code: &str| 1 + text.lines().position(|line| line.contains(code)).expect(code) as u64;
    for (route, state) in [("post(pay)", "Vec<{integer}>"), ("post(order)", "()")] {
        let of_route: Vec<_> = errors.iter().filter(|(line, ..)| *line == line_of(route)).collect();
        let message = format!("a handler with `#[once]` finds no guard in the state `{state}` of the router");
        let error = of_route.iter().find(|(_, said, _)| *said == message);
        let (.., notes) = error.unwrap_or_else(|| panic!("{route}: {errors:#?}"));
        assert!(notes.contains("add `.with_state(onceward::axum::Protection::new(&guard, subject))`"), "{notes}");
    }
    let subject = line_of("subject = onceward::actix");
    assert!(errors.iter().any(|(line, said, _)| *line == subject && said == "mismatched types"), "{errors:#?}");
}

//! Wrong uses of `#[once]`, compiled: the files in tests/compile_errors.
//!
//! A comment `//~` states the error of the line above it. All wrong uses of a file are compiled at once, against the libraries beside
//! this test program.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use serde_json::Value;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/compile_errors");

/// Compiled libraries: actix-web, axum and onceward.
type Libraries = [(&'static str, PathBuf); 3];

/// An error: its line, its message, and the notes below it.
struct CompileError {
    line: u64,
    message: String,
    notes: String,
}

/// The libraries that the files use. The folder may have several of each, with other features: the first that compile the right use.
static LIBRARIES: LazyLock<Libraries> = LazyLock::new(|| {
    let [actix, axum, onceward] = ["actix_web", "axum", "onceward"].map(compiled);
    let mut reason = None;
    for onceward in &onceward {
        for (axum, actix) in axum.iter().flat_map(|axum| actix.iter().map(move |actix| (axum, actix))) {
            let libraries = [("actix_web", actix.clone()), ("axum", axum.clone()), ("onceward", onceward.clone())];
            let output = compile("right_use.rs", &libraries);
            if output.status.success() {
                return libraries;
            }
            reason.get_or_insert_with(|| String::from_utf8_lossy(&output.stderr).into_owned());
        }
    }
    let reason = reason.unwrap_or_else(|| "one of them is missing".to_owned());
    panic!("the right use does not compile against the libraries in {}: {reason}", folder().display())
});

/// Returns the folder of this test program and the libraries it was linked with.
fn folder() -> PathBuf {
    std::env::current_exe().unwrap().parent().expect("the folder of the program").to_owned()
}

/// Returns the compiled libraries with this name, the newest first.
fn compiled(name: &str) -> Vec<PathBuf> {
    let is_library = |path: &PathBuf| {
        let file = path.file_name().and_then(|file| file.to_str()).unwrap_or_default();
        file.starts_with(&format!("lib{name}-")) && file.ends_with(".rlib")
    };
    let mut found: Vec<_> =
        fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).filter(is_library).collect();
    found.sort_by_key(|path| fs::metadata(path).and_then(|file| file.modified()).unwrap());
    found.reverse();
    found
}

/// Compiles a file up to its metadata. The errors are lines of JSON.
fn compile(file: &str, libraries: &Libraries) -> Output {
    let out = tempfile::tempdir().unwrap();
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition", "2024", "--emit", "metadata", "--error-format", "json", "--out-dir"]).arg(out.path());
    rustc.arg("-L").arg(format!("dependency={}", folder().display()));
    for (name, path) in libraries {
        rustc.arg("--extern").arg(format!("{name}={}", path.display()));
    }
    rustc.arg(Path::new(FOLDER).join(file)).output().expect("rustc runs")
}

/// Compiles a file, and returns its errors.
fn errors(file: &str) -> Vec<CompileError> {
    let output = compile(file, &LIBRARIES);
    assert!(!output.status.success(), "{file} compiles");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines = said.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}")));
    lines.filter(|line: &Value| line["level"] == "error").filter_map(|error| error_of(&error)).collect()
}

/// Reads an error. The summary at the end has no place.
fn error_of(error: &Value) -> Option<CompileError> {
    let place = error["spans"].as_array()?.iter().find(|span| span["is_primary"] == true)?;
    let notes = error["children"].as_array()?.iter().filter_map(|note| note["message"].as_str());
    Some(CompileError {
        line: place["line_start"].as_u64()?,
        message: error["message"].as_str()?.to_owned(),
        notes: notes.collect::<Vec<_>>().join("\n"),
    })
}

fn text(file: &str) -> String {
    fs::read_to_string(Path::new(FOLDER).join(file)).unwrap()
}

/// Returns the errors that the comments of a file state, each with its line.
fn stated(file: &str) -> BTreeSet<(u64, String)> {
    let mut code_line = 0;
    let mut stated = BTreeSet::new();
    for (line, number) in text(file).lines().zip(1..) {
        match line.trim().strip_prefix("//~ ") {
            Some(message) => drop(stated.insert((code_line, message.to_owned()))),
            None => code_line = number,
        }
    }
    stated
}

#[test]
fn wrong_use_does_not_compile_and_the_error_names_the_right_one() {
    let expected = stated("options.rs");
    assert!(expected.len() >= 12, "{} wrong uses", expected.len());
    let found: BTreeSet<_> = errors("options.rs").into_iter().map(|error| (error.line, error.message)).collect();
    let missing: Vec<_> = expected.difference(&found).collect();
    let unstated: Vec<_> = found.difference(&expected).collect();
    assert!(missing.is_empty() && unstated.is_empty(), "missing: {missing:#?}\nnot stated: {unstated:#?}");
}

#[test]
fn router_of_axum_without_a_guard_does_not_compile() {
    let (errors, text) = (errors("missing_guard.rs"), text("missing_guard.rs"));
    let line_of = |code: &str| 1 + text.lines().position(|line| line.contains(code)).expect(code) as u64;
    let messages = |line: u64| -> BTreeSet<_> {
        errors.iter().filter(|error| error.line == line).map(|error| error.message.as_str()).collect()
    };
    for (route, state) in [("post(pay)", "Vec<u32>"), ("post(order)", "()")] {
        let message = format!("a handler with `#[once]` finds no guard in the state `{state}` of the router");
        assert_eq!(messages(line_of(route)), [message.as_str()].into(), "{route}");
    }
    let fix = "add `.with_state(onceward::axum::Protection::new(&guard, subject))` to the router";
    let of_guard: Vec<_> = errors.iter().filter(|error| error.message.contains("finds no guard")).collect();
    assert!(of_guard.iter().all(|error| error.notes.contains(fix)), "{}", of_guard[0].notes);
    assert_eq!(messages(line_of("subject = onceward::actix")), ["mismatched types"].into());
    assert_eq!(errors.len(), of_guard.len() + 1, "nothing else is wrong");
}

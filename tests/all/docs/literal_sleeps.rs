//! Tests poll for a condition instead of sleeping. A sleep of more than 50 ms has a name that says why real time has to pass, such as
//! `outlast(LEASE)`.

use std::fs;
use std::path::{Path, PathBuf};

use regex_lite::{Captures, Regex};

/// Folders with test code; unit tests are in the files that they test.
const FOLDERS: [&str; 10] = [
    "tests/all",
    "tests/src",
    "guard/tests",
    "guard/src",
    "server/tests",
    "server/src",
    "client-sdk/rust/src",
    "patterns/src",
    "openapi/src",
    "web-demo/src",
];
/// Maximum length of a sleep that is written as a number, in milliseconds: a pause between two polls.
const LONGEST: f64 = 50.0;
/// Macro around code that the demo shows to visitors.
const SHOWN: &str = "shown!(";

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Returns the sleeps in this source whose length is too large a number, or a constant that only names a unit.
fn literal_sleeps(source: &str) -> Vec<String> {
    let units = Regex::new(r"sleep\(\s*(?:SECOND|MINUTE|HOUR)\s*[*+)]").unwrap();
    let pattern = r"sleep\(\s*(?:\w+::)*Duration::from_(millis|secs|secs_f32|secs_f64|mins|hours)\(\s*([0-9._]+)";
    let is_too_long = |found: &Captures<'_>| {
        let number: f64 = found[2].replace('_', "").parse().expect("a number");
        let unit = match &found[1] {
            "millis" => 1.0,
            "mins" => 60_000.0,
            "hours" => 3_600_000.0,
            _ => 1_000.0,
        };
        number * unit > LONGEST && !source[..found.get(0).unwrap().start()].ends_with(SHOWN)
    };
    let found = Regex::new(pattern).unwrap();
    let numbers = found.captures_iter(source).filter(is_too_long).map(|found| found[0].to_owned());
    numbers.chain(units.find_iter(source).map(|found| found.as_str().to_owned())).collect()
}

#[test]
fn sleeps_over_50_ms_have_a_name_that_says_why() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for folder in FOLDERS {
        let before = files.len();
        sources(&root.join(folder), &mut files);
        assert!(files.len() > before, "{folder} has no sources");
    }
    assert!(files.len() > 300, "{} files", files.len());
    let mut wrong = Vec::new();
    for file in files {
        let sleeps = literal_sleeps(&fs::read_to_string(&file).unwrap());
        wrong.extend(sleeps.iter().map(|sleep| format!("{}: {sleep}", file.display())));
    }
    assert!(
        wrong.is_empty(),
        "poll with until() or holds_for(), or use outlast() or a constant:\n{}",
        wrong.join("\n")
    );
}

/// Tests the check itself.
#[test]
fn literal_sleep_is_found_however_it_is_written() {
    let sleep = |length: &str| format!("tokio::time::{}({length}).await;", "sleep");
    for found in [
        "Duration::from_millis(51)",
        "Duration::from_millis(1_000)",
        "\n    std::time::Duration::from_secs(1)",
        "Duration::from_secs_f64(0.2)",
        "Duration::from_secs(2) + MOMENT",
        "SECOND",
        "MINUTE * 2",
    ] {
        assert_eq!(literal_sleeps(&sleep(found)).len(), 1, "{found}");
    }
    for fine in [
        "Duration::from_millis(50)",
        "Duration::from_millis(takes)",
        "LEASE * 2",
        "Duration::from_micros(900)",
        "SECOND / 20",
    ] {
        assert!(literal_sleeps(&sleep(fine)).is_empty(), "{fine}");
    }
}

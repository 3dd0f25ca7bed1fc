//! `onceward check` on SQLite files that cannot be used: each is a problem that names the file or its folder.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use onceward_tests::command_output::{parsed, said};
use onceward_tests::service::{program, run};
use rustix::process::getuid;
use serde_json::Value;

/// Nobody's user and group: as root, who may do everything, nothing could be forbidden.
const NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];

fn at(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

fn as_nobody(arguments: &[&str]) -> Output {
    let mut command = match getuid().is_root() {
        true => Command::new("setpriv"),
        false => Command::new(program()),
    };
    if getuid().is_root() {
        command.args(NOBODY).arg(program());
    }
    command.args(arguments).output().expect("setpriv is missing; install it with: apt-get install util-linux")
}

/// Asserts that `check` found one problem of the file and nothing that is well, and gives what it says.
#[track_caller]
fn problem(output: &Output) -> String {
    let told = parsed(output);
    assert_eq!((output.status.code(), &told["ok"]), (Some(1), &Value::Bool(false)), "{told:#}");
    let [found] = told["findings"].as_array().unwrap().as_slice() else { panic!("one finding: {told:#}") };
    assert_eq!((&found["level"], &found["topic"]), (&"problem".into(), &"file".into()), "{told:#}");
    assert_eq!(told["can_be_lost"], Value::Array(Vec::new()), "nothing is known of it: {told:#}");
    format!("{} {}", found["says"].as_str().unwrap(), found["fix"].as_str().unwrap())
}

#[track_caller]
fn expect(store: &str, parts: &[&str]) {
    let says = problem(&run(&["check", "--json", "--store", store]));
    assert!(parts.iter().all(|part| says.contains(part)), "{store}: {parts:?} is not in: {says}");
    for arguments in [
        &["--listen", "127.0.0.1:0", "--wait-for", "300ms"][..],
        &["token", "issue", "--wait-for", "300ms"],
        &["migrate"],
    ] {
        let (code, text) = said(&run(&[arguments, &["--store", store]].concat()));
        assert!(code == 1 && text.contains(parts[0]), "{arguments:?} {store}: {code} {text}");
        assert!(!text.contains("onceward migrate"), "{arguments:?} {store}: it would fail too: {text}");
    }
}

#[test]
fn sqlite_path_in_a_missing_folder_is_a_problem_that_names_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    for below in ["missing", "missing/deeper"] {
        let missing = folder.path().join(below);
        let name = missing.to_str().unwrap();
        expect(&at(&missing.join("store.db")), &[name, "does not exist", "mkdir -p"]);
        expect(&format!("{}?mode=rwc", at(&missing.join("store.db"))), &[name, "does not exist"]);
        assert!(!missing.exists());
    }
}

#[test]
fn sqlite_path_that_is_a_folder_or_leads_through_a_file_is_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().to_str().unwrap();
    expect(&at(folder.path()), &[name, "is a folder", "Name a file"]);
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    expect(&at(&file.join("store.db")), &[file.to_str().unwrap(), "is not a folder"]);
}

#[test]
fn sqlite_path_of_another_file_is_a_problem_and_the_file_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("letter.txt");
    fs::write(&other, "a letter, and not a database".repeat(100)).unwrap();
    expect(&at(&other), &[other.to_str().unwrap(), "not a SQLite database"]);
    assert_eq!(fs::read_to_string(&other).unwrap(), "a letter, and not a database".repeat(100));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is made beside it");
}

/// In `/sys` nobody can make a file, not even root.
#[test]
fn sqlite_path_in_an_unwritable_folder_is_a_problem_that_names_the_folder() {
    let says = problem(&run(&["check", "--json", "--store", "sqlite:/sys/onceward.db"]));
    assert!(says.contains("/sys cannot be written") && says.contains("chown"), "{says}");

    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().to_str().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o555)).unwrap();
    let says = problem(&as_nobody(&["check", "--json", "--store", &at(&folder.path().join("store.db"))]));
    assert!(says.contains(&format!("{name} cannot be written")) && says.contains("Permission denied"), "{says}");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "what was tried is taken away again");
}

#[test]
fn sqlite_file_that_is_read_only_or_out_of_reach_is_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = at(&path);
    assert_eq!(run(&["migrate", "--store", &store]).status.code(), Some(0));
    let says = problem(&run(&["check", "--json", "--store", &format!("{store}?mode=ro")]));
    assert!(says.contains(path.to_str().unwrap()) && says.contains("cannot be written"), "{says}");

    for (file, above) in [(0o444, 0o755), (0o444, 0o555), (0o644, 0o555), (0o000, 0o755), (0o644, 0o000)] {
        fs::set_permissions(&path, Permissions::from_mode(file)).unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(above)).unwrap();
        let says = problem(&as_nobody(&["check", "--json", "--store", &store]));
        assert!(says.contains(folder.path().to_str().unwrap()) && says.contains("chown"), "{file:o} {above:o}: {says}");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
    }
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    assert_eq!(run(&["check", "--store", &store]).status.code(), Some(0), "it was left as it was");
}

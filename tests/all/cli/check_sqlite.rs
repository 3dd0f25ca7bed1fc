//! `onceward check` on SQLite files that cannot be used: each is a problem that names the file or its folder.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use onceward_tests::command_output::{parsed, said};
use onceward_tests::service::{program, run};
use rustix::process::getuid;
use serde_json::Value;

/// The unprivileged user and group `nobody`: root ignores file permissions.
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

/// Asserts that the only finding of `check` is a problem with the file, and returns its text.
#[track_caller]
fn problem(output: &Output) -> String {
    let told = parsed(output);
    assert_eq!((output.status.code(), &told["ok"]), (Some(1), &Value::Bool(false)), "{told:#}");
    let [found] = told["findings"].as_array().unwrap().as_slice() else { panic!("one finding: {told:#}") };
    assert_eq!((&found["level"], &found["topic"]), (&"problem".into(), &"file".into()), "{told:#}");
    assert_eq!(told["can_be_lost"], Value::Array(Vec::new()), "durability is not reported: {told:#}");
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
        assert!(!text.contains("onceward migrate"), "{arguments:?} {store}: migrate would fail too: {text}");
    }
}

#[test]
fn sqlite_path_in_a_missing_folder_names_the_folder() {
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
fn sqlite_path_that_is_or_crosses_a_wrong_file_type_is_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().to_str().unwrap();
    expect(&at(folder.path()), &[name, "is a folder", "Name a file"]);
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    expect(&at(&file.join("store.db")), &[file.to_str().unwrap(), "is not a folder"]);
}

#[test]
fn sqlite_path_of_a_foreign_file_leaves_it_alone() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("letter.txt");
    fs::write(&other, "a letter, and not a database".repeat(100)).unwrap();
    expect(&at(&other), &[other.to_str().unwrap(), "not a SQLite database"]);
    assert_eq!(fs::read_to_string(&other).unwrap(), "a letter, and not a database".repeat(100));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no file is created beside it");
}

/// Not even root can create a file in `/sys`.
#[test]
fn sqlite_path_in_an_unwritable_folder_names_the_folder() {
    let says = problem(&run(&["check", "--json", "--store", "sqlite:/sys/onceward.db"]));
    assert!(says.contains("/sys is not writable") && says.contains("chown"), "{says}");

    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().to_str().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o555)).unwrap();
    let says = problem(&as_nobody(&["check", "--json", "--store", &at(&folder.path().join("store.db"))]));
    assert!(says.contains(&format!("{name} is not writable")) && says.contains("Permission denied"), "{says}");
    fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the test file is removed again");
}

#[test]
fn read_only_or_unreachable_sqlite_file_is_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = at(&path);
    assert_eq!(run(&["migrate", "--store", &store]).status.code(), Some(0));
    let says = problem(&run(&["check", "--json", "--store", &format!("{store}?mode=ro")]));
    assert!(says.contains(path.to_str().unwrap()) && says.contains("is not writable"), "{says}");

    for (file, above) in [(0o444, 0o755), (0o444, 0o555), (0o644, 0o555), (0o000, 0o755), (0o644, 0o000)] {
        fs::set_permissions(&path, Permissions::from_mode(file)).unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(above)).unwrap();
        let says = problem(&as_nobody(&["check", "--json", "--store", &store]));
        assert!(says.contains(folder.path().to_str().unwrap()) && says.contains("chown"), "{file:o} {above:o}: {says}");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
    }
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    assert_eq!(run(&["check", "--store", &store]).status.code(), Some(0), "the file is unchanged");
}

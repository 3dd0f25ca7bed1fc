//! The `rust-version` of each published crate is the lowest that can compile it: the highest among its edition and its dependencies.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

/// The crates that are published.
const LIBRARIES: [&str; 5] = ["onceward", "onceward-api", "onceward-client", "onceward-macros", "onceward-patterns"];

/// Major, minor and patch.
type RustVersion = [u32; 3];

/// A crate as cargo names it: `serde v1.0.229`.
type CrateId = String;

fn version(text: &str) -> RustVersion {
    let mut numbers = text.split('.').map(|number| number.parse().expect("a number"));
    [(); 3].map(|()| numbers.next().unwrap_or(0))
}

/// Returns the first release of Rust that knows an edition.
fn of_edition(edition: &str) -> RustVersion {
    match edition {
        "2015" => [1, 0, 0],
        "2018" => [1, 31, 0],
        "2021" => [1, 56, 0],
        "2024" => [1, 85, 0],
        later => panic!("edition {later} is not known here"),
    }
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Returns what every crate of the workspace and its dependencies requires, by its edition and its `rust-version`, and what it declares.
fn requirements() -> BTreeMap<CrateId, (RustVersion, Option<RustVersion>)> {
    // Without the platform, cargo would look for crates that are compiled on other platforms only, and are not downloaded here.
    let host = run("rustc", &["--print", "host-tuple"]);
    let arguments =
        ["metadata", "--locked", "--offline", "--all-features", "--format-version", "1", "--filter-platform"];
    let metadata: Value =
        serde_json::from_str(&run(env!("CARGO"), &[&arguments[..], &[host.trim()]].concat())).expect("JSON");
    let requirement = |package: &Value| {
        let text = |field: &str| package[field].as_str();
        let declared = text("rust_version").map(version);
        let edition = of_edition(text("edition").expect("an edition"));
        let id = format!("{} v{}", text("name").expect("a name"), text("version").expect("a version"));
        (id, (edition.max(declared.unwrap_or_default()), declared))
    };
    metadata["packages"].as_array().expect("packages").iter().map(requirement).collect()
}

/// Lists the crates that are compiled for a library with all of its features, without the library itself. Tests and benchmarks do not count.
fn dependencies(library: &str) -> Vec<CrateId> {
    let arguments = ["tree", "--locked", "--offline", "--all-features", "--edges", "normal,build", "--prefix", "none"];
    let tree = run(env!("CARGO"), &[&arguments[..], &["--package", library]].concat());
    let ids = tree.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "));
    ids.filter(|id| !id.starts_with(&format!("{library} "))).collect()
}

#[test]
fn rust_version_is_the_highest_among_edition_and_dependencies() {
    let requirements = requirements();
    let own = |library: &str| format!("{library} v{}", env!("CARGO_PKG_VERSION"));
    for library in LIBRARIES {
        let declared = requirements[&own(library)].1.unwrap_or_else(|| panic!("{library} has no rust-version"));
        let dependencies = dependencies(library);
        assert!(dependencies.len() > 3, "{library} has {dependencies:?}");
        let highest = dependencies.iter().map(|id| (requirements[id].0, id.as_str())).max().expect("a dependency");
        let (required, forced_by) = highest.max((of_edition("2024"), "its edition"));
        assert_eq!(
            declared, required,
            "{library} declares rust-version {declared:?}, but {forced_by} requires {required:?}: change it in the manifest of {library}"
        );
    }
}

#[test]
fn versions_of_rust_are_compared_as_numbers() {
    assert!(version("1.100") > version("1.94.0"));
    assert_eq!(version("1.94"), version("1.94.0"));
    assert!(version("1.85.1") > of_edition("2024"));
}

//! The crates that can be published: their metadata, and the files in their packages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use regex_lite::Regex;
use serde_json::{Value, json};
use tempfile::TempDir;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A crate that is published, with its folder and the files in its package beside `src`, as patterns.
struct Library {
    name: &'static str,
    folder: &'static str,
    more: &'static [&'static str],
}

const LIBRARIES: [Library; 5] = [
    Library { name: "onceward", folder: "guard", more: &[r"docs/\w+\.md", r"examples/\w+\.rs", r"tests/[\w/]+\.rs"] },
    Library { name: "onceward-api", folder: "openapi", more: &[r"openapi\.json"] },
    Library { name: "onceward-client", folder: "client-sdk/rust", more: &[] },
    Library { name: "onceward-macros", folder: "macros", more: &[r"options\.md"] },
    Library { name: "onceward-patterns", folder: "patterns", more: &[] },
];

/// The files that every package has.
const REQUIRED: [&str; 5] = ["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md", "src/lib.rs"];
/// The files that cargo adds.
const ADDED: &str = r"Cargo\.lock|Cargo\.toml\.orig|\.cargo_vcs_info\.json";

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs a command and returns its standard output.
fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Packages the libraries as `cargo publish` does, and unpacks each, without compiling them: `make package` does that. The target directory
/// is a new one, so that this does not wait for another cargo.
fn unpacked() -> (TempDir, BTreeMap<&'static str, PathBuf>) {
    let target = tempfile::tempdir().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["package", "--no-verify", "--locked", "--offline", "--allow-dirty", "--target-dir"]).arg(target.path());
    cargo.args(LIBRARIES.iter().flat_map(|library| ["--package", library.name]));
    run(cargo.current_dir(ROOT));
    let packages = target.path().join("package");
    let unpack = |library: &Library| {
        let versioned = format!("{}-{}", library.name, env!("CARGO_PKG_VERSION"));
        run(Command::new("tar").arg("-xzf").arg(packages.join(format!("{versioned}.crate"))).current_dir(&packages));
        (library.name, packages.join(versioned))
    };
    let folders = LIBRARIES.iter().map(unpack).collect();
    (target, folders)
}

/// Lists the files below a folder as relative paths. A symbolic link is not a file.
fn files(folder: &Path) -> BTreeSet<String> {
    fn walk(folder: &Path, below: &str, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{below}{}", entry.file_name().to_str().expect("a file name in UTF-8"));
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                walk(&entry.path(), &format!("{name}/"), found);
            } else {
                assert!(kind.is_file(), "{name} is not a regular file");
                found.insert(name);
            }
        }
    }
    let mut found = BTreeSet::new();
    walk(folder, "", &mut found);
    found
}

/// The files that a source includes or declares as a module by path, relative to it: also a page whose path is passed to a macro. Under
/// `cfg(doctest)` they do not count, since doctests are compiled in this repository only.
fn included(source: &str) -> Vec<String> {
    let pattern = Regex::new(r#"(?:include(?:_str|_bytes)?!\(\s*|#\[path = )"([^"]+)"|"(\.\./[^"\s]+\.md)""#).unwrap();
    let is_packaged = |at: usize| {
        let attributes = source[..at].lines().rev().skip(1).map(str::trim);
        !attributes
            .take_while(|line| line.starts_with("#[") || line.starts_with("///"))
            .any(|line| line.contains("doctest"))
    };
    let found = pattern.captures_iter(source).filter(|found| is_packaged(found.get(0).unwrap().start()));
    found.filter_map(|found| Some(found.get(1).or(found.get(2))?.as_str().to_owned())).collect()
}

/// Removes `..` from a path, which may leave the package.
fn resolved(file: &str, included: &str) -> Option<String> {
    let mut parts: Vec<_> = file.split('/').collect();
    parts.pop();
    for part in included.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Describes each included file that is not in the package.
fn missing_includes(folder: &Path, files: &BTreeSet<String>) -> Vec<String> {
    let mut missing = Vec::new();
    for file in files.iter().filter(|file| file.ends_with(".rs")) {
        for path in included(&read(folder.join(file))) {
            if !resolved(file, &path).is_some_and(|path| files.contains(&path)) {
                missing.push(format!("{file} includes {path}, which is not in the package"));
            }
        }
    }
    missing
}

#[test]
fn packages_contain_sources_readme_and_licences_only() {
    let (_target, folders) = unpacked();
    for library in &LIBRARIES {
        let (folder, name) = (&folders[library.name], library.name);
        let files = files(folder);
        for required in REQUIRED {
            assert!(files.contains(required), "{name} has no {required}: {files:?}");
        }
        let more: String = library.more.iter().map(|pattern| format!("|{pattern}")).collect();
        let allowed = Regex::new(&format!(r"^(?:{}|{ADDED}|src/[\w/]+\.rs{more})$", REQUIRED.join("|"))).unwrap();
        let stray: Vec<_> = files.iter().filter(|file| !allowed.is_match(file)).collect();
        assert!(stray.is_empty(), "{name} has stray files: {stray:?}");
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            assert_eq!(read(folder.join(licence)), read(Path::new(ROOT).join(licence)), "{licence} of {name}");
        }
        let missing = missing_includes(folder, &files);
        assert!(missing.is_empty(), "{name}: {missing:?}");
        let manifest = read(folder.join("Cargo.toml"));
        assert!(!manifest.contains("path = \"../"), "{name} depends on a folder: {manifest}");
    }
}

#[test]
fn package_of_the_library_contains_every_guide() {
    let (_target, folders) = unpacked();
    let files = files(&folders["onceward"]);
    let guides = fs::read_dir(Path::new(ROOT).join("guard/docs")).expect("the folder of the guides");
    for guide in guides {
        let guide = format!("docs/{}", guide.unwrap().file_name().to_str().expect("a file name in UTF-8"));
        assert!(files.contains(&guide), "{guide} is not in the package");
    }
}

#[test]
fn readme_of_the_library_shows_the_orders_example() {
    let readme = read(Path::new(ROOT).join("guard/README.md"));
    let (_, program) = readme.split_once("```rust,no_run\n").expect("a Rust program");
    let (program, _) = program.split_once("```\n").expect("the end of the program");
    let example = read(Path::new(ROOT).join("guard/examples/orders.rs"));
    assert_eq!(program, example.split_once("\n\n").expect("a line that describes the example").1);
    let (version, _) = env!("CARGO_PKG_VERSION").rsplit_once('.').expect("a version of three numbers");
    assert!(readme.contains(&format!("onceward = {{ version = \"{version}\", features = [\"actix\"] }}")), "{version}");
}

/// Returns the members of the workspace by name.
fn members() -> BTreeMap<String, Value> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(ROOT);
    let mut metadata: Value = serde_json::from_slice(&run(&mut cargo)).expect("JSON");
    let Value::Array(packages) = metadata["packages"].take() else { panic!("no packages") };
    packages.into_iter().map(|package| (package["name"].as_str().unwrap().to_owned(), package)).collect()
}

#[test]
fn only_the_libraries_are_published() {
    let is_published = |package: &Value| package["publish"] == Value::Null;
    let members = members();
    let published: Vec<_> = members.iter().filter(|(_, package)| is_published(package)).map(|(name, _)| name).collect();
    assert_eq!(published, LIBRARIES.map(|library| library.name));
    for library in LIBRARIES {
        let manifest = Path::new(ROOT).join(library.folder).join("Cargo.toml").canonicalize().unwrap();
        assert_eq!(members[library.name]["manifest_path"].as_str(), manifest.to_str());
    }
}

#[test]
fn published_crates_have_complete_metadata() {
    let members = members();
    // The rules of the registry for a keyword.
    let keyword = Regex::new("^[a-z0-9][a-z0-9_+-]{0,19}$").unwrap();
    for Library { name, .. } in LIBRARIES {
        let package = &members[name];
        let list = |field: &str| -> Vec<String> { serde_json::from_value(package[field].clone()).unwrap() };
        assert!(package["description"].as_str().is_some_and(|text| !text.ends_with('.')), "description of {name}");
        assert_eq!(package["license"], "MIT OR Apache-2.0", "{name}");
        assert_eq!(package["readme"], "README.md", "{name}");
        assert_eq!(package["documentation"], format!("https://docs.rs/{name}"));
        assert!((1..=5).contains(&list("keywords").len()), "keywords of {name}");
        assert!(list("keywords").iter().all(|word| keyword.is_match(word)), "keywords of {name}");
        assert!((1..=5).contains(&list("categories").len()), "categories of {name}");
        let docs = json!({"all-features": true, "rustdoc-args": ["--cfg", "docsrs"]});
        assert_eq!(package["metadata"]["docs"]["rs"], docs, "{name}");
    }
}

#[test]
fn no_feature_of_a_published_crate_is_on_by_default() {
    let members = members();
    for Library { name, .. } in LIBRARIES {
        let default = members[name]["features"].get("default").and_then(Value::as_array);
        assert!(default.is_none_or(Vec::is_empty), "{name}: {default:?}");
    }
}

#[test]
fn crates_with_features_show_them_on_docs_rs() {
    let members = members();
    for Library { name, folder, .. } in LIBRARIES {
        let has_features = members[name]["features"].as_object().is_some_and(|features| !features.is_empty());
        let root = read(Path::new(ROOT).join(folder).join("src/lib.rs"));
        let shows = root.contains("#![cfg_attr(docsrs, feature(doc_cfg))]");
        assert_eq!(shows, has_features, "{name}");
    }
}

#[test]
fn includes_are_found_unless_compiled_for_doctests_only() {
    let source = r#"
        #![doc = include_str!("../README.md")]
        #[doc = include_str!("../docs/keys.md")]
        pub mod keys {}
        /// The examples of the page.
        #[cfg(all(doctest, feature = "actix"))]
        #[doc = include_str!("../../docs/page.md")]
        struct Page;
        const SCRIPT: &[u8] = include_bytes!("script.lua");
        #[path = "../tests/model.rs"]
        mod model;
        pages! { stores: "../docs/stores.md" }
    "#;
    let expected = ["../README.md", "../docs/keys.md", "script.lua", "../tests/model.rs", "../docs/stores.md"];
    assert_eq!(included(source), expected);
    assert_eq!(resolved("src/store/redis.rs", "../script.lua").as_deref(), Some("src/script.lua"));
    assert_eq!(resolved("src/lib.rs", "../README.md").as_deref(), Some("README.md"));
    assert_eq!(resolved("src/lib.rs", "../../README.md"), None);
}

//! Every detail that Onceward itself writes into a rejection has a Chinese form: in the sources, each `.detail(…)` is followed by its
//! `.detail_in(…)`. The titles and default details are complete by the tests of the languages.

use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Defines both methods, and converts rejections into problems.
const DEFINITION: &str = "guard/src/rejection.rs";

/// Returns the Rust files in a folder and below, without tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let is_source = |path: &PathBuf| path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs");
    let below = folders.iter().filter(|path| !path.ends_with("tests")).flat_map(|path| sources(path));
    files.into_iter().filter(is_source).chain(below).collect()
}

/// Returns the number of details, and of those with a translation.
fn details(source: &str) -> (usize, usize) {
    let code = source.split("#[cfg(test)]\nmod").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    (lines.matches(".detail(").count() - lines.matches(".detail()").count(), lines.matches(".detail_in(").count())
}

#[test]
fn every_detail_has_a_chinese_form() {
    let mut total = 0;
    for folder in ["guard/src", "server/src", "web-demo/src"] {
        for path in sources(&Path::new(ROOT).join(folder)) {
            if path.ends_with(DEFINITION) {
                continue;
            }
            let (english, chinese) = details(&fs::read_to_string(&path).expect("a source file"));
            assert_eq!(
                english,
                chinese,
                "{}: a detail without `.detail_in(Language::SIMPLIFIED_CHINESE, …)`",
                path.display()
            );
            total += english;
        }
    }
    assert!(total > 25, "only {total} details were found");
}

#[test]
fn count_finds_a_missing_translation() {
    assert_eq!(
        details("x.detail(\"a\").detail_in(T, \"b\"); error.detail(); // .detail(\"c\")\n// .detail(d)"),
        (2, 1)
    );
    assert_eq!(details("x.detail(\"a\")\n#[cfg(test)]\nmod tests { y.detail(\"b\") }"), (1, 0));
}

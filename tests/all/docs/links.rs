//! The pages of the documentation name only what exists: every requirement is answered, every named test is one, every link leads somewhere.

use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A link of a page: what stands in its brackets, and where it leads.
struct Link {
    text: String,
    target: String,
}

fn docs() -> PathBuf {
    Path::new(ROOT).join("docs")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn links(page: &str) -> Vec<Link> {
    let pattern = regex_lite::Regex::new(r"(?m)\[([^\]]+)\](?:\(([^)]+)\)|: (\S+)$)").unwrap();
    let link = |found: regex_lite::Captures<'_>| {
        let target = found.get(2).or(found.get(3)).expect("one of them");
        Link { text: found[1].to_owned(), target: target.as_str().to_owned() }
    };
    pattern.captures_iter(page).map(link).collect()
}

/// The first column of each row of a page's tables that is a number of this kind, in their order, with the rest of the row.
fn rows<'a>(page: &'a str, kind: char) -> Vec<(usize, &'a str)> {
    let row = |line: &'a str| {
        let (id, rest) = line.strip_prefix("| ")?.split_once(" |")?;
        Some((id.strip_prefix(kind)?.parse().ok()?, rest))
    };
    page.lines().filter_map(row).collect()
}

/// Returns whether this is a test: by its attribute, or because a macro runs it on both databases or on every web framework.
fn is_test(source: &str, name: &str) -> bool {
    let attribute = r"#\[(tokio::|actix_web::)?test(\([^\]]*\))?\]\s*(#\[[^\]]*\]\s*)*(async )?fn ";
    let plain = regex_lite::Regex::new(&format!(r"{attribute}{name}\(")).unwrap();
    let both = regex_lite::Regex::new(&format!(r"\n    async fn {name}\(.* => database\) \{{")).unwrap();
    let each =
        regex_lite::Regex::new(&format!(r"(?s)\non_every_framework! \{{[^}}]*\n    {name}( \(threads\))?,")).unwrap();
    plain.is_match(source) || source.contains("\non_both! {") && both.is_match(source) || each.is_match(source)
}

/// Returns whether the path of a module or item of the library leads to this file.
fn is_item(path: &Path, content: &str, name: &str) -> bool {
    let last = name.rsplit("::").next().unwrap();
    let declared = regex_lite::Regex::new(&format!(r"\npub (async fn|fn|struct|enum|trait|mod) {last}\b")).unwrap();
    path.file_stem().is_some_and(|stem| stem == last) || declared.is_match(content)
}

/// Returns whether a link names a test, and not an item of the library.
fn names_a_test(link: &Link) -> bool {
    link.text.starts_with('`') && !link.text.contains("::")
}

/// Returns the anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

/// Returns why a link of a page in this folder is broken, or `None` if it is not.
fn broken(folder: &Path, link: &Link) -> Option<String> {
    if link.target.starts_with("https://") {
        return None;
    }
    let (file, heading) = link.target.split_once('#').unwrap_or((&link.target, ""));
    let path = folder.join(file);
    if path.is_dir() && heading.is_empty() {
        return None;
    }
    if !path.is_file() {
        return Some(format!("{file} does not exist"));
    }
    let Ok(content) = fs::read_to_string(&path) else {
        return None; // a picture
    };
    if let Some(name) = link.text.strip_prefix('`').and_then(|text| text.strip_suffix('`')) {
        let is_there = if name.contains("::") { is_item(&path, &content, name) } else { is_test(&content, name) };
        if file.ends_with(".rs") {
            return (!is_there).then(|| format!("{file} has no test or item {name}"));
        }
    }
    let leads = content.lines().filter(|line| line.starts_with('#')).any(|line| {
        let text = line.trim_start_matches('#').trim();
        anchor(text) == heading
    });
    (!heading.is_empty() && !leads).then(|| format!("{file} has no heading {heading}"))
}

/// Returns the page of a link within the same page: `#heading`.
fn within(page: &Path, link: Link) -> Link {
    match link.target.strip_prefix('#') {
        Some(heading) => {
            let name = page.file_name().expect("a file").to_string_lossy();
            Link { target: format!("{name}#{heading}"), ..link }
        }
        None => link,
    }
}

/// Returns every page of the documentation.
pub(super) fn pages() -> Vec<PathBuf> {
    let root = Path::new(ROOT);
    let single = [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
        "guard/README.md",
        "openapi/README.md",
        "macros/README.md",
        "patterns/README.md",
        "client-sdk/node/README.md",
        "client-sdk/python/README.md",
        "client-sdk/rust/README.md",
        "client-sdk/web/README.md",
        "deploy/README.md",
    ];
    let mut pages: Vec<_> = single.iter().map(|page| root.join(page)).collect();
    for folder in ["docs", "guard/docs"] {
        let entries = fs::read_dir(root.join(folder)).expect("the folder exists");
        let files = entries.map(|entry| entry.expect("the folder is readable").path());
        pages.extend(files.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    pages
}

#[test]
fn links_of_all_pages_lead_to_a_file_heading_or_test() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in pages() {
        let folder = page.parent().expect("a folder");
        let links: Vec<_> = links(&read(&page)).into_iter().map(|link| within(&page, link)).collect();
        count += links.len();
        let is_dense = ["architecture.md", "choosing.md", "guarantees.md", "requirements.md"]
            .iter()
            .any(|name| page.ends_with(name));
        assert!(!is_dense || links.len() > 20, "{} has {} links", page.display(), links.len());
        wrong.extend(
            links.iter().filter_map(|link| broken(folder, link)).map(|why| format!("{}: {why}", page.display())),
        );
    }
    assert!(count > 500, "{count} links");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn index_names_every_page() {
    let index = read(&docs().join("README.md"));
    for page in pages() {
        let name = page.strip_prefix(ROOT).expect("a path in the repository").to_string_lossy();
        let link = name.strip_prefix("docs/").map_or_else(|| format!("../{name}"), str::to_owned);
        let is_index_or_readme = ["../README.md", "README.md"].contains(&link.as_str());
        assert!(is_index_or_readme || index.contains(&format!("({link})")), "docs/README.md does not name {link}");
    }
}

#[test]
fn runbook_has_a_section_for_every_alert() {
    let (rules, page) =
        (read(&Path::new(ROOT).join("deploy/prometheus/alerts.yml")), read(&docs().join("operations.md")));
    let alerts: Vec<_> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let sections: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("### Onceward")).collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    let expected: Vec<_> = alerts.iter().filter_map(|alert| alert.strip_prefix("Onceward")).collect();
    assert_eq!(sections, expected);
}

#[test]
fn architecture_page_names_every_module_and_place_to_change() {
    let page = read(&docs().join("architecture.md"));
    let library = read(&Path::new(ROOT).join("guard/src/lib.rs"));
    let declared = regex_lite::Regex::new(r"\n(?:pub )?mod ([a-z_]+);").unwrap();
    let hidden = ["fuzzing", "guide", "simulator"];
    let modules: Vec<_> = declared.captures_iter(&library).map(|found| found[1].to_owned()).collect();
    assert!(modules.len() > 30, "{modules:?}");
    for module in modules.iter().filter(|module| !hidden.contains(&module.as_str())) {
        assert!(page.contains(&format!("`{module}`")), "the layers do not name `{module}`");
    }
    let (_, table) = page.split_once("## Where to change").expect("the table");
    for subject in [
        "effect table",
        "Redis script",
        "text of a problem",
        "renewal interval",
        "default token lifetime",
        "browser retries",
        "a store",
        "an adapter",
    ] {
        let row = table.lines().find(|line| line.starts_with("| ") && line.contains(subject));
        let row = row.unwrap_or_else(|| panic!("no row says where to change: {subject}"));
        assert!(!links(row).is_empty(), "{row}");
    }
}

#[test]
fn requirements_and_defects_are_listed_once_with_an_answer() {
    let page = read(&docs().join("requirements.md"));
    for (kind, count) in [('R', 94), ('D', 19)] {
        let rows = rows(&page, kind);
        let numbers: Vec<_> = rows.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (1..=count).collect::<Vec<_>>(), "{kind}");
        for (number, rest) in rows {
            let answer = rest.trim_end_matches(" |").rsplit_once(" | ").unwrap_or_else(|| panic!("{kind}{number}")).1;
            assert!(!links(answer).is_empty(), "{kind}{number} is answered by nothing");
        }
    }
}

#[test]
fn every_defect_has_a_test() {
    let page = read(&docs().join("requirements.md"));
    for (number, rest) in rows(&page, 'D') {
        assert!(links(rest).iter().any(names_a_test), "D{number} has no test");
    }
}

#[test]
fn every_mechanism_has_a_test_as_example() {
    let page = read(&docs().join("choosing.md"));
    let table: Vec<_> = page.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(table.len() > 20, "{} rows", table.len());
    for row in table {
        assert_eq!(row.matches(" | ").count(), 4, "{row}");
        let example = row.rsplit_once(" | ").unwrap().1;
        assert!(links(example).iter().any(names_a_test), "{row}");
    }
}

/// The checks themselves find a name that is no test, and a place that does not exist.
#[test]
fn broken_links_are_found() {
    let link = |text: &str, target: &str| Link { text: text.to_owned(), target: target.to_owned() };
    let here = "../tests/all/docs/links.rs";
    assert!(broken(&docs(), &link("`broken_links_are_found`", here)).is_none());
    assert!(broken(&docs(), &link("`broken`", here)).is_some(), "a function that is no test");
    assert!(broken(&docs(), &link("`nothing_of_the_kind`", here)).is_some());
    assert!(broken(&docs(), &link("`onceward::nothing_of_the_kind`", "../guard/src/transaction.rs")).is_some());
    assert!(broken(&docs(), &link("`onceward::transaction`", "../guard/src/transaction.rs")).is_none());
    assert!(!names_a_test(&link("`onceward::transaction`", "../guard/src/transaction.rs")));
    assert!(broken(&docs(), &link("a page", "nowhere.md")).is_some());
    assert!(broken(&docs(), &link("a page", "choosing.md#nothing-of-the-kind")).is_some());
    assert!(broken(&docs(), &link("a page", "choosing.md#no-zookeeper")).is_none());
    assert_eq!(anchor("Unknown outcomes: which policy fits"), "unknown-outcomes-which-policy-fits");
    assert_eq!(rows("| R1 | a | b |\n| R2 | c | d |\n| x | e | f |", 'R').len(), 2);
}

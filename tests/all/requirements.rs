//! The pages in `docs` name what exists: every wish is answered, every test that is named is one, every link leads somewhere.

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
    let pattern = regex_lite::Regex::new(r"\[([^\]]+)\]\(([^)]+)\)").unwrap();
    let link = |found: regex_lite::Captures<'_>| Link { text: found[1].to_owned(), target: found[2].to_owned() };
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

/// Whether this is a test, by its attribute, or by standing among those that are written for both databases.
fn is_test(source: &str, name: &str) -> bool {
    let attribute = r"#\[(tokio::|actix_web::)?test(\([^\]]*\))?\]\s*(#\[[^\]]*\]\s*)*(async )?fn ";
    let plain = regex_lite::Regex::new(&format!(r"{attribute}{name}\(")).unwrap();
    let both = regex_lite::Regex::new(&format!(r"\n    async fn {name}\(.* => database\) \{{")).unwrap();
    plain.is_match(source) || source.contains("\non_both! {") && both.is_match(source)
}

/// Whether the path of a module or item of the library leads to this file.
fn is_item(path: &Path, content: &str, name: &str) -> bool {
    let last = name.rsplit("::").next().unwrap();
    let declared = regex_lite::Regex::new(&format!(r"\npub (async fn|fn|struct|enum|trait|mod) {last}\b")).unwrap();
    path.file_stem().is_some_and(|stem| stem == last) || declared.is_match(content)
}

/// Whether a link names a test, and not a part of the library.
fn names_a_test(link: &Link) -> bool {
    link.text.starts_with('`') && !link.text.contains("::")
}

/// The name that a heading can be led to by.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

/// What is wrong with a link, if anything is.
fn broken(link: &Link) -> Option<String> {
    let (file, heading) = link.target.split_once('#').unwrap_or((&link.target, ""));
    let path = docs().join(file);
    if !path.is_file() {
        return Some(format!("{file} does not exist"));
    }
    let content = read(&path);
    if let Some(name) = link.text.strip_prefix('`').and_then(|text| text.strip_suffix('`')) {
        let is_there = if name.contains("::") { is_item(&path, &content, name) } else { is_test(&content, name) };
        return (!is_there).then(|| format!("{name} is no test of {file}, and nothing else in it"));
    }
    let leads = content.lines().filter(|line| line.starts_with('#')).any(|line| {
        let text = line.trim_start_matches('#').trim();
        anchor(text) == heading
    });
    (!heading.is_empty() && !leads).then(|| format!("{file} has no heading {heading}"))
}

#[test]
fn every_link_of_the_pages_leads_to_a_file_a_heading_or_a_test() {
    let mut wrong = Vec::new();
    for page in ["choosing.md", "guarantees.md", "requirements.md"] {
        let links = links(&read(&docs().join(page)));
        assert!(links.len() > 20, "{page} has {} links", links.len());
        wrong.extend(links.iter().filter_map(broken).map(|why| format!("{page}: {why}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_wish_and_every_defect_is_there_once_and_has_an_answer() {
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

/// A page that names defects by their tests: each has one.
#[test]
fn every_defect_is_found_by_a_test_or_a_story() {
    let page = read(&docs().join("requirements.md"));
    for (number, rest) in rows(&page, 'D') {
        assert!(links(rest).iter().any(names_a_test), "D{number} has no test");
    }
}

#[test]
fn every_mechanism_has_an_example_that_runs() {
    let page = read(&docs().join("choosing.md"));
    let table: Vec<_> = page.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(table.len() > 20, "{} rows", table.len());
    for row in table {
        assert_eq!(row.matches(" | ").count(), 4, "{row}");
        let example = row.rsplit_once(" | ").unwrap().1;
        assert!(links(example).iter().any(names_a_test), "{row}");
    }
}

/// The check itself: a name that is no test is found out, and so is a place that does not exist.
#[test]
fn what_does_not_exist_is_found_out() {
    let link = |text: &str, target: &str| Link { text: text.to_owned(), target: target.to_owned() };
    let here = "../tests/all/requirements.rs";
    assert!(broken(&link("`what_does_not_exist_is_found_out`", here)).is_none());
    assert!(broken(&link("`broken`", here)).is_some(), "a function that is no test");
    assert!(broken(&link("`nothing_of_the_kind`", here)).is_some());
    assert!(broken(&link("`onceward::nothing_of_the_kind`", "../guard/src/transaction.rs")).is_some());
    assert!(broken(&link("`onceward::transaction`", "../guard/src/transaction.rs")).is_none());
    assert!(!names_a_test(&link("`onceward::transaction`", "../guard/src/transaction.rs")));
    assert!(broken(&link("a page", "nowhere.md")).is_some());
    assert!(broken(&link("a page", "choosing.md#nothing-of-the-kind")).is_some());
    assert!(broken(&link("a page", "choosing.md#no-zookeeper")).is_none());
    assert_eq!(anchor("Nobody knows: which policy suits whom"), "nobody-knows-which-policy-suits-whom");
    assert_eq!(rows("| R1 | a | b |\n| R2 | c | d |\n| x | e | f |", 'R').len(), 2);
}

//! The Chinese README follows the English one: the same headings, code blocks, tables, lists and links, in the same order.

const ENGLISH: &str = include_str!("../../../README.md");
const CHINESE: &str = include_str!("../../../README.zh-CN.md");

/// A part of a README, as far as both have to agree on it.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    /// A heading of this level.
    Heading(usize),
    /// A code block.
    Code(String),
    /// A table with this number of rows and columns.
    Table {
        rows: usize,
        columns: usize,
    },
    /// A list with this number of items.
    List {
        items: usize,
    },
    Picture,
}

/// A part, and the line where it begins.
type Found = (Part, usize, String);

/// Returns the parts of a README in order. A paragraph may have any length, and there may be more of them.
fn parts(text: &str) -> Vec<Found> {
    let (mut found, mut lines) = (Vec::new(), text.lines().enumerate().peekable());
    while let Some((at, line)) = lines.next() {
        let mut following = |begin: &str| {
            let mut count = 1;
            while lines.next_if(|(_, next)| next.starts_with(begin)).is_some() {
                count += 1;
            }
            count
        };
        let part = if line.starts_with("```") {
            let code = lines.by_ref().map(|(_, line)| line).take_while(|line| !line.starts_with("```"));
            Part::Code(std::iter::once(line).chain(code).collect::<Vec<_>>().join("\n"))
        } else if line.starts_with('#') {
            Part::Heading(line.bytes().take_while(|byte| *byte == b'#').count())
        } else if line.starts_with('|') {
            // A `|` in code is escaped, and so is not a border.
            Part::Table { columns: line.replace("\\|", "").matches('|').count() - 1, rows: following("|") }
        } else if line.starts_with("- ") {
            let mut items = 1;
            while let Some((_, next)) = lines.next_if(|(_, next)| next.starts_with("- ") || next.starts_with("  ")) {
                items += usize::from(next.starts_with("- "));
            }
            Part::List { items }
        } else if line.starts_with("![") {
            Part::Picture
        } else {
            continue;
        };
        found.push((part, at + 1, line.to_owned()));
    }
    found
}

/// Returns what is out of step first; `None` if nothing is.
fn difference(english: &str, chinese: &str) -> Option<String> {
    let (english, chinese) = (parts(english), parts(chinese));
    let pairs = english.iter().zip(&chinese).find(|(english, chinese)| english.0 != chinese.0);
    if let Some(((ours, at, line), (theirs, at_chinese, line_chinese))) = pairs {
        return Some(format!(
            "README.md, line {at}: {ours:?}\n  {line}\nREADME.zh-CN.md, line {at_chinese}: {theirs:?}\n  {line_chinese}"
        ));
    }
    let longer = if english.len() > chinese.len() { &english } else { &chinese };
    let (_, at, line) = longer.get(english.len().min(chinese.len()))?;
    let (has, lacks) =
        if english.len() > chinese.len() { ("README.md", "README.zh-CN.md") } else { ("README.zh-CN.md", "README.md") };
    Some(format!("{has}, line {at}, has no counterpart in {lacks}:\n  {line}"))
}

/// Returns the targets of all links to files, without the parts of the page, in alphabetical order.
fn files(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let mut files: Vec<_> = targets.map(|target| target.split('#').next().unwrap_or_default()).collect();
    files.sort_unstable();
    files.dedup();
    files
}

#[test]
fn chinese_readme_has_the_same_parts() {
    if let Some(difference) = difference(ENGLISH, CHINESE) {
        panic!("README.zh-CN.md is out of step with README.md; update the Chinese text:\n{difference}");
    }
}

#[test]
fn chinese_readme_links_to_the_same_files() {
    let translated = ["README.md", "README.zh-CN.md", "web-demo/screenshot.png", "web-demo/screenshot.zh-CN.png"];
    let others =
        |text: &'static str| files(text).into_iter().filter(|file| !translated.contains(file)).collect::<Vec<_>>();
    let (english, chinese) = (others(ENGLISH), others(CHINESE));
    let missing: Vec<_> = english.iter().filter(|file| !chinese.contains(file)).collect();
    assert!(missing.is_empty(), "README.zh-CN.md lacks links to {missing:?}");
}

#[test]
fn readmes_link_to_each_other() {
    let top = |text: &str| text.lines().take(4).collect::<String>();
    assert!(top(ENGLISH).contains("(README.zh-CN.md)") && top(CHINESE).contains("(README.md)"));
}

/// A comparison that finds nothing would pass forever.
#[test]
fn comparison_names_what_is_out_of_step() {
    let page = "# A\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```sh\nmake\n```\n\n- x\n  y\n- z\n";
    assert_eq!(difference(page, &page.replace("# A", "# 甲")), None);
    for (from, to, named) in [
        ("# A", "## A", "Heading(2)"),
        ("| 1 | 2 |\n", "| 1 | 2 |\n| 3 | 4 |\n", "rows: 4"),
        ("make", "make test", "make test"),
        ("- z", "- z\n- w", "items: 3"),
        ("- x\n  y\n- z\n", "", "no counterpart in README.zh-CN.md"),
    ] {
        let found = difference(page, &page.replace(from, to)).expect("a difference");
        assert!(found.contains(named), "{found}");
    }
}

//! Every page of the documentation runs as it is printed: each shell block from an empty folder, its output compared with the text block
//! that follows; each Rust block as a doctest.

use std::fs;
use std::path::Path;
use std::process::Command;

use onceward_tests::service::OncewardServer;

use super::links::pages;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Commands that build or test the whole repository. Other tests check what they do.
const OF_THE_REPOSITORY: [&str; 2] = ["cargo run --release\n", "make test\n"];
/// Languages of blocks that no program runs by itself: parts of a configuration, a page, or a program.
const SHOWN: [&str; 10] = ["toml", "html", "text", "nginx", "caddy", "js", "jsx", "java", "python", "diff"];

/// Pages whose snippets other tests run: `proxy::page`, and the tests of the SDKs.
const RUN_ELSEWHERE: [&str; 4] =
    ["docs/proxy.md", "client-sdk/node/README.md", "client-sdk/python/README.md", "client-sdk/web/README.md"];

/// A fenced block: its language, and its text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) language: String,
    pub(crate) text: String,
}

/// Returns the blocks of a page, in their order.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_open = false;
    for line in page.lines() {
        match (line.trim_start().strip_prefix("```"), is_open) {
            (Some(language), false) => {
                blocks.push(Block { language: language.to_owned(), text: String::new() });
                is_open = true;
            }
            (Some(_), true) => is_open = false,
            (None, true) => {
                let block = blocks.last_mut().expect("an open block");
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, false) => {}
        }
    }
    assert!(!is_open, "the last block has no end");
    blocks
}

/// Returns whether the output matches the printed block, in which `…` stands for any text within a line. Empty lines do not count.
pub(crate) fn matches(printed: &str, output: &str) -> bool {
    let lines = |text: &str| text.lines().map(str::to_owned).filter(|line| !line.is_empty()).collect::<Vec<_>>();
    let (printed, output) = (lines(printed), lines(output));
    printed.len() == output.len() && printed.iter().zip(&output).all(|(printed, output)| line_matches(printed, output))
}

fn line_matches(printed: &str, output: &str) -> bool {
    let mut parts = printed.split('…');
    let Some(mut rest) = parts.next().and_then(|first| output.strip_prefix(first)) else { return false };
    let mut is_open = false;
    for part in parts {
        is_open = part.is_empty();
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    is_open || rest.is_empty()
}

/// Runs a block in this folder against this service, and returns its output.
fn run_in_shell(block: &str, folder: &Path, service: &OncewardServer) -> String {
    let script = block.replace("localhost:8080", service.url.trim_start_matches("http://"));
    assert_ne!(script, block, "the block does not call the service:\n{block}");
    let output = Command::new("sh").args(["-eu", "-c", &script]).current_dir(folder).output().expect("sh runs");
    assert!(output.status.success(), "{block}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn shell_blocks_print_the_shown_output_from_an_empty_folder() {
    let mut ran = 0;
    for path in pages().into_iter().filter(|path| !RUN_ELSEWHERE.iter().any(|other| path.ends_with(other))) {
        let blocks = blocks(&fs::read_to_string(&path).expect("the page is readable"));
        let is_shell = |block: &Block| block.language == "sh" && !OF_THE_REPOSITORY.contains(&block.text.as_str());
        if !blocks.iter().any(is_shell) {
            continue;
        }
        let (service, folder) = (OncewardServer::start(&[]), tempfile::tempdir().expect("a temporary folder"));
        for (at, block) in blocks.iter().enumerate().filter(|(_, block)| is_shell(block)) {
            let output = run_in_shell(&block.text, folder.path(), &service);
            let printed = blocks.get(at + 1).filter(|next| next.language == "text");
            let printed = printed.unwrap_or_else(|| panic!("{}: no output follows\n{}", path.display(), block.text));
            assert!(
                matches(&printed.text, &output),
                "{}: printed\n{}\nbut was\n{output}",
                path.display(),
                printed.text
            );
            ran += 1;
        }
    }
    assert!(ran >= 4, "{ran} blocks");
}

/// Returns the path of this page as the source that runs its doctests writes it, and that source.
fn doctested_by(page: &str) -> (String, String) {
    if let Some(guide) = page.strip_prefix("guard/docs/") {
        return (format!("../docs/{guide}"), "guard/src/guide.rs".to_owned());
    }
    match page.strip_suffix("/README.md") {
        Some(folder @ ("openapi" | "patterns" | "client-sdk/rust")) => {
            ("../README.md".to_owned(), format!("{folder}/src/lib.rs"))
        }
        _ => (format!("../../{page}"), "tests/src/lib.rs".to_owned()),
    }
}

#[test]
fn rust_blocks_are_doctests_and_every_language_is_known() {
    for path in pages() {
        let blocks = blocks(&fs::read_to_string(&path).expect("the page is readable"));
        let place = path.strip_prefix(ROOT).expect("a path in the repository").display().to_string();
        if blocks.iter().any(|block| block.language.starts_with("rust")) {
            let (name, source) = doctested_by(&place);
            let source = fs::read_to_string(Path::new(ROOT).join(source)).expect("a source");
            assert!(source.contains(&format!("\"{name}\"")), "{place} is not run as doctests");
        }
        for block in &blocks {
            let is_known = block.language.starts_with("rust") || block.language == "sh";
            assert!(is_known || SHOWN.contains(&block.language.as_str()), "{place}: a block of {:?}", block.language);
        }
    }
}

/// A dependency line names a crate of this repository, and features that it has.
#[test]
fn dependency_lines_name_existing_crates_and_features() {
    let dependency = regex_lite::Regex::new(r#"(?m)^(onceward[a-z-]*) = (.+)$"#).unwrap();
    let quoted = regex_lite::Regex::new(r#""([^"]+)""#).unwrap();
    let mut lines = 0;
    for path in pages() {
        let page = fs::read_to_string(&path).expect("the page is readable");
        for block in blocks(&page).into_iter().filter(|block| block.language == "toml") {
            for found in dependency.captures_iter(&block.text) {
                let folder = match &found[1] {
                    "onceward" => "guard",
                    "onceward-api" => "openapi",
                    "onceward-client" => "client-sdk/rust",
                    "onceward-patterns" => "patterns",
                    other => panic!("{}: there is no crate {other}", path.display()),
                };
                let value = found[2].split('#').next().unwrap_or_default();
                if let Some((_, rest)) = value.split_once("path = \"") {
                    assert!(rest.starts_with(&format!("../onceward/{folder}\"")), "{}: {value}", path.display());
                }
                let manifest = fs::read_to_string(format!("{ROOT}/{folder}/Cargo.toml")).expect("a manifest");
                let features = value.split_once("features = [").map(|(_, rest)| rest).unwrap_or_default();
                for feature in quoted.captures_iter(features) {
                    let declared = format!("\n{} = ", &feature[1]);
                    assert!(manifest.contains(&declared), "{}: there is no feature {}", path.display(), &feature[1]);
                }
                lines += 1;
            }
        }
    }
    assert!(lines >= 4, "{lines} dependency lines");
}

#[test]
fn output_differs_if_a_line_differs_or_is_missing() {
    assert!(matches("a …\nb", "a 1\n\nb\n"));
    assert!(matches("{\"pass\":\"…\",\"lease\":\"15s\"}", "{\"pass\":\"x\",\"lease\":\"15s\"}\n"));
    assert!(!matches("a …\nb", "a 1\nc\n"));
    assert!(!matches("a", "a\nb\n"));
    assert!(!matches("a … b", "a 1 c"));
    assert!(!matches("a", "ab"));
    let shown = Block { language: "sh".to_owned(), text: "a\n".to_owned() };
    assert_eq!(blocks("x\n```sh\na\n```\n"), [shown]);
}

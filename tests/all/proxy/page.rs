//! `docs/proxy.md` runs as it is printed, from an empty folder: its application, its proxy, and its commands with the shown output. Only
//! ports are replaced.

use std::fs;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use onceward_tests::client::{http, send, token};
use onceward_tests::listening_port::free_port;
use onceward_tests::polling::until_blocking;

use onceward_tests::service;
use tempfile::TempDir;

use crate::docs::pages::{Block, blocks, matches};

const PAGE: &str = include_str!("../../../docs/proxy.md");

/// A program that a block of the page starts, and which runs until this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The folder of a newcomer, and the ports in place of those of the page.
struct Newcomer {
    folder: TempDir,
    application: u16,
    proxy: u16,
}

impl Newcomer {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), application: free_port(), proxy: free_port() }
    }

    /// Returns the shell for a block. The program is installed, and listens on another port.
    fn shell(&self, block: &str) -> Command {
        let script = block
            .replace("127.0.0.1:3000", &format!("127.0.0.1:{}", self.application))
            .replace("\"127.0.0.1\", 3000", &format!("\"127.0.0.1\", {}", self.application))
            .replace("localhost:8080", &format!("127.0.0.1:{}", self.proxy));
        let installed = service::program().parent().unwrap().display().to_string();
        let mut shell = Command::new("sh");
        let script = format!("PATH=\"{installed}:$PATH\"\n{script}");
        shell.args(["-eu", "-c", &script]).current_dir(self.folder.path()).stdin(Stdio::null());
        shell.env("ONCEWARD_LISTEN", format!("127.0.0.1:{}", self.proxy));
        shell
    }

    /// Runs a block whose last command does not end, and waits until it listens on this port.
    fn start(&self, block: &str, port: u16) -> Running {
        let (before, last) = block.trim_end().rsplit_once('\n').unwrap_or(("", block.trim_end()));
        let mut shell = self.shell(&format!("{before}\nexec {last}"));
        let running = Running(shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("sh runs"));
        let is_up = until_blocking(Duration::from_secs(20), || TcpStream::connect(("127.0.0.1", port)).is_ok());
        assert!(is_up, "nothing listens after\n{block}");
        running
    }

    /// Runs a block, and returns its output.
    fn run(&self, block: &str) -> String {
        let output = self.shell(block).output().expect("sh runs");
        assert!(output.status.success(), "{block}\n{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Returns the program that the block of the application writes to a file.
fn program(application: &str) -> &str {
    application.split_once("END'\n").and_then(|(_, file)| file.split_once("\nEND\n")).expect("a program").0
}

/// Returns the number of lines that differ between two versions of a file.
fn changed_lines(before: &str, after: &str) -> usize {
    let (before, after): (Vec<_>, Vec<_>) = (before.lines().collect(), after.lines().collect());
    let differing = before.iter().zip(&after).filter(|(before, after)| before != after).count();
    differing + before.len().abs_diff(after.len())
}

/// Returns the shell blocks, each with the output that the page shows.
fn commands(all: &[Block]) -> Vec<(&str, Option<&str>)> {
    let shown = |at: usize| all.get(at + 1).filter(|next| next.language == "text").map(|next| next.text.as_str());
    let shell = all.iter().enumerate().filter(|(_, block)| block.language == "sh");
    shell.map(|(at, block)| (block.text.as_str(), shown(at))).collect()
}

#[tokio::test]
async fn quick_start_protects_an_unchanged_application() {
    let (newcomer, all) = (Newcomer::new(), blocks(PAGE));
    let commands = commands(&all);
    let [(application, None), (proxy, None), shown @ ..] = commands.as_slice() else { panic!("{commands:?}") };
    let _application = newcomer.start(application, newcomer.application);
    let file = newcomer.folder.path().join("shop.py");
    let before = fs::read_to_string(&file).unwrap();
    // The application works by itself.
    let direct = send(http().get(format!("http://127.0.0.1:{}/count", newcomer.application))).await;
    assert_eq!((direct.status, &*direct.body), (200, &b"0 orders\n"[..]));
    let _proxy = newcomer.start(proxy, newcomer.proxy);

    let settings = all.iter().find(|block| block.language == "toml").unwrap();
    fs::write(newcomer.folder.path().join("onceward.toml"), &settings.text).unwrap();
    assert_eq!(shown.len(), 3, "{shown:?}");
    for (block, printed) in shown {
        let (output, printed) = (newcomer.run(block), printed.expect("a block with its output"));
        assert!(matches(printed, &output), "printed\n{printed}\nbut was\n{output}");
    }

    // Another submission of the page's form, sent twice: one order more.
    let url = format!("http://127.0.0.1:{}", newcomer.proxy);
    let token = token(&format!("{url}/_onceward")).await;
    let submit = || send(http().post(format!("{url}/orders")).form(&[("item", "tea"), ("_onceward", &token)]));
    let (first, second) = (submit().await, submit().await);
    assert_eq!((first.said(), second.said()), ("201 executed".into(), "201 replayed".into()));
    assert_eq!((&*first.body, &*second.body), (&b"order 3\n"[..], &b"order 3\n"[..]));
    assert_eq!(send(http().get(format!("{url}/count"))).await.body, "3 orders\n");

    // The page says how much a newcomer has to type and to change.
    let after = fs::read_to_string(&file).unwrap();
    let (typed, changed) = (proxy.lines().count(), changed_lines(&before, &after));
    let stated = format!("That is {typed} command, and {changed} changed lines of the application.");
    assert!(PAGE.contains(&stated), "the page does not say: {stated}");
    assert!(
        before == after && !before.to_lowercase().contains("onceward"),
        "the application knows nothing of Onceward"
    );
    let lines = program(application).lines().filter(|line| !line.trim().is_empty()).count();
    assert!(lines <= 16, "a short application has {lines} lines");
}

#[test]
fn changed_lines_are_counted() {
    for (before, after, count) in
        [("", "", 0), ("a\nb\n", "a\nb\n", 0), ("a\nb\n", "a\nc\n", 1), ("a\n", "a\nb\nc\n", 2), ("a\nb\n", "", 2)]
    {
        assert_eq!(changed_lines(before, after), count, "{before:?} {after:?}");
    }
}

/// Every default in the tables of the page is the one of the setting.
#[test]
fn stated_defaults_are_those_of_the_settings() {
    let mut checked = 0;
    for (name, setting) in onceward_server::config::setting::names() {
        let row = PAGE.lines().find(|line| line.starts_with(&format!("| `{name}`")) && line.matches('`').count() > 2);
        if let (Some(row), Some(default)) = (row, setting.default) {
            assert!(row.contains(&format!("| `{default}`")), "{name}: {row}");
            checked += 1;
        }
    }
    assert!(checked >= 7, "{checked}");
}

//! An application that knows nothing of Onceward: `tests/legacy/shop.py`, with a ledger of its own.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::listening_port::free_port;

use crate::service::OncewardServer;
use crate::tls_redis::Authority;

/// The running application. It is stopped by its process id.
pub struct LegacyShop {
    child: Child,
    folder: TempDir,
    port: u16,
    /// Its certificate and key, if it uses TLS.
    tls: Option<[PathBuf; 2]>,
    /// Its URL.
    pub url: String,
}

impl LegacyShop {
    /// Starts it on a free port.
    pub fn start() -> Self {
        Self::start_at("http", None)
    }

    /// Starts it with TLS, and a certificate of this authority.
    pub fn start_with_tls(authority: &Authority) -> Self {
        Self::start_at("https", Some([authority.server_certificate(), authority.server_key()]))
    }

    fn start_at(scheme: &str, tls: Option<[PathBuf; 2]>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // Another process may take the port before the application binds it: then try another one.
        for _ in 0..10 {
            let port = free_port();
            if let Some(child) = launch(port, &folder, tls.as_ref()) {
                return Self { child, folder, port, tls, url: format!("{scheme}://127.0.0.1:{port}") };
            }
        }
        panic!("the application does not start");
    }

    /// Kills it, as a crash would. The ledger stays.
    pub fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again on the same port, with the same ledger.
    pub fn restart(&mut self) {
        self.kill();
        self.child = launch(self.port, &self.folder, self.tls.as_ref()).expect("the application starts again");
    }

    /// Returns the orders in its ledger.
    pub fn orders(&self) -> Vec<Value> {
        let ledger = std::fs::read_to_string(ledger(&self.folder)).unwrap_or_default();
        ledger.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// Starts a proxy in front of it, with these additional arguments.
    pub fn proxy(&self, arguments: &[&str]) -> OncewardServer {
        proxy_to(&self.url, arguments)
    }
}

/// Starts a proxy in front of an upstream, with these additional arguments.
pub fn proxy_to(upstream: &str, arguments: &[&str]) -> OncewardServer {
    OncewardServer::start(&[&["proxy", "--upstream", upstream], arguments].concat())
}

impl Drop for LegacyShop {
    fn drop(&mut self) {
        self.kill();
    }
}

fn ledger(folder: &TempDir) -> PathBuf {
    folder.path().join("orders.jsonl")
}

/// Starts the application, and waits until it listens. Returns `None` if it cannot bind the port.
fn launch(port: u16, folder: &TempDir, tls: Option<&[PathBuf; 2]>) -> Option<Child> {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/legacy/shop.py");
    let mut child = Command::new("python3")
        .args([program, &port.to_string()])
        .arg(ledger(folder))
        .args(tls.into_iter().flatten())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs: apt-get install python3");
    let mut line = String::new();
    let read = BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line);
    if read.is_ok_and(|count| count > 0) {
        return Some(child);
    }
    let _ = child.wait();
    None
}

//! The process of the server under load, seen from outside.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::Failure;
use crate::case::Case;

/// The word that makes this program the server.
pub(crate) const SERVE: &str = "serve";

/// A running server.
pub(crate) struct ServerProcess {
    child: Child,
    url: String,
}

impl ServerProcess {
    /// Starts this program again as the server, and waits until it listens and its tokens are issued.
    pub(crate) fn start(case: &Case, redis: &str, tokens: &Path, per_thread: usize) -> Result<Self, Failure> {
        let child = Command::new(std::env::current_exe()?)
            .args([SERVE, case.name, redis])
            .arg(tokens)
            .arg(per_thread.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut server = Self { child, url: String::new() };
        let stdout = server.child.stdout.take().ok_or("the server has no output")?;
        BufReader::new(stdout).read_line(&mut server.url)?;
        server.url.truncate(server.url.trim_end().len());
        if server.url.is_empty() { Err(format!("{}: the server did not start", case.name).into()) } else { Ok(server) }
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Where it is.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

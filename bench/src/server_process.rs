//! The process of the server under load.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::Failure;
use crate::case::Case;

/// The command that runs this program as the server.
pub(crate) const SERVE: &str = "serve";

/// A running server.
pub(crate) struct ServerProcess {
    child: Child,
    url: String,
}

impl ServerProcess {
    /// Starts this program as the server, and waits until it listens and has issued its tokens.
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

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The URL.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The server may have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

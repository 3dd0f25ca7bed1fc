//! The process of the [server](crate::scale_server) whose store grows.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::Failure;
use crate::scale_server::DONE;
use crate::scaled_store::{ScaledStore, StoreKind};

/// The command that runs this program as the server.
pub(crate) const SERVE: &str = "scale-serve";

/// A running server.
pub(crate) struct ScaleProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    url: String,
}

impl ScaleProcess {
    /// Starts this program as the server of a store, and waits until it listens.
    pub(crate) fn start(kind: StoreKind, store: &ScaledStore, folder: &Path) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([SERVE, kind.name(), &store.address()])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().ok_or("the server has no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("the server has no output")?);
        let mut server = Self { child, input, output, url: String::new() };
        server.url = server.line()?;
        Ok(server)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Has the server execute a command, and waits until it has.
    pub(crate) fn tell(&mut self, command: &str) -> Result<(), Failure> {
        writeln!(self.input, "{command}")?;
        self.input.flush()?;
        let reply = self.line()?;
        if reply == DONE { Ok(()) } else { Err(format!("{command}: {reply}").into()) }
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err("the server has ended".into());
        }
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for ScaleProcess {
    fn drop(&mut self) {
        // The server may have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

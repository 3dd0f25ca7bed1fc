//! The process of the server under load.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::Failure;
use crate::allocation_count::AllocationCount;
use crate::case::Case;
use crate::framework::Framework;
use crate::scale_server::DONE;

/// The command that runs this program as the server.
pub(crate) const SERVE: &str = "serve";

/// A running server.
pub(crate) struct ServerProcess {
    child: Child,
    output: BufReader<ChildStdout>,
    url: String,
}

impl ServerProcess {
    /// Starts this program as the server on actix-web, and waits until it listens and has issued its tokens.
    pub(crate) fn start(case: &Case, redis: &str, tokens: &Path, per_thread: usize) -> Result<Self, Failure> {
        Self::start_on(Framework::Actix, case, redis, tokens, per_thread)
    }

    /// Like [`start`](Self::start), on this framework.
    pub(crate) fn start_on(
        framework: Framework,
        case: &Case,
        redis: &str,
        tokens: &Path,
        per_thread: usize,
    ) -> Result<Self, Failure> {
        Self::start_program(&std::env::current_exe()?, framework, case, redis, tokens, per_thread)
    }

    /// Like [`start_on`](Self::start_on), with another program.
    pub(crate) fn start_program(
        program: &Path,
        framework: Framework,
        case: &Case,
        redis: &str,
        tokens: &Path,
        per_thread: usize,
    ) -> Result<Self, Failure> {
        let mut program = Command::new(program);
        let program = program.args([SERVE, case.name, redis]).arg(tokens).arg(per_thread.to_string());
        Self::spawn(program.arg(framework.name()), case.name)
    }

    /// Starts a server that prints its URL once it listens, and waits for the URL.
    pub(crate) fn spawn(program: &mut Command, name: &str) -> Result<Self, Failure> {
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or("the server has no output")?;
        let mut server = Self { child, output: BufReader::new(output), url: String::new() };
        server.url = server.line()?;
        if server.url.is_empty() { Err(format!("{name}: the server did not start").into()) } else { Ok(server) }
    }

    /// The allocations of the server since its start.
    ///
    /// # Errors
    /// If the program of the server does not count them.
    pub(crate) fn allocations(&mut self) -> Result<AllocationCount, Failure> {
        let line = self.ask("")?;
        Ok(AllocationCount::read(&line).ok_or_else(|| format!("the server counts no allocations: {line}"))?)
    }

    /// Has the server execute a command, and waits until it has.
    ///
    /// # Errors
    /// If the server reports an error, or has exited.
    pub(crate) fn tell(&mut self, command: &str) -> Result<(), Failure> {
        let reply = self.ask(command)?;
        if reply == DONE { Ok(()) } else { Err(format!("{command}: the server replied {reply:?}").into()) }
    }

    /// Writes a line to the input of the server, and returns the next line of its output.
    fn ask(&mut self, line: &str) -> Result<String, Failure> {
        let input = self.child.stdin.as_mut().ok_or("the server has no input")?;
        writeln!(input, "{line}")?;
        self.line()
    }

    /// The next line of the output; empty after its end.
    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        line.truncate(line.trim_end().len());
        Ok(line)
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

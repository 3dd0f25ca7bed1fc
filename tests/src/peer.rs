//! The shop as a separate process.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::ledger::Ledger;
use crate::reserved_port::ReservedPort;
use crate::wall_clock::WallClock;

/// A running process.
pub struct Peer {
    child: Child,
    _stdout: BufReader<ChildStdout>,
    /// Its URL.
    pub url: String,
}

impl Peer {
    /// Starts one. `program` is the path of the `peer` binary, `kind` its first argument.
    pub fn start(program: &str, kind: &str, store: &str, ledger: &Ledger) -> Self {
        let mut command = Command::new(program);
        command.args([kind, store]).arg(ledger.path());
        Self::spawn(command)
    }

    /// Starts one that logs JSON lines to this file.
    pub fn start_logging(program: &str, kind: &str, store: &str, ledger: &Ledger, log: &Path) -> Self {
        let mut command = Command::new(program);
        command.args([kind, store]).arg(ledger.path()).arg(log);
        Self::spawn(command)
    }

    /// Starts one with this wall clock.
    pub fn start_by(clock: &WallClock, program: &str, kind: &str, store: &str, ledger: &Ledger) -> Self {
        let mut command = Command::new(program);
        command.args([kind, store]).arg(ledger.path());
        clock.set(&mut command);
        Self::spawn(command)
    }

    /// Starts one that signs with `secret` and also accepts `previous`. `-` stands for none, `shared` for the secret in the store.
    pub fn start_signing(program: &str, store: &str, ledger: &Ledger, secret: &str, previous: &str) -> Self {
        let mut command = Command::new(program);
        command.args(["patient", store]).arg(ledger.path()).args(["-", secret, previous]);
        Self::spawn(command)
    }

    /// Starts one that listens at the reserved address.
    pub fn start_at(port: &ReservedPort, program: &str, store: &str, ledger: &Ledger) -> Self {
        let mut command = Command::new(program);
        command.args(["patient", store]).arg(ledger.path()).args(["-", "-", "-"]).arg(port.address());
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the peer starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("its output is piped"));
        let mut url = String::new();
        stdout.read_line(&mut url).expect("the peer prints its URL");
        Self { child, _stdout: stdout, url: url.trim().to_owned() }
    }

    /// Its resident memory in bytes.
    pub fn memory(&self) -> u64 {
        resident(&self.child)
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends SIGINT, as Ctrl-C does.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Kills it with SIGKILL, like a crash.
    pub fn kill(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("the peer can be killed");
    }

    /// Pauses it with SIGSTOP; its connections stay open.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes it with SIGCONT.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the peer can be signalled");
    }

    /// Returns its exit code once it has ended.
    pub fn ended(&mut self) -> Option<i32> {
        let status = self.child.try_wait().expect("its own child")?;
        Some(status.code().unwrap_or(-1))
    }
}

/// Returns the resident memory of a process in bytes.
pub(crate) fn resident(child: &Child) -> u64 {
    let pages = std::fs::read_to_string(format!("/proc/{}/statm", child.id())).expect("it runs");
    let resident: u64 = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    resident * rustix::param::page_size() as u64
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

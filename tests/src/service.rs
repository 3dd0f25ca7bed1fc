//! The service: the real `onceward` binary on a free port. It is stopped by its process id.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde_json::Value;

use crate::listening_port::free_port;
use crate::peer::resident;
use crate::polling::until_blocking;

/// Variables that cargo sets for tests of this package. With them, crates whose build depends on such variables would be rebuilt,
/// with all their dependents, each time a build alternates between here and elsewhere.
const OURS: [&str; 7] = [
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_LINKS",
    "CARGO_PKG_NAME",
    "CARGO_PKG_VERSION_MAJOR",
    "CARGO_PKG_VERSION_MINOR",
    "CARGO_PKG_VERSION_PATCH",
    "CARGO_PKG_VERSION_PRE",
];

/// Returns the path of the binary, after building it if it is out of date.
pub fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let here = std::env::current_exe().expect("this program has a path");
        let folder = here.parent().and_then(|deps| deps.parent()).expect("target/<profile>/deps").to_owned();
        // The features of `cargo test --workspace --all-features`, so that dependencies are compiled already. Building a test of the
        // service's package also builds its binary.
        let mut build = Command::new(env!("CARGO"));
        build.args([
            "test",
            "--quiet",
            "--locked",
            "--workspace",
            "--all-features",
            "--test",
            "panic_handler",
            "--no-run",
        ]);
        if folder.ends_with("release") {
            build.arg("--release");
        }
        OURS.iter().for_each(|name| {
            build.env_remove(name);
        });
        assert!(build.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo runs").success());
        folder.join("onceward")
    })
}

/// Returns a command of the binary with these arguments.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs the binary until it exits.
pub fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("onceward runs")
}

/// Runs the binary with this standard input.
pub fn run_with(arguments: &[&str], input: &str) -> Output {
    let mut child = command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("onceward runs");
    // Dropping the pipe ends the input. A process that does not read it may have exited already.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    child.wait_with_output().expect("onceward ends")
}

/// A running service.
pub struct OncewardServer {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    /// Its URL.
    pub url: String,
}

impl OncewardServer {
    /// Starts one on a free port with these additional arguments. It logs JSON lines, including one for each response.
    pub fn start(arguments: &[&str]) -> Self {
        let always = ["--listen", "127.0.0.1:0", "--log", "json", "--request-log", "all"];
        Self::spawn(command(&[&always[..], arguments].concat()))
    }

    /// Starts this command, which must log JSON lines, and waits until it listens.
    pub fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("onceward starts");
        let log = Arc::new(Mutex::new(Vec::new()));
        let (out, err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        let keep = |lines: Box<dyn std::io::Read + Send>, log: Arc<Mutex<Vec<String>>>| {
            std::thread::spawn(move || {
                for line in BufReader::new(lines).lines().map_while(Result::ok) {
                    log.lock().expect("no reader panics").push(line);
                }
            })
        };
        keep(Box::new(out), Arc::clone(&log));
        keep(Box::new(err), Arc::clone(&log));
        let mut server = Self { child, log, url: String::new() };
        let is_up = until_blocking(Duration::from_secs(20), || {
            server.url = server.listening().unwrap_or_default();
            !server.url.is_empty()
        });
        assert!(is_up, "onceward does not listen: {:#?}", server.log());
        server
    }

    fn listening(&self) -> Option<String> {
        self.announced("address")
    }

    /// URL of its admin listener, with `--admin-listen`.
    pub fn admin(&self) -> String {
        self.announced("admin").expect("it was started with --admin-listen")
    }

    /// Returns an address from the log line `listening`.
    fn announced(&self, field: &str) -> Option<String> {
        self.log().iter().find_map(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            (line["message"] == "listening").then(|| format!("http://{}", line[field].as_str().unwrap_or_default()))
        })
    }

    /// Returns all lines so far of standard output and standard error.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().expect("no writer panics").clone()
    }

    /// Its resident memory in bytes.
    pub fn memory(&self) -> u64 {
        resident(&self.child)
    }

    /// Returns the log lines whose message contains this text.
    pub fn lines(&self, message: &str) -> Vec<Value> {
        let lines = self.log().into_iter().filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        lines.filter(|line| line["message"].as_str().is_some_and(|said| said.contains(message))).collect()
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Pauses it with SIGSTOP, and waits until all of its threads have stopped; its connections stay open.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        let stopped = waitid(WaitId::Pid(Pid::from_child(&self.child)), WaitIdOptions::STOPPED);
        assert!(stopped.expect("its own child").is_some_and(|status| status.stopped()), "it has not stopped");
    }

    /// Resumes it with SIGCONT.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it can be signalled");
    }

    /// Returns its exit code once it has ended.
    pub fn ended(&mut self) -> Option<i32> {
        let status = self.child.try_wait().expect("its own child")?;
        Some(status.code().unwrap_or(-1))
    }
}

impl Drop for OncewardServer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running service whose output goes elsewhere, in any log format.
pub struct ServiceProcess {
    child: Child,
    /// Its URL.
    pub url: String,
}

impl ServiceProcess {
    /// Starts one on a free port with these additional arguments and environment variables.
    pub fn start(arguments: &[&str], variables: &[(String, String)], out: Stdio, err: Stdio) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = command(&[&["--listen", &address], arguments].concat());
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let child = command.stdout(out).stderr(err).spawn().expect("onceward starts");
        let plain = Self { child, url: format!("http://{address}") };
        let is_up = until_blocking(Duration::from_secs(20), || TcpStream::connect(&address).is_ok());
        assert!(is_up, "onceward does not listen");
        plain
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! The service: the real `onceward` binary, on a free port, ended by its own process id.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::peer::resident;
use crate::polling::until_blocking;
use crate::redis_server::free_port;

/// What cargo tells a test of its own package. A crate whose build goes by such variables would be built anew, with all that
/// stands on it, each time that it is built from here and then from elsewhere.
const OURS: [&str; 7] = [
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_LINKS",
    "CARGO_PKG_NAME",
    "CARGO_PKG_VERSION_MAJOR",
    "CARGO_PKG_VERSION_MINOR",
    "CARGO_PKG_VERSION_PATCH",
    "CARGO_PKG_VERSION_PRE",
];

/// The path of the binary, which is built if it is not current.
pub fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let here = std::env::current_exe().expect("this program has a path");
        let folder = here.parent().and_then(|deps| deps.parent()).expect("target/<profile>/deps").to_owned();
        // The features of `cargo test --workspace --all-features`, with which the dependencies are compiled already. A test of the
        // service's own package brings its binary along.
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

/// A command of it, with nothing of this process's settings in its environment.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs it until it ends by itself.
pub fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("onceward runs")
}

/// Runs it with this on its input.
pub fn run_with(arguments: &[&str], input: &str) -> Output {
    let mut child = command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("onceward runs");
    // Dropped at once, which is the end of the input; whoever does not read it may have gone.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    child.wait_with_output().expect("onceward ends")
}

/// A running service.
pub struct OncewardServer {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    /// Where it is.
    pub url: String,
}

impl OncewardServer {
    /// Starts one on a free port, with these arguments beside that. It logs JSON lines, one for each response among them.
    pub fn start(arguments: &[&str]) -> Self {
        let always = ["--listen", "127.0.0.1:0", "--log", "json", "--request-log", "all"];
        Self::spawn(command(&[&always[..], arguments].concat()))
    }

    /// Starts this command, which has to log JSON lines, and waits until it listens.
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

    /// Where it is for whoever runs it, with `--admin-listen`.
    pub fn admin(&self) -> String {
        self.announced("admin").expect("it was started with --admin-listen")
    }

    /// An address that it has told when it began to listen.
    fn announced(&self, field: &str) -> Option<String> {
        self.log().iter().find_map(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            (line["message"] == "listening").then(|| format!("http://{}", line[field].as_str().unwrap_or_default()))
        })
    }

    /// Everything it has said so far, on both outputs.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().expect("no writer panics").clone()
    }

    /// How many bytes of memory it uses.
    pub fn memory(&self) -> u64 {
        resident(&self.child)
    }

    /// The lines of its log that say this, as JSON.
    pub fn lines(&self, message: &str) -> Vec<Value> {
        let lines = self.log().into_iter().filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        lines.filter(|line| line["message"].as_str().is_some_and(|said| said.contains(message))).collect()
    }

    /// Asks it to end.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Stops it from running, with its connections open.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it run again.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it can be signalled");
    }

    /// Its exit code, once it has ended.
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

/// A running service that may log as it likes, or nothing: its output goes elsewhere.
pub struct ServiceProcess {
    child: Child,
    /// Where it is.
    pub url: String,
}

impl ServiceProcess {
    /// Starts one on a free port, with these arguments and environment variables beside that.
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

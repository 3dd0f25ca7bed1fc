//! Runs the README's programs unchanged: a preloaded library maps their fixed ports to free ones.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use tempfile::TempDir;

use crate::listening_port::free_port;
use crate::redis_server::RedisServer;

/// The ports in the programs' source.
const LISTEN: u16 = 8080;
const REDIS: u16 = 6379;
/// Maximum number of starts, as another process may take the free port.
const STARTS: usize = 5;

/// A running program of the README.
pub struct ReadmeProgram {
    child: Child,
    _stdout: BufReader<ChildStdout>,
    _folder: TempDir,
    /// Its URL.
    pub url: String,
}

impl ReadmeProgram {
    /// Starts the program at this path. Connections to the default port of Redis go to `redis`.
    ///
    /// # Panics
    /// If the program does not listen.
    pub fn start(program: &str, redis: Option<&RedisServer>) -> Self {
        (0..STARTS).find_map(|_| Self::try_start(program, redis)).expect("the program listens")
    }

    fn try_start(program: &str, redis: Option<&RedisServer>) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let library = compile(&folder);
        let port = free_port();
        let redis = redis.map(|redis| format!(" {REDIS}:{}", redis.port())).unwrap_or_default();
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library).env("PORTS", format!("{LISTEN}:{port}{redis}"));
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("its output is piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("the program prints its URL");
        let this = Self { child, _stdout: stdout, _folder: folder, url: format!("http://127.0.0.1:{port}") };
        (line == format!("listening on http://127.0.0.1:{LISTEN}\n")).then_some(this)
    }
}

/// Compiles the library in a folder and returns its path.
fn compile(folder: &TempDir) -> std::path::PathBuf {
    let (source, library) = (folder.path().join("other_ports.c"), folder.path().join("other_ports.so"));
    fs::write(&source, include_str!("other_ports.c")).expect("the folder can be written");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source);
    assert!(compile.status().expect("cc is missing; install it with: apt-get install gcc").success());
    library
}

impl Drop for ReadmeProgram {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

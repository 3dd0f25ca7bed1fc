//! A real `redis-server` on a free port with its own data folder. It is stopped by its process id.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Cmd, Connection, FromRedisValue, Value};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::listening_port::{free_port, listens};
use crate::polling::until_blocking;
use crate::wall_clock;

/// A running server.
pub struct RedisServer {
    program: String,
    child: Child,
    port: u16,
    folder: TempDir,
    arguments: Vec<String>,
}

impl RedisServer {
    /// Starts one without persistence.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts one with additional arguments.
    pub fn start_with(arguments: &[&str]) -> Self {
        Self::start_program(&program(), arguments)
    }

    /// Starts one with this program.
    pub fn start_program(program: &str, arguments: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().expect("a temporary folder"), program, arguments)
    }

    fn start_in(folder: TempDir, program: &str, arguments: &[&str]) -> Self {
        let (program, arguments) =
            (program.to_owned(), arguments.iter().copied().map(str::to_owned).collect::<Vec<_>>());
        // Another process may take the port before the server binds it: then try another one.
        for _ in 0..10 {
            let port = free_port();
            if let Some(child) = spawn(&program, port, &folder, &arguments) {
                return Self { program, child, port, folder, arguments };
            }
        }
        panic!("{program} does not start");
    }

    /// Starts one whose clock can [`leap`](Self::leap).
    pub fn start_leaping() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        wall_clock::compile(folder.path());
        Self::start_in(folder, &program(), &[])
    }

    /// Moves its clock two days ahead.
    pub fn leap(&self) {
        wall_clock::leap(self.folder.path());
    }

    /// Starts one on this port. Returns `None` if another process uses the port.
    pub fn start_at(port: u16, arguments: &[String]) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let program = program();
        let child = spawn(&program, port, &folder, arguments)?;
        Some(Self { program, child, port, folder, arguments: arguments.to_vec() })
    }

    /// Its data folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills it with SIGKILL, like a crash.
    pub fn kill(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("the server can be killed");
    }

    /// Returns true if it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("its own child").is_some()
    }

    /// Starts it again on the same port and data folder.
    pub fn restart(&mut self) {
        self.child = spawn(&self.program, self.port, &self.folder, &self.arguments).expect("redis-server starts again");
    }

    /// Starts it again with another program, on the same port and data folder.
    pub fn replace(&mut self, program: &str) {
        self.program = program.to_owned();
        self.restart();
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
        let id = Pid::from_child(&self.child);
        kill_process(id, signal).expect("the server can be signalled");
    }

    /// Opens a new connection.
    pub fn connection(&self) -> Connection {
        let client = redis::Client::open(self.url()).expect("its own address");
        client.get_connection().expect("the server answers")
    }

    /// Sends a command, with arguments separated by blanks, and returns the reply.
    pub fn ask<T: FromRedisValue>(&self, command: &str) -> T {
        let mut words = command.split(' ');
        let mut ask = Cmd::new();
        words.by_ref().for_each(|word| {
            ask.arg(word);
        });
        ask.query(&mut self.connection()).expect("the server answers")
    }

    /// Returns the commands for compare-and-swap and compare-and-delete that this server supports.
    pub fn compare_commands(&self) -> CompareCommands {
        let mut connection = self.connection();
        let mut answers = |words: &str| {
            let mut command = Cmd::new();
            words.split(' ').for_each(|word| {
                command.arg(word);
            });
            command.query::<Value>(&mut connection)
        };
        // On a cluster node, find a key in one of its slots.
        let names = (0..1_000).map(|number| format!("nothing:{number}"));
        let is_here = |name: &String| answers(&format!("GET {name}")).is_ok();
        let name = { names }.find(is_here).expect("a node has slots");
        let mut knows = |words: &str| answers(&words.replace("NAME", &name)).is_ok();
        let swap = if knows("SET NAME 1 IFEQ 0 GET") { "SET" } else { "EVALSHA" };
        let remove = ["DELEX NAME IFEQ 0", "DELIFEQ NAME 0"].into_iter().find(|words| knows(words));
        CompareCommands { swap, remove: remove.and_then(|words| words.split(' ').next()).unwrap_or("EVALSHA") }
    }

    /// Returns every key.
    pub fn keys(&self) -> Vec<String> {
        self.ask("KEYS *")
    }

    /// Starts recording every command that the server receives.
    pub fn monitor(&self) -> Monitor {
        Monitor::start(self.port)
    }

    /// Starts counting the commands that the server receives, without recording them.
    pub fn count_commands(&self) -> CommandCount {
        CommandCount::start(self.port)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // It may have been killed by the test already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The commands for compare-and-swap and compare-and-delete of a server.
#[derive(Debug, Clone, Copy)]
pub struct CompareCommands {
    /// Compare and set: `SET`, or `EVALSHA` for a script.
    pub swap: &'static str,
    /// Compare and delete: `DELEX`, `DELIFEQ`, or `EVALSHA` for a script.
    pub remove: &'static str,
}

impl CompareCommands {
    /// Returns a word that occurs in every compare-and-set and in no insert.
    pub fn swap_word(self) -> &'static str {
        if self.swap == "SET" { "IFEQ" } else { self.swap }
    }
}

/// Records every command that a server receives, by `MONITOR`.
pub struct Monitor {
    lines: Arc<Mutex<Vec<String>>>,
    port: u16,
}

impl Monitor {
    fn start(port: u16) -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&lines);
        watch(port, move |line| written.lock().expect("no reader panics").push(line));
        Self { lines, port }
    }

    /// Returns the commands that clients have sent so far, without those that a script ran. Includes every command that was
    /// sent before this call.
    pub fn commands(&self) -> Vec<String> {
        let mark = uuid::Uuid::new_v4().to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the server answers");
        stream.write_all(format!("ECHO {mark}\r\n").as_bytes()).expect("the server listens");
        let mut commands = Vec::new();
        let is_shown = until_blocking(Duration::from_secs(5), || {
            let lines = self.lines.lock().expect("no writer panics");
            let end = lines.iter().position(|line| line.contains(&mark));
            commands = lines[..end.unwrap_or(0)].iter().filter(|line| is_sent(line)).cloned().collect();
            end.is_some()
        });
        assert!(is_shown, "MONITOR does not show the mark");
        commands.into_iter().map(|line| line.split_once("] ").map_or(line.clone(), |(_, text)| text.into())).collect()
    }
}

/// Counts the commands that a server receives, for tests too long to record every line of `MONITOR`.
pub struct CommandCount(Arc<AtomicUsize>);

impl CommandCount {
    fn start(port: u16) -> Self {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        watch(port, move |line| {
            let counts = is_sent(&line) && !line.contains(":secret:");
            counted.fetch_add(usize::from(counts), Ordering::SeqCst);
        });
        Self(count)
    }

    /// Returns the number of commands on records that clients have sent so far, without those that a script ran.
    pub fn so_far(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Calls `each` for every line of `MONITOR`, in a thread that ends with the server.
fn watch(port: u16, mut each: impl FnMut(String) + Send + 'static) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server answers");
    stream.write_all(b"MONITOR\r\n").expect("the server listens");
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).expect("the server answers");
    assert_eq!(first, "+OK\r\n");
    std::thread::spawn(move || reader.lines().map_while(Result::ok).for_each(&mut each));
}

/// Returns true if a line shows a command that a client has sent. Excludes commands of scripts, the monitor's own marks, the
/// handshake and probes of a connection, and the checks of the epoch and of the eviction policy.
fn is_sent(line: &str) -> bool {
    const OTHERS: [&str; 8] = [
        " lua] ",
        "\"ECHO\"",
        "] \"HELLO\"",
        "] \"CLIENT\"",
        "] \"INFO\" \"replication\"",
        "] \"INFO\" \"memory\"",
        "] \"EVAL\" \"return 1\" \"0\"",
        ":probe:{",
    ];
    !OTHERS.iter().any(|other| line.contains(other))
}

/// Returns the program that the tests start: `redis-server`, or the value of `REDIS_SERVER` (`make test-servers` sets it to one
/// server after the other).
#[expect(clippy::disallowed_methods, reason = "it is no setting of the guard")]
pub fn program() -> String {
    std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

/// Returns the path of a server that `make setup` downloads.
pub fn native_program(name: &str) -> String {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/servers").join(name).join("redis-server");
    assert!(program.exists(), "{name} is missing; download it with: make setup");
    program.to_str().expect("a path of characters").to_owned()
}

fn spawn(program: &str, port: u16, folder: &TempDir, arguments: &[String]) -> Option<Child> {
    let mut command = Command::new(program);
    wall_clock::set(folder.path(), &mut command);
    let mut child = command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
        .arg(folder.path())
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is missing; install it with: apt-get install redis-server");
    let has_ended = |child: &mut Child| child.try_wait().expect("its own child").is_some();
    let is_up = |child: &Child| listens(child.id(), port) && answers(port);
    until_blocking(Duration::from_secs(10), || is_up(&child) || has_ended(&mut child));
    if is_up(&child) {
        return Some(child);
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut answer = String::new();
    let asked = stream.write_all(b"PING\r\n").and_then(|()| BufReader::new(stream).read_line(&mut answer));
    asked.is_ok() && (answer.starts_with("+PONG") || answer.starts_with("-NOAUTH"))
}

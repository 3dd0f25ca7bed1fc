//! A real PostgreSQL server on a free port with its own data folder. It is stopped by its process id.
//!
//! PostgreSQL refuses to run as root; then the server runs as the user of Debian's package.

use std::fs::{self, File};
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, getuid, kill_process};
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tempfile::TempDir;

use crate::listening_port::free_port;
use crate::polling::until_blocking;

use crate::wall_clock;

/// Folder with the programs of each version in Debian.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The user of Debian's package, and of the database.
const USER: &str = "postgres";
/// Preloaded library with another clock, if it is in the server's folder.
const CLOCK: &str = "clock.so";
/// Password of the database user.
pub const PASSWORD: &str = "correct-horse";
/// Settings for a quick start and enough connections for races. Settings of a test override them.
const SETTINGS: [&str; 8] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "max_connections=200",
    "shared_buffers=32MB",
    "fsync=off",
    "full_page_writes=off",
    "password_encryption=scram-sha-256",
    "log_min_messages=warning",
];

/// Source of a clock that is `AHEAD` seconds ahead.
const OTHER_CLOCK: &str = "
    #define _GNU_SOURCE
    #include <sys/syscall.h>
    #include <sys/time.h>
    #include <time.h>
    #include <unistd.h>
    int clock_gettime(clockid_t id, struct timespec *now) {
        int failed = syscall(SYS_clock_gettime, id, now);
        if (id == CLOCK_REALTIME) now->tv_sec += AHEAD;
        return failed;
    }
    int gettimeofday(struct timeval *restrict now, void *restrict zone) {
        struct timespec exactly;
        int failed = clock_gettime(CLOCK_REALTIME, &exactly);
        now->tv_sec = exactly.tv_sec;
        now->tv_usec = exactly.tv_nsec / 1000;
        return failed;
    }
    time_t time(time_t *to) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        if (to) *to = now.tv_sec;
        return now.tv_sec;
    }";

/// A running server.
pub struct PostgresServer {
    process: Process,
    port: u16,
    folder: TempDir,
    settings: Vec<String>,
}

impl PostgresServer {
    /// Starts one with `fsync=off`: quick, but not durable.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts one whose clock is this many seconds ahead.
    pub fn start_ahead(seconds: i64) -> Self {
        let folder = initialised();
        let (source, library) = (folder.path().join("clock.c"), folder.path().join(CLOCK));
        fs::write(&source, OTHER_CLOCK).expect("the folder can be written");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", &format!("-DAHEAD={seconds}"), "-o"]).arg(&library).arg(&source);
        assert!(compiler.status().expect("cc runs, which Rust needs too").success(), "the clock compiles");
        Self::start_in(folder, &[])
    }

    /// Starts one whose clock can [`leap`](Self::leap).
    pub fn start_leaping() -> Self {
        let folder = initialised();
        wall_clock::compile(folder.path());
        Self::start_in(folder, &[])
    }

    /// Moves its clock two days ahead.
    pub fn leap(&self) {
        wall_clock::leap(self.folder.path());
    }

    /// Starts one with additional settings, as in `fsync=on`.
    pub fn start_with(settings: &[&str]) -> Self {
        Self::start_in(initialised(), settings)
    }

    fn start_in(folder: TempDir, settings: &[&str]) -> Self {
        let settings: Vec<_> = SETTINGS.iter().chain(settings).map(|setting| (*setting).to_owned()).collect();
        // Another process may take the port before the server binds it: then try another one.
        for _ in 0..10 {
            let port = free_port();
            if let Some(process) = spawn(port, folder.path(), &settings) {
                return Self { process, port, folder, settings };
            }
        }
        panic!("postgres does not start: {}", said(folder.path()));
    }

    /// URL of its default database.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// URL of this database.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{}/{database}", self.port)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Creates a database and returns its URL.
    pub async fn database(&self, name: &str) -> String {
        self.execute(&format!("CREATE DATABASE {name}")).await;
        self.url_of(name)
    }

    /// Opens a new connection.
    pub async fn connection(&self) -> PgConnection {
        PgConnection::connect(&self.url()).await.expect("the server answers")
    }

    /// Opens a connection pool.
    pub async fn pool(&self, most: u32) -> PgPool {
        PgPoolOptions::new().max_connections(most).connect(&self.url()).await.expect("the server answers")
    }

    /// Runs statements in its default database.
    pub async fn execute(&self, statements: &str) {
        let mut connection = self.connection().await;
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut connection).await.expect("the statements run");
    }

    /// Returns the single number of a query in its default database.
    pub async fn number(&self, query: &str) -> i64 {
        let mut connection = self.connection().await;
        sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut connection).await.expect("one number, as a bigint")
    }

    /// Ends it with SIGQUIT, like a crash: it writes nothing more, and the next start recovers.
    pub fn kill(&mut self) {
        self.process.end();
    }

    /// Starts it again on the same port and data folder.
    pub fn restart(&mut self) {
        let process = spawn(self.port, self.folder.path(), &self.settings);
        self.process = process.unwrap_or_else(|| panic!("postgres starts again: {}", said(self.folder.path())));
    }
}

/// The server, and a watchdog process that ends it if this process dies.
struct Process {
    server: Child,
    watch: Child,
}

impl Process {
    /// Starts the watchdog. It reads from a pipe of this process, which closes when this process ends.
    fn watched(server: Child) -> Self {
        let script = format!("read nothing; kill -QUIT {}", server.id());
        let watch = Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().expect("sh runs");
        Self { server, watch }
    }

    /// Ends the server if it still runs. The signal also ends its child processes.
    fn end(&mut self) {
        // End the watchdog first, so that it does not signal another process that got the same id.
        let _ = self.watch.kill().and_then(|()| self.watch.wait());
        if self.server.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        let _ = kill_process(Pid::from_child(&self.server), Signal::QUIT);
        if !until_blocking(Duration::from_secs(10), || self.server.try_wait().is_ok_and(|ended| ended.is_some())) {
            let _ = self.server.kill().and_then(|()| self.server.wait());
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Creates a folder with an empty cluster.
fn initialised() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let password = folder.path().join("password");
    fs::write(&password, PASSWORD).expect("the folder can be written");
    if let Some((user, group)) = other_user() {
        for path in [folder.path(), &password] {
            chown(path, Some(user), Some(group)).expect("root may give it away");
        }
    }
    let made = program("initdb", folder.path())
        .args(["--no-sync", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--username", USER, "--pwfile"])
        .arg(&password)
        .arg("--pgdata")
        .arg(folder.path().join("data"))
        .output()
        .expect("initdb runs");
    assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
    folder
}

fn spawn(port: u16, folder: &Path, settings: &[String]) -> Option<Process> {
    let log = File::create(folder.join("log")).expect("the folder can be written");
    let mut command = program("postgres", folder);
    command.arg("-D").arg(folder.join("data")).args(["-p", &port.to_string()]);
    settings.iter().for_each(|setting| {
        command.args(["-c", setting]);
    });
    let clock = folder.join(CLOCK);
    if clock.exists() {
        command.env("LD_PRELOAD", clock);
    }
    wall_clock::set(folder, &mut command);
    let child = command.stdout(Stdio::null()).stderr(log).spawn().expect("postgres runs");
    let mut process = Process::watched(child);
    let ready = folder.join("data/postmaster.pid");
    let is_ready = || fs::read_to_string(&ready).is_ok_and(|text| text.lines().any(|line| line.trim() == "ready"));
    let mut has_ended = || process.server.try_wait().expect("its own child").is_some();
    until_blocking(Duration::from_secs(30), || is_ready() || has_ended());
    let is_up = !has_ended() && is_ready() && TcpStream::connect(("127.0.0.1", port)).is_ok();
    is_up.then_some(process)
}

/// Returns its log since the last start.
fn said(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap_or_default()
}

/// Returns one of its programs in the newest installed version, run as a user other than root.
fn program(name: &str, folder: &Path) -> Command {
    let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten().map(|version| version.path());
    let number = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let newest = versions.filter(|path| path.join("bin").join(name).exists()).max_by_key(number);
    let path = newest.map(|version| version.join("bin").join(name));
    let path = path.unwrap_or_else(|| panic!("{name} is missing; install it with: apt-get install postgresql"));
    let mut command = Command::new(path);
    command.current_dir(folder).stdin(Stdio::null());
    if let Some((user, group)) = other_user() {
        command.uid(user).gid(group);
    }
    command
}

/// Returns the package's user and group if this process runs as root.
fn other_user() -> Option<(u32, u32)> {
    if !getuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("there are users");
    let entry = users.lines().find_map(|line| line.strip_prefix(&format!("{USER}:")));
    let mut fields = entry.expect("the package postgresql creates its user").split(':').skip(1);
    let mut id = || fields.next().and_then(|field| field.parse().ok()).expect("a user and a group by number");
    Some((id(), id()))
}

//! A real PostgreSQL on a free port in a folder of its own, ended by its own process id.
//!
//! Its programs refuse to run as root; then they run as the user of Debian's package.

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

use crate::polling::until_blocking;
use crate::redis_server::free_port;
use crate::wall_clock;

/// Where Debian puts the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// Who runs them there.
const USER: &str = "postgres";
/// What gives it another clock, if that is in its folder.
const CLOCK: &str = "clock.so";
/// What the tests get in with.
pub const PASSWORD: &str = "correct-horse";
/// Quick to start, and enough for a race. What is said later goes over it.
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

/// A clock that is wrong by as many seconds as `AHEAD` says.
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
    /// Starts one that is quick, and would not survive a power cut.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts one whose clock is ahead of ours by so many seconds.
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

    /// Its clock jumps two days ahead.
    pub fn leap(&self) {
        wall_clock::leap(self.folder.path());
    }

    /// Starts one with settings of its own, as in `fsync=on`.
    pub fn start_with(settings: &[&str]) -> Self {
        Self::start_in(initialised(), settings)
    }

    fn start_in(folder: TempDir, settings: &[&str]) -> Self {
        let settings: Vec<_> = SETTINGS.iter().chain(settings).map(|setting| (*setting).to_owned()).collect();
        // Somebody else may get the port between our asking for it and the server's: then another one is taken.
        for _ in 0..10 {
            let port = free_port();
            if let Some(process) = spawn(port, folder.path(), &settings) {
                return Self { process, port, folder, settings };
            }
        }
        panic!("postgres does not start: {}", said(folder.path()));
    }

    /// The address of its first database.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The address of this database.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://{USER}:{PASSWORD}@127.0.0.1:{}/{database}", self.port)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Makes a new database, and gives its address.
    pub async fn database(&self, name: &str) -> String {
        self.execute(&format!("CREATE DATABASE {name}")).await;
        self.url_of(name)
    }

    /// A connection of the test's own.
    pub async fn connection(&self) -> PgConnection {
        PgConnection::connect(&self.url()).await.expect("the server answers")
    }

    /// Connections of the test's own.
    pub async fn pool(&self, most: u32) -> PgPool {
        PgPoolOptions::new().max_connections(most).connect(&self.url()).await.expect("the server answers")
    }

    /// Runs statements in its first database.
    pub async fn execute(&self, statements: &str) {
        let mut connection = self.connection().await;
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut connection).await.expect("the statements run");
    }

    /// The one number that a query in its first database gives.
    pub async fn number(&self, query: &str) -> i64 {
        let mut connection = self.connection().await;
        sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut connection).await.expect("one number, as a bigint")
    }

    /// Ends it as a crash would: nothing is written any more, and the next start recovers.
    pub fn kill(&mut self) {
        self.process.end();
    }

    /// Starts it again where it was.
    pub fn restart(&mut self) {
        let process = spawn(self.port, self.folder.path(), &self.settings);
        self.process = process.unwrap_or_else(|| panic!("postgres starts again: {}", said(self.folder.path())));
    }
}

/// The server itself, and who ends it if this process dies before it could.
struct Process {
    server: Child,
    watch: Child,
}

impl Process {
    /// The watch reads from a pipe that nobody but this process can write to, so it has nothing more to read when this one is gone.
    fn watched(server: Child) -> Self {
        let script = format!("read nothing; kill -QUIT {}", server.id());
        let watch = Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().expect("sh runs");
        Self { server, watch }
    }

    /// Ends it, unless that has been done. The signal also ends what it has started.
    fn end(&mut self) {
        // First, so that it does not signal whoever has the same id by then.
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

/// A new folder with an empty cluster in it.
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

/// What it has said since it was started last.
fn said(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap_or_default()
}

/// One of its programs, of the newest version there is, run as somebody whom it does not refuse.
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

/// The package's user and group, if this is root.
fn other_user() -> Option<(u32, u32)> {
    if !getuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("there are users");
    let entry = users.lines().find_map(|line| line.strip_prefix(&format!("{USER}:")));
    let mut fields = entry.expect("the package postgresql makes its user").split(':').skip(1);
    let mut id = || fields.next().and_then(|field| field.parse().ok()).expect("a user and a group by number");
    Some((id(), id()))
}

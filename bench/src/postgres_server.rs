//! A PostgreSQL server, started by the benchmark on a free port and stopped by its process id.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, getuid, kill_process};
use sqlx::{Connection as _, PgConnection};
use tempfile::TempDir;

use crate::Failure;

/// The folder with the programs of each version on Debian.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The user that runs the programs: they do not run as root.
const USER: &str = "postgres";
/// Settings for a machine of this size.
const SETTINGS: [&str; 5] = [
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "shared_buffers=512MB",
    "max_wal_size=1GB",
    "max_connections=60",
];

/// A running server.
pub(crate) struct PostgresServer {
    child: Child,
    port: u16,
    folder: TempDir,
}

impl PostgresServer {
    /// Starts a server.
    pub(crate) fn start() -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let owner = owner()?;
        if let Some((user, group)) = owner {
            chown(folder.path(), Some(user), Some(group))?;
        }
        let data = folder.path().join("data");
        let made = program("initdb", folder.path(), owner)?
            .args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--username", USER, "--pgdata"])
            .arg(&data)
            .output()?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into());
        }
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let mut command = program("postgres", folder.path(), owner)?;
        command.arg("-D").arg(&data).args(["-p", &port.to_string()]);
        SETTINGS.iter().for_each(|setting| {
            command.args(["-c", setting]);
        });
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut server = Self { child, port, folder };
        if server.is_up()? { Ok(server) } else { Err("postgres did not start".into()) }
    }

    /// Waits until the server is ready. Returns false if it exited or takes too long.
    #[expect(clippy::disallowed_methods, reason = "no request waits for this thread")]
    fn is_up(&mut self) -> Result<bool, Failure> {
        let state = self.folder.path().join("data/postmaster.pid");
        for _ in 0..1000 {
            if self.child.try_wait()?.is_some() {
                return Ok(false);
            }
            // The server listens before it is ready, and writes `ready` into this file.
            if fs::read_to_string(&state).is_ok_and(|text| text.lines().any(|line| line.trim() == "ready")) {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(false)
    }

    /// The process id of the server, whose children execute the statements.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The name and version of the server.
    pub(crate) async fn version(&self) -> Result<String, Failure> {
        let mut connection = PgConnection::connect(&self.url()).await?;
        let version: String = sqlx::query_scalar("SHOW server_version").fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok(format!("PostgreSQL {version}"))
    }

    /// The URL of the database.
    pub(crate) fn url(&self) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/postgres", self.port)
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // The server may have exited. This signal also ends its child processes.
        let _ = kill_process(Pid::from_child(&self.child), Signal::QUIT);
        let _ = self.child.wait();
    }
}

/// A program of the newest installed version.
fn program(name: &str, folder: &Path, owner: Option<(u32, u32)>) -> Result<Command, Failure> {
    let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten().map(|version| version.path());
    let number = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let newest = versions.filter(|path| path.join("bin").join(name).exists()).max_by_key(number);
    let path = newest.ok_or_else(|| format!("{name} is missing; install it with: apt-get install postgresql"))?;
    let mut command = Command::new(path.join("bin").join(name));
    command.current_dir(folder).stdin(Stdio::null());
    if let Some((user, group)) = owner {
        command.uid(user).gid(group);
    }
    Ok(command)
}

/// The user and group of the package, if this process runs as root.
fn owner() -> Result<Option<(u32, u32)>, Failure> {
    if !getuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd")?;
    let entry = users.lines().find_map(|line| line.strip_prefix(&format!("{USER}:")));
    let ids: Vec<u32> =
        entry.into_iter().flat_map(|entry| entry.split(':').skip(1).take(2)).filter_map(|id| id.parse().ok()).collect();
    match *ids {
        [user, group] => Ok(Some((user, group))),
        _ => Err(format!("the user {USER} does not exist; the package postgresql creates it").into()),
    }
}

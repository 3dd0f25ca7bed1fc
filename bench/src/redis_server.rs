//! A `redis-server` without persistence, started by the benchmark on a free port and stopped by its process id.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::{Connection, FromRedisValue};
use tempfile::TempDir;

use crate::Failure;

/// Number of commands that a script of the store runs inside Redis if its comparison succeeds: one read and one write.
const INSIDE_A_SCRIPT: u64 = 2;

/// A running server.
pub(crate) struct RedisServer {
    child: Child,
    port: u16,
    connection: Option<Connection>,
    _folder: TempDir,
}

impl RedisServer {
    /// Starts a server.
    pub(crate) fn start() -> Result<Self, Failure> {
        Self::start_with(|| Ok(Vec::new()))
    }

    /// Starts a server with this program.
    pub(crate) fn start_program(program: &Path) -> Result<Self, Failure> {
        Self::start_tries(program, || Ok(Vec::new()))
    }

    /// Starts a server with these arguments, which are computed for each attempt.
    pub(crate) fn start_with(arguments: impl Fn() -> Result<Vec<String>, Failure>) -> Result<Self, Failure> {
        Self::start_tries(Path::new("redis-server"), arguments)
    }

    fn start_tries(program: &Path, arguments: impl Fn() -> Result<Vec<String>, Failure>) -> Result<Self, Failure> {
        // Another process may bind the free port before the server does: then try another port.
        for _ in 0..5 {
            let mut server = Self::spawn(program, free_port()?, &arguments()?)?;
            if server.is_up()? {
                return Ok(server);
            }
        }
        Err("redis-server did not start".into())
    }

    fn spawn(program: &Path, port: u16, arguments: &[String]) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let child = Command::new(program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"])
            .arg(folder.path())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| {
                format!("could not start redis-server ({error}); install it with: apt-get install redis-server")
            })?;
        Ok(Self { child, port, connection: None, _folder: folder })
    }

    /// Waits until the server accepts connections. Returns false if it exited or takes too long.
    #[expect(clippy::disallowed_methods, reason = "no request waits for this thread")]
    fn is_up(&mut self) -> Result<bool, Failure> {
        for _ in 0..1000 {
            if self.child.try_wait()?.is_some() {
                return Ok(false);
            }
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(false)
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The URL.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Deletes all records, so that no run depends on an earlier one.
    pub(crate) fn forget(&mut self) -> Result<(), Failure> {
        Ok(redis::cmd("FLUSHALL").query(self.connection()?)?)
    }

    /// Sends a command, with arguments separated by spaces.
    pub(crate) fn ask<T: FromRedisValue>(&mut self, command: &str) -> Result<T, Failure> {
        let mut asked = redis::Cmd::new();
        command.split(' ').for_each(|word| {
            asked.arg(word);
        });
        Ok(asked.query(self.connection()?)?)
    }

    /// The number of commands that the server has received since its start, without `INFO`.
    pub(crate) fn commands(&mut self) -> Result<u64, Failure> {
        let stats: String = redis::cmd("INFO").arg("commandstats").query(self.connection()?)?;
        Ok(sent(&stats))
    }

    /// The connection of the benchmark. It is reused, since opening one sends commands too.
    fn connection(&mut self) -> Result<&mut Connection, Failure> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => redis::Client::open(self.url())?.get_connection()?,
        };
        Ok(self.connection.insert(connection))
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // The server may have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a port that is free at the moment.
pub(crate) fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Sums the calls in `INFO commandstats`, without `INFO` itself (from the benchmark, and from a guard that reads the epoch of the server),
/// and without the commands inside scripts, which Redis counts like received ones. A script whose comparison fails runs fewer commands;
/// then the count is too low, and the run is rejected.
fn sent(stats: &str) -> u64 {
    let calls = |line: &str| -> Option<(bool, u64)> {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let calls = rest.split(',').next()?.parse().ok()?;
        (name != "info").then_some((matches!(name, "eval" | "evalsha"), calls))
    };
    let (all, scripts) = stats.lines().filter_map(calls).fold((0, 0), |(all, scripts), (is_script, calls)| {
        (all + calls, if is_script { scripts + calls } else { scripts })
    });
    all.saturating_sub(scripts * INSIDE_A_SCRIPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_info_commands_are_not_counted() {
        let stats = "# Commandstats\r\ncmdstat_getdel:calls=120,usec=9,usec_per_call=1.00,rejected_calls=0\r\n\
            cmdstat_client|setinfo:calls=2,usec=3\r\ncmdstat_info:calls=7,usec=90,usec_per_call=12.00\r\n\
            cmdstat_set:calls=1,usec=9\r\n";
        assert_eq!(sent(stats), 123);
        assert_eq!(sent("# Commandstats\r\n"), 0);
    }

    #[test]
    fn commands_inside_scripts_are_not_counted() {
        // Each of fifty first runs with a key sends a `SET` and a script, which reads and writes.
        let stats =
            "cmdstat_set:calls=100,usec=9\r\ncmdstat_evalsha:calls=50,usec=9\r\ncmdstat_get:calls=50,usec=9\r\n";
        assert_eq!(sent(stats), 100);
    }
}

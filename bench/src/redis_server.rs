//! A `redis-server` without persistence, started by the benchmark on a free port and stopped by its process id.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::{Connection, FromRedisValue};
use tempfile::TempDir;

use crate::Failure;
use crate::command_count::CommandCount;

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
            if is_up(&mut server.child, server.port)? {
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

    /// The commands that the server has received since its start.
    pub(crate) fn commands(&mut self) -> Result<CommandCount, Failure> {
        Ok(CommandCount::read(&self.ask::<String>("INFO commandstats")?))
    }

    /// The name and version of the server.
    pub(crate) fn version(&mut self) -> Result<String, Failure> {
        let info: String = self.ask("INFO server")?;
        Ok(version(&info).ok_or("the server reports no version")?)
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

/// Waits until a server accepts connections on this port. Returns false if it exited or takes too long.
#[expect(clippy::disallowed_methods, reason = "no request waits for this thread")]
pub(crate) fn is_up(server: &mut Child, port: u16) -> Result<bool, Failure> {
    for _ in 0..1000 {
        if server.try_wait()?.is_some() {
            return Ok(false);
        }
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(false)
}

/// Returns a port that is free at the moment.
pub(crate) fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Parses the name and version in `INFO server`. Valkey also reports the version of Redis that it is compatible with.
fn version(info: &str) -> Option<String> {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let named = |name: &str, version: &str| format!("{name} {}", version.trim());
    let valkey = field("valkey_version").map(|version| named("Valkey", version));
    valkey.or_else(|| field("redis_version").map(|version| named("Redis", version)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_of_valkey_comes_before_its_compatible_redis() {
        assert_eq!(version("# Server\r\nredis_version:7.0.15\r\n"), Some("Redis 7.0.15".to_owned()));
        let valkey = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.0.0\r\n";
        assert_eq!(version(valkey), Some("Valkey 9.0.0".to_owned()));
        assert_eq!(version("# Server\r\n"), None);
    }
}

//! The two Redis servers of a run: the installed one, and one with native compare-and-set commands.

use std::path::PathBuf;

use crate::Failure;
use crate::case::Case;
use crate::redis_server::RedisServer;

/// The folder of the downloaded servers.
const DOWNLOADED: &str = "target/servers";
/// The server of the native cases.
const NATIVE: &str = "valkey-9.0";

/// Two running servers.
pub(crate) struct RedisServers {
    installed: RedisServer,
    native: RedisServer,
}

impl RedisServers {
    /// Starts both.
    ///
    /// # Errors
    /// If a program is missing; the error says how to install it.
    pub(crate) fn start() -> Result<Self, Failure> {
        let native = RedisServer::start_program(&downloaded(NATIVE)?)?;
        Ok(Self { installed: RedisServer::start()?, native })
    }

    /// The server for a case.
    pub(crate) fn of(&mut self, case: &Case) -> &mut RedisServer {
        if case.is_native() { &mut self.native } else { &mut self.installed }
    }

    /// The installed server.
    pub(crate) fn installed(&mut self) -> &mut RedisServer {
        &mut self.installed
    }

    /// The versions, for the report.
    pub(crate) fn versions(&mut self) -> Result<[String; 2], Failure> {
        Ok([self.installed.version()?, format!("native: {}", self.native.version()?)])
    }
}

/// Returns the program of a server that `make setup` downloads.
pub(crate) fn downloaded(name: &str) -> Result<PathBuf, Failure> {
    let program = PathBuf::from_iter([DOWNLOADED, name, "redis-server"]);
    if program.exists() {
        Ok(program)
    } else {
        Err(format!("{} is missing; download it with: make setup", program.display()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_server_is_reported_with_the_remedy() {
        let error = downloaded("redis-0.1").unwrap_err().to_string();
        assert_eq!(error, "target/servers/redis-0.1/redis-server is missing; download it with: make setup");
    }
}

//! Real gateways, configured with the files in `deploy`. Only addresses and paths are replaced.

mod config_folder;
mod launch;
mod proxy_recipe;

use std::fs::read_to_string;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use self::config_folder::ConfigFolder;
use self::launch::Launch;
use crate::listening_port::{free_port, listens};
use crate::polling::until_blocking;

/// The API key in every recipe.
pub const KEY: &str = "a-key-of-the-gateways";

/// A gateway program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewayKind {
    /// nginx
    Nginx,
    /// Caddy
    Caddy,
    /// Traefik
    Traefik,
    /// Envoy
    Envoy,
    /// HAProxy
    HaProxy,
}

impl GatewayKind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Nginx, Self::Caddy, Self::Traefik, Self::Envoy, Self::HaProxy];

    /// Reads its recipe from `deploy`.
    pub fn recipe(self) -> String {
        deployed(match self {
            Self::Nginx => "nginx.conf",
            Self::Caddy => "Caddyfile",
            Self::Traefik => "traefik.yml",
            Self::Envoy => "envoy.yaml",
            Self::HaProxy => "haproxy.cfg",
        })
    }

    /// Returns true once it serves its recipe: Traefik accepts connections before it has read the recipe, and responds with 404.
    fn is_up(self, port: u16) -> bool {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) if self == Self::Traefik => first_line(stream).is_ok_and(|line| !line.contains(" 404 ")),
            connected => connected.is_ok(),
        }
    }
}

/// A running gateway.
pub struct Gateway {
    kind: GatewayKind,
    child: Child,
    folder: TempDir,
    /// Its URL.
    pub url: String,
}

impl Gateway {
    /// Starts one with its own recipe, in front of these applications and with these services.
    pub fn start(kind: GatewayKind, onceward: &[&str], application: &[&str]) -> Self {
        Self::with(kind, &kind.recipe(), onceward, application)
    }

    /// Starts one with another recipe.
    pub fn with(kind: GatewayKind, recipe: &str, onceward: &[&str], application: &[&str]) -> Self {
        let hosts = |urls: &[&str]| -> Vec<String> {
            urls.iter().map(|url| url.trim_start_matches("http://").trim_end_matches('/').to_owned()).collect()
        };
        let (onceward, application) = (hosts(onceward), hosts(application));
        let command = |folder: ConfigFolder<'_>, port| {
            Launch { recipe, folder, port, onceward: &onceward, application: &application }.command(kind)
        };
        Self::launch(kind, "http", command, |port| kind.is_up(port))
    }

    /// Starts the command for a folder and a port, and waits until it serves its recipe.
    fn launch(
        kind: GatewayKind,
        scheme: &str,
        command: impl Fn(ConfigFolder<'_>, u16) -> Command,
        is_serving: impl Fn(u16) -> bool,
    ) -> Self {
        // Another process may take the port before the gateway binds it: then try another one.
        for _ in 0..5 {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let port = free_port();
            let mut command = command(ConfigFolder(folder.path()), port);
            let log = std::fs::File::create(folder.path().join("said")).expect("a file");
            command.stdin(Stdio::null()).stdout(log.try_clone().expect("a file")).stderr(log);
            let child = command.spawn().unwrap_or_else(|error| panic!("{kind:?} does not start ({error}): make setup"));
            let mut gateway = Self { kind, child, folder, url: format!("{scheme}://127.0.0.1:{port}") };
            let is_up = until_blocking(Duration::from_secs(20), || {
                gateway.has_ended() || listens(gateway.child.id(), port) && is_serving(port)
            });
            if is_up && !gateway.has_ended() {
                return gateway;
            }
            eprintln!("{kind:?} does not start: {}", gateway.said());
        }
        panic!("{kind:?} does not start");
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("its own child").is_some()
    }

    /// Returns its standard output and standard error.
    pub fn said(&self) -> String {
        read_to_string(self.folder.path().join("said")).unwrap_or_default()
    }

    /// Returns its access log. HAProxy writes it to standard output.
    pub fn access_log(&self) -> String {
        match self.kind {
            GatewayKind::HaProxy => self.said(),
            _ => read_to_string(self.folder.path().join("access.log")).unwrap_or_default(),
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // On SIGTERM it also ends its own children. It may have ended already.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        if !until_blocking(Duration::from_secs(5), || self.child.try_wait().is_ok_and(|ended| ended.is_some())) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Reads a file of the folder `deploy`.
fn deployed(name: &str) -> String {
    read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name)).expect("a recipe")
}

/// Returns the status line of the response to a submission without a token.
fn first_line(mut stream: TcpStream) -> std::io::Result<String> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"POST / HTTP/1.1\r\nhost: gateway\r\ncontent-length: 0\r\n\r\n")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line)
}

//! A real `rabbitmq-server` on free ports with its own data folder and its own `epmd`. Both are stopped by their process ids.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lapin::{Connection, ConnectionProperties};
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::listening_port::free_port;

/// The server itself. `/usr/sbin/rabbitmq-server` writes to the folders of the system.
const PROGRAM: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
/// Maximum time to start on a busy machine. On an idle one it takes 10 seconds.
const PATIENCE: Duration = Duration::from_secs(90);

/// A running server.
pub struct RabbitMq {
    broker: Child,
    epmd: Child,
    port: u16,
    folder: TempDir,
}

impl RabbitMq {
    /// Starts one without plugins.
    pub async fn start() -> Self {
        // Another process may take a port before the server binds it: then try others.
        for _ in 0..3 {
            let mut server = Self::spawn();
            if server.accepts().await {
                return server;
            }
        }
        panic!("rabbitmq-server does not start");
    }

    fn spawn() -> Self {
        assert!(
            Path::new(PROGRAM).exists(),
            "rabbitmq-server is missing; install it with: apt-get install rabbitmq-server"
        );
        let folder = tempfile::tempdir().expect("a temporary folder");
        let [port, nodes, epmd_port] = [(); 3].map(|()| free_port());
        let epmd = quiet(Command::new("epmd").args(["-port", &epmd_port.to_string(), "-address", "127.0.0.1"]));
        let broker = quiet(&mut broker(folder.path(), port, nodes, epmd_port));
        Self { broker, epmd, port, folder }
    }

    /// Waits until it accepts connections. Returns false if it has ended or takes too long.
    async fn accepts(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && self.broker.try_wait().expect("its own child").is_none() {
            if Connection::connect(&self.url(), ConnectionProperties::default()).await.is_ok() {
                return true;
            }
            sleep(Duration::from_millis(50)).await;
        }
        false
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("amqp://127.0.0.1:{}/%2f", self.port)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its data folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// The command of the broker, with every folder and port its own.
fn broker(folder: &Path, port: u16, nodes: u16, epmd: u16) -> Command {
    let [plugins, settings] = [("plugins", "[]."), ("rabbitmq.conf", "")].map(|(name, content)| {
        let file = folder.join(name);
        fs::write(&file, content).expect("the folder can be written");
        file
    });
    let mut command = Command::new(PROGRAM);
    command
        .current_dir(folder)
        .env("HOME", folder)
        .env("RABBITMQ_NODENAME", format!("onceward{port}@localhost"))
        .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODE_PORT", port.to_string())
        .env("RABBITMQ_DIST_PORT", nodes.to_string())
        .env("ERL_EPMD_PORT", epmd.to_string())
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_MNESIA_BASE", folder.join("mnesia"))
        .env("RABBITMQ_LOG_BASE", folder.join("log"))
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", plugins)
        .env("RABBITMQ_CONFIG_FILE", settings)
        .env("RABBITMQ_CONF_ENV_FILE", folder.join("none"));
    command
}

/// Starts a program without output, in a process group of its own: `rabbitmq-server` is a script, whose child is the server.
fn quiet(command: &mut Command) -> Child {
    let command = command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("rabbitmq-server is missing; install it with: apt-get install rabbitmq-server")
}

impl Drop for RabbitMq {
    fn drop(&mut self) {
        for child in [&mut self.broker, &mut self.epmd] {
            // It may have ended already.
            let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
            let _ = child.wait();
        }
    }
}

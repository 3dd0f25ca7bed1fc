//! The processes of the comparison with nginx: the two proxies, and the application behind them.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::Failure;
use crate::redis_server::{free_port, is_up};

/// Number of worker processes of nginx, and of worker threads of Onceward on a machine with two cores.
const WORKERS: usize = 2;
/// Number of idle connections to the application that a worker of nginx keeps: at least the connections of the load.
const IDLE: u64 = crate::wrk::CONNECTIONS;

/// A running server.
pub(crate) struct ProxyProcess {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl ProxyProcess {
    /// Starts the application: an nginx that discards the body of a request and responds with a constant. It needs less CPU time than
    /// either proxy.
    pub(crate) fn application() -> Result<Self, Failure> {
        let location = r#"default_type application/json; return 201 '{"bytes":93}';"#;
        Self::nginx(|port| server(port, location))
    }

    /// Starts nginx as a plain proxy that keeps its connections to the application open.
    pub(crate) fn nginx_before(application: &Self) -> Result<Self, Failure> {
        let upstream =
            format!("upstream application {{ server {}; keepalive {IDLE}; {ENDLESS} }}", application.address());
        let location = "proxy_pass http://application; proxy_http_version 1.1; \
            proxy_set_header Host $http_host; proxy_set_header Connection '';";
        Self::nginx(|port| format!("{upstream}\n{}", server(port, location)))
    }

    /// Starts `onceward proxy` with this program and Redis.
    pub(crate) fn onceward_before(application: &Self, program: &Path, redis: &str) -> Result<Self, Failure> {
        Self::start("onceward", |port, _| {
            let mut command = Command::new(program);
            command.args(["proxy", "--upstream", &application.url(), "--listen", &format!("127.0.0.1:{port}")]);
            // Redis commands in the background would be counted as those of requests, and other load may make a command slow.
            command.args(["--store", redis, "--share-every", "1h", "--store-timeout", "5s", "--request-log", "errors"]);
            Ok(command)
        })
    }

    fn nginx(servers: impl Fn(u16) -> String) -> Result<Self, Failure> {
        Self::start("nginx", |port, folder| {
            let path = folder.join("nginx.conf");
            std::fs::write(&path, configuration(folder, &servers(port)))?;
            let mut command = Command::new("nginx");
            command.arg("-e").arg(folder.join("error.log")).arg("-c").arg(path);
            Ok(command)
        })
    }

    fn start(name: &str, command: impl Fn(u16, &Path) -> Result<Command, Failure>) -> Result<Self, Failure> {
        // Another process may bind the free port before the server does: then try another port.
        for _ in 0..5 {
            let (folder, port) = (tempfile::tempdir()?, free_port()?);
            let mut command = command(port, folder.path())?;
            let command = command.stdin(Stdio::null()).stdout(Stdio::null());
            let child = command.spawn().map_err(|error| format!("could not start {name}: {error}"))?;
            let mut process = Self { child, port, _folder: folder };
            if is_up(&mut process.child, process.port)? {
                return Ok(process);
            }
        }
        Err(format!("{name} did not start").into())
    }

    /// The process id. nginx has its workers as child processes.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for ProxyProcess {
    fn drop(&mut self) {
        // nginx stops its workers on SIGTERM; SIGKILL would leave them. The server may have exited.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// By default, nginx closes a connection after 1,000 requests.
const ENDLESS: &str = "keepalive_requests 1000000000;";

fn configuration(folder: &Path, servers: &str) -> String {
    let folder = folder.display();
    format!(
        "daemon off; worker_processes {WORKERS}; pid {folder}/pid; error_log {folder}/error.log;\n\
         events {{}}\n\
         http {{\n\
         access_log off; {ENDLESS}\n\
         client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;\n\
         uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;\n\
         {servers}\n\
         }}\n"
    )
}

fn server(port: u16, location: &str) -> String {
    format!("server {{ listen 127.0.0.1:{port}; location / {{ {location} }} }}")
}

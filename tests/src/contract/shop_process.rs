//! A contract shop as a process.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::NamedTempFile;

use crate::key_routes::KEY;

/// Maximum time until a shop prints its URL, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running shop. It is stopped by its process id.
pub struct ShopProcess {
    child: Child,
    log: NamedTempFile,
    http: Client,
    /// Its URL.
    pub url: String,
}

impl ShopProcess {
    /// Starts this command, and waits until it prints its URL.
    ///
    /// # Panics
    /// If it does not start. The message has its log.
    pub fn start(mut command: Command) -> Self {
        let log = NamedTempFile::new().expect("a temporary file");
        let stderr: File = log.reopen().expect("a temporary file");
        // A group of its own: a server that forks workers is killed with them.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr).process_group(0);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        let url = first_line(child.stdout.take().expect("its output is piped"));
        // Without reuse of connections: some servers close one after a failed handler, just as the next request is sent.
        let http = Client::builder().no_proxy().pool_max_idle_per_host(0).build().expect("a client");
        let shop = Self { child, log, http, url };
        assert!(shop.url.starts_with("http://"), "{command:?} prints no URL: {}", shop.log());
        shop
    }

    /// Builds a submission under a key, without sending it.
    pub fn submit(&self, path: &str, key: &str) -> RequestBuilder {
        self.post(path).header(KEY, key).header("content-type", "application/json").body(r#"{"item":"tea"}"#)
    }

    /// Builds a POST request.
    pub fn post(&self, path: &str) -> RequestBuilder {
        self.http.post(format!("{}{path}", self.url))
    }

    /// Builds a GET request.
    pub fn get(&self, path: &str) -> RequestBuilder {
        self.request(Method::GET, path)
    }

    /// Builds a request.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url))
    }

    /// Returns its log so far: all of standard error.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.log.path()).expect("a temporary file");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Kills it and its workers with SIGKILL, like a crash.
    pub fn kill(&mut self) {
        // It may have ended already.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("the shop can be signalled");
    }

    /// Returns true if it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("its own child").is_some()
    }
}

impl Drop for ShopProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the first line of the output, and reads the rest, so that the process never waits for a reader. Empty if there is none in time.
fn first_line(output: ChildStdout) -> String {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // Only the first line is received.
            let _ = send.send(line);
        }
    });
    receive.recv_timeout(PATIENCE).unwrap_or_default().trim().to_owned()
}

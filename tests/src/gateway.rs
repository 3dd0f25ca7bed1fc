//! Gateways: the real programs, with the files in `deploy` as they stand, but for addresses and places.

use std::fs::{read_to_string, write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::redis_server::free_port;
use crate::wait::until_blocking;

/// The API key that every recipe gets.
pub const KEY: &str = "a-key-of-the-gateways";

/// Which program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// nginx
    Nginx,
    /// Caddy
    Caddy,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Nginx, Self::Caddy];

    /// Its recipe.
    pub fn recipe(self) -> String {
        let file = match self {
            Self::Nginx => "nginx.conf",
            Self::Caddy => "Caddyfile",
        };
        read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file)).expect("a recipe")
    }
}

/// A running gateway.
pub struct Gateway {
    child: Child,
    folder: TempDir,
    /// Where it is.
    pub url: String,
}

impl Gateway {
    /// Starts one with its own recipe, before these applications, which asks at these services.
    pub fn start(kind: Kind, onceward: &[&str], application: &[&str]) -> Self {
        Self::with(kind, &kind.recipe(), onceward, application)
    }

    /// Starts one with another recipe.
    pub fn with(kind: Kind, recipe: &str, onceward: &[&str], application: &[&str]) -> Self {
        let hosts = |urls: &[&str]| -> Vec<String> {
            urls.iter().map(|url| url.trim_start_matches("http://").trim_end_matches('/').to_owned()).collect()
        };
        let (onceward, application) = (hosts(onceward), hosts(application));
        // Somebody else may get the port between our asking for it and the gateway's: then another one is taken.
        for _ in 0..5 {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let port = free_port();
            let given = Given { recipe, folder: folder.path(), port, onceward: &onceward, application: &application };
            let mut command = match kind {
                Kind::Nginx => given.nginx(),
                Kind::Caddy => given.caddy(),
            };
            let log = std::fs::File::create(folder.path().join("said")).expect("a file");
            command.stdin(Stdio::null()).stdout(log.try_clone().expect("a file")).stderr(log);
            let child = command.spawn().unwrap_or_else(|error| panic!("{kind:?} does not start ({error}): make setup"));
            let mut gateway = Self { child, folder, url: format!("http://127.0.0.1:{port}") };
            let is_up = until_blocking(Duration::from_secs(20), || {
                gateway.has_ended() || TcpStream::connect(("127.0.0.1", port)).is_ok()
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

    /// What it has said.
    pub fn said(&self) -> String {
        read_to_string(self.folder.path().join("said")).unwrap_or_default()
    }

    /// What it has logged of requests.
    pub fn access_log(&self) -> String {
        read_to_string(access_log(self.folder.path())).unwrap_or_default()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Asked to end, it ends its own children too. It may have ended already.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        if !until_blocking(Duration::from_secs(5), || self.child.try_wait().is_ok_and(|ended| ended.is_some())) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

fn access_log(folder: &Path) -> PathBuf {
    folder.join("access.log")
}

/// What a recipe is filled in with.
struct Given<'a> {
    recipe: &'a str,
    folder: &'a Path,
    port: u16,
    onceward: &'a [String],
    application: &'a [String],
}

impl Given<'_> {
    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        write(&path, text).expect("a file in its folder");
        path
    }

    fn place(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// The recipe with other addresses, each of which stands in it exactly once.
    fn filled(&self, replaced: &[(&str, String)]) -> String {
        replaced.iter().fold(self.recipe.to_owned(), |text, (from, to)| {
            assert_eq!(text.matches(from).count(), 1, "{from} stands once in the recipe");
            text.replace(from, to)
        })
    }

    fn nginx(&self) -> Command {
        let servers = |hosts: &[String]| hosts.iter().map(|host| format!("server {host};")).collect::<String>();
        let site = self.filled(&[
            ("server 127.0.0.1:8080;", servers(self.onceward)),
            ("server 127.0.0.1:3000;", servers(self.application)),
            ("listen 80;", format!("listen 127.0.0.1:{};", self.port)),
            ("/var/log/nginx/onceward.log", access_log(self.folder).display().to_string()),
            ("change-me", KEY.to_owned()),
        ]);
        let site = self.write("site.conf", &site);
        let places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {};", self.place(kind)));
        let main = format!(
            "daemon off; worker_processes 2; pid {}; error_log stderr;\nevents {{ worker_connections 512; }}\n\
             http {{ {} include {}; }}\n",
            self.place("pid"),
            places.concat(),
            site.display()
        );
        let main = self.write("nginx.conf", &main);
        let mut command = Command::new("nginx");
        command.arg("-p").arg(self.folder).arg("-c").arg(main);
        command
    }

    fn caddy(&self) -> Command {
        let file = self.write("Caddyfile", self.recipe);
        let mut command = Command::new("caddy");
        command.args(["run", "--adapter", "caddyfile", "--config"]).arg(file);
        command
            .env("SITE", format!("http://127.0.0.1:{}", self.port))
            .env("ONCEWARD", self.onceward.join(" "))
            .env("APPLICATION", self.application.join(" "))
            .env("ONCEWARD_API_KEY", KEY)
            .env("ACCESS_LOG", access_log(self.folder))
            .env("CADDY_ADMIN", format!("127.0.0.1:{}", free_port()))
            .env("HOME", self.folder)
            .env("XDG_DATA_HOME", self.folder)
            .env("XDG_CONFIG_HOME", self.folder);
        command
    }
}

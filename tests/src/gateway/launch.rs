//! The command line and configuration of each gateway.

use std::process::Command;

use super::config_folder::{ConfigFolder, filled, installed};
use super::{GatewayKind, KEY, deployed};
use crate::listening_port::free_port;

/// The values that replace the placeholders of a recipe.
pub(super) struct Launch<'a> {
    pub(super) recipe: &'a str,
    pub(super) folder: ConfigFolder<'a>,
    pub(super) port: u16,
    pub(super) onceward: &'a [String],
    pub(super) application: &'a [String],
}

impl Launch<'_> {
    /// Returns the command that starts the program with its recipe.
    pub(super) fn command(&self, kind: GatewayKind) -> Command {
        match kind {
            GatewayKind::Nginx => self.nginx(),
            GatewayKind::Caddy => self.caddy(),
            GatewayKind::Traefik => self.traefik(),
            GatewayKind::Envoy => self.envoy(),
            GatewayKind::HaProxy => self.haproxy(),
        }
    }

    fn nginx(&self) -> Command {
        let servers = |hosts: &[String]| hosts.iter().map(|host| format!("server {host};")).collect::<String>();
        let site = filled(
            self.recipe,
            &[
                ("server 127.0.0.1:8080;", servers(self.onceward)),
                ("server 127.0.0.1:3000;", servers(self.application)),
                ("listen 80;", format!("listen 127.0.0.1:{};", self.port)),
                ("/var/log/nginx/onceward.log", self.folder.place("access.log")),
                ("change-me", KEY.to_owned()),
            ],
        );
        self.folder.nginx(&site)
    }

    fn caddy(&self) -> Command {
        let mut command = self.folder.caddy(self.recipe);
        command
            .env("SITE", format!("http://127.0.0.1:{}", self.port))
            .env("ONCEWARD", self.onceward.join(" "))
            .env("APPLICATION", self.application.join(" "))
            .env("ONCEWARD_API_KEY", KEY)
            .env("ACCESS_LOG", self.folder.place("access.log"));
        command
    }

    fn traefik(&self) -> Command {
        let asking = free_port();
        let servers = |hosts: &[String]| lines(hosts, |_, host| format!("          - url: http://{host}"));
        let routes = filled(
            self.recipe,
            &[
                ("          - url: http://127.0.0.1:8080", servers(self.onceward)),
                ("          - url: http://127.0.0.1:3000", servers(self.application)),
                ("change-me@127.0.0.1:8081", format!("{KEY}@127.0.0.1:{asking}")),
            ],
        );
        let routes = self.folder.write("onceward.yml", &routes);
        let main = filled(
            &deployed("traefik-static.yml"),
            &[
                ("\":80\"", format!("\"127.0.0.1:{}\"", self.port)),
                ("127.0.0.1:8081", format!("127.0.0.1:{asking}")),
                ("/etc/traefik/onceward.yml", routes.display().to_string()),
                ("/var/log/traefik/onceward.log", self.folder.place("access.log")),
            ],
        );
        self.folder.traefik(&main)
    }

    fn envoy(&self) -> Command {
        let endpoint = |host: &str| {
            let (address, port) = host.split_once(':').expect("an address and a port");
            format!("{{ endpoint: {{ address: {{ socket_address: {{ address: {address}, port_value: {port} }} }} }} }}")
        };
        let endpoints = |hosts: &[String]| hosts.iter().map(|host| endpoint(host)).collect::<Vec<_>>().join(", ");
        let text = filled(
            self.recipe,
            &[
                (&endpoint("127.0.0.1:8080"), endpoints(self.onceward)),
                (&endpoint("127.0.0.1:3000"), endpoints(self.application)),
                ("address: 0.0.0.0, port_value: 80 ", format!("address: 127.0.0.1, port_value: {} ", self.port)),
                ("/var/log/envoy/onceward.log", self.folder.place("access.log")),
                ("change-me", KEY.to_owned()),
            ],
        );
        let file = self.folder.write("envoy.yaml", &text);
        let mut command = Command::new(installed("envoy/_bin/envoy"));
        // Several run at the same time. By default Envoy flushes its log only every ten seconds.
        command.args(["--disable-hot-restart", "--concurrency", "2", "--file-flush-interval-msec", "100", "-c"]);
        command.arg(file);
        command
    }

    fn haproxy(&self) -> Command {
        let servers = |name: &str, hosts: &[String]| lines(hosts, |at, host| format!("    server {name}{at} {host}"));
        let socket = format!("abns@onceward-{}", self.port);
        let script =
            self.folder.write("haproxy.lua", &filled(&deployed("haproxy.lua"), &[("abns@onceward", socket.clone())]));
        let text = filled(
            self.recipe,
            &[
                ("    server onceward 127.0.0.1:8080", servers("onceward", self.onceward)),
                ("    server application 127.0.0.1:3000", servers("application", self.application)),
                ("bind :80", format!("bind 127.0.0.1:{}", self.port)),
                ("/etc/haproxy/haproxy.lua", script.display().to_string()),
                ("change-me", KEY.to_owned()),
                ("bind abns@onceward", format!("bind {socket}")),
                ("tokens abns@onceward", format!("tokens {socket}")),
            ],
        );
        let file = self.folder.write("haproxy.cfg", &text);
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-f").arg(file);
        command
    }
}

/// Returns one line for each host.
fn lines(hosts: &[String], line: impl Fn(usize, &str) -> String) -> String {
    hosts.iter().enumerate().map(|(at, host)| line(at, host)).collect::<Vec<_>>().join("\n")
}

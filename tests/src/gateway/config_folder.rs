//! The folder of a gateway, with its configuration and everything else that it writes.

use std::fs::write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::listening_port::free_port;

/// The folder of one gateway.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConfigFolder<'a>(pub(super) &'a Path);

impl ConfigFolder<'_> {
    /// Writes a file, and returns its path.
    pub(super) fn write(self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        write(&path, text).expect("a file in its folder");
        path
    }

    /// Returns the path of a file, as a configuration names it.
    pub(super) fn place(self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Returns the command that starts nginx with this site.
    pub(super) fn nginx(self, site: &str) -> Command {
        let site = self.write("site.conf", site);
        let places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {};", self.place(kind)));
        let main = format!(
            "daemon off; worker_processes 2; pid {}; error_log stderr;\nevents {{ worker_connections 512; }}\n\
             http {{ include /etc/nginx/mime.types; {} include {}; }}\n",
            self.place("pid"),
            places.concat(),
            site.display()
        );
        let mut command = Command::new("nginx");
        command.arg("-p").arg(self.0).arg("-c").arg(self.write("nginx.conf", &main));
        command
    }

    /// Returns the command that starts Caddy with this Caddyfile.
    pub(super) fn caddy(self, text: &str) -> Command {
        let mut command = Command::new("caddy");
        command.args(["run", "--adapter", "caddyfile", "--config"]).arg(self.write("Caddyfile", text));
        command
            .env("CADDY_ADMIN", format!("127.0.0.1:{}", free_port()))
            .env("HOME", self.0)
            .env("XDG_DATA_HOME", self.0)
            .env("XDG_CONFIG_HOME", self.0);
        command
    }

    /// Returns the command that starts Traefik with this static configuration.
    pub(super) fn traefik(self, text: &str) -> Command {
        let mut command = Command::new(installed("bin/traefik"));
        command.arg(format!("--configFile={}", self.write("traefik.yml", text).display()));
        command
    }
}

/// Replaces each placeholder, which must occur exactly once.
pub(super) fn filled(text: &str, replaced: &[(&str, String)]) -> String {
    replaced.iter().fold(text.to_owned(), |text, (from, to)| {
        assert_eq!(text.matches(from).count(), 1, "{from} must occur once in the recipe");
        text.replace(from, to)
    })
}

/// Returns the path of a program that `make setup` installs.
pub(super) fn installed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/gateways").join(name)
}

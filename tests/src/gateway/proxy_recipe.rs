//! The recipes in `deploy/proxy`: gateways with TLS in front of `onceward proxy`. Only addresses, names and paths are replaced.

use std::process::Command;

use super::config_folder::{ConfigFolder, filled};
use super::{Gateway, GatewayKind, deployed};
use crate::tls_redis::Authority;

impl GatewayKind {
    /// The gateways with a recipe in `deploy/proxy`.
    pub const BEFORE_PROXY: [Self; 3] = [Self::Nginx, Self::Caddy, Self::Traefik];
}

impl Gateway {
    /// Starts one with its recipe in `deploy/proxy`, in front of the proxy at this URL, with a certificate of this authority.
    pub fn before_proxy(kind: GatewayKind, proxy: &str, authority: &Authority) -> Self {
        let proxy = proxy.trim_start_matches("http://");
        let command = |folder: ConfigFolder<'_>, port| ProxyRecipe { folder, port, proxy, authority }.command(kind);
        Self::launch(kind, "https", command, |port| is_up(port, authority))
    }
}

/// Returns true once the health check of the proxy can be reached through the gateway.
fn is_up(port: u16, authority: &Authority) -> bool {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--fail", "--noproxy", "*", "--cacert"]).arg(authority.certificate());
    curl.arg(format!("https://127.0.0.1:{port}/_onceward/healthz"));
    curl.output().is_ok_and(|output| output.status.success())
}

/// The values that replace those of a recipe.
struct ProxyRecipe<'a> {
    folder: ConfigFolder<'a>,
    port: u16,
    proxy: &'a str,
    authority: &'a Authority,
}

impl ProxyRecipe<'_> {
    fn command(&self, kind: GatewayKind) -> Command {
        match kind {
            GatewayKind::Nginx => self.nginx(),
            GatewayKind::Caddy => self.caddy(),
            GatewayKind::Traefik => self.traefik(),
            GatewayKind::Envoy | GatewayKind::HaProxy => panic!("there is no recipe for {kind:?}"),
        }
    }

    fn certificate(&self) -> String {
        self.authority.server_certificate().display().to_string()
    }

    fn key(&self) -> String {
        self.authority.server_key().display().to_string()
    }

    fn nginx(&self) -> Command {
        let replaced = [
            ("http://127.0.0.1:8080", format!("http://{}", self.proxy)),
            ("listen 443 ssl;", format!("listen 127.0.0.1:{} ssl;", self.port)),
            ("server_name shop.example;", "server_name 127.0.0.1;".to_owned()),
            ("/etc/nginx/tls/shop.crt", self.certificate()),
            ("/etc/nginx/tls/shop.key", self.key()),
            ("/var/log/nginx/shop.log", self.folder.place("access.log")),
        ];
        self.folder.nginx(&filled(&deployed("proxy/nginx.conf"), &replaced))
    }

    /// Without port 80, and with a certificate from a file in place of one that Caddy fetches.
    fn caddy(&self) -> Command {
        let site = format!("https://127.0.0.1:{} {{\n\ttls {} {}", self.port, self.certificate(), self.key());
        let replaced = [("shop.example {", site), (" 127.0.0.1:8080 {", format!(" {} {{", self.proxy))];
        let options = "{\n\tauto_https disable_redirects\n\tdefault_sni 127.0.0.1\n}\n";
        self.folder.caddy(&format!("{options}{}", filled(&deployed("proxy/Caddyfile"), &replaced)))
    }

    fn traefik(&self) -> Command {
        let replaced = [
            ("- url: http://127.0.0.1:8080", format!("- url: http://{}", self.proxy)),
            ("Host(`shop.example`)", "Host(`127.0.0.1`)".to_owned()),
            ("/etc/traefik/tls/shop.crt", self.certificate()),
            ("/etc/traefik/tls/shop.key", self.key()),
        ];
        let routes = self.folder.write("onceward-proxy.yml", &filled(&deployed("proxy/traefik.yml"), &replaced));
        let replaced = [
            ("\":443\"", format!("\"127.0.0.1:{}\"", self.port)),
            ("/etc/traefik/onceward-proxy.yml", routes.display().to_string()),
        ];
        self.folder.traefik(&filled(&deployed("proxy/traefik-static.yml"), &replaced))
    }
}

//! The message at startup: a banner with links on a terminal, one log line otherwise.

use std::io::Write as _;
use std::net::SocketAddr;

use crate::config::{Config, StoreAddress};
use crate::logging;
use crate::proxy::settings::UpstreamAddress;

/// Prints or logs the address, and logs the warnings about settings.
pub(crate) fn announce(address: SocketAddr, admin: Option<SocketAddr>, config: &Config) {
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    if logging::is_human(config.log) {
        // An error means that the reader closed the pipe: the service still runs.
        let _ = std::io::stdout().write_all(banner(address, admin, config).as_bytes());
    } else {
        let store = config.store.to_string();
        let admin = admin.map(tracing::field::display);
        tracing::info!(%address, admin, store, version = env!("CARGO_PKG_VERSION"), "listening");
    }
}

/// Like [`announce`], for the proxy.
pub(crate) fn announce_proxy(
    address: SocketAddr,
    admin: Option<SocketAddr>,
    upstream: &UpstreamAddress,
    config: &Config,
) {
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let upstream = format!("{}://{}", upstream.scheme, upstream.authority);
    if logging::is_human(config.log) {
        // An error means that the reader closed the pipe: the proxy still runs.
        let _ = std::io::stdout().write_all(proxy_banner(address, admin, &upstream, config).as_bytes());
    } else {
        let store = config.store.to_string();
        let admin = admin.map(tracing::field::display);
        let (routes, version) = (config.proxy.routes.len(), env!("CARGO_PKG_VERSION"));
        tracing::info!(%address, admin, upstream, routes, store, version, "listening");
    }
}

fn proxy_banner(address: SocketAddr, admin: Option<SocketAddr>, upstream: &str, config: &Config) -> String {
    let (proxy, path) = (host(address), &config.proxy.proxy_path);
    let watch = match admin {
        Some(admin) => format!("http://{}/dashboard", host(admin)),
        None => "off: set --admin-listen 127.0.0.1:9090 for the dashboard and metrics".to_owned(),
    };
    let pages = if config.proxy.inject {
        "HTML pages receive the script, which guards every POST form".to_owned()
    } else {
        format!(
            "add <script src=\"{path}/sdk/onceward.js\" defer></script> and data-onceward to a form, or use --inject"
        )
    };
    format!(
        "\n  Onceward {} is running as a proxy\n\n    open      http://{proxy}/\n    upstream  {upstream}\n    routes    {}\n    pages     {pages}\n    \
         watch     {watch}\n    store     {}  ({})\n\n  Press Ctrl-C to stop.\n\n",
        env!("CARGO_PKG_VERSION"),
        routes(config.proxy.routes.len()),
        config.store,
        note(&config.store),
    )
}

fn routes(count: usize) -> String {
    match count {
        0 => "none: a request with an Idempotency-Key or a token takes effect once".to_owned(),
        count => format!("{count} from the settings file; `onceward proxy explain POST /path` shows which applies"),
    }
}

/// Says who shares the records of a store.
fn note(store: &StoreAddress) -> &'static str {
    match store {
        StoreAddress::Memory => "this process only, lost when it stops; several processes need --store redis://…",
        StoreAddress::Redis(_) | StoreAddress::Sql(_) => "shared by all processes with this store",
    }
}

fn banner(address: SocketAddr, admin: Option<SocketAddr>, config: &Config) -> String {
    let (watched, host, store) = (host(admin.unwrap_or(address)), host(address), &config.store);
    let note = note(store);
    let key = if config.api_key.is_some() {
        "required to redeem, release, claim and look up outcomes"
    } else {
        "none: any client that can reach this port can redeem"
    };
    format!(
        "\n  Onceward {} is running\n\n    start    http://{host}/\n    docs     http://{host}/docs/\n    watch    http://{watched}/dashboard\n    \
         store    {store}  ({note})\n    API key  {key}\n\n  Press Ctrl-C to stop.\n\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// Returns the host for a link on this machine: an unspecified address such as 0.0.0.0 becomes localhost.
fn host(address: SocketAddr) -> String {
    if address.ip().is_unspecified() { format!("localhost:{}", address.port()) } else { address.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(address: &str, arguments: &[&str]) -> String {
        let arguments = ["onceward"].iter().chain(arguments).map(std::ffi::OsString::from);
        banner(address.parse().unwrap(), None, &Config::from(arguments, []).unwrap())
    }

    #[test]
    fn message_shows_the_url_and_what_the_store_loses() {
        let said = shown("127.0.0.1:8080", &[]);
        for part in ["http://127.0.0.1:8080/\n", "http://127.0.0.1:8080/docs/\n", "memory:  (this process only"] {
            assert!(said.contains(part), "{said}");
        }
        assert!(
            said.contains("several processes need --store redis://") && said.contains("none: any client"),
            "{said}"
        );
        let said =
            shown("127.0.0.1:8080", &["--store", "redis://:canary@10.0.0.7:6379", "--api-key", "canary-key-canary"]);
        assert!(
            said.contains("redis://10.0.0.7:6379  (shared by all") && said.contains("required to redeem"),
            "{said}"
        );
        assert!(!said.contains("canary"), "{said}");
    }

    #[test]
    fn every_address_is_shown_as_a_clickable_url() {
        for (address, clicked) in [
            ("0.0.0.0:80", "http://localhost:80/\n"),
            ("[::]:80", "http://localhost:80/\n"),
            ("[::1]:80", "http://[::1]:80/\n"),
        ] {
            assert!(shown(address, &[]).contains(clicked), "{address}");
        }
    }
}

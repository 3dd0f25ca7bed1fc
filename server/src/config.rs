//! Settings of the service, read from flags, environment variables and a file.

mod api_key;
pub mod envelope;
pub(crate) mod flag;
mod placeholder;
mod proxy;
pub(crate) mod proxy_table;
pub mod rejection_template;
pub(crate) mod route;
pub mod route_field;
mod route_value;
pub mod setting;
pub(crate) mod sources;
mod store_address;
mod upstream;
mod value;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use ipnet::IpNet;
use onceward::{Language, Languages, Secret};
use tracing::level_filters::LevelFilter;

pub use self::api_key::ApiKey;
use self::setting::PREFIX;
use self::sources::Sources;
pub use self::store_address::StoreAddress;
pub use self::value::{Rate, is_origin};
use crate::http::request_log::RequestLog;
use crate::proxy::settings::ProxySettings;

/// The settings of the service.
#[derive(Debug, Clone)]
pub struct Config {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The address for operators: `/metrics` and `/dashboard`.
    pub admin_listen: Option<SocketAddr>,
    /// The address of the store.
    pub store: StoreAddress,
    /// The prefix of every key in the store.
    pub prefix: String,
    /// The secret that signs tokens and passes.
    pub secret: Option<Secret>,
    /// A second secret that is accepted.
    pub secret_previous: Option<PreviousSecret>,
    /// Time until a token expires.
    pub token_ttl: Duration,
    /// The key that backends send.
    pub api_key: Option<ApiKey>,
    /// Origins whose pages may fetch tokens.
    pub cors_origins: Vec<String>,
    /// Rate limit for tokens per client.
    pub rate_limit: Option<Rate>,
    /// Number of tokens one client may fetch in a burst.
    pub rate_burst: NonZeroU32,
    /// Rate limit for tokens of all clients together.
    pub rate_limit_total: Option<Rate>,
    /// Proxies whose forwarding headers are trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Maximum number of open connections.
    pub max_connections: NonZeroU32,
    /// Maximum number of connections per client once half of them are open; `None` if there is no limit.
    pub max_connections_per_client: Option<NonZeroU32>,
    /// Maximum number of requests in flight.
    pub max_in_flight: NonZeroU32,
    /// Timeout for receiving the headers of a request, and again for its body.
    pub request_timeout: Duration,
    /// Maximum size of the memory store, in bytes.
    pub memory_limit: usize,
    /// True if the demo is served at `/`.
    pub demo: bool,
    /// True if the service may start with a Redis that evicts.
    pub allow_eviction: bool,
    /// Timeout of a store command.
    pub store_timeout: Duration,
    /// The languages of rejections and of the pages that explain error codes.
    pub languages: Languages,
    /// Time to wait for the store at startup.
    pub wait_for: Duration,
    /// Interval for checking the shared secret in the store.
    pub share_every: Duration,
    /// Grace period after SIGTERM, in which requests are still accepted.
    pub last_call: Duration,
    /// Maximum time to wait after that for requests in flight.
    pub drain_limit: Duration,
    /// Log format.
    pub log: LogFormat,
    /// Log level.
    pub log_level: LevelFilter,
    /// The responses to log.
    pub request_log: RequestLog,
    /// The settings of `onceward proxy`.
    pub proxy: ProxySettings,
    /// Warnings about settings that do not prevent a start.
    pub warnings: Vec<String>,
}

/// A secret that is accepted beside the one that signs.
#[derive(Debug, Clone)]
pub enum PreviousSecret {
    /// This one.
    Secret(Secret),
    /// The one that processes share through the store.
    Shared,
}

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Human-readable on a terminal, otherwise JSON.
    Auto,
    /// Human-readable lines.
    Human,
    /// JSON lines.
    Json,
}

/// An error in the command line or the settings.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The command line is invalid, or asks for help.
    #[error(transparent)]
    Usage(#[from] clap::Error),
    /// A setting is invalid. The message names the setting, its source and the fix.
    #[error("{0}")]
    Wrong(String),
}

/// Returns the environment variables with our prefix.
///
/// # Errors
/// If a value is not UTF-8.
#[expect(clippy::disallowed_methods, reason = "the only place that reads the environment")]
pub fn environment() -> Result<Vec<(String, String)>, ConfigError> {
    let named = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let ours = named.filter(|(name, _)| name.starts_with(PREFIX));
    // A variable that is not UTF-8 is an error and not ignored: it may be the API key.
    let read = |(name, value): (String, OsString)| match value.into_string() {
        Ok(value) => Ok((name, value)),
        Err(_) => Err(ConfigError::Wrong(format!("{name}: the value is not UTF-8"))),
    };
    ours.map(read).collect()
}

impl Config {
    /// Reads the settings from a command line and an environment.
    ///
    /// # Errors
    /// If the command line or a setting is invalid.
    pub fn from(
        arguments: impl IntoIterator<Item = OsString>,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        Self::for_service(&Sources::gather(&flag::bare().try_get_matches_from(arguments)?, variables)?)
    }

    /// Returns the settings for the service.
    pub(crate) fn for_service(sources: &Sources) -> Result<Self, ConfigError> {
        let mut config = build(sources)?;
        config.check_exposure(sources)?;
        config.check_admin()?;
        Ok(config)
    }

    /// Returns the settings for the proxy. It needs no API key: the address for clients serves no route that redeems a token.
    pub(crate) fn for_proxy(sources: &Sources) -> Result<Self, ConfigError> {
        let mut config = build(sources)?;
        // The upstream serves `/`.
        config.demo = false;
        proxy::check(&config)?;
        config.check_addresses()?;
        config.warn_of_admin();
        config.warnings.extend(config.proxy.warning_of_forms().map(|warning| format!("require: {warning}")));
        Ok(config)
    }

    /// Returns the settings for a command that uses the store and does not listen.
    pub(crate) fn for_command(sources: &Sources) -> Result<Self, ConfigError> {
        build(sources)
    }

    /// Requires a loopback address or an API key, because any client that reaches the port can redeem tokens.
    fn check_exposure(&self, sources: &Sources) -> Result<(), ConfigError> {
        let is_allowed = sources.value("allow_unauthenticated", value::boolean)?;
        if self.listen.ip().is_loopback() || self.api_key.is_some() || is_allowed {
            return Ok(());
        }
        Err(ConfigError::Wrong(format!(
            "listen: {} can be reached from other machines, and there is no API key, so any client could redeem tokens. \
             Set ONCEWARD_API_KEY, or listen on 127.0.0.1, or set --allow-unauthenticated.",
            self.listen
        )))
    }

    /// Warns if metrics, which need no API key, can be read from other machines.
    fn check_admin(&mut self) -> Result<(), ConfigError> {
        self.check_addresses()?;
        if self.admin_listen.is_none() && !self.listen.ip().is_loopback() {
            self.warnings.push(format!(
                "listen: any client that can reach {} can read /metrics and /dashboard; set admin_listen to serve them on another address",
                self.listen
            ));
        }
        self.warn_of_admin();
        Ok(())
    }

    /// Requires two addresses to differ, unless the system chooses the port.
    fn check_addresses(&self) -> Result<(), ConfigError> {
        match self.admin_listen {
            Some(admin) if admin == self.listen && admin.port() != 0 => Err(ConfigError::Wrong(format!(
                "admin_listen: {admin} is already the address of `listen`. Use another one, such as 127.0.0.1:9090, or remove the setting."
            ))),
            _ => Ok(()),
        }
    }

    fn warn_of_admin(&mut self) {
        if let Some(admin) = self.admin_listen.filter(|admin| !admin.ip().is_loopback()) {
            self.warnings.push(format!(
                "admin_listen: {admin} can be reached from other machines, and /metrics and /dashboard need no API key"
            ));
        }
    }
}

fn build(sources: &Sources) -> Result<Config, ConfigError> {
    let store = sources.secret("store", StoreAddress::parse)?.unwrap_or(StoreAddress::Memory);
    Ok(Config {
        listen: sources.value("listen", value::address)?,
        admin_listen: sources.optional("admin_listen", value::address)?,
        demo: sources.value("demo", value::demo)?.unwrap_or(store == StoreAddress::Memory),
        store,
        prefix: sources.value("prefix", value::prefix)?,
        secret: sources.secret("secret", secret)?,
        secret_previous: sources.secret("secret_previous", accepted)?,
        token_ttl: sources.value("token_ttl", value::token_ttl)?,
        api_key: sources.secret("api_key", ApiKey::new)?,
        cors_origins: sources.list("cors_origins", value::origins)?,
        rate_limit: sources.value("rate_limit", value::rate)?,
        rate_burst: sources.value("rate_burst", value::count)?,
        rate_limit_total: sources.value("rate_limit_total", value::rate)?,
        trusted_proxies: sources.list("trusted_proxies", value::networks)?,
        max_connections: sources.value("max_connections", value::count)?,
        max_connections_per_client: sources.value("max_connections_per_client", value::count_or_off)?,
        max_in_flight: sources.value("max_in_flight", value::count)?,
        request_timeout: sources.value("request_timeout", value::duration)?,
        memory_limit: sources.value("memory_limit", value::size)?,
        allow_eviction: sources.value("allow_eviction", value::boolean)?,
        store_timeout: sources.value("store_timeout", value::duration)?,
        languages: sources.value("language", languages)?,
        wait_for: sources.value("wait_for", onceward_api::duration::parse)?,
        share_every: sources.value("share_every", value::duration)?,
        last_call: sources.value("last_call", onceward_api::duration::parse)?,
        drain_limit: sources.value("drain_limit", onceward_api::duration::parse)?,
        log: sources.value("log", log_form)?,
        log_level: sources.value("log_level", value::level)?,
        request_log: sources.value("request_log", request_log)?,
        proxy: proxy::settings(sources)?,
        warnings: sources.warnings().to_vec(),
    })
}

/// Parses `secret_previous`. The keyword `shared` is too short to be a secret.
fn accepted(text: &str) -> Result<PreviousSecret, String> {
    match text {
        "shared" => Ok(PreviousSecret::Shared),
        text => secret(text).map(PreviousSecret::Secret),
    }
}

fn secret(text: &str) -> Result<Secret, String> {
    Secret::new(placeholder::refuse(text)?).map_err(|error| error.to_string())
}

fn request_log(text: &str) -> Result<RequestLog, String> {
    match text {
        "all" => Ok(RequestLog::All),
        "errors" => Ok(RequestLog::Errors),
        "off" => Ok(RequestLog::Off),
        "auto" => Ok(RequestLog::auto()),
        _ => Err(format!("`{text}` is not one of `all`, `errors`, `off` and `auto`")),
    }
}

fn languages(text: &str) -> Result<Languages, String> {
    match text {
        "auto" => Ok(Languages::negotiated()),
        "en" => Ok(Languages::fixed(Language::english())),
        "zh-CN" => Ok(Languages::fixed(Language::simplified_chinese())),
        _ => Err(format!("`{text}` is not one of `auto`, `en` and `zh-CN`")),
    }
}

fn log_form(text: &str) -> Result<LogFormat, String> {
    match text {
        "auto" => Ok(LogFormat::Auto),
        "human" => Ok(LogFormat::Human),
        "json" => Ok(LogFormat::Json),
        _ => Err(format!("`{text}` is not one of `human`, `json` and `auto`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let arguments = ["onceward"].iter().chain(arguments).map(OsString::from);
        Config::from(arguments, variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    fn error(arguments: &[&str], variables: &[(&str, &str)]) -> String {
        load(arguments, variables).unwrap_err().to_string()
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn unset_settings_have_their_defaults() {
        let config = load(&[], &[]).unwrap();
        assert_eq!((config.listen.to_string().as_str(), config.store), ("127.0.0.1:8080", StoreAddress::Memory));
        assert_eq!((config.token_ttl, config.rate_burst.get()), (Duration::from_secs(1800), 200));
        assert!(config.secret.is_none() && config.api_key.is_none() && config.warnings.is_empty());
    }

    #[test]
    fn flag_overrides_environment_overrides_file() {
        let file =
            file("token_ttl = \"1m\"\nrate_burst = 7\ncors_origins = [\"https://a.example\", \"https://b.example\"]");
        let config = ["--config", file.path().to_str().unwrap()];
        assert_eq!(load(&config, &[]).unwrap().token_ttl, Duration::from_secs(60));
        assert_eq!(load(&config, &[]).unwrap().rate_burst.get(), 7);
        assert_eq!(load(&config, &[]).unwrap().cors_origins.len(), 2);
        let variable = [("ONCEWARD_TOKEN_TTL", "2m")];
        assert_eq!(load(&config, &variable).unwrap().token_ttl, Duration::from_secs(120));
        let flags = [config[0], config[1], "--token-ttl", "3m"];
        assert_eq!(load(&flags, &variable).unwrap().token_ttl, Duration::from_secs(180));
        assert_eq!(load(&[], &[("ONCEWARD_CONFIG", config[1])]).unwrap().rate_burst.get(), 7);
    }

    #[test]
    fn demo_is_on_with_the_memory_store_by_default() {
        let redis = ["--store", "redis://127.0.0.1:6379"];
        assert!(load(&[], &[]).unwrap().demo && !load(&redis, &[]).unwrap().demo);
        assert!(!load(&["--demo", "off"], &[]).unwrap().demo);
        assert!(load(&[redis[0], redis[1], "--demo"], &[]).unwrap().demo);
        assert!(!load(&[], &[("ONCEWARD_DEMO", "false")]).unwrap().demo);
        assert!(load(&["--demo", "auto"], &[("ONCEWARD_DEMO", "false")]).unwrap().demo);
    }

    #[test]
    fn previous_secret_may_be_the_shared_one() {
        let accepted = |text| load(&["--secret-previous", text], &[]).unwrap().secret_previous;
        assert!(matches!(accepted("shared"), Some(PreviousSecret::Shared)));
        assert!(matches!(accepted("sixteen letters!"), Some(PreviousSecret::Secret(_))));
        let file = file("shared\n");
        let path = file.path().to_str().unwrap();
        let given = load(&["--secret-previous-file", path], &[]).unwrap().secret_previous;
        assert!(matches!(given, Some(PreviousSecret::Shared)));
        assert!(error(&["--secret", "shared"], &[]).starts_with("secret (from --secret): the secret has 6 bytes"));
    }

    #[test]
    fn error_names_the_setting_and_its_source() {
        assert!(error(&["--token-ttl", "x"], &[]).starts_with("token_ttl (from --token-ttl): `x` is not a duration"));
        assert!(error(&[], &[("ONCEWARD_LISTEN", "nowhere")]).starts_with("listen (from ONCEWARD_LISTEN): `nowhere`"));
        assert!(error(&["--secret", "short"], &[]).starts_with("secret (from --secret): the secret has 5 bytes"));
        let file = file("rate_limit = \"many\"");
        let path = file.path().to_str().unwrap();
        assert!(error(&["--config", path], &[]).starts_with(&format!("rate_limit (from {path}): `many`")));
    }

    #[test]
    fn mistyped_setting_suggests_the_nearest() {
        assert!(error(&["--token-tll", "1m"], &[]).contains("--token-ttl"));
        let file = file("tokenttl = \"1m\"");
        let said = error(&["--config", file.path().to_str().unwrap()], &[]);
        assert!(said.contains("no setting `tokenttl`; did you mean `token_ttl`?"), "{said}");
        let warned = load(&[], &[("ONCEWARD_TOKEN_TTLS", "1m"), ("ONCEWARD_SERVICE_HOST", "x")]).unwrap().warnings;
        assert!(warned[1].contains("did you mean ONCEWARD_TOKEN_TTL?"), "{warned:?}");
        assert_eq!(warned.len(), 2);
    }

    #[test]
    fn secret_may_be_read_from_a_file() {
        let key = file("correct-horse-battery\n");
        let path = key.path().to_str().unwrap();
        let config = load(&[], &[("ONCEWARD_API_KEY_FILE", path)]).unwrap();
        assert_eq!(config.api_key.unwrap().as_bytes(), b"correct-horse-battery");
        let nearer = load(&["--api-key", "battery-staple-horse"], &[("ONCEWARD_API_KEY_FILE", path)]).unwrap();
        assert_eq!(nearer.api_key.unwrap().as_bytes(), b"battery-staple-horse");
        assert!(error(&["--api-key", "x", "--api-key-file", path], &[]).contains("both set"));
        assert!(error(&["--api-key-file", "/nowhere/at/all"], &[]).contains("/nowhere/at/all cannot be read"));
    }

    #[test]
    fn api_key_unfit_for_a_header_is_rejected_and_hidden() {
        for key in ["", " ", "canary key", "canary\tkey", "canary\nkey", "canary-schlüssel", "canary\u{7f}"] {
            let said = error(&["--api-key", key], &[]);
            assert!(said.starts_with("api_key (from --api-key): it ") && said.contains("openssl rand"), "{said}");
            assert!(!said.contains("canary"), "{said}");
            let key = file(&format!("{key}\n\n"));
            let said = error(&[], &[("ONCEWARD_API_KEY_FILE", key.path().to_str().unwrap())]);
            assert!(said.starts_with("api_key (from ONCEWARD_API_KEY_FILE): it "), "{said}");
        }
        assert!(load(&["--api-key", "!~aZ09+/=!~aZ09+/="], &[]).is_ok());
    }

    #[test]
    fn placeholder_or_short_api_key_is_rejected_with_a_fix() {
        for setting in ["api_key", "secret", "secret_previous"] {
            let flag = format!("--{}", setting.replace('_', "-"));
            for text in
                ["change-me", "Change-Me-To-Something-Long", "changeme", "<your-api-key>", "your-secret-goes-here"]
            {
                let said = error(&[&flag, text], &[]);
                assert!(said.starts_with(&format!("{setting} (from {flag}): it is the placeholder")), "{said}");
                assert!(said.contains("openssl rand -hex 32") && !said.contains(text), "{said}");
            }
        }
        let short = "canary-key-of15";
        let said = error(&["--api-key", short], &[]);
        assert!(said.starts_with("api_key (from --api-key): it has 15 characters"), "{said}");
        assert!(said.contains("openssl rand -hex 32") && !said.contains("canary"), "{said}");
        assert!(load(&["--api-key", &format!("{short}!")], &[]).is_ok());
    }

    #[test]
    fn non_loopback_listener_requires_an_api_key_or_consent() {
        let open = ["--listen", "0.0.0.0:8080"];
        assert!(error(&open, &[]).contains("ONCEWARD_API_KEY"));
        assert!(load(&open, &[("ONCEWARD_API_KEY", "a-key-of-the-backends")]).is_ok());
        assert!(load(&["--listen", "0.0.0.0:8080", "--allow-unauthenticated"], &[]).is_ok());
        assert!(load(&["--listen", "0.0.0.0:8080", "--allow-unauthenticated", "false"], &[]).is_err());
    }

    #[test]
    fn exposed_metrics_are_warned_of_and_addresses_must_differ() {
        assert!(load(&["--admin-listen", "127.0.0.1:9090"], &[]).unwrap().warnings.is_empty());
        assert_eq!(load(&["--admin-listen", "0.0.0.0:9090"], &[]).unwrap().warnings.len(), 1);
        let open = ["--listen", "0.0.0.0:8080", "--api-key", "a-key-of-the-backends"];
        assert!(load(&open, &[]).unwrap().warnings[0].contains("set admin_listen to serve them on another address"));
        let apart = [("ONCEWARD_ADMIN_LISTEN", "127.0.0.1:9090")];
        assert!(load(&open, &apart).unwrap().warnings.is_empty());
        assert!(error(&["--admin-listen", "127.0.0.1:8080"], &[]).contains("is already the address of `listen`"));
    }

    fn load_proxy(arguments: &[&str]) -> Result<Config, ConfigError> {
        let arguments = ["onceward"].iter().chain(arguments).map(OsString::from);
        Config::for_proxy(&Sources::gather(&flag::bare().try_get_matches_from(arguments)?, [])?)
    }

    #[test]
    fn proxy_requires_an_upstream_other_than_itself() {
        let error = |arguments: &[&str]| load_proxy(arguments).unwrap_err().to_string();
        assert!(error(&[]).contains("--upstream http://127.0.0.1:3000 (or ONCEWARD_UPSTREAM"), "{}", error(&[]));
        assert!(error(&["--upstream", "http://localhost:8080"]).contains("forward requests to itself"));
        let plain = ["--upstream", "http://127.0.0.1:3000", "--upstream-ca", "ca.pem"];
        assert!(error(&plain).starts_with("upstream_ca: the upstream http://127.0.0.1:3000 uses no TLS"));
        let bare = error(&["--upstream", "127.0.0.1:3000"]);
        assert!(bare.starts_with("upstream (from --upstream): `127.0.0.1:3000` has no scheme; use scheme"), "{bare}");
        let same = ["--upstream", "http://127.0.0.1:3000", "--admin-listen", "127.0.0.1:8080"];
        assert!(error(&same).contains("is already the address of `listen`"));
    }

    #[test]
    fn proxy_listens_on_any_address_without_an_api_key() {
        let config = load_proxy(&["--upstream", "http://127.0.0.1:3000", "--listen", "0.0.0.0:8080"]).unwrap();
        assert!(config.warnings.is_empty() && !config.demo, "{:?}", config.warnings);
        let proxy = config.proxy;
        assert_eq!((proxy.upstream_keep_alive, proxy.body_limit), (Duration::from_secs(1), 1 << 20));
        assert_eq!((proxy.proxy_path.as_str(), proxy.inject, proxy.routes.len()), ("/_onceward", false, 0));
    }

    #[test]
    fn debug_of_config_hides_secrets() {
        let store = "redis://user:canary-password@10.0.0.7:6379/2";
        let config =
            load(&["--store", store, "--api-key", "canary-key-canary", "--secret", "canary-secret-canary"], &[])
                .unwrap();
        assert_eq!(config.store.to_string(), "redis://10.0.0.7:6379");
        let portless = load(&["--store", "redis://:canary-password@10.0.0.7/2?protocol=resp3"], &[]).unwrap();
        assert_eq!(portless.store.to_string(), "redis://10.0.0.7");
        assert!(!format!("{config:?}").contains("canary"), "{config:?}");
        assert!(!error(&["--store", "rediss//:canary-password@x"], &[]).contains("canary"));
        for (given, shown) in [
            ("rediss://:canary-password@x", "rediss://x"),
            ("redis+cluster://u:canary@h1,h2:7", "redis+cluster://h1,h2:7"),
            ("redis+sentinel://:canary@h1,h2/name", "redis+sentinel://h1,h2"),
            ("h1:1;h2:2", "h1:1;h2:2"),
        ] {
            assert_eq!(load(&["--store", given], &[]).unwrap().store.to_string(), shown);
        }
        assert!(!error(&["--store", "redis+cluster://u:can/ary@h1"], &[]).contains("can/"));
        assert!(!error(&["--store", "redis://:canary-password@x:port"], &[]).contains("canary"));
        let shown = |store: &str| load(&["--store", store], &[]).unwrap().store.to_string();
        let database = "postgres://user:canary%40p@10.0.0.7:5432/shop?sslmode=require&password=canary";
        assert_eq!(shown(database), "postgres://10.0.0.7:5432/shop");
        assert_eq!(shown("postgresql://10.0.0.7"), "postgres://10.0.0.7");
        assert_eq!(shown("sqlite:/var/lib/onceward.db?mode=rw"), "sqlite:/var/lib/onceward.db");
        for wrong in ["mysql://user:canary@x/y", "postgres://user:canary@x:port/y", "postgre://user:canary@x/y"] {
            let said = error(&["--store", wrong], &[]);
            assert!(said.contains("postgres://user@host/database") && !said.contains("canary"), "{said}");
        }
    }

    #[test]
    fn header_subject_requires_a_trusted_proxy() {
        let route = "[[proxy.route]]\npath = \"/pay\"\npolicy = \"key\"\nsubject = { header = \"X-User\" }\n";
        let untrusted = file(route);
        let arguments = ["--upstream", "http://127.0.0.1:3000", "--config", untrusted.path().to_str().unwrap()];
        let error = load_proxy(&arguments).unwrap_err().to_string();
        assert!(
            error.starts_with("trusted_proxies: the route /pay reads its subject from the header `x-user`"),
            "{error}"
        );
        let trusted = [&arguments[..], &["--trusted-proxies", "10.0.0.1"]].concat();
        assert_eq!(load_proxy(&trusted).unwrap().proxy.routes.len(), 1);
    }
}

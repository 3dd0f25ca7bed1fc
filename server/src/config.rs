//! Settings: everything that can be set, read from wherever it was given.

mod api_key;
pub(crate) mod flag;
mod placeholder;
pub mod setting;
pub(crate) mod sources;
mod store_address;
mod value;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use ipnet::IpNet;
use onceward::Secret;
use tracing::level_filters::LevelFilter;

pub use self::api_key::ApiKey;
use self::setting::PREFIX;
use self::sources::Sources;
pub use self::store_address::StoreAddress;
pub use self::value::{Rate, is_origin};
use crate::http::request_log::RequestLog;

/// Everything that can be set.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Where to listen for whoever runs it.
    pub admin_listen: Option<SocketAddr>,
    /// Where tokens are kept.
    pub store: StoreAddress,
    /// What every key in the store begins with.
    pub prefix: String,
    /// What tokens are signed with.
    pub secret: Option<Secret>,
    /// A secret that is accepted beside it.
    pub secret_previous: Option<PreviousSecret>,
    /// How long a token lives.
    pub token_ttl: Duration,
    /// What backends send.
    pub api_key: Option<ApiKey>,
    /// Origins whose pages may fetch tokens.
    pub cors_origins: Vec<String>,
    /// How many tokens one client may fetch.
    pub rate_limit: Option<Rate>,
    /// How many of them at once.
    pub rate_burst: NonZeroU32,
    /// How many tokens all clients may fetch.
    pub rate_limit_total: Option<Rate>,
    /// Proxies whose word is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// How many connections may be open.
    pub max_connections: NonZeroU32,
    /// How many connections one client may have once half of them are open; `None` if there is no limit.
    pub max_connections_per_client: Option<NonZeroU32>,
    /// How many requests are answered at once.
    pub max_in_flight: NonZeroU32,
    /// How long a request may take to arrive.
    pub request_timeout: Duration,
    /// How much the memory store may hold.
    pub memory_limit: usize,
    /// Whether the demo stands at `/`.
    pub demo: bool,
    /// Whether a Redis that evicts is good enough.
    pub allow_eviction: bool,
    /// How long the store may take.
    pub store_timeout: Duration,
    /// How long to wait for the store at start.
    pub wait_for: Duration,
    /// How often the shared secret is shared again.
    pub share_every: Duration,
    /// How long to go on once told to stop.
    pub last_call: Duration,
    /// How long to wait after that.
    pub drain_limit: Duration,
    /// How logs are written.
    pub log: LogFormat,
    /// How much is logged.
    pub log_level: LevelFilter,
    /// Which responses are logged.
    pub request_log: RequestLog,
    /// What is odd about the settings, but no reason not to start.
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

/// How logs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people on a terminal, for programs otherwise.
    Auto,
    /// For people.
    Human,
    /// For programs.
    Json,
}

/// Why there are no settings to start with.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The command line asks for help, or cannot be read.
    #[error(transparent)]
    Usage(#[from] clap::Error),
    /// A setting is wrong; the sentence names it, where it came from, and what to write.
    #[error("{0}")]
    Wrong(String),
}

/// What the environment says of our settings.
///
/// # Errors
/// If something in it is no text.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn environment() -> Result<Vec<(String, String)>, ConfigError> {
    let named = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let ours = named.filter(|(name, _)| name.starts_with(PREFIX));
    // One that cannot be read is not left out in silence: it may be the API key.
    let read = |(name, value): (String, OsString)| match value.into_string() {
        Ok(value) => Ok((name, value)),
        Err(_) => Err(ConfigError::Wrong(format!("{name}: its value is not UTF-8 text; write it as such"))),
    };
    ours.map(read).collect()
}

impl Config {
    /// Reads a command line and an environment.
    ///
    /// # Errors
    /// If something in them is wrong.
    pub fn from(
        arguments: impl IntoIterator<Item = OsString>,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        Self::for_service(&Sources::gather(&flag::bare().try_get_matches_from(arguments)?, variables)?)
    }

    /// The settings for running the service.
    pub(crate) fn for_service(sources: &Sources) -> Result<Self, ConfigError> {
        let mut config = build(sources)?;
        config.check_exposure(sources)?;
        config.check_admin()?;
        Ok(config)
    }

    /// The settings for asking the store, where nothing listens.
    pub(crate) fn for_command(sources: &Sources) -> Result<Self, ConfigError> {
        build(sources)
    }

    /// Whoever can reach the port can use up tokens, so that takes either this machine or a key.
    fn check_exposure(&self, sources: &Sources) -> Result<(), ConfigError> {
        let is_allowed = sources.value("allow_unauthenticated", value::boolean)?;
        if self.listen.ip().is_loopback() || self.api_key.is_some() || is_allowed {
            return Ok(());
        }
        Err(ConfigError::Wrong(format!(
            "listen: {} can be reached from other machines, and there is no API key, so anybody could use up tokens. \
             Set ONCEWARD_API_KEY, or listen on 127.0.0.1, or say --allow-unauthenticated.",
            self.listen
        )))
    }

    /// Metrics have no key: they are for whoever can reach them, and that is to be known.
    fn check_admin(&mut self) -> Result<(), ConfigError> {
        let warning = match self.admin_listen {
            Some(admin) if admin == self.listen && admin.port() != 0 => {
                return Err(ConfigError::Wrong(format!(
                    "admin_listen: {admin} is where to listen already. Set another, as in 127.0.0.1:9090, or leave it away."
                )));
            }
            Some(admin) if !admin.ip().is_loopback() => {
                format!(
                    "admin_listen: {admin} can be reached from other machines, and /metrics and /dashboard have no key"
                )
            }
            None if !self.listen.ip().is_loopback() => format!(
                "listen: whoever can reach {} can read /metrics and /dashboard; admin_listen puts them elsewhere",
                self.listen
            ),
            _ => return Ok(()),
        };
        self.warnings.push(warning);
        Ok(())
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
        wait_for: sources.value("wait_for", onceward_api::duration::parse)?,
        share_every: sources.value("share_every", value::duration)?,
        last_call: sources.value("last_call", onceward_api::duration::parse)?,
        drain_limit: sources.value("drain_limit", onceward_api::duration::parse)?,
        log: sources.value("log", log_form)?,
        log_level: sources.value("log_level", value::level)?,
        request_log: sources.value("request_log", request_log)?,
        warnings: sources.warnings().to_vec(),
    })
}

/// The word is too short to be a secret.
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
        _ => Err(format!("`{text}` is none of `all`, `errors`, `off` and `auto`")),
    }
}

fn log_form(text: &str) -> Result<LogFormat, String> {
    match text {
        "auto" => Ok(LogFormat::Auto),
        "human" => Ok(LogFormat::Human),
        "json" => Ok(LogFormat::Json),
        _ => Err(format!("`{text}` is none of `human`, `json` and `auto`")),
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
    fn with_nothing_set_every_setting_has_its_default() {
        let config = load(&[], &[]).unwrap();
        assert_eq!((config.listen.to_string().as_str(), config.store), ("127.0.0.1:8080", StoreAddress::Memory));
        assert_eq!((config.token_ttl, config.rate_burst.get()), (Duration::from_secs(1800), 200));
        assert!(config.secret.is_none() && config.api_key.is_none() && config.warnings.is_empty());
    }

    #[test]
    fn a_flag_goes_over_the_environment_and_that_over_the_file() {
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
    fn the_demo_stands_where_the_store_is_memory_unless_somebody_says_otherwise() {
        let redis = ["--store", "redis://127.0.0.1:6379"];
        assert!(load(&[], &[]).unwrap().demo && !load(&redis, &[]).unwrap().demo);
        assert!(!load(&["--demo", "off"], &[]).unwrap().demo);
        assert!(load(&[redis[0], redis[1], "--demo"], &[]).unwrap().demo);
        assert!(!load(&[], &[("ONCEWARD_DEMO", "false")]).unwrap().demo);
        assert!(load(&["--demo", "auto"], &[("ONCEWARD_DEMO", "false")]).unwrap().demo);
    }

    #[test]
    fn the_secret_that_is_accepted_beside_the_own_may_be_the_shared_one() {
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
    fn an_error_names_the_setting_and_where_it_came_from() {
        assert!(error(&["--token-ttl", "x"], &[]).starts_with("token_ttl (from --token-ttl): `x` is not a duration"));
        assert!(error(&[], &[("ONCEWARD_LISTEN", "nowhere")]).starts_with("listen (from ONCEWARD_LISTEN): `nowhere`"));
        assert!(error(&["--secret", "short"], &[]).starts_with("secret (from --secret): the secret has 5 bytes"));
        let file = file("rate_limit = \"many\"");
        let path = file.path().to_str().unwrap();
        assert!(error(&["--config", path], &[]).starts_with(&format!("rate_limit (from {path}): `many`")));
    }

    #[test]
    fn a_mistyped_name_is_answered_with_the_nearest() {
        assert!(error(&["--token-tll", "1m"], &[]).contains("--token-ttl"));
        let file = file("tokenttl = \"1m\"");
        let said = error(&["--config", file.path().to_str().unwrap()], &[]);
        assert!(said.contains("no setting `tokenttl`; did you mean `token_ttl`?"), "{said}");
        let warned = load(&[], &[("ONCEWARD_TOKEN_TTLS", "1m"), ("ONCEWARD_SERVICE_HOST", "x")]).unwrap().warnings;
        assert!(warned[1].contains("did you mean ONCEWARD_TOKEN_TTL?"), "{warned:?}");
        assert_eq!(warned.len(), 2);
    }

    #[test]
    fn a_secret_may_stand_in_a_file_of_its_own() {
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
    fn a_key_that_no_header_can_carry_is_refused_and_not_shown() {
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
    fn placeholder_or_short_key_is_refused_with_the_command_that_makes_one() {
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
    fn listening_beyond_this_machine_takes_a_key_or_a_word() {
        let open = ["--listen", "0.0.0.0:8080"];
        assert!(error(&open, &[]).contains("ONCEWARD_API_KEY"));
        assert!(load(&open, &[("ONCEWARD_API_KEY", "a-key-of-the-backends")]).is_ok());
        assert!(load(&["--listen", "0.0.0.0:8080", "--allow-unauthenticated"], &[]).is_ok());
        assert!(load(&["--listen", "0.0.0.0:8080", "--allow-unauthenticated", "false"], &[]).is_err());
    }

    #[test]
    fn numbers_that_others_could_read_are_warned_of_and_two_cannot_have_one_address() {
        assert!(load(&["--admin-listen", "127.0.0.1:9090"], &[]).unwrap().warnings.is_empty());
        assert_eq!(load(&["--admin-listen", "0.0.0.0:9090"], &[]).unwrap().warnings.len(), 1);
        let open = ["--listen", "0.0.0.0:8080", "--api-key", "a-key-of-the-backends"];
        assert!(load(&open, &[]).unwrap().warnings[0].contains("admin_listen puts them elsewhere"));
        let apart = [("ONCEWARD_ADMIN_LISTEN", "127.0.0.1:9090")];
        assert!(load(&open, &apart).unwrap().warnings.is_empty());
        assert!(error(&["--admin-listen", "127.0.0.1:8080"], &[]).contains("is where to listen already"));
    }

    #[test]
    fn no_secret_is_shown() {
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
}

//! Settings: from the defaults, a file, the environment and the command line, each over the one before.

pub mod setting;
mod value;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use ipnet::IpNet;
use onceward::Secret;
use tracing::level_filters::LevelFilter;

use self::setting::{PREFIX, SETTINGS, names, nearest};
pub use self::value::{Rate, is_origin};

/// Everything that can be set.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Where tokens are kept.
    pub store: StoreAt,
    /// What every key in the store begins with.
    pub prefix: String,
    /// What tokens are signed with.
    pub secret: Option<Secret>,
    /// A former secret.
    pub secret_previous: Option<Secret>,
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
    /// How much the memory store may hold.
    pub memory_limit: usize,
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
    pub log: LogForm,
    /// How much is logged.
    pub log_level: LevelFilter,
    /// What is odd about the settings, but no reason not to start.
    pub warnings: Vec<String>,
}

/// Where tokens are kept.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreAt {
    /// In this process.
    Memory,
    /// In a Redis at this address, which may hold a password.
    Redis(String),
}

impl fmt::Display for StoreAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            // Without what stands before the host, a user name and a password, and without what stands behind it.
            Self::Redis(url) => {
                let authority = url.split_once("//").map_or("…", |(_, rest)| rest);
                let authority = authority.split(['/', '?', '#']).next().unwrap_or("…");
                write!(f, "redis://{}", authority.rsplit('@').next().unwrap_or("…"))
            }
        }
    }
}

impl fmt::Debug for StoreAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What backends send to be let in. It is never shown.
#[derive(Clone)]
pub struct ApiKey(String);

impl ApiKey {
    /// A key that can be sent in a header. The error does not quote it.
    fn new(text: String) -> Result<Self, String> {
        let fix = "set 1 or more visible ASCII characters, as `openssl rand -hex 32` makes them";
        match text.as_bytes() {
            [] => Err(format!("it is empty, so everybody would have it; {fix}")),
            bytes if bytes.iter().all(u8::is_ascii_graphic) => Ok(Self(text)),
            _ => Err(format!("it has a blank or another character that cannot be sent in a header; {fix}")),
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// How logs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogForm {
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

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    Default,
    File(PathBuf),
    Variable(String),
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Variable(name) | Self::Flag(name) => f.write_str(name),
        }
    }
}

/// What was given, under each name, and by whom.
type Given = BTreeMap<String, (String, Origin)>;

impl Config {
    /// Reads the command line, the environment and the file that they name.
    ///
    /// # Errors
    /// If something in them is wrong.
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    pub fn load() -> Result<Self, ConfigError> {
        let named = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let ours = named.filter(|(name, _)| name.starts_with(PREFIX));
        // One that cannot be read is not left out in silence: it may be the API key.
        let read = |(name, value): (String, OsString)| match value.into_string() {
            Ok(value) => Ok((name, value)),
            Err(_) => Err(ConfigError::Wrong(format!("{name}: its value is not UTF-8 text; write it as such"))),
        };
        let variables = ours.map(read).collect::<Result<Vec<_>, _>>()?;
        Self::from(std::env::args_os(), variables)
    }

    /// Reads a command line and an environment.
    ///
    /// # Errors
    /// If something in them is wrong.
    pub fn from(
        arguments: impl IntoIterator<Item = OsString>,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let matches = command().try_get_matches_from(arguments)?;
        let variables: BTreeMap<_, _> = variables.into_iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
        let mut given = defaults();
        let file = matches.get_one::<String>("config").or_else(|| variables.get("ONCEWARD_CONFIG"));
        if let Some(file) = file {
            given.extend(read_file(Path::new(file))?);
        }
        let warnings = read_variables(&variables, &mut given);
        read_flags(&matches, &mut given);
        let mut config = build(&given)?;
        config.warnings.extend(warnings);
        config.check_exposure(&given)?;
        Ok(config)
    }

    /// Whoever can reach the port can use up tokens, so that takes either this machine or a key.
    fn check_exposure(&self, given: &Given) -> Result<(), ConfigError> {
        let is_allowed = flagged(given, "allow_unauthenticated", value::boolean)?;
        if self.listen.ip().is_loopback() || self.api_key.is_some() || is_allowed {
            return Ok(());
        }
        Err(ConfigError::Wrong(format!(
            "listen: {} can be reached from other machines, and there is no API key, so anybody could use up tokens. \
             Set ONCEWARD_API_KEY, or listen on 127.0.0.1, or say --allow-unauthenticated.",
            self.listen
        )))
    }
}

/// The command line, made from the settings.
pub fn command() -> Command {
    let command = Command::new("onceward")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Makes a submission take effect once, however often it is sent: issues one-time tokens and accepts each once.")
        .after_help(
            "Every setting can also be given in the environment, as ONCEWARD_TOKEN_TTL for --token-ttl, and in a TOML \
             file, as token_ttl. A flag goes over the environment, the environment over the file.\n\
             Durations are written 90s, 10m, 24h. A secret is better given as a file, with --api-key-file and its like.",
        )
        .arg(Arg::new("config").long("config").value_name("FILE").help("A TOML file with settings"));
    names().fold(command, |command, (name, setting)| {
        let is_file = name != setting.name;
        let help = match (is_file, setting.default) {
            (true, _) => format!("A file that holds {}", setting.name),
            (false, Some(default)) => format!("{} [default: {default}]", setting.help),
            (false, None) => setting.help.to_owned(),
        };
        let value = if is_file { "FILE" } else { setting.value };
        let argument = Arg::new(name.clone()).long(name.replace('_', "-")).value_name(value).help(help);
        // A switch needs no value to be on.
        command.arg(if value == "BOOL" { argument.num_args(0..=1).default_missing_value("true") } else { argument })
    })
}

fn defaults() -> Given {
    let default =
        |setting: &setting::Setting| Some((setting.name.to_owned(), (setting.default?.to_owned(), Origin::Default)));
    SETTINGS.iter().filter_map(default).collect()
}

fn read_file(path: &Path) -> Result<Given, ConfigError> {
    let wrong = |what: String| ConfigError::Wrong(format!("config: {}: {what}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        // The line is named and not shown: a secret may stand on it.
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].lines().count().max(1));
        wrong(format!("line {line}: {}", error.message()))
    })?;
    let mut given = Given::new();
    for (name, value) in table {
        if !names().any(|(known, _)| known == name) {
            let meant = nearest(&name).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
            return Err(wrong(format!("there is no setting `{name}`{meant}")));
        }
        let text = as_text(&value)
            .ok_or_else(|| wrong(format!("`{name}` has to be text, a number, true, false or a list of texts")))?;
        given.insert(name, (text, Origin::File(path.to_owned())));
    }
    Ok(given)
}

fn as_text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(truth) => Some(truth.to_string()),
        toml::Value::Array(items) => Some(items.iter().map(toml::Value::as_str).collect::<Option<Vec<_>>>()?.join(",")),
        _ => None,
    }
}

/// Takes in the environment. A variable that nobody knows is no error: platforms set some of their own.
fn read_variables(variables: &BTreeMap<String, String>, given: &mut Given) -> Vec<String> {
    let mut warnings = Vec::new();
    for (variable, value) in variables {
        let name = variable[PREFIX.len()..].to_lowercase();
        if names().any(|(known, _)| known == name) {
            given.insert(name, (value.clone(), Origin::Variable(variable.clone())));
        } else if name != "config" {
            let meant = nearest(&name).map(|name| format!("; did you mean {PREFIX}{}?", name.to_uppercase()));
            warnings.push(format!("there is no setting {variable}, so it has no effect{}", meant.unwrap_or_default()));
        }
    }
    warnings
}

fn read_flags(matches: &ArgMatches, given: &mut Given) {
    for (name, _) in names() {
        if let Some(value) = matches.get_one::<String>(&name) {
            let origin = Origin::Flag(format!("--{}", name.replace('_', "-")));
            given.insert(name, (value.clone(), origin));
        }
    }
}

fn build(given: &Given) -> Result<Config, ConfigError> {
    let secret = |name: &str| -> Result<Option<Secret>, ConfigError> {
        let read = |text: &str| Secret::new(text).map_err(|error| error.to_string());
        optional(given, name)?
            .map(|(text, origin)| read(&text).map_err(|error| wrong(name, &origin, &error)))
            .transpose()
    };
    Ok(Config {
        listen: flagged(given, "listen", value::address)?,
        store: match optional(given, "store")? {
            Some((text, origin)) => store(&text).map_err(|error| wrong("store", &origin, &error))?,
            None => StoreAt::Memory,
        },
        prefix: flagged(given, "prefix", |text| Ok(text.to_owned()))?,
        secret: secret("secret")?,
        secret_previous: secret("secret_previous")?,
        token_ttl: flagged(given, "token_ttl", value::token_ttl)?,
        api_key: match optional(given, "api_key")? {
            Some((text, origin)) => Some(ApiKey::new(text).map_err(|error| wrong("api_key", &origin, &error))?),
            None => None,
        },
        cors_origins: listed(given, "cors_origins", value::origins)?,
        rate_limit: flagged(given, "rate_limit", value::rate)?,
        rate_burst: flagged(given, "rate_burst", value::count)?,
        rate_limit_total: flagged(given, "rate_limit_total", value::rate)?,
        trusted_proxies: listed(given, "trusted_proxies", value::networks)?,
        memory_limit: flagged(given, "memory_limit", value::size)?,
        store_timeout: flagged(given, "store_timeout", value::duration)?,
        wait_for: flagged(given, "wait_for", onceward_api::duration::parse)?,
        share_every: flagged(given, "share_every", value::duration)?,
        last_call: flagged(given, "last_call", onceward_api::duration::parse)?,
        drain_limit: flagged(given, "drain_limit", onceward_api::duration::parse)?,
        log: flagged(given, "log", log_form)?,
        log_level: flagged(given, "log_level", value::level)?,
        warnings: Vec::new(),
    })
}

/// A setting that has a default, read by `read`.
fn flagged<T>(given: &Given, name: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<T, ConfigError> {
    let (text, origin) = given.get(name).ok_or_else(|| ConfigError::Wrong(format!("{name} is not set")))?;
    read(text).map_err(|error| wrong(name, origin, &error))
}

/// A list that may be missing.
fn listed<T>(given: &Given, name: &str, read: impl Fn(&str) -> Result<Vec<T>, String>) -> Result<Vec<T>, ConfigError> {
    if given.contains_key(name) { flagged(given, name, read) } else { Ok(Vec::new()) }
}

/// A secret, as it stands or from the file that holds it. Whichever of the two was given nearer to the command line.
fn optional(given: &Given, name: &str) -> Result<Option<(String, Origin)>, ConfigError> {
    let rank = |origin: &Origin| match origin {
        Origin::Default => 0,
        Origin::File(_) => 1,
        Origin::Variable(_) => 2,
        Origin::Flag(_) => 3,
    };
    let file = format!("{name}_file");
    match (given.get(name), given.get(&file)) {
        (Some((_, plain)), Some((_, origin))) if rank(plain) == rank(origin) => {
            Err(ConfigError::Wrong(format!("{name} and {file} are both set, by {plain} and {origin}; set one of them")))
        }
        (plain, Some((path, origin))) if plain.is_none_or(|(_, plain)| rank(plain) < rank(origin)) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| wrong(&file, origin, &format!("{path} cannot be read: {error}")))?;
            Ok(Some((text.trim_end_matches(['\r', '\n']).to_owned(), origin.clone())))
        }
        (plain, _) => Ok(plain.cloned()),
    }
}

/// An address of a store. What it says may hold a password, so it is not quoted.
fn store(text: &str) -> Result<StoreAt, String> {
    match text.split_once(':') {
        Some(("memory", "")) => Ok(StoreAt::Memory),
        Some(("redis", _)) => {
            onceward::store::Redis::check_address(text).map_err(|error| error.to_string())?;
            Ok(StoreAt::Redis(text.to_owned()))
        }
        _ => Err("it is neither `memory:` nor an address as in `redis://127.0.0.1:6379`".to_owned()),
    }
}

fn log_form(text: &str) -> Result<LogForm, String> {
    match text {
        "auto" => Ok(LogForm::Auto),
        "human" => Ok(LogForm::Human),
        "json" => Ok(LogForm::Json),
        _ => Err(format!("`{text}` is none of `human`, `json` and `auto`")),
    }
}

fn wrong(name: &str, origin: &Origin, error: &str) -> ConfigError {
    ConfigError::Wrong(format!("{name} (from {origin}): {error}"))
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
        assert_eq!((config.listen.to_string().as_str(), config.store), ("127.0.0.1:8080", StoreAt::Memory));
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
        let key = file("correct-horse\n");
        let path = key.path().to_str().unwrap();
        let config = load(&[], &[("ONCEWARD_API_KEY_FILE", path)]).unwrap();
        assert_eq!(config.api_key.unwrap().as_bytes(), b"correct-horse");
        let nearer = load(&["--api-key", "battery"], &[("ONCEWARD_API_KEY_FILE", path)]).unwrap();
        assert_eq!(nearer.api_key.unwrap().as_bytes(), b"battery");
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
        assert!(load(&["--api-key", "!~aZ09+/="], &[]).is_ok());
    }

    #[test]
    fn listening_beyond_this_machine_takes_a_key_or_a_word() {
        let open = ["--listen", "0.0.0.0:8080"];
        assert!(error(&open, &[]).contains("ONCEWARD_API_KEY"));
        assert!(load(&open, &[("ONCEWARD_API_KEY", "x")]).is_ok());
        assert!(load(&["--listen", "0.0.0.0:8080", "--allow-unauthenticated"], &[]).is_ok());
        assert!(load(&["--listen", "0.0.0.0:8080", "--allow-unauthenticated", "false"], &[]).is_err());
    }

    #[test]
    fn no_secret_is_shown() {
        let store = "redis://user:canary-password@10.0.0.7:6379/2";
        let config =
            load(&["--store", store, "--api-key", "canary-key", "--secret", "canary-secret-canary"], &[]).unwrap();
        assert_eq!(config.store.to_string(), "redis://10.0.0.7:6379");
        let portless = load(&["--store", "redis://:canary-password@10.0.0.7/2?protocol=resp3"], &[]).unwrap();
        assert_eq!(portless.store.to_string(), "redis://10.0.0.7");
        assert!(!format!("{config:?}").contains("canary"), "{config:?}");
        assert!(!error(&["--store", "rediss//:canary-password@x"], &[]).contains("canary"));
        assert!(!error(&["--store", "redis://:canary-password@x:port"], &[]).contains("canary"));
    }
}

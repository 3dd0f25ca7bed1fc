//! Every setting there is. Flags, environment variables, file keys, the help and the README's table all come from here.

/// One setting. Its name is that of the file key; the flag and the environment variable are made from it.
#[derive(Debug)]
pub struct Setting {
    /// As in `token_ttl`.
    pub name: &'static str,
    /// What stands for its value in the help.
    pub value: &'static str,
    /// What it is if nobody sets it; `None` if it is not set then.
    pub default: Option<&'static str>,
    /// What it does, in a sentence.
    pub help: &'static str,
    /// Whether its value may not be shown, and may be read from a file of its own.
    pub is_secret: bool,
}

/// Every setting, in the order of the help.
pub const SETTINGS: [Setting; 29] = [
    plain("listen", "ADDRESS", Some("127.0.0.1:8080"), "Where to listen"),
    plain(
        "admin_listen",
        "ADDRESS",
        None,
        "Where to listen for whoever runs it: then `/metrics` and `/dashboard` are there and nowhere else",
    ),
    secret(
        "store",
        "URL",
        Some("memory:"),
        "Where tokens are kept: `memory:` (this process alone), `redis://host:port` (`rediss://` with TLS), \
         `redis+sentinel://host,host/name`, `redis+cluster://host,host` (or `valkey` in place of `redis`), `postgres://user@host/database` or `sqlite:path`",
    ),
    plain("prefix", "NAME", Some("onceward"), "What every key in the store begins with"),
    secret(
        "secret",
        "TEXT",
        None,
        "What tokens and passes are signed with, at least 16 bytes; unset, all processes of one store share one through it",
    ),
    secret(
        "secret_previous",
        "TEXT",
        None,
        "A second secret that is accepted beside `secret`; `shared` is the one in the store. To change `secret` in rolling restarts \
         without refusing a caller: 1. add the new secret here, in every process; 2. swap the two; 3. remove the old one when \
         everything that it signed has expired",
    ),
    plain(
        "token_ttl",
        "DURATION",
        Some("30m"),
        "How long a token lives, and the longest life that a browser may ask for",
    ),
    secret(
        "api_key",
        "TEXT",
        None,
        "What backends send as `Authorization: Bearer …` to redeem, release, claim and ask, at least 16 characters",
    ),
    plain("allow_unauthenticated", "BOOL", Some("false"), "Listen beyond this machine although there is no API key"),
    plain(
        "cors_origins",
        "LIST",
        None,
        "Origins whose pages may fetch tokens, separated by commas, as in `https://shop.example`",
    ),
    plain("rate_limit", "RATE", Some("50/s"), "How many tokens one client may fetch, or `off`"),
    plain("rate_burst", "COUNT", Some("200"), "How many tokens one client may fetch at once"),
    plain("rate_limit_total", "RATE", Some("5000/s"), "How many tokens all clients together may fetch, or `off`"),
    plain(
        "trusted_proxies",
        "LIST",
        None,
        "Proxies whose `X-Forwarded-For` or `Forwarded` is believed, as addresses or networks, separated by commas",
    ),
    plain("max_connections", "COUNT", Some("8192"), "How many connections may be open; one more waits"),
    plain(
        "max_connections_per_client",
        "COUNT or off",
        Some("256"),
        "How many connections one client address (of IPv6: one /64 network) may have once half of `max_connections` are open, \
         or `off`; one more is closed. At most half of `max_connections`; `trusted_proxies` have no limit",
    ),
    plain(
        "max_in_flight",
        "COUNT",
        Some("4096"),
        "How many requests are answered at once; one more is refused with 503 `overloaded`",
    ),
    plain(
        "request_timeout",
        "DURATION",
        Some("10s"),
        "How long the head of a request may take to arrive, and then its body",
    ),
    plain(
        "memory_limit",
        "SIZE",
        Some("256MiB"),
        "How much the memory store may hold: records, and stored responses, the oldest of which are dropped first. The process may need twice as much and 64 MiB",
    ),
    plain(
        "allow_eviction",
        "BOOL",
        Some("false"),
        "Go on with a Redis that may evict records: then a key may run a second time",
    ),
    plain("demo", "BOOL", Some("auto"), "Whether a demo shop stands at `/`; `auto`: with the memory store"),
    plain("store_timeout", "DURATION", Some("250ms"), "How long the store may take to answer"),
    plain(
        "wait_for",
        "DURATION",
        Some("10s"),
        "How long to wait until the store answers, at start and in every command",
    ),
    plain(
        "share_every",
        "DURATION",
        Some("1s"),
        "How often to look at the shared secret in the store. If the store loses it (FLUSHALL), processes may refuse each other's \
         tokens for twice as long",
    ),
    plain(
        "last_call",
        "DURATION",
        Some("250ms"),
        "How long to go on as before once told to stop, while answers send callers elsewhere",
    ),
    plain("drain_limit", "DURATION", Some("30s"), "How long to wait after that for what still runs"),
    plain("log", "FORM", Some("auto"), "`human`, `json`, or `auto`: human on a terminal"),
    plain(
        "log_level",
        "LEVEL",
        Some("info"),
        "How much is logged: `error`, `warn`, `info`, `debug` or `trace`. The events that `onceward audit` reads are logged at every level",
    ),
    plain(
        "request_log",
        "REQUESTS",
        Some("auto"),
        "Which responses get a line, at level `info`: `all`, `errors` (status 400 or above), `off`, or `auto`: all on a terminal, otherwise \
         errors",
    ),
];

const fn plain(name: &'static str, value: &'static str, default: Option<&'static str>, help: &'static str) -> Setting {
    Setting { name, value, default, help, is_secret: false }
}

const fn secret(name: &'static str, value: &'static str, default: Option<&'static str>, help: &'static str) -> Setting {
    Setting { name, value, default, help, is_secret: true }
}

/// What every environment variable of ours begins with.
pub const PREFIX: &str = "ONCEWARD_";

/// Every name under which a value can be given: each setting, and for each secret the file that holds it.
pub fn names() -> impl Iterator<Item = (String, &'static Setting)> {
    SETTINGS.iter().flat_map(|setting| {
        let file = setting.is_secret.then(|| (format!("{}_file", setting.name), setting));
        [(setting.name.to_owned(), setting)].into_iter().chain(file)
    })
}

/// The name that a mistyped one was probably meant to be.
pub fn nearest(mistyped: &str) -> Option<String> {
    let likeness = |name: &str| strsim::jaro_winkler(name, mistyped);
    let (name, likeness) =
        names().map(|(name, _)| (name.clone(), likeness(&name))).max_by(|a, b| a.1.total_cmp(&b.1))?;
    (likeness > 0.7).then_some(name)
}

/// The README's table of settings.
pub fn table() -> String {
    let rows = SETTINGS.iter().map(|setting| {
        let default = setting.default.map_or("none".to_owned(), |default| format!("`{default}`"));
        let file = if setting.is_secret { "; also as `…_file`" } else { "" };
        format!("| `{}` | {default} | {}{file} |\n", setting.name, setting.help)
    });
    format!("| setting | default | what it does |\n|---|---|---|\n{}", rows.collect::<String>())
}

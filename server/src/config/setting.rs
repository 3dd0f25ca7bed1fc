//! All settings. Flags, environment variables, file keys, the help, the JSON Schema and the table in `docs/operations.md` are generated from this list.

/// One setting. Its name is the key in the settings file; the flag and the environment variable are derived from it.
#[derive(Debug)]
pub struct Setting {
    /// The name, as in `token_ttl`.
    pub name: &'static str,
    /// The placeholder for the value in the help.
    pub value: &'static str,
    /// The default; `None` if there is none.
    pub default: Option<&'static str>,
    /// The description, without a period at the end.
    pub help: &'static str,
    /// True if the value is never shown, and may be read from a file of its own.
    pub is_secret: bool,
}

/// All settings, in the order of the help.
pub const SETTINGS: [Setting; 47] = [
    plain("listen", "ADDRESS", Some("127.0.0.1:8080"), "Address to listen on"),
    plain(
        "admin_listen",
        "ADDRESS",
        None,
        "Second address for operators: `/metrics` and `/dashboard` are then served only there",
    ),
    secret(
        "store",
        "URL",
        Some("memory:"),
        "URL of the store: `memory:` (this process only), `redis://host:port` (`rediss://` with TLS), \
         `redis+sentinel://host,host/name`, `redis+cluster://host,host` (or `valkey` in place of `redis`), `postgres://user@host/database` or `sqlite:path`",
    ),
    plain("prefix", "NAME", Some("onceward"), "Prefix of every key in the store"),
    secret(
        "secret",
        "TEXT",
        None,
        "Secret that signs tokens and passes, at least 16 bytes. If unset, all processes of one store share a secret through the store",
    ),
    secret(
        "secret_previous",
        "TEXT",
        None,
        "Second secret that is accepted beside `secret`; `shared` is the one in the store. To rotate `secret` in rolling restarts \
         without rejecting requests: 1. add the new secret here, in every process; 2. swap the two; 3. remove the old one when \
         everything that it signed has expired",
    ),
    plain(
        "token_ttl",
        "DURATION",
        Some("30m"),
        "Time until a token expires, and the maximum `ttl` of a request without the API key",
    ),
    secret(
        "api_key",
        "TEXT",
        None,
        "Key that backends send as `Authorization: Bearer …` to redeem, release, claim and look up outcomes, at least 16 characters",
    ),
    plain(
        "allow_unauthenticated",
        "BOOL",
        Some("false"),
        "Allow listening on a non-loopback address without an API key",
    ),
    plain(
        "cors_origins",
        "LIST",
        None,
        "Origins whose pages may fetch tokens and read rejections, separated by commas, as in `https://shop.example`",
    ),
    plain("rate_limit", "RATE", Some("50/s"), "Rate limit for tokens per client, or `off`"),
    plain("rate_burst", "COUNT", Some("200"), "Number of tokens one client may fetch in a burst"),
    plain("rate_limit_total", "RATE", Some("5000/s"), "Rate limit for tokens of all clients together, or `off`"),
    plain(
        "trusted_proxies",
        "LIST",
        None,
        "Proxies whose `X-Forwarded-For` or `Forwarded` header is trusted, as addresses or networks, separated by commas",
    ),
    plain("max_connections", "COUNT", Some("8192"), "Maximum number of open connections; further ones wait"),
    plain(
        "max_connections_per_client",
        "COUNT or off",
        Some("256"),
        "Maximum number of connections per client address (IPv6: per /64 network) once half of `max_connections` are open, \
         or `off`; further ones are closed. At most half of `max_connections`; `trusted_proxies` have no limit",
    ),
    plain(
        "max_in_flight",
        "COUNT",
        Some("4096"),
        "Maximum number of requests in flight; further ones are rejected with 503 `overloaded`",
    ),
    plain(
        "request_timeout",
        "DURATION",
        Some("10s"),
        "Timeout for receiving the headers of a request, and again for its body",
    ),
    plain(
        "memory_limit",
        "SIZE",
        Some("256MiB"),
        "Maximum size of the memory store: records and stored responses, the oldest of which are dropped first. The process may need twice as much plus 64 MiB",
    ),
    plain(
        "allow_eviction",
        "BOOL",
        Some("false"),
        "Start with a Redis that may evict records. After an eviction, a key may run a second time",
    ),
    plain("demo", "BOOL", Some("auto"), "Serve a demo shop at `/`; `auto`: only with the memory store"),
    plain(
        "language",
        "LANGUAGE",
        Some("auto"),
        "Language of rejections and of the pages that explain error codes: `en`, `zh-CN`, or `auto`: by the `Accept-Language` header of each \
         request. Codes, statuses and headers are the same in every language",
    ),
    plain("store_timeout", "DURATION", Some("250ms"), "Timeout of a store command"),
    plain(
        "wait_for",
        "DURATION",
        Some("10s"),
        "Time to wait for the store to become reachable, at startup and in every CLI command",
    ),
    plain(
        "share_every",
        "DURATION",
        Some("1s"),
        "Interval for checking the shared secret in the store. If the store loses it (FLUSHALL), processes may reject each other's \
         tokens for twice as long",
    ),
    plain(
        "last_call",
        "DURATION",
        Some("250ms"),
        "Grace period after SIGTERM: the service still accepts requests, and responses carry `Connection: close`",
    ),
    plain("drain_limit", "DURATION", Some("30s"), "Maximum time to wait after that for requests in flight"),
    plain("log", "FORMAT", Some("auto"), "Log format: `human`, `json`, or `auto`: human on a terminal, otherwise JSON"),
    plain(
        "log_level",
        "LEVEL",
        Some("info"),
        "Log level: `error`, `warn`, `info`, `debug` or `trace`. The events that `onceward audit` reads are logged at every level",
    ),
    plain(
        "request_log",
        "REQUESTS",
        Some("auto"),
        "Responses to log, at level `info`: `all`, `errors` (status 400 or above), `off`, or `auto`: all on a terminal, otherwise \
         errors",
    ),
    plain(
        "upstream",
        "URL",
        None,
        "URL of the application behind `onceward proxy`, as in `http://127.0.0.1:3000`: scheme, host and port, without a path",
    ),
    plain(
        "upstream_ca",
        "FILE",
        None,
        "PEM file with the certificate authorities that are trusted for an `https://` upstream, in place of those of the system",
    ),
    plain(
        "upstream_host",
        "HOST",
        Some("client"),
        "`Host` header that the upstream receives: `client` (as the client sent it) or `upstream` (host and port of `upstream`)",
    ),
    plain(
        "upstream_connect_timeout",
        "DURATION",
        Some("2s"),
        "Timeout for connecting to the upstream: name lookup, TCP and TLS. At most nine tenths of `upstream_read_timeout` and of `upstream_timeout`",
    ),
    plain("upstream_read_timeout", "DURATION", Some("60s"), "Maximum time between two reads from the upstream"),
    plain(
        "upstream_timeout",
        "DURATION",
        Some("5m"),
        "Maximum time of a protected request, from sending it to the upstream to the end of its response, or to the headers of a response \
         that is not stored",
    ),
    // So short because an upstream that closes an idle connection just as a submission is sent leaves the outcome unknown.
    plain(
        "upstream_keep_alive",
        "DURATION",
        Some("1s"),
        "Time for which an idle connection to the upstream is reused; `0s`: never. It must be shorter than the keep-alive time of the \
         upstream (gunicorn: 2 s): if the upstream closes a connection just as a submission is sent, the outcome is unknown",
    ),
    plain(
        "proxy_path",
        "PATH",
        Some("/_onceward"),
        "Path under which the proxy serves its own routes; requests under it never reach the upstream",
    ),
    plain(
        "require",
        "WHICH",
        Some("off"),
        "Submissions that the proxy rejects on paths without a `[[proxy.route]]`: those without a `token`, without a `key`, without \
         `either` of the two, or `off`: none",
    ),
    plain(
        "profile",
        "PROFILE",
        Some("ietf"),
        "Contract by which the proxy responds to requests with a key: `ietf` (the draft of the `Idempotency-Key` header), `acp` (Agentic \
         Commerce Protocol), `ucp` (Universal Commerce Protocol) or `stripe`",
    ),
    plain(
        "rejections",
        "SHAPE",
        Some("profile"),
        "Format of the rejections of the proxy's routes: that of the `profile`, `problem` (RFC 9457), `envelope`, as in \
         `[proxy.envelope]`, or `template`, as in `[proxy.template]`",
    ),
    plain(
        "retention_header",
        "HEADER or off",
        Some("off"),
        "Response header, such as `Onceward-Retention`, in which the proxy says for how many whole seconds a response is stored, counted from \
         the first one (in an interval, from the first request); `off`: none",
    ),
    plain(
        "well_known",
        "BOOL",
        Some("false"),
        "Serve the description of the proxy's rules at `/.well-known/onceward` too, in place of the upstream. It is always below `proxy_path`",
    ),
    plain(
        "credential_headers",
        "LIST",
        Some("X-Api-Key, X-Auth-Token"),
        "Headers that tell the users of the upstream apart, beside `Authorization` and `Cookie`, separated by commas: of two requests that \
         differ in one of them, neither receives the stored response of the other",
    ),
    plain("inject", "BOOL", Some("false"), "Add the browser SDK to the HTML pages of the upstream"),
    plain(
        "body_limit",
        "SIZE",
        Some("1MiB"),
        "Maximum size of the body of a request with a token, key or interval; the proxy reads it to its end before it forwards the request",
    ),
    plain(
        "buffer_limit",
        "SIZE",
        Some("256MiB"),
        "Maximum size of all bodies together that the proxy has read and not yet forwarded. Beyond it, a submission is rejected with 503 \
         `overloaded` before anything runs. The process may need twice as much",
    ),
];

const fn plain(name: &'static str, value: &'static str, default: Option<&'static str>, help: &'static str) -> Setting {
    Setting { name, value, default, help, is_secret: false }
}

const fn secret(name: &'static str, value: &'static str, default: Option<&'static str>, help: &'static str) -> Setting {
    Setting { name, value, default, help, is_secret: true }
}

/// The prefix of our environment variables.
pub const PREFIX: &str = "ONCEWARD_";

/// Returns all names that accept a value: each setting, and for each secret its `_file` variant.
pub fn names() -> impl Iterator<Item = (String, &'static Setting)> {
    SETTINGS.iter().flat_map(|setting| {
        let file = setting.is_secret.then(|| (format!("{}_file", setting.name), setting));
        [(setting.name.to_owned(), setting)].into_iter().chain(file)
    })
}

/// Returns the known name that is most similar to a mistyped one.
pub fn nearest(mistyped: &str) -> Option<String> {
    let likeness = |name: &str| strsim::jaro_winkler(name, mistyped);
    let (name, likeness) =
        names().map(|(name, _)| (name.clone(), likeness(&name))).max_by(|a, b| a.1.total_cmp(&b.1))?;
    (likeness > 0.7).then_some(name)
}

/// Returns the table of settings in `docs/operations.md`.
pub fn table() -> String {
    let rows = SETTINGS.iter().map(|setting| {
        let default = setting.default.map_or("none".to_owned(), |default| format!("`{default}`"));
        let file = if setting.is_secret { "; also as `…_file`" } else { "" };
        format!("| `{}` | {default} | {}{file} |\n", setting.name, setting.help)
    });
    format!("| setting | default | description |\n|---|---|---|\n{}", rows.collect::<String>())
}

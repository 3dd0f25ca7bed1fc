//! Parsers for the values of settings, one function for each kind. The error quotes the text.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::num::NonZeroU32;
use std::time::Duration;

use http::HeaderName;
use ipnet::IpNet;
use onceward::Guard;
use onceward::http::Profile;
use tracing::level_filters::LevelFilter;

use crate::proxy::settings::{RejectionShape, Require, UpstreamHost};

/// A rate: `50/s`, `600/m`, `10000/h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// The number of events.
    pub count: NonZeroU32,
    /// The period.
    pub per: Duration,
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong = || format!("`{text}` is not an address to listen on; use the form `127.0.0.1:8080`");
    text.to_socket_addrs().map_err(|_| wrong())?.next().ok_or_else(wrong)
}

pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "true" | "on" | "yes" | "1" => Ok(true),
        "false" | "off" | "no" | "0" => Ok(false),
        _ => Err(format!("`{text}` is neither `true` nor `false`")),
    }
}

/// `None` is `auto`.
pub(super) fn demo(text: &str) -> Result<Option<bool>, String> {
    if text == "auto" { Ok(None) } else { boolean(text).map(Some).map_err(|error| format!("{error}, nor `auto`")) }
}

/// Parses a duration of at least one millisecond.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    match onceward_api::duration::parse(text)? {
        Duration::ZERO => Err(format!("`{text}` must be positive, as in `90s`")),
        duration => Ok(duration),
    }
}

pub(super) fn token_ttl(text: &str) -> Result<Duration, String> {
    let ttl = duration(text)?;
    if Guard::TOKEN_TTL.contains(&ttl) { Ok(ttl) } else { Err(format!("`{text}` is not between `1s` and `24h`")) }
}

/// `None` is `off`.
pub(super) fn rate(text: &str) -> Result<Option<Rate>, String> {
    let wrong = || format!("`{text}` is not a rate; use the form `50/s`, `600/m` or `10000/h`, or `off`");
    if text == "off" {
        return Ok(None);
    }
    let (count, unit) = text.split_once('/').ok_or_else(wrong)?;
    let per = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    let count = count.parse().map_err(|_| wrong())?;
    Ok(Some(Rate { count, per: Duration::from_secs(per) }))
}

pub(super) fn count(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| format!("`{text}` is not a whole number of 1 or more"))
}

/// `None` is `off`.
pub(super) fn count_or_off(text: &str) -> Result<Option<NonZeroU32>, String> {
    if text == "off" { Ok(None) } else { count(text).map(Some).map_err(|error| format!("{error}, nor `off`")) }
}

pub(super) fn size(text: &str) -> Result<usize, String> {
    let wrong = || format!("`{text}` is not a size; use the form `256MiB`");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor: usize = match unit.trim_start() {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(wrong()),
    };
    let number: usize = number.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).filter(|size| *size > 0).ok_or_else(wrong)
}

/// Accepts only characters that need no escape in key names and key patterns.
pub(super) fn prefix(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:_-".contains(&byte);
    if (1..=64).contains(&text.len()) && text.bytes().all(is_plain) {
        Ok(text.to_owned())
    } else {
        Err(format!("`{text}` is not 1 to 64 letters, digits, `.`, `:`, `_` and `-`, as in `onceward`"))
    }
}

pub(super) fn level(text: &str) -> Result<LevelFilter, String> {
    match text {
        "error" => Ok(LevelFilter::ERROR),
        "warn" => Ok(LevelFilter::WARN),
        "info" => Ok(LevelFilter::INFO),
        "debug" => Ok(LevelFilter::DEBUG),
        "trace" => Ok(LevelFilter::TRACE),
        _ => Err(format!("`{text}` is not one of `error`, `warn`, `info`, `debug` and `trace`")),
    }
}

pub(super) fn upstream_host(text: &str) -> Result<UpstreamHost, String> {
    match text {
        "client" => Ok(UpstreamHost::Client),
        "upstream" => Ok(UpstreamHost::Upstream),
        _ => Err(format!("`{text}` is not one of `client` and `upstream`")),
    }
}

pub(super) fn require(text: &str) -> Result<Require, String> {
    match text {
        "off" => Ok(Require::Nothing),
        "token" => Ok(Require::Token),
        "key" => Ok(Require::Key),
        "either" => Ok(Require::Either),
        _ => Err(format!("`{text}` is not one of `off`, `token`, `key` and `either`")),
    }
}

pub(super) fn profile(text: &str) -> Result<Profile, String> {
    Profile::parse(text).ok_or_else(|| format!("`{text}` is not one of `ietf`, `acp`, `ucp` and `stripe`"))
}

pub(super) fn rejections(text: &str) -> Result<RejectionShape, String> {
    RejectionShape::parse(text)
        .ok_or_else(|| format!("`{text}` is not one of `profile`, `problem`, `envelope` and `template`"))
}

/// Headers that the name of another one must not replace: HTTP or the guard gives them a meaning.
pub(super) const TAKEN_HEADERS: [&str; 12] = [
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "idempotent-replayed",
    "location",
    "onceward-outcome",
    "onceward-retry",
    "retry-after",
    "set-cookie",
    "transfer-encoding",
];

/// Parses the name of a header that responses receive; `None` is `off`.
pub(super) fn own_header(text: &str) -> Result<Option<HeaderName>, String> {
    if text == "off" {
        return Ok(None);
    }
    let name = HeaderName::try_from(text)
        .map_err(|_| format!("`{text}` is not the name of a header, as in `Onceward-Retention`, nor `off`"))?;
    match TAKEN_HEADERS.contains(&name.as_str()) {
        true => Err(format!("`{text}` already has a meaning; use a name of its own, as in `Onceward-Retention`")),
        false => Ok(Some(name)),
    }
}

/// Parses a list of header names.
pub(super) fn headers(text: &str) -> Result<Vec<HeaderName>, String> {
    let wrong = |name| format!("`{name}` is not the name of a header; use the form `X-Api-Key, X-Auth-Token`");
    list(text).map(|name| HeaderName::try_from(name).map_err(|_| wrong(name))).collect()
}

/// Accepts only characters that are never percent-encoded, so that the path has one spelling.
pub(super) fn proxy_path(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte);
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && name.bytes().all(is_plain);
    if text.strip_prefix('/').is_some_and(|names| names.split('/').all(is_name)) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "`{text}` is not a path of letters, digits, `.`, `_`, `~` and `-` without a slash at the end, as in `/_onceward`"
        ))
    }
}

/// Splits a comma-separated list.
pub(super) fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// Parses a list of origins: scheme, host, and port unless it is the default one, as a browser sends them in `Origin`.
pub(super) fn origins(text: &str) -> Result<Vec<String>, String> {
    list(text).map(origin).collect()
}

/// Returns true if the text has the form in which browsers send the origin of a web page.
pub fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-:[]".contains(&byte);
    text.len() <= 200 && host.is_some_and(|host| !host.is_empty() && host.bytes().all(is_plain))
}

/// Normalizes an origin as browsers do: lower case, without the default port.
fn origin(text: &str) -> Result<String, String> {
    let small = text.to_ascii_lowercase();
    let usual = if small.starts_with("https://") { ":443" } else { ":80" };
    let origin = small.strip_suffix(usual).unwrap_or(&small);
    if is_origin(origin) {
        Ok(origin.to_owned())
    } else {
        Err(format!("`{text}` is not an origin; use scheme and host only, as in `https://shop.example`"))
    }
}

pub(super) fn networks(text: &str) -> Result<Vec<IpNet>, String> {
    list(text).map(network).collect()
}

fn network(text: &str) -> Result<IpNet, String> {
    let address = || text.parse::<IpAddr>().map(IpNet::from);
    let wrong = |_| format!("`{text}` is neither an address nor a network, as in `10.0.0.7` or `10.0.0.0/8`");
    text.parse().or_else(|_| address()).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_values_are_parsed() {
        assert_eq!(address("127.0.0.1:0").unwrap().port(), 0);
        assert!(address("[::1]:8080").unwrap().is_ipv6());
        assert_eq!(rate("50/s").unwrap().unwrap().count.get(), 50);
        assert_eq!(rate("600/m").unwrap().unwrap().per, Duration::from_secs(60));
        assert_eq!(rate("off").unwrap(), None);
        assert_eq!((count_or_off("7"), count_or_off("off")), (Ok(NonZeroU32::new(7)), Ok(None)));
        assert_eq!(size("256MiB").unwrap(), 256 << 20);
        assert_eq!(size("1 KiB").unwrap(), 1024);
        assert_eq!(origins("https://a.example, http://localhost:3000").unwrap().len(), 2);
        assert_eq!(origins("https://Shop.Example:443,http://a:80").unwrap(), ["https://shop.example", "http://a"]);
        assert_eq!(networks("10.0.0.0/8,::1, 127.0.0.1").unwrap().len(), 3);
        assert_eq!(prefix("shop:prod-2.a_b").unwrap(), "shop:prod-2.a_b");
        assert_eq!(origins("").unwrap(), Vec::<String>::new());
        assert_eq!(upstream_host("upstream"), Ok(UpstreamHost::Upstream));
        assert_eq!((require("off"), require("either")), (Ok(Require::Nothing), Ok(Require::Either)));
        assert_eq!(own_header("X-Kept-For").unwrap().unwrap(), "x-kept-for");
        assert_eq!(own_header("off"), Ok(None));
        assert_eq!(headers("X-Api-Key, x-tenant").unwrap(), ["x-api-key", "x-tenant"]);
        assert_eq!(headers("").unwrap(), Vec::<HeaderName>::new());
        assert_eq!(proxy_path("/internal/.onceward-2").unwrap(), "/internal/.onceward-2");
        assert_eq!((level("error"), level("trace")), (Ok(LevelFilter::ERROR), Ok(LevelFilter::TRACE)));
    }

    #[test]
    fn bad_values_are_rejected_with_their_text() {
        fn rejected<T: std::fmt::Debug>(read: impl Fn(&str) -> Result<T, String>, wrong: &[&str]) {
            for text in wrong {
                let error = read(text).unwrap_err();
                assert!(error.contains(&format!("`{text}`")), "{error}");
            }
        }
        rejected(address, &["", "x", "127.0.0.1", "127.0.0.1:99999", ":80a"]);
        rejected(rate, &["", "50", "50/d", "0/s", "-1/s", "x/s", "/s"]);
        rejected(size, &["", "256", "MiB", "0MiB", "256MB", "99999999999999GiB"]);
        rejected(token_ttl, &["0s", "999ms", "25h", "-5s", "x", ""]);
        rejected(origins, &["*", "shop.example", "https://shop.example/", "https://", "ftp://x", "null"]);
        rejected(networks, &["x", "10.0.0.0/33", "10.0.0"]);
        rejected(boolean, &["", "maybe"]);
        rejected(count, &["", "0", "-1", "1.5"]);
        rejected(count_or_off, &["", "0", "-1", "none"]);
        rejected(prefix, &["", "a b", "a*", "{a}", "ä", &"a".repeat(65)]);
        rejected(upstream_host, &["", "Client", "shop.example"]);
        rejected(require, &["", "true", "both", "Token"]);
        rejected(profile, &["", "ACP", "none"]);
        rejected(rejections, &["", "json", "Problem"]);
        rejected(own_header, &["", "a b", "a:", "é", "Content-Length", "onceward-outcome"]);
        rejected(headers, &["a b", "é"]);
        rejected(proxy_path, &["", "/", "x", "/x/", "//x", "/a/../b", "/.", "/a%62", "/a b", "/{a}", "/*"]);
        rejected(level, &["", "off", "INFO", "3", "onceward=trace"]);
    }
}

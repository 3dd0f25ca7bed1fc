//! Parsing of Redis addresses.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisConnectionInfo, RedisError};

/// Default ports.
const REDIS: u16 = 6379;
const SENTINEL: u16 = 26379;

/// A parsed address.
#[derive(Debug)]
pub(super) enum RedisAddress {
    /// One server.
    One(Box<ConnectionInfo>),
    /// The master with this name, the sentinels that know it, and the settings for connecting to it.
    Sentinel { sentinels: Vec<ConnectionInfo>, name: String, node: Box<ConnectionInfo> },
    /// A cluster, by some of its nodes.
    Cluster(Vec<ConnectionInfo>),
}

/// An address that does not name a Redis.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid Redis address (example: redis://127.0.0.1:6379): {0}")]
pub struct BadAddress(pub(super) String);

/// For a `main` that returns [`io::Result`].
impl From<BadAddress> for io::Error {
    fn from(error: BadAddress) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

/// Parses an address: the URL of one server, `redis+sentinel://h1,h2/name`, `redis+cluster://h1,h2`, or a list `h1:p1;h2:p2` of a
/// cluster's nodes.
pub(super) fn parse(text: &str) -> Result<RedisAddress, BadAddress> {
    let text = text.trim();
    let Some((scheme, rest)) = text.split_once("://") else {
        if text.contains(';') {
            let nodes = hosts(text, ';', None)?;
            return Ok(RedisAddress::Cluster(nodes.into_iter().map(|(host, port)| plain(host, port)).collect()));
        }
        return Err(bad("it has neither `://` nor several `host:port` with `;` between them"));
    };
    // Valkey speaks the same protocol, and has schemes of its own for it.
    let scheme = &scheme.replacen("valkey", "redis", 1)[..];
    match scheme {
        "redis" | "rediss" | "unix" | "redis+unix" => {
            check_database(scheme, rest)?;
            let address = format!("{scheme}://{rest}");
            address.into_connection_info().map(|info| RedisAddress::One(Box::new(info))).map_err(unparsed)
        }
        "redis+cluster" | "rediss+cluster" => {
            let AddressParts { credentials, hosts: list, path } = parts(rest)?;
            if !path.is_empty() {
                return Err(bad(format!("a cluster has no database number; remove `/{path}`")));
            }
            let node = |(host, port)| secured(scheme, host, port).set_redis_settings(credentials.clone());
            Ok(RedisAddress::Cluster(hosts(list, ',', Some(REDIS))?.into_iter().map(node).collect()))
        }
        "redis+sentinel" | "rediss+sentinel" => {
            let AddressParts { credentials, hosts: list, path } = parts(rest)?;
            let (name, database) = path.split_once('/').unwrap_or((path, "0"));
            if name.is_empty() {
                return Err(bad("the name of the master is missing (example: redis+sentinel://host/name)"));
            }
            let database = database_number(database)?;
            let node = secured(scheme, String::new(), 0).set_redis_settings(credentials.set_db(database));
            let sentinels = hosts(list, ',', Some(SENTINEL))?;
            let sentinels = sentinels.into_iter().map(|(host, port)| secured(scheme, host, port)).collect();
            Ok(RedisAddress::Sentinel { sentinels, name: decoded(name)?, node: Box::new(node) })
        }
        _ => Err(bad(
            "the scheme is none of redis, rediss, unix, redis+sentinel, rediss+sentinel, redis+cluster and rediss+cluster (or the same \
             with `valkey` in place of `redis`)",
        )),
    }
}

fn bad(reason: impl ToString) -> BadAddress {
    BadAddress(reason.to_string())
}

/// Converts an error of the driver, which names its kind after the reason.
fn unparsed(error: RedisError) -> BadAddress {
    let text = error.to_string();
    let reason = text.split(" - ").next().unwrap_or_default();
    bad(match reason {
        "Missing hostname" => "it has no host",
        reason => reason,
    })
}

fn database_number(text: &str) -> Result<i64, BadAddress> {
    let number = text.parse().ok().filter(|number| *number >= 0);
    number.ok_or_else(|| bad(format!("`{text}` is not a database number")))
}

/// Checks the database number of one server, since the driver's error does not quote it. Quotes nothing that may be part of a password.
fn check_database(scheme: &str, rest: &str) -> Result<(), BadAddress> {
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let named = match scheme {
        "redis" | "rediss" => place.split_once('/').map(|(_, path)| path.split('#').next().unwrap_or_default()),
        _ => query.split('&').find_map(|parameter| parameter.strip_prefix("db=")),
    };
    match named.map(|named| named.trim_matches('/')) {
        None | Some("") => Ok(()),
        Some(path) if path.contains('@') => Err(bad(SLASH)),
        Some(number) => database_number(number).map(drop),
    }
}

/// The hint for a password that contains a slash.
const SLASH: &str = "a `/` in a user name or a password is written as %2F";

/// The parts of an address after the scheme.
struct AddressParts<'a> {
    credentials: RedisConnectionInfo,
    hosts: &'a str,
    path: &'a str,
}

/// Splits an address after its scheme. No error quotes text that may be part of a password.
fn parts(rest: &str) -> Result<AddressParts<'_>, BadAddress> {
    let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
    if path.contains('@') {
        return Err(bad(SLASH));
    }
    if rest.contains(['?', '#']) {
        return Err(bad("nothing may follow `?` or `#`, which are written as %3F and %23 in a password"));
    }
    let (credentials, hosts) = place.rsplit_once('@').map_or(("", place), |(credentials, hosts)| (credentials, hosts));
    let mut settings = RedisConnectionInfo::default();
    if !credentials.is_empty() {
        let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        if !user.is_empty() {
            settings = settings.set_username(decoded(user)?);
        }
        if !password.is_empty() {
            settings = settings.set_password(decoded(password)?);
        }
    }
    Ok(AddressParts { credentials: settings, hosts, path: path.trim_end_matches('/') })
}

fn decoded(text: &str) -> Result<String, BadAddress> {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| bad("the percent-encoded user, password or name is not UTF-8"))
}

fn plain(host: String, port: u16) -> ConnectionInfo {
    info(ConnectionAddr::Tcp(host, port))
}

fn secured(scheme: &str, host: String, port: u16) -> ConnectionInfo {
    let tls = ConnectionAddr::TcpTls { host: String::new(), port: 0, insecure: false, tls_params: None };
    let like = if scheme.starts_with("rediss") { tls } else { ConnectionAddr::Tcp(String::new(), 0) };
    info(at(&like, host, port))
}

fn info(address: ConnectionAddr) -> ConnectionInfo {
    address.into_connection_info().expect("a parsed address is valid")
}

/// Returns the address of another host and port, with the same transport settings.
pub(super) fn at(like: &ConnectionAddr, host: String, port: u16) -> ConnectionAddr {
    match like {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    }
}

/// Parses a list of hosts and ports; an error names the invalid one.
fn hosts(list: &str, between: char, port: Option<u16>) -> Result<Vec<(String, u16)>, BadAddress> {
    let mut hosts = Vec::new();
    // A trailing separator is allowed.
    let list = list.trim().trim_end_matches(between);
    if list.contains('@') {
        return Err(bad("a list of hosts takes no password; write redis+cluster://user:password@host:port,host:port"));
    }
    if list.is_empty() {
        return Err(bad("it has no host"));
    }
    for (number, element) in list.split(between).enumerate() {
        let element = element.trim();
        let wrong = |why: &str| bad(format!("host {} of the list, `{element}`, {why}", number + 1));
        hosts.push(host_and_port(element, port).map_err(|why| wrong(&why))?);
    }
    Ok(hosts)
}

/// Parses `host:port`, or `[::1]:port`.
pub(super) fn host_and_port(element: &str, default: Option<u16>) -> Result<(String, u16), String> {
    let (host, port) = match element.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) = rest.split_once(']').ok_or("has a `[` and no `]`")?;
            host.parse::<Ipv6Addr>().map_err(|_| format!("has `{host}` in brackets, which is not an IPv6 address"))?;
            let port = match behind {
                "" => None,
                _ => Some(behind.strip_prefix(':').ok_or("has something other than a port after `]`")?),
            };
            (host, port)
        }
        None if element.matches(':').count() > 1 => {
            return Err("looks like IPv6: write it in brackets, as in [::1]:6379".to_owned());
        }
        None => element.split_once(':').map_or((element, None), |(host, port)| (host, Some(port))),
    };
    let port = match (port, default) {
        (Some(port), _) => port
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or(format!("has the port `{port}`, which is not 1 to 65535"))?,
        (None, Some(default)) => default,
        (None, None) => return Err("has no port (example: host:6379)".to_owned()),
    };
    if host.is_empty() {
        return Err("has no host".to_owned());
    }
    if host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && host.parse::<Ipv4Addr>().is_err() {
        return Err("looks like an IPv4 address but is not a valid one".to_owned());
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':');
    if !host.bytes().all(is_name) {
        return Err("has a character that is not allowed in a host".to_owned());
    }
    Ok((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses an address, and describes the result in short.
    fn read(text: &str) -> Result<String, String> {
        let place = |info: &ConnectionInfo| {
            let settings = info.redis_settings();
            let user = settings.username().map_or(String::new(), |user| format!("{user}:"));
            let password = settings.password().map_or(String::new(), |password| format!("{password}@"));
            let tls = if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) { "tls " } else { "" };
            let database = if settings.db() == 0 { String::new() } else { format!("/{}", settings.db()) };
            format!("{tls}{user}{password}{}{database}", info.addr())
        };
        let all = |nodes: &[ConnectionInfo]| nodes.iter().map(place).collect::<Vec<_>>().join(" ");
        parse(text).map_err(|BadAddress(why)| why).map(|address| match address {
            RedisAddress::One(info) => format!("one {}", place(&info)),
            RedisAddress::Cluster(nodes) => format!("cluster {}", all(&nodes)),
            RedisAddress::Sentinel { sentinels, name, node } => {
                format!("sentinel {} {name} {}", all(&sentinels), place(&node))
            }
        })
    }

    #[test]
    fn every_address_form_is_parsed() {
        for (text, wanted) in [
            ("redis://127.0.0.1:7000", "one 127.0.0.1:7000"),
            ("rediss://u:p@h/3", "one tls u:p@h:6379/3"),
            ("redis+cluster://h1,h2", "cluster h1:6379 h2:6379"),
            (" redis+cluster://u:p%40@h1:1, [::1]:2 ,h3/ ", "cluster u:p@@h1:1 u:p@@::1:2 u:p@@h3:6379"),
            ("rediss+cluster://:secret@h1", "cluster tls secret@h1:6379"),
            ("h1:1;h2:2", "cluster h1:1 h2:2"),
            (" 10.0.0.1:1 ; [2001:db8::1]:2 ; ", "cluster 10.0.0.1:1 2001:db8::1:2"),
            ("h1:1;", "cluster h1:1"),
            ("redis+sentinel://h1,h2:1/mymaster", "sentinel h1:26379 h2:1 mymaster :0"),
            ("redis+sentinel://u:p@h1/my%20master/2", "sentinel h1:26379 my master u:p@:0/2"),
            ("rediss+sentinel://h1/m", "sentinel tls h1:26379 m tls :0"),
            ("valkey://127.0.0.1:7000", "one 127.0.0.1:7000"),
            ("valkeys://u:p@h/3", "one tls u:p@h:6379/3"),
            ("valkey+cluster://h1,h2", "cluster h1:6379 h2:6379"),
            ("valkeys+sentinel://h1/m", "sentinel tls h1:26379 m tls :0"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn address_error_names_the_wrong_part() {
        for (text, wanted) in [
            ("", "neither"),
            ("localhost:6379", "neither"),
            ("h1;h2:2", "host 1 of the list, `h1`, has no port"),
            ("h1:1;;h2:2", "host 2 of the list, ``, has no port"),
            (
                "h1:1;289.13.2.12:1",
                "host 2 of the list, `289.13.2.12:1`, looks like an IPv4 address but is not a valid one",
            ),
            ("h1:1;h2:0", "host 2 of the list, `h2:0`, has the port `0`"),
            ("h1:1;h2:70000", "has the port `70000`"),
            ("h1:1;h2:", "has the port ``"),
            ("h1:1;:2", "host 2 of the list, `:2`, has no host"),
            ("h1:1;::1:2", "write it in brackets"),
            ("h1:1;[::1:2", "no `]`"),
            ("h1:1;[nine]:2", "not an IPv6 address"),
            ("h1:1;[::1]2", "other than a port"),
            ("h1:1;h 2:2", "not allowed in a host"),
            ("redis+cluster://", "no host"),
            ("redis+cluster://h1,,h2", "host 2"),
            ("redis+cluster://h1/0", "no database number"),
            ("redis+cluster://h1?x=1", "follow `?`"),
            ("redis+sentinel://h1", "name of the master"),
            ("redis+sentinel://h1/", "name of the master"),
            ("redis+sentinel://h1/m/x", "`x` is not a database number"),
            ("redis://h1:6379/abc", "`abc` is not a database number"),
            ("rediss://u:p@h1/-1", "`-1` is not a database number"),
            ("redis://h1/1x/?protocol=resp3", "`1x` is not a database number"),
            ("unix:///run/redis.sock?db=x", "`x` is not a database number"),
            ("redis://:can/ary@h1", "%2F"),
            ("redis://", "no host"),
            ("http://h1", "none of redis"),
            ("h1:1;u:canary@h2:2", "takes no password"),
            ("redis+cluster://u:can/ary@h1", "%2F"),
            ("redis+cluster://u:can?ary@h1", "%3F"),
        ] {
            let why = read(text).expect_err(text);
            assert!(why.contains(wanted) && !why.contains("can"), "{text}: {why}");
        }
    }
}

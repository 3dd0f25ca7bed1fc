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
            check_one(scheme, rest)?;
            let address = format!("{scheme}://{rest}");
            address.into_connection_info().map(|info| RedisAddress::One(Box::new(info))).map_err(unparsed)
        }
        "redis+cluster" | "rediss+cluster" => {
            let AddressParts { credentials, hosts: list, path } = parts(rest)?;
            let nodes = hosts(list, ',', Some(REDIS))?;
            if !path.is_empty() {
                return Err(bad(format!("a cluster has no database number; remove `/{path}`")));
            }
            let node = |(host, port)| secured(scheme, host, port).set_redis_settings(credentials.clone());
            Ok(RedisAddress::Cluster(nodes.into_iter().map(node).collect()))
        }
        "redis+sentinel" | "rediss+sentinel" => {
            let AddressParts { credentials, hosts: list, path } = parts(rest)?;
            let sentinels = hosts(list, ',', Some(SENTINEL))?;
            let (name, database) = path.split_once('/').unwrap_or((path, "0"));
            if name.is_empty() {
                return Err(bad("the name of the master is missing (example: redis+sentinel://host/name)"));
            }
            let database = database_number(database)?;
            let node = secured(scheme, String::new(), 0).set_redis_settings(credentials.set_db(database));
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
        "Missing path" => "it has no socket file (example: unix:///run/redis.sock)",
        "Redis URL did not parse" => "it is not a valid URL",
        reason => reason,
    })
}

fn database_number(text: &str) -> Result<i64, BadAddress> {
    let number = text.parse().ok().filter(|number| *number >= 0);
    number.ok_or_else(|| bad(format!("`{text}` is not a database number")))
}

/// Checks the port and the database number of one server, since the driver's errors name neither. Quotes nothing that may be part of a
/// password.
fn check_one(scheme: &str, rest: &str) -> Result<(), BadAddress> {
    let database = match scheme {
        "redis" | "rediss" => {
            let (place, behind) = authority(rest)?;
            let host = place.rsplit('@').next().unwrap_or(place);
            if !host.starts_with('[') && host.matches(':').count() > 1 {
                return Err(bad(format!("it {IPV6}")));
            }
            let port = host.rsplit(']').next().and_then(|host| host.rsplit_once(':')).map_or("", |(_, port)| port);
            if !port.is_empty() {
                port_number(port).map_err(|why| bad(format!("it has {why}")))?;
            }
            behind.strip_prefix('/').map(|path| path.split(['?', '#']).next().unwrap_or_default())
        }
        // The value of `db` is not quoted after a password, which may contain an unencoded `&`.
        _ => {
            let query = rest.split_once('?').map_or("", |(_, query)| query);
            let is_secret = query.contains("pass=");
            query.split('&').find_map(|parameter| parameter.strip_prefix("db=")).filter(|_| !is_secret)
        }
    };
    match database.map(|database| database.trim_matches('/')) {
        None | Some("") => Ok(()),
        Some(number) => database_number(number).map(drop),
    }
}

/// The hint for a password that contains a delimiter of addresses.
const ENCODE: &str = "in a user name or a password, `/` is written as %2F, `?` as %3F and `#` as %23";
const IPV6: &str = "looks like IPv6: write it in brackets, as in [::1]:6379";

/// Splits an address after its scheme at the end of the hosts. An `@` after that end means that a password contains the delimiter
/// unencoded: then any part of the address may belong to the password.
fn authority(rest: &str) -> Result<(&str, &str), BadAddress> {
    let (place, behind) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if behind.contains('@') { Err(bad(ENCODE)) } else { Ok((place, behind)) }
}

/// The parts of an address after the scheme.
struct AddressParts<'a> {
    credentials: RedisConnectionInfo,
    hosts: &'a str,
    path: &'a str,
}

/// Splits an address after its scheme. No error quotes text that may be part of a password.
fn parts(rest: &str) -> Result<AddressParts<'_>, BadAddress> {
    let (place, path) = authority(rest)?;
    if rest.contains(['?', '#']) {
        return Err(bad("nothing may follow `?` or `#`, which are written as %3F and %23 in a password"));
    }
    let path = path.strip_prefix('/').unwrap_or_default();
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

/// Parses a list of hosts and ports; an error names the invalid one, but not a text in place of its port, which may be a password.
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
        let is_address = element.bytes().all(|byte| byte.is_ascii_hexdigit() || b":[]".contains(&byte));
        let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
        let shown = match element.split_once(':') {
            Some((host, port)) if !is_port(port) && !is_address => host,
            _ => element,
        };
        let wrong = |why: &str| bad(format!("host {} of the list, `{shown}`, {why}", number + 1));
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
            return Err(IPV6.to_owned());
        }
        None => element.split_once(':').map_or((element, None), |(host, port)| (host, Some(port))),
    };
    let port = match (port, default) {
        (Some(port), _) => port_number(port).map_err(|why| format!("has {why}"))?,
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

/// Parses a port. The error quotes a number of a port's length only: anything else may be a password that is followed by no host.
fn port_number(text: &str) -> Result<u16, String> {
    let number = text.parse().ok().filter(|port| *port > 0);
    number.ok_or_else(|| match text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => format!("the port `{text}`, which is not 1 to 65535"),
        false => "a port that is not a number from 1 to 65535".to_owned(),
    })
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
            ("h1:1;::1:2", "host 2 of the list, `::1:2`, looks like IPv6: write it in brackets"),
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
            ("redis://h1:abc/1", "it has a port that is not a number from 1 to 65535"),
            ("redis://h1:70000", "it has the port `70000`, which is not 1 to 65535"),
            ("rediss://u:p@[::1]:x", "a port that is not a number"),
            ("redis://::1:6379", "write it in brackets"),
            ("redis://h 1", "it is not a valid URL"),
            ("unix://", "no socket file"),
            ("redis://", "no host"),
            ("http://h1", "none of redis"),
        ] {
            let why = read(text).expect_err(text);
            assert!(why.contains(wanted), "{text}: {why}");
        }
    }

    #[test]
    fn address_error_quotes_no_part_of_a_password() {
        for (text, wanted) in [
            ("redis://:can/ary@h1", "%2F"),
            ("redis://:can/ary?x@h1", "%3F"),
            ("redis://:can/ary#x@h1", "%23"),
            ("redis://u:6379/ary?x@h1", "%3F"),
            ("redis://:can?ary/1@h1", "%3F"),
            ("rediss://u:can/ary?a=@h", "%2F"),
            ("rediss://u:6379#ary/can@h", "%23"),
            // Without a host, the password is in place of the port.
            ("redis://u:canary", "a port that is not a number"),
            ("redis://u:can/ary", "a port that is not a number"),
            ("redis://:canary", "a port that is not a number"),
            ("redis://u:p:canary", "write it in brackets"),
            ("unix:///run/redis.sock?pass=can&db=ary", "database number"),
            ("h1:1;u:canary@h2:2", "takes no password"),
            ("h1:1;u:canary", "host 2 of the list, `u`, has a port that is not a number"),
            ("redis+cluster://u:can/ary@h1", "%2F"),
            ("redis+cluster://u:can?ary@h1", "%3F"),
            ("redis+cluster://u:6379#ary@h1", "%23"),
            ("redis+cluster://u:can/ary", "a port that is not a number"),
            ("redis+cluster://u:p:can/ary", "write it in brackets"),
            ("redis+sentinel://u:can/ary@h1/m", "%2F"),
            ("redis+sentinel://u:can/ary?x@h1/m", "%3F"),
            ("redis+sentinel://u:can/m/ary", "a port that is not a number"),
        ] {
            let why = read(text).expect_err(text);
            assert!(why.contains(wanted), "{text}: {why}");
            assert!(!why.contains("can") && !why.contains("ary"), "{text}: {why}");
        }
    }
}

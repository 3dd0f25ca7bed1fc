//! The reasons why a Redis cannot be used. Each has its own sentence and fix.

use std::error::Error;
use std::fmt;
use std::io;

use std::time::Duration;

use futures_util::future::join_all;
use onceward::store::StoreError;
use onceward_api::duration::spaced;
use redis::{ErrorKind, RedisError, ServerErrorKind};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::finding::Finding;

/// The timeout for finding out whether a Redis that does not reply accepts connections.
const ACCEPT: Duration = Duration::from_millis(500);

/// The reason why a Redis cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("it refuses connections")]
    Refused,
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    #[error("it does not reply in time")]
    Silent,
    #[error("it rejects the password")]
    WrongPassword,
    #[error("it requires a password")]
    NoPassword,
    #[error("it is still loading its data from disk")]
    Loading,
    #[error("this user may not send {command}")]
    Denied {
        command: &'static str,
        /// The user, as far as Redis names it.
        user: Option<String>,
    },
    #[error("{0}")]
    NoPermission(String),
    #[error("cluster support is disabled")]
    NoCluster,
    #[error("the cluster has no slot assignments")]
    NoSlots,
    #[error("no sentinel knows a master of that name")]
    NoMaster,
    #[error("the sentinels reject the password, or require one")]
    SentinelPassword,
    #[error("it is a replica")]
    Replica,
    #[error("it has no database with this number")]
    NoDatabase,
    #[error("it does not reply like Redis")]
    NotRedis,
    #[error("it returned an unexpected error: {0}")]
    Strange(String),
}

impl ConnectError {
    /// Classifies the error of a command.
    pub(crate) fn of(command: &'static str, error: &RedisError) -> Self {
        Self::of_directory(&error.to_string()).unwrap_or_else(|| match Self::of_server(error) {
            Self::NoPermission(why) => Self::Denied { command, user: denied_user(&why) },
            other => other,
        })
    }

    /// Classifies the error of a store; `None` if it is none of these reasons.
    pub(crate) fn of_store(error: &StoreError) -> Option<Self> {
        let text = error.to_string();
        let text = text.strip_prefix("not executed: ").unwrap_or(&text);
        if text.contains("may run neither scripts") {
            return Some(Self::NoPermission(text.to_owned()));
        }
        if text.contains("is a replica, not a master") {
            return Some(Self::Replica);
        }
        if text.starts_with("not connected to ") || text.contains("no reply within ") {
            return Some(Self::Silent);
        }
        Self::of_directory(text).or_else(|| {
            let causes = std::iter::successors(error.source(), |&cause| cause.source());
            causes.into_iter().find_map(|cause| {
                let of_io = |error: &io::Error| match error.kind() {
                    io::ErrorKind::ConnectionRefused => Self::Refused,
                    io::ErrorKind::TimedOut => Self::Silent,
                    _ => Self::Unreachable(error.to_string()),
                };
                cause.downcast_ref().map(Self::of_server).or_else(|| cause.downcast_ref().map(of_io))
            })
        })
    }

    /// Classifies the error of a sentinel, or of a cluster node that was asked for the slot map.
    fn of_directory(text: &str) -> Option<Self> {
        let has = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
        match text.contains("no sentinel names the master") {
            true if has(&["No such master with that name"]) => Some(Self::NoMaster),
            true if has(&["NOAUTH", "WRONGPASS", "AuthenticationFailed"]) => Some(Self::SentinelPassword),
            true if has(&["NOPERM"]) => Some(Self::Denied { command: "SENTINEL MASTER", user: None }),
            true if has(&["onnection refused"]) => Some(Self::Refused),
            false if has(&["returned an empty slot map"]) => Some(Self::NoSlots),
            false if has(&["cluster support disabled"]) => Some(Self::NoCluster),
            _ => None,
        }
    }

    fn of_server(error: &RedisError) -> Self {
        match (error.kind(), error.code()) {
            (ErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS")) => Self::WrongPassword,
            (_, Some("NOAUTH")) => Self::NoPassword,
            (ErrorKind::Server(ServerErrorKind::BusyLoading), _) => Self::Loading,
            (ErrorKind::Server(ServerErrorKind::ReadOnly), _) => Self::Replica,
            (ErrorKind::Server(ServerErrorKind::NoPerm), _) => {
                Self::NoPermission(error.detail().map_or_else(|| error.to_string(), str::to_owned))
            }
            _ if error.is_connection_refusal() => Self::Refused,
            _ if error.is_timeout() => Self::Silent,
            (ErrorKind::Io, _) => Self::Unreachable(error.to_string()),
            (ErrorKind::Parse, _) => Self::NotRedis,
            _ if error.detail().is_some_and(|detail| detail.contains("DB index is out of range")) => Self::NoDatabase,
            _ => Self::Strange(error.to_string()),
        }
    }

    /// Returns whether a retry cannot help: the settings or the permissions have to change.
    pub(crate) fn is_permanent(&self) -> bool {
        match self {
            Self::WrongPassword
            | Self::NoPassword
            | Self::SentinelPassword
            | Self::Denied { .. }
            | Self::NoPermission(_)
            | Self::NoCluster
            | Self::NoDatabase => true,
            Self::Refused
            | Self::Unreachable(_)
            | Self::Silent
            | Self::Loading
            | Self::NoSlots
            | Self::NoMaster
            | Self::Replica
            | Self::NotRedis
            | Self::Strange(_) => false,
        }
    }

    /// Like [`finding`](Self::finding). Finds out whether a Redis that does not reply accepts connections.
    pub(crate) async fn explain(&self, redis: &NamedRedis) -> Finding {
        match self {
            Self::Silent if !redis.accepts().await => {
                Self::Unreachable(format!("no connection within {}", spaced(ACCEPT))).finding(redis)
            }
            error => error.finding(redis),
        }
    }

    /// Returns a sentence about this Redis, and the next step.
    pub(crate) fn finding(&self, redis: &NamedRedis) -> Finding {
        let NamedRedis { name, product, has_user, tls, database, example, .. } = redis;
        let (says, fix) = match self {
            Self::Refused => (
                format!("{name} refuses connections."),
                format!("Start {product}, or correct the address in --store ({example})."),
            ),
            Self::Unreachable(why) => (
                format!("{name} cannot be reached: {why}."),
                format!("Check the host name, the port and the firewall, or correct --store. {tls}"),
            ),
            Self::Silent => (
                format!("{name} accepts connections but does not reply in time."),
                format!(
                    "Check whether {product} is stopped or busy with a slow command (SLOWLOG GET), or raise --store-timeout. {tls}"
                ),
            ),
            Self::WrongPassword => (
                match has_user {
                    true => format!("{name} rejects the user name or the password."),
                    false => format!("{name} rejects the password."),
                },
                "Correct --store, or the file that --store-file names: redis://user:password@host:port, or \
                 redis://:password@host:port without a user. Write @ in a password as %40."
                    .to_owned(),
            ),
            Self::NoPassword => (
                format!("{name} requires a password, and --store has none."),
                "Add it to --store, or to the file that --store-file names: redis://:password@host:port.".to_owned(),
            ),
            Self::Loading => (
                format!("{name} is still loading its data from disk."),
                "Wait until it has finished, and check again; `onceward serve` retries for the time in --wait-for."
                    .to_owned(),
            ),
            Self::Denied { command, user } => {
                let user = user.as_deref().or(redis.user.as_deref());
                let account = user.map_or("this user".to_owned(), |user| format!("user {user}"));
                let rule = command.to_lowercase().replace(' ', "|");
                (
                    format!("{name} does not allow {account} to send {command}."),
                    format!("Allow it: ACL SETUSER {} +{rule}.", user.unwrap_or("<user>")),
                )
            }
            Self::NoPermission(why) => (
                format!("{name} denies a command that Onceward needs: {}.", why.trim_end_matches('.')),
                "Run `onceward check`, which prints the ACL SETUSER line to add.".to_owned(),
            ),
            Self::NoCluster => (
                format!("{name} is a single server: its cluster support is disabled."),
                "Name it as a single server: --store redis://host:port.".to_owned(),
            ),
            Self::NoSlots => (
                format!("{name} has no slot assignments, so it cannot store records."),
                "Finish creating the cluster (redis-cli --cluster create), or name a node of another cluster."
                    .to_owned(),
            ),
            Self::NoMaster => (
                format!("{name}: the sentinels know no master of that name."),
                "Correct the name after the slash in --store; SENTINEL MASTERS lists the names.".to_owned(),
            ),
            Self::SentinelPassword => (
                format!("{name}: the sentinels reject the password, or require one."),
                "Onceward sends the credentials in --store to the sentinels and to the master; give both the same ones."
                    .to_owned(),
            ),
            Self::Replica => (
                format!("{name} is a replica, and accepts no writes."),
                "Name its master in --store; INFO replication names it.".to_owned(),
            ),
            Self::NoDatabase => (
                match database {
                    Some(number) => format!("{name} has no database {number}."),
                    None => format!("{name} has no database with this number."),
                },
                "Correct the number after the slash in --store, or raise `databases` in redis.conf.".to_owned(),
            ),
            Self::NotRedis => (
                format!("{name} does not reply like Redis."),
                format!("Check whether another service listens at this address (--store). {tls}"),
            ),
            Self::Strange(what) => (
                format!("{name} returned an unexpected error: {what}."),
                "Check the address in --store, and the log of Redis.".to_owned(),
            ),
        };
        Finding::problem("reach", says, fix.trim_end())
    }
}

/// Returns the user that Redis names in `User shop has no permissions to …`, as of version 7.2.
pub(super) fn denied_user(why: &str) -> Option<String> {
    let (_, named) = why.split_once("User ")?;
    named.split_once(" has no permissions").map(|(user, _)| user.to_owned())
}

/// A Redis as messages name it: without its credentials.
pub(crate) struct NamedRedis {
    /// As in "Redis at 127.0.0.1:6379".
    pub(crate) name: String,
    /// Redis or Valkey.
    pub(crate) product: &'static str,
    /// The hosts in the address, each with its port; empty for a socket file.
    hosts: Vec<String>,
    has_user: bool,
    /// The user in the address, if a password follows. Only for messages after a login: before that, it may be a misplaced password.
    pub(crate) user: Option<String>,
    /// The number of the database.
    database: Option<String>,
    /// The form of the address, for the fix.
    example: String,
    /// The hint about TLS. If only one side uses it, neither reports why they do not understand each other.
    tls: String,
}

impl NamedRedis {
    /// Names the Redis at `address`, which is `shown` without its credentials.
    pub(crate) fn of(address: &str, shown: &str) -> Self {
        let (scheme, place) = shown.split_once("://").unwrap_or(("redis+cluster", shown));
        let (product, plain, tls) = match scheme.starts_with("valkey") {
            true => ("Valkey", "valkey", "valkeys"),
            false => ("Redis", "redis", "rediss"),
        };
        let name = match scheme.split_once('+') {
            Some((_, "sentinel")) => format!("{product} (Sentinel at {place})"),
            Some((_, "cluster")) => format!("{product} Cluster at {place}"),
            _ if scheme.ends_with("unix") => format!("{product} at {}", socket_file(address)),
            _ => format!("{product} at {place}"),
        };
        let is_socket = scheme.ends_with("unix");
        let example = if is_socket { "unix:///run/redis.sock".to_owned() } else { format!("{plain}://host:port") };
        let port = if scheme.ends_with("sentinel") { 26379 } else { 6379 };
        let hosts = match is_socket {
            true => Vec::new(),
            false => place.split([',', ';']).map(|host| with_port(host.trim(), port)).collect(),
        };
        let credentials = address.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@')).filter(|_| !is_socket);
        let has_user = match is_socket {
            true => address.contains("user="),
            false => credentials.is_some_and(|(credentials, _)| !credentials.starts_with(':')),
        };
        let tls = match scheme.starts_with(tls) {
            _ if is_socket => String::new(),
            true => format!("If it does not use TLS, write {plain}:// instead of {tls}://."),
            false => format!("If it uses TLS, write {tls}:// instead of {plain}://."),
        };
        let user = credentials.and_then(|(credentials, _)| credentials.split_once(':')).map(|(user, _)| user);
        let user = user.filter(|user| !user.is_empty() && !user.contains('%')).map(str::to_owned);
        Self { name, product, hosts, has_user, user, database: database(address), example, tls }
    }

    /// Returns whether one of the hosts accepts connections.
    async fn accepts(&self) -> bool {
        let connects = self.hosts.iter().map(|host| timeout(ACCEPT, TcpStream::connect(host)));
        self.hosts.is_empty() || join_all(connects).await.iter().any(|connected| matches!(connected, Ok(Ok(_))))
    }
}

impl fmt::Debug for NamedRedis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NamedRedis").field(&self.name).finish()
    }
}

/// Returns the path in an address: without a host, credentials, and parameters.
fn socket_file(address: &str) -> &str {
    let rest = address.split_once("://").map_or("", |(_, rest)| rest);
    let place = rest.split(['?', '#']).next().unwrap_or_default();
    place.find('/').map_or("", |at| &place[at..])
}

/// Adds the default port to a host without one.
fn with_port(host: &str, port: u16) -> String {
    match host.rsplit_once(':') {
        Some((_, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => host.to_owned(),
        _ => format!("{}:{port}", host.trim_end_matches(':')),
    }
}

/// Returns the number of the database in an address.
fn database(address: &str) -> Option<String> {
    let (scheme, rest) = address.split_once("://")?;
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let number = match scheme.ends_with("unix") {
        true => query.split('&').find_map(|parameter| parameter.strip_prefix("db=")),
        false => {
            place.split('#').next().and_then(|place| place.trim_end_matches('/').rsplit_once('/')).map(|(_, last)| last)
        }
    };
    number.filter(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connect_error_has_its_own_sentence_and_fix() {
        let all = [
            ConnectError::Refused,
            ConnectError::Unreachable("no route".into()),
            ConnectError::Silent,
            ConnectError::WrongPassword,
            ConnectError::NoPassword,
            ConnectError::Loading,
            ConnectError::Denied { command: "PING", user: None },
            ConnectError::Denied { command: "PING", user: Some("shop".into()) },
            ConnectError::NoPermission("no SET".into()),
            ConnectError::NoCluster,
            ConnectError::NoSlots,
            ConnectError::NoMaster,
            ConnectError::SentinelPassword,
            ConnectError::Replica,
            ConnectError::NoDatabase,
            ConnectError::NotRedis,
            ConnectError::Strange("HTTP/1.1".into()),
        ];
        let redis = NamedRedis::of("redis://h:1", "redis://h:1");
        let found: Vec<_> = all.iter().map(|error| error.finding(&redis)).collect();
        for (at, finding) in found.iter().enumerate() {
            assert!(finding.says.contains("Redis at h:1") && finding.fix.is_some(), "{finding:?}");
            assert!(found[at + 1..].iter().all(|other| other.says != finding.says && other.fix != finding.fix));
        }
    }

    #[test]
    fn redis_is_named_by_its_kind_without_credentials() {
        for (address, shown, name, has_user) in [
            ("redis://canary:canary@h:1/2", "redis://h:1", "Redis at h:1", true),
            ("rediss://:canary@h:1", "rediss://h:1", "Redis at h:1", false),
            ("redis://canary@h:1", "redis://h:1", "Redis at h:1", true),
            ("valkey://h:1", "valkey://h:1", "Valkey at h:1", false),
            ("redis+cluster://h:1,h:2", "redis+cluster://h:1,h:2", "Redis Cluster at h:1,h:2", false),
            ("h:1;h:2", "h:1;h:2", "Redis Cluster at h:1;h:2", false),
            ("redis+sentinel://h:1/m", "redis+sentinel://h:1", "Redis (Sentinel at h:1)", false),
            ("unix:///run/redis.sock?pass=canary", "unix://", "Redis at /run/redis.sock", false),
            ("unix://u:canary@localhost/run/redis.sock", "unix://localhost", "Redis at /run/redis.sock", false),
        ] {
            let redis = NamedRedis::of(address, shown);
            assert_eq!((redis.name.as_str(), redis.has_user), (name, has_user), "{address}");
            assert!(!format!("{redis:?}").contains("canary"), "{redis:?}");
        }
    }

    #[test]
    fn missing_database_is_named_by_its_number() {
        for (address, says) in [
            ("redis://canary:canary@h:1/99", "Redis at h:1 has no database 99."),
            ("redis://h:1/99/?protocol=resp3", "Redis at h:1 has no database 99."),
            ("unix:///run/redis.sock?pass=canary&db=99", "Redis at /run/redis.sock has no database 99."),
            ("redis+sentinel://h:1/master/99", "Redis (Sentinel at h:1) has no database 99."),
            ("redis+sentinel://h:1/master", "Redis (Sentinel at h:1) has no database with this number."),
        ] {
            let shown = match address.split_once("://").unwrap() {
                ("unix", _) => "unix://".to_owned(),
                (scheme, _) => format!("{scheme}://h:1"),
            };
            assert_eq!(ConnectError::NoDatabase.finding(&NamedRedis::of(address, &shown)).says, says);
        }
    }

    #[test]
    fn user_is_named_only_after_a_login() {
        let named = "User shop has no permissions to run the 'ping' command";
        let unnamed = "this user has no permissions to run the 'ping' command";
        for (address, why) in [("redis://canary@h:1", named), ("redis://shop:canary@h:1", unnamed)] {
            let redis = NamedRedis::of(address, "redis://h:1");
            let finding = ConnectError::Denied { command: "PING", user: denied_user(why) }.finding(&redis);
            assert_eq!(finding.says, "Redis at h:1 does not allow user shop to send PING.");
            assert_eq!(finding.fix.as_deref(), Some("Allow it: ACL SETUSER shop +ping."));
        }
        let redis = NamedRedis::of("redis://canary:canary@h:1", "redis://h:1");
        for error in [ConnectError::WrongPassword, ConnectError::NoPassword, ConnectError::Silent] {
            let finding = error.finding(&redis);
            assert!(!format!("{finding:?}").contains("canary"), "{finding:?}");
        }
    }

    #[test]
    fn every_host_is_tried_with_its_port() {
        for (shown, hosts) in [
            ("redis://h", &["h:6379"][..]),
            ("redis://[::1]", &["[::1]:6379"]),
            ("rediss://[::1]:7", &["[::1]:7"]),
            ("redis+sentinel://a,b:1", &["a:26379", "b:1"]),
            ("a:1;b:2", &["a:1", "b:2"]),
            ("unix://", &[]),
        ] {
            assert_eq!(NamedRedis::of(shown, shown).hosts, hosts, "{shown}");
        }
    }
}

//! The reasons why a Redis cannot be used. Each has its own sentence and fix.

use std::error::Error;
use std::io;

use onceward::store::StoreError;
use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::finding::Finding;

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
    #[error("this user may not send {0}")]
    Denied(&'static str),
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
            Self::NoPermission(_) => Self::Denied(command),
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
        Self::of_directory(text).or_else(|| {
            let causes = std::iter::successors(error.source(), |&cause| cause.source());
            causes.into_iter().find_map(|cause| {
                let of_io = |error: &io::Error| match error.kind() {
                    io::ErrorKind::ConnectionRefused => Self::Refused,
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
            true if has(&["NOPERM"]) => Some(Self::Denied("SENTINEL MASTER")),
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
            | Self::Denied(_)
            | Self::NoPermission(_)
            | Self::NoCluster
            | Self::NoDatabase => true,
            Self::Refused
            | Self::Unreachable(_)
            | Self::Silent
            | Self::Loading
            | Self::NoSlots
            | Self::NoMaster
            | Self::NotRedis
            | Self::Strange(_) => false,
        }
    }

    /// Returns a sentence about this Redis, and the next step.
    pub(crate) fn finding(&self, redis: &NamedRedis) -> Finding {
        let NamedRedis { name, product, has_user, tls } = redis;
        let (says, fix) = match self {
            Self::Refused => (
                format!("{name} refuses connections."),
                format!("Start {product}, or correct the address in --store (redis://host:port)."),
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
            Self::Denied(command) => (
                format!("The user of {name} may not send {command}."),
                format!("Allow it: ACL SETUSER <user> +{}.", command.to_lowercase().replace(' ', "|")),
            ),
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
            Self::NoDatabase => (
                format!("{name} has no database with this number."),
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
        Finding::problem("reach", says, fix)
    }
}

/// A Redis as messages name it: without its credentials.
#[derive(Debug)]
pub(crate) struct NamedRedis {
    /// As in "Redis at 127.0.0.1:6379".
    name: String,
    product: &'static str,
    has_user: bool,
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
            _ if place.is_empty() => format!("{product} at {shown}"),
            _ => format!("{product} at {place}"),
        };
        let credentials = address.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
        let has_user = credentials.is_some_and(|(credentials, _)| !credentials.starts_with(':'));
        let tls = match scheme.starts_with(tls) {
            true => format!("If it does not use TLS, write {plain}:// instead of {tls}://."),
            false => format!("If it uses TLS, write {tls}:// instead of {plain}://."),
        };
        Self { name, product, has_user, tls }
    }
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
            ConnectError::Denied("PING"),
            ConnectError::NoPermission("no SET".into()),
            ConnectError::NoCluster,
            ConnectError::NoSlots,
            ConnectError::NoMaster,
            ConnectError::SentinelPassword,
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
        ] {
            let redis = NamedRedis::of(address, shown);
            assert_eq!((redis.name.as_str(), redis.has_user), (name, has_user), "{address}");
            assert!(!format!("{redis:?}").contains("canary"), "{redis:?}");
        }
    }
}

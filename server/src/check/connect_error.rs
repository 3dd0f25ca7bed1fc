//! Why a Redis cannot be queried. Each reason has a sentence and a fix of its own.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::finding::Finding;

/// The reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("nothing listens there")]
    Rejected,
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    #[error("it does not answer in time")]
    Silent,
    #[error("it refuses the password")]
    WrongPassword,
    #[error("it wants a password")]
    NoPassword,
    #[error("it is still reading its data from disk")]
    Loading,
    #[error("this user may not send {0}")]
    Denied(&'static str),
    #[error("it is no cluster")]
    NoCluster,
    #[error("the cluster has given no slots to anybody")]
    NoSlots,
    #[error("no sentinel knows a master of that name")]
    NoMaster,
    #[error("the sentinels refuse the password, or want one")]
    SentinelPassword,
    #[error("it answers what no Redis answers: {0}")]
    Strange(String),
}

impl ConnectError {
    /// From what went wrong with a command.
    pub(crate) fn of(command: &'static str, error: &RedisError) -> Self {
        Self::of_whoever_knows(&error.to_string()).unwrap_or_else(|| Self::of_server(command, error))
    }

    /// From what a sentinel or a node says who is asked where the records are: not the Redis that keeps them.
    fn of_whoever_knows(says: &str) -> Option<Self> {
        let has = |parts: &[&str]| parts.iter().any(|part| says.contains(part));
        match says.contains("no sentinel names the master") {
            true if has(&["No such master with that name"]) => Some(Self::NoMaster),
            true if has(&["NOAUTH", "WRONGPASS", "AuthenticationFailed"]) => Some(Self::SentinelPassword),
            true if has(&["NOPERM"]) => Some(Self::Denied("SENTINEL MASTER")),
            false if has(&["knows of no slots"]) => Some(Self::NoSlots),
            false if has(&["cluster support disabled"]) => Some(Self::NoCluster),
            _ => None,
        }
    }

    fn of_server(command: &'static str, error: &RedisError) -> Self {
        match (error.kind(), error.code()) {
            (ErrorKind::AuthenticationFailed, _) | (_, Some("WRONGPASS")) => Self::WrongPassword,
            (_, Some("NOAUTH")) => Self::NoPassword,
            (ErrorKind::Server(ServerErrorKind::BusyLoading), _) => Self::Loading,
            (ErrorKind::Server(ServerErrorKind::NoPerm), _) => Self::Denied(command),
            _ if error.is_connection_refusal() => Self::Rejected,
            _ if error.is_timeout() => Self::Silent,
            (ErrorKind::Io, _) => Self::Unreachable(error.to_string()),
            _ => Self::Strange(error.to_string()),
        }
    }

    /// In a sentence, with what to do.
    pub(crate) fn finding(&self, store: &str) -> Finding {
        // One side that speaks TLS and one that does not understand nothing of each other, and say nothing of it.
        let (plain, tls) = if store.starts_with("valkey") { ("valkey", "valkeys") } else { ("redis", "rediss") };
        let tls = if store.starts_with(tls) {
            format!("Or does it speak no TLS there? Then write {plain}:// instead of {tls}://.")
        } else {
            format!("Or does it speak TLS there? Then write {tls}:// instead of {plain}://.")
        };
        let (says, fix) = match self {
            Self::Rejected => (
                format!("Nothing listens at {store}."),
                "Start Redis, or say where it is: --store redis://host:port.".to_owned(),
            ),
            Self::Unreachable(why) => (
                format!("{store} cannot be reached: {why}."),
                format!("Look at the host's name, its firewall, and --store. {tls}"),
            ),
            Self::Silent => (
                format!("{store} takes connections and does not answer."),
                format!(
                    "Is Redis stopped, or busy with a slow command? SLOWLOG GET on that machine shows the latter. {tls}"
                ),
            ),
            Self::WrongPassword => (
                format!("{store} refuses the user name or the password in --store."),
                "Write both as redis://user:password@host:port (without a user: redis://:password@host:port), with \
                 %40 for @; or have --store-file name a file that holds it."
                    .to_owned(),
            ),
            Self::NoPassword => (
                format!("{store} wants a password, and --store has none."),
                "Write it as redis://:password@host:port; or have --store-file name a file that holds it.".to_owned(),
            ),
            Self::Loading => (
                format!("{store} is still reading its data from disk."),
                "Wait until it has, and check again; `onceward serve` waits for as long as --wait-for says.".to_owned(),
            ),
            Self::Denied(command) => (
                format!("The user of {store} may not send {command}."),
                format!("Allow it: ACL SETUSER <user> +{}.", command.to_lowercase().replace(' ', "|")),
            ),
            Self::NoCluster => (
                format!("{store} is a single Redis, and no node of a cluster."),
                "Name it as one: --store redis://host:port.".to_owned(),
            ),
            Self::NoSlots => (
                format!("{store} is a node of a cluster that has given no slots to anybody, so no record has a place."),
                "Finish making the cluster (redis-cli --cluster create), or name a node of the one that is meant."
                    .to_owned(),
            ),
            Self::NoMaster => (
                format!("The sentinels of {store} know no master of that name."),
                "Write the name that they have, behind the slash: SENTINEL MASTERS lists them.".to_owned(),
            ),
            Self::SentinelPassword => (
                format!("The sentinels of {store} refuse the user name or the password, or want one."),
                "They are asked with the credentials in --store, which are the master's too: give both the same."
                    .to_owned(),
            ),
            Self::Strange(what) => (
                format!("{store} answers what no Redis answers: {what}."),
                "Is something else listening there?".to_owned(),
            ),
        };
        Finding::problem("reach", says, fix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connect_error_has_a_sentence_and_a_fix_of_its_own() {
        let all = [
            ConnectError::Rejected,
            ConnectError::Unreachable("no route".into()),
            ConnectError::Silent,
            ConnectError::WrongPassword,
            ConnectError::NoPassword,
            ConnectError::Loading,
            ConnectError::Denied("PING"),
            ConnectError::NoCluster,
            ConnectError::NoSlots,
            ConnectError::NoMaster,
            ConnectError::SentinelPassword,
            ConnectError::Strange("HTTP/1.1".into()),
        ];
        let found: Vec<_> = all.iter().map(|error| error.finding("redis://h:1")).collect();
        for (at, finding) in found.iter().enumerate() {
            assert!(finding.says.contains("redis://h:1") && finding.fix.is_some(), "{finding:?}");
            assert!(found[at + 1..].iter().all(|other| other.says != finding.says && other.fix != finding.fix));
        }
    }
}

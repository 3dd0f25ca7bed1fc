//! The warning about a server that may evict records.

use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::ConnectionLike;
use redis::{Cmd, Value};

use super::deadline::Deadline;
use super::transport::in_time;

/// The eviction warning of one store, which is logged once.
#[derive(Debug, Default)]
pub(super) struct EvictionWarning {
    is_allowed: AtomicBool,
    is_logged: AtomicBool,
}

impl EvictionWarning {
    /// Logs nothing from now on.
    pub(super) fn allow(&self) {
        self.is_allowed.store(true, Ordering::Relaxed);
    }

    /// Reads the policy of a server, and logs a warning if it may evict records. A store logs it once. A server that does not disclose its
    /// policy is used without a warning.
    pub(super) async fn ask(&self, connection: &mut (impl ConnectionLike + Send), server: &str, deadline: Deadline) {
        if self.is_allowed.load(Ordering::Relaxed) || self.is_logged.load(Ordering::Relaxed) {
            return;
        }
        let mut command = Cmd::with_capacity(2, 10);
        command.arg("INFO").arg("memory");
        let Ok(answer) = in_time(deadline, command.query_async::<Value>(connection)).await else { return };
        if let Some(policy) = evicting_policy(&answer)
            && !self.is_logged.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                server,
                policy,
                "this Redis may evict records when its memory is used up, and a key whose record is evicted runs again; set \
                 maxmemory-policy to noeviction, or accept it with `Redis::allow_eviction`"
            );
        }
    }
}

/// Returns the policy of a server that evicts.
fn evicting_policy(answer: &Value) -> Option<String> {
    let text = match answer {
        Value::BulkString(bytes) => str::from_utf8(bytes).ok()?,
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => text,
        _ => return None,
    };
    let policy = text.lines().find_map(|line| line.strip_prefix("maxmemory_policy:"))?.trim();
    (policy != "noeviction").then(|| policy.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eviction_policy_is_read_from_info() {
        let read = |text: &str| evicting_policy(&Value::BulkString(text.as_bytes().to_vec()));
        assert_eq!(read("# Memory\r\nmaxmemory_policy:allkeys-lru\r\nx:1\r\n").as_deref(), Some("allkeys-lru"));
        assert_eq!((read("maxmemory_policy:noeviction\r\n"), read("# Memory\r\n")), (None, None));
        assert_eq!(evicting_policy(&Value::Nil), None);
    }
}

//! The fields of the reply to `INFO`.

use std::collections::BTreeMap;

/// The fields of `INFO`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Info(BTreeMap<String, String>);

impl Info {
    pub(crate) fn parse(text: &str) -> Self {
        let fields =
            text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.trim_end().split_once(':'));
        Self(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.text(name).parse().ok()
    }

    /// Returns the name and version of the server. Valkey and Redict also report a `redis_version`, with which they are compatible.
    pub(crate) fn server(&self) -> String {
        let forks = [("valkey_version", "Valkey"), ("redict_version", "Redict")];
        let fork = forks.into_iter().find(|(field, _)| !self.text(field).is_empty());
        let (field, name) = fork.unwrap_or(("redis_version", "Redis"));
        format!("{name} {}", self.text(field))
    }

    /// Returns `standalone`, `cluster` or `sentinel`. Forks name the field after themselves.
    pub(crate) fn mode(&self) -> &str {
        let fields = ["redis_mode", "server_mode", "redict_mode"].map(|field| self.text(field));
        fields.into_iter().find(|mode| !mode.is_empty()).unwrap_or_default()
    }

    /// Returns the major and minor Redis version that the server is compatible with.
    pub(crate) fn version(&self) -> Option<(u32, u32)> {
        let mut numbers = self.text("redis_version").split('.').map(|number| number.parse().ok());
        Some((numbers.next()??, numbers.next()??))
    }

    /// Returns `maxmemory` in bytes; `None` means unlimited.
    pub(crate) fn memory_limit(&self) -> Option<u64> {
        self.number("maxmemory").filter(|limit| *limit > 0)
    }

    /// Returns the eviction policy; `None` if the server evicts nothing.
    pub(crate) fn evicts(&self) -> Option<&str> {
        Some(self.text("maxmemory_policy")).filter(|policy| !matches!(*policy, "" | "noeviction"))
    }

    /// Returns whether this is a master that does not disclose its replication id.
    pub(crate) fn hides_epoch(&self) -> bool {
        self.text("role") == "master" && self.text("master_replid").is_empty()
    }

    /// Returns the clock of the server, in milliseconds since 1970.
    pub(crate) fn time(&self) -> Option<u64> {
        self.number("server_time_usec").map(|micros| micros / 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_headings_are_not() {
        let info = Info::parse(
            "# Server\r\nredis_version:7.0.15\r\n\r\n# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n",
        );
        assert_eq!((info.version(), info.memory_limit(), info.evicts()), (Some((7, 0)), None, None));
        let info = Info::parse("redis_version:6.2.7\nmaxmemory:1048576\nmaxmemory_policy:allkeys-lru\nmaster_host:::1");
        assert_eq!(
            (info.version(), info.memory_limit(), info.evicts()),
            (Some((6, 2)), Some(1 << 20), Some("allkeys-lru"))
        );
        assert_eq!((info.text("master_host"), info.text("absent"), info.number("absent")), ("::1", "", None));
        assert_eq!(Info::parse("nothing").version(), None);
    }
}

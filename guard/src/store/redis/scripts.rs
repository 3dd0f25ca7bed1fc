//! The Lua scripts. Each compares the value of one key, and changes that key or nothing.

use std::sync::OnceLock;

use redis::Script;

/// Writes or renews a record if its value equals the held one. Returns 1 on success, otherwise the current value or nil.
pub(super) static SWAP: LuaScript = LuaScript::new(
    "local there = redis.call('GET', KEYS[1])
    if there ~= ARGV[1] then return there end
    if ARGV[1] == ARGV[2] then redis.call('PEXPIRE', KEYS[1], ARGV[3])
    else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
    return 1",
);

/// Deletes a record if its value equals the held one. Returns 1 on success, otherwise the current value or nil.
pub(super) static REMOVE: LuaScript = LuaScript::new(
    "local there = redis.call('GET', KEYS[1])
    if there ~= ARGV[1] then return there end
    redis.call('DEL', KEYS[1])
    return 1",
);

/// A script on one key. The server knows it by its digest after its first run.
pub(super) struct LuaScript {
    pub(super) text: &'static str,
    digest: OnceLock<String>,
}

impl LuaScript {
    const fn new(text: &'static str) -> Self {
        Self { text, digest: OnceLock::new() }
    }

    /// Returns the SHA-1 digest of the script.
    pub(super) fn digest(&self) -> &str {
        self.digest.get_or_init(|| Script::new(self.text).get_hash().to_owned())
    }
}

//! The scripts: each compares what it finds on one key, and changes that or nothing.

use std::sync::OnceLock;

use redis::Script;

/// Writes or renews if what is there is what is held. Done is 1; otherwise what is there, or nil.
pub(super) static SWAP: LuaScript = LuaScript::new(
    "local there = redis.call('GET', KEYS[1])
    if there ~= ARGV[1] then return there end
    if ARGV[1] == ARGV[2] then redis.call('PEXPIRE', KEYS[1], ARGV[3])
    else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
    return 1",
);

/// Deletes if what is there is what is held. Done is 1; otherwise what is there, or nil.
pub(super) static REMOVE: LuaScript = LuaScript::new(
    "local there = redis.call('GET', KEYS[1])
    if there ~= ARGV[1] then return there end
    redis.call('DEL', KEYS[1])
    return 1",
);

/// A script on one key. The server knows it by its digest once it has run.
pub(super) struct LuaScript {
    pub(super) text: &'static str,
    digest: OnceLock<String>,
}

impl LuaScript {
    const fn new(text: &'static str) -> Self {
        Self { text, digest: OnceLock::new() }
    }

    /// Its digest.
    pub(super) fn digest(&self) -> &str {
        self.digest.get_or_init(|| Script::new(self.text).get_hash().to_owned())
    }
}

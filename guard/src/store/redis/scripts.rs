//! The Lua scripts. Each compares the value of one key, and changes that key or nothing.
//!
//! At `maxmemory`, Redis refuses a script that would use more memory, unless its first line allows it. The scripts with that line write
//! small records only.

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

/// Like [`SWAP`], also at `maxmemory`.
pub(super) static SWAP_RESERVED: LuaScript = LuaScript::new(
    "#!lua flags=allow-oom
    local there = redis.call('GET', KEYS[1])
    if there ~= ARGV[1] then return there end
    redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
    return 1",
);

/// Writes a record if there is none, also at `maxmemory`. Returns the existing value or nil.
pub(super) static INSERT_RESERVED: LuaScript = LuaScript::new(
    "#!lua flags=allow-oom
    local there = redis.call('GET', KEYS[1])
    if not there then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
    return there",
);

/// Deletes a record if its value equals the held one. Returns 1 on success, otherwise the current value or nil.
pub(super) static REMOVE: LuaScript = LuaScript::new(
    "local there = redis.call('GET', KEYS[1])
    if there ~= ARGV[1] then return there end
    redis.call('DEL', KEYS[1])
    return 1",
);

/// The way a script is sent.
#[derive(Clone, Copy)]
pub(super) enum ScriptCall<'a> {
    /// By its digest, which is short: the server has probably run the script before.
    Digest(&'a LuaScript),
    /// By its text, which any server executes: on a slow server there is no time for a second command.
    Text(&'a LuaScript),
}

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

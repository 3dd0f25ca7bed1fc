//! Turns the facts about a Redis into findings, without a connection.

use std::time::Duration;

use super::durability::{self, Disk};
use super::finding::{Finding, Level};
use super::probe::Facts;
use super::redis_info::Info;

/// The first Redis version that has every command that the store sends.
const NEEDED: (u32, u32) = (7, 0);
/// The clock skew above which a warning is reported, in milliseconds.
const OFF: u64 = 5_000;
/// The ACL rules that a user needs.
const COMMANDS: &str = "+set +get +del +pexpire +eval +evalsha +ping +info +role +select";
/// The additional ACL rules on a node of a cluster.
const OF_CLUSTER: &str = " +cluster|slots +asking";

/// Returns all findings about a Redis.
pub(crate) fn judge(facts: &Facts, prefix: &str, allow_eviction: bool) -> Vec<Finding> {
    let mut found =
        vec![Finding::fine("reach", format!("It replies within {:.2} ms.", facts.took.as_secs_f64() * 1e3))];
    match &facts.info {
        Some(info) => {
            found.push(version(info));
            found.push(role(info, facts.is_of_cluster));
            found.push(eviction(info, allow_eviction));
            found.push(memory(info, facts.refused.as_deref()));
            found.push(persistence(&Disk::of(info, facts), info));
            found.extend(disk_failure(info));
            found.extend(info.hides_epoch().then(hidden_epoch));
        }
        None => found.push(Finding::warning(
            "info",
            format!(
                "This user may not send INFO, so version, role, eviction, persistence and replication id of this Redis are unknown. {}",
                durability::WITHOUT_EPOCHS
            ),
            format!("Allow it: ACL SETUSER {} +info; then check again.", facts.user.as_deref().unwrap_or("<user>")),
        )),
    }
    found.push(permissions(facts, prefix));
    found.extend(refused_write(facts, &found));
    found.extend(facts.ahead.map(clock));
    found
}

/// Returns a problem if Redis is too slow for `store_timeout`.
pub(crate) fn slowness(facts: &Facts, store_timeout: Duration) -> Option<Finding> {
    (facts.took >= store_timeout).then(|| {
        Finding::problem(
            "time",
            format!(
                "It takes {:.0} ms to reply, and store_timeout is {}: the outcome of a command without a reply by then is unknown.",
                facts.took.as_secs_f64() * 1e3,
                onceward_api::duration::text(store_timeout)
            ),
            "Raise the timeout (--store-timeout 1s), or use a Redis with a lower latency.",
        )
    })
}

fn hidden_epoch() -> Finding {
    Finding::warning(
        "epoch",
        format!("It does not disclose its `master_replid` (INFO replication). {}", durability::WITHOUT_EPOCHS),
        "Ask its operator to disclose it, or store records that matter in a database.",
    )
}

fn version(info: &Info) -> Finding {
    let server = info.server();
    match info.version() {
        Some(version) if version >= NEEDED => Finding::fine("version", format!("{server}.")),
        Some(_) => Finding::problem(
            "version",
            format!("{server} is too old: it has no `SET … NX GET`, which claims a key."),
            "Upgrade to Redis 7.0 or later, or Valkey.",
        ),
        None => Finding::warning("version", "It does not disclose its version.", "Onceward needs Redis 7.0 or later."),
    }
}

/// Reports whether this server accepts records: a Sentinel, a replica, or a single node of a cluster does not.
pub(crate) fn role(info: &Info, is_of_cluster: bool) -> Finding {
    if info.mode() == "sentinel" {
        let fix =
            "Name the sentinels as such: --store redis+sentinel://host:port/name; SENTINEL MASTERS lists the names.";
        return Finding::problem("role", "This is a Sentinel: it monitors a Redis and stores no records.", fix);
    }
    if !is_of_cluster && (info.mode() == "cluster" || info.text("cluster_enabled") == "1") {
        let says = "This is one node of a cluster: it redirects commands for keys of other nodes.";
        return Finding::problem("role", says, "Name the cluster: --store redis+cluster://host:port.");
    }
    if info.text("role") == "slave" {
        let master = format!("{}:{}", info.text("master_host"), info.text("master_port"));
        return Finding::problem(
            "role",
            format!(
                "This is a replica of {master}: it accepts no writes, so tokens can be neither issued nor redeemed."
            ),
            format!(
                "Use its master: --store redis://{master}. If the master is lost, promote this replica with REPLICAOF NO ONE."
            ),
        );
    }
    match info.number("connected_slaves") {
        Some(count @ 1..) => {
            let takeover = durability::consequence(durability::AFTER_A_TAKEOVER, info);
            let says = format!(
                "It is a master with {count} replica(s), which were not checked: they need the same settings. {takeover}"
            );
            Finding::note("role", says)
        }
        _ => Finding::fine("role", "It is a master."),
    }
}

/// Reports whether Redis evicts records when it reaches `maxmemory`.
pub(crate) fn eviction(info: &Info, is_allowed: bool) -> Finding {
    let Some(policy) = info.evicts() else {
        return Finding::fine("eviction", "It evicts nothing (noeviction).");
    };
    let whose =
        if policy.starts_with("volatile") { "records that expire, as all of Onceward's do" } else { "any record" };
    let when = match info.memory_limit() {
        Some(limit) => format!("when its memory ({}) is used up", size(limit)),
        None => "as soon as maxmemory is set".to_owned(),
    };
    let says = format!("It evicts {whose}, {when} (maxmemory-policy {policy}). {}", durability::WHEN_EVICTED);
    if is_allowed {
        return Finding::warning("eviction", says, "The setting allow_eviction accepts this.");
    }
    Finding::problem(
        "eviction",
        says,
        "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf; or use a separate Redis for Onceward. \
         To accept eviction: --allow-eviction.",
    )
}

fn memory(info: &Info, refused: Option<&str>) -> Finding {
    let used = info.number("used_memory").unwrap_or_default();
    let Some(limit) = info.memory_limit() else {
        return Finding::fine("memory", format!("It uses {}, without a limit (maxmemory 0).", size(used)));
    };
    let says = format!("It uses {} of {}", size(used), size(limit));
    let fix = "Raise maxmemory, or remove other data from this Redis.";
    match info.evicts() {
        None if used >= limit || refused.is_some_and(|why| why.contains("OOM")) => Finding::problem(
            "memory",
            format!(
                "It is full: {says}. No token is issued, no key is claimed (503), and no response is stored. Issued tokens are still redeemed and given back, and runs in flight keep their claims."
            ),
            fix,
        ),
        None if used >= limit / 10 * 9 => Finding::warning(
            "memory",
            format!("It is nearly full: {says}. When it is full, it refuses new records, and /readyz returns 503."),
            fix,
        ),
        Some(_) if used >= limit / 10 * 9 => {
            Finding::warning("memory", format!("It is nearly full: {says}. It evicts records when it is full."), fix)
        }
        _ => Finding::fine("memory", format!("{says}.")),
    }
}

fn persistence(disk: &Disk, info: &Info) -> Finding {
    let says = format!("{} {}", disk.state(), durability::consequence(disk.loses(), info));
    let fix = "appendonly yes, and appendfsync everysec or always, in redis.conf.";
    match disk {
        Disk::Always => Finding::fine("persistence", says),
        Disk::EverySecond | Disk::Appended => Finding::note("persistence", says),
        Disk::Nothing | Disk::Snapshots(_) | Disk::SomeTime => Finding::warning("persistence", says, fix),
    }
}

fn disk_failure(info: &Info) -> Option<Finding> {
    let failed = [("rdb_last_bgsave_status", "snapshot"), ("aof_last_write_status", "append-only file")];
    let (_, what) = failed.into_iter().find(|(field, _)| info.text(field) == "err")?;
    Some(Finding::problem(
        "disk",
        format!("It could not write its last {what}, and may refuse every write because of that (MISCONF)."),
        "Check the free space and the permissions of its folder (CONFIG GET dir), and its log.",
    ))
}

fn permissions(facts: &Facts, prefix: &str) -> Finding {
    let user = facts.user.as_deref().unwrap_or("<user>");
    let more = if facts.is_of_cluster { OF_CLUSTER } else { "" };
    let line = format!("ACL SETUSER {user} ~{prefix}:* {COMMANDS}{more}");
    if facts.is_kept_from_keys {
        let says = format!("This user may not access keys that begin with {prefix}:, which all records do.");
        return Finding::problem("permissions", says, format!("{line}, or set another --prefix."));
    }
    match facts.denied.as_slice() {
        [] => Finding::fine("permissions", format!("User {user} may send every required command.")),
        denied => Finding::problem(
            "permissions",
            format!("User {user} may not send {}.", denied.join(", ")),
            format!("{line}."),
        ),
    }
}

/// Reports a record that could not be written, unless another finding explains it.
fn refused_write(facts: &Facts, found: &[Finding]) -> Option<Finding> {
    let is_explained = found.iter().any(|finding| finding.level == Level::Problem);
    let why = facts.refused.as_ref().filter(|_| !is_explained)?;
    Some(Finding::problem("write", format!("A record could not be written: {why}."), "Check the log of Redis."))
}

fn clock(ahead: i64) -> Finding {
    let off = ahead.unsigned_abs();
    if off <= OFF {
        return Finding::fine(
            "clock",
            format!("Its clock and the clock of this machine differ by less than {} s.", OFF / 1000),
        );
    }
    let way = if ahead > 0 { "ahead of" } else { "behind" };
    Finding::warning(
        "clock",
        format!(
            "Its clock is {} s {way} the clock of this machine. If the clocks of Onceward's processes differ as much, tokens expire too \
             early or too late, and a live run may be mistaken for a dead one.",
            off / 1000
        ),
        "Synchronize the clocks of both machines (NTP).",
    )
}

/// Formats a number of bytes.
fn size(bytes: u64) -> String {
    match bytes {
        0..0x400 => format!("{bytes} B"),
        0x400..0x10_0000 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", bytes as f64 / 1024.0 / 1024.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1024.0 / 1024.0 / 1024.0),
    }
}

#[cfg(test)]
mod tests;

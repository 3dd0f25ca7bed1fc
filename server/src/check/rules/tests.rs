use std::time::Duration;

use super::*;

const GOOD: &str = "redis_version:7.0.15\nredis_mode:standalone\nrole:master\nconnected_slaves:0\nused_memory:1000000\n\
                    maxmemory:0\nmaxmemory_policy:noeviction\naof_enabled:1\naof_last_write_status:ok\n\
                    rdb_last_bgsave_status:ok\nmaster_replid:8c3a1d0b\n";

/// Returns the findings for a good INFO reply with these lines added; the later line of a name counts.
fn found(more: &str) -> Vec<Finding> {
    judge(&facts(more), "onceward", false)
}

fn facts(more: &str) -> Facts {
    Facts {
        took: Duration::from_micros(300),
        info: Some(Info::parse(&format!("{GOOD}{more}"))),
        fsync: Some("always".into()),
        snapshots: Some("3600 1".into()),
        user: Some("default".into()),
        ahead: Some(3),
        ..Facts::default()
    }
}

#[track_caller]
fn expect(found: &[Finding], topic: &str, level: Level, says: &[&str]) {
    let finding = found.iter().find(|finding| finding.topic == topic).unwrap_or_else(|| panic!("{topic}: {found:#?}"));
    assert_eq!(finding.level, level, "{finding:#?}");
    let text = format!("{} {}", finding.says, finding.fix.as_deref().unwrap_or_default());
    for part in says {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    assert_eq!(finding.fix.is_some(), level >= Level::Warning, "a warning or problem has a fix: {finding:#?}");
}

#[test]
fn hidden_replication_id_is_a_warning() {
    let hidden = found("master_replid:\n");
    expect(&hidden, "epoch", Level::Warning, &["master_replid", "accepted again"]);
    assert!(durability::of(&facts("master_replid:\n")).iter().any(|(_, what)| what.contains("accepted again")));
    assert!(durability::of(&facts("")).iter().all(|(_, what)| !what.contains("accepted again")));
    let unseen = Facts { info: None, ..facts("") };
    let blind = judge(&unseen, "onceward", false);
    expect(&blind, "info", Level::Warning, &["INFO", "accepted again"]);
    assert!(durability::of(&unseen).iter().any(|(_, what)| what.contains("accepted again")));
}

/// The two sentences contradict each other, so only one may be reported.
#[test]
fn hidden_replication_id_promises_nothing_about_tokens() {
    for disk in ["aof_enabled:1\n", "aof_enabled:0\n"] {
        for (replid, is_promised) in [("", true), ("master_replid:\n", false)] {
            let more = format!("{disk}connected_slaves:2\n{replid}");
            let facts = Facts { fsync: Some("everysec".into()), ..facts(&more) };
            let said = judge(&facts, "onceward", false).into_iter().map(|finding| finding.says);
            let lost = durability::of(&facts).into_iter().map(|(_, what)| what.to_owned());
            let all: Vec<_> = said.chain(lost).collect();
            let promise = |text: &String| text.contains("accepted twice") || text.contains("rejected as stale");
            assert_eq!(all.iter().any(promise), is_promised, "{all:#?}");
            assert_eq!(all.iter().any(|text| text.contains("accepted again")), !is_promised, "{all:#?}");
            assert!(all.iter().any(|text| text.contains("may run again")), "{all:#?}");
        }
    }
}

#[test]
fn well_configured_redis_has_no_findings() {
    let found = found("");
    assert!(found.iter().all(|finding| finding.level == Level::Fine), "{found:#?}");
}

#[test]
fn old_version_is_reported_with_its_missing_commands() {
    expect(
        &found("redis_version:6.2.7"),
        "version",
        Level::Problem,
        &["6.2.7", "SET … NX GET", "Upgrade to Redis 7.0"],
    );
    expect(&found("redis_version:7.2.4"), "version", Level::Fine, &["Redis 7.2.4"]);
    expect(&found("redis_version:7.2.4\nvalkey_version:9.0.0"), "version", Level::Fine, &["Valkey 9.0.0"]);
    expect(&found("redis_version:7.2.4\nredict_version:7.3.6"), "version", Level::Fine, &["Redict 7.3.6"]);
    expect(&found("redis_version:10.0.0"), "version", Level::Fine, &["10.0.0"]);
    expect(&found("redis_version:"), "version", Level::Warning, &["7.0"]);
}

#[test]
fn replica_sentinel_and_cluster_are_reported_with_the_right_address() {
    let replica = found("role:slave\nmaster_host:10.0.0.7\nmaster_port:6380");
    expect(&replica, "role", Level::Problem, &["replica of 10.0.0.7:6380", "--store redis://10.0.0.7:6380"]);
    for field in ["redis_mode", "redis_mode:\nserver_mode", "redis_mode:\nredict_mode"] {
        expect(&found(&format!("{field}:sentinel")), "role", Level::Problem, &["Sentinel"]);
    }
    expect(&found("redis_mode:cluster"), "role", Level::Problem, &["cluster", "--store redis+cluster://"]);
    let node = Facts { is_of_cluster: true, ..facts("redis_mode:cluster") };
    expect(&judge(&node, "onceward", false), "role", Level::Fine, &["master"]);
    expect(&found("connected_slaves:2"), "role", Level::Note, &["2 replica(s)", "failover"]);
}

#[test]
fn evicting_policies_are_problems_unless_allowed() {
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-ttl", "volatile-random"] {
        let more = format!("maxmemory_policy:{policy}\nmaxmemory:104857600");
        expect(&found(&more), "eviction", Level::Problem, &[policy, "second time", "noeviction", "--allow-eviction"]);
        let allowed = judge(&facts(&more), "onceward", true);
        expect(&allowed, "eviction", Level::Warning, &[policy, "second time"]);
    }
    expect(&found("maxmemory_policy:allkeys-lru"), "eviction", Level::Problem, &["as soon as maxmemory is set"]);
}

#[test]
fn full_and_nearly_full_redis_are_reported() {
    expect(&found("used_memory:100\nmaxmemory:100"), "memory", Level::Problem, &["full", "503", "Raise maxmemory"]);
    expect(&found("used_memory:95\nmaxmemory:100"), "memory", Level::Warning, &["nearly full"]);
    let refused =
        Facts { refused: Some("\"OOM\": command not allowed".into()), ..facts("used_memory:95\nmaxmemory:100") };
    expect(&judge(&refused, "onceward", false), "memory", Level::Problem, &["It is full", "Raise maxmemory"]);
    expect(&found("used_memory:10\nmaxmemory:100"), "memory", Level::Fine, &["10 B of 100 B"]);
}

#[test]
fn each_kind_of_persistence_says_what_a_crash_loses() {
    let with = |aof: &str, fsync: Option<&str>, save: Option<&str>| {
        let facts = Facts {
            fsync: fsync.map(str::to_owned),
            snapshots: save.map(str::to_owned),
            ..facts(&format!("aof_enabled:{aof}"))
        };
        judge(&facts, "onceward", false)
    };
    expect(&with("0", Some("everysec"), Some("")), "persistence", Level::Warning, &["nothing to disk", "every record"]);
    let snapshots = with("0", Some("everysec"), Some("3600 1"));
    expect(&snapshots, "persistence", Level::Warning, &["save 3600 1", "last snapshot", "rejected as stale"]);
    expect(&with("1", Some("everysec"), None), "persistence", Level::Note, &["a second or two"]);
    expect(&with("1", Some("always"), None), "persistence", Level::Fine, &["loses nothing"]);
    expect(&with("1", Some("no"), None), "persistence", Level::Warning, &["half a minute"]);
    expect(&with("1", None, None), "persistence", Level::Note, &["may not read"]);
    expect(&with("0", None, None), "persistence", Level::Warning, &["may not read"]);
    expect(&found("rdb_last_bgsave_status:err"), "disk", Level::Problem, &["snapshot", "MISCONF"]);
}

#[test]
fn denied_commands_are_reported_with_the_acl_fix() {
    let denied = Facts { denied: vec!["DEL", "EVAL"], user: Some("shop".into()), ..facts("") };
    let denied = judge(&denied, "onceward", false);
    expect(&denied, "permissions", Level::Problem, &["shop may not send DEL, EVAL", "ACL SETUSER shop ~onceward:*"]);
    let kept = judge(&Facts { is_kept_from_keys: true, ..facts("") }, "other", false);
    expect(&kept, "permissions", Level::Problem, &["other:", "~other:*", "--prefix"]);
    let blind = judge(&Facts { info: None, ..facts("") }, "onceward", false);
    expect(&blind, "info", Level::Warning, &["INFO", "+info"]);
}

#[test]
fn clock_skew_is_reported_with_its_direction() {
    for (ahead, level, says) in [
        (4_999, Level::Fine, "less than 5 s"),
        (-4_999, Level::Fine, "less than 5 s"),
        (61_000, Level::Warning, "61 s ahead of"),
        (-61_000, Level::Warning, "61 s behind"),
    ] {
        expect(&judge(&Facts { ahead: Some(ahead), ..facts("") }, "onceward", false), "clock", level, &[says]);
    }
}

#[test]
fn unexplained_write_error_is_reported() {
    let refused = Facts { refused: Some("MISCONF: Errors writing".into()), ..facts("") };
    expect(&judge(&refused, "onceward", false), "write", Level::Problem, &["MISCONF"]);
    let explained = Facts { refused: Some("READONLY".into()), ..facts("role:slave\nmaster_host:h\nmaster_port:1") };
    assert!(!judge(&explained, "onceward", false).iter().any(|finding| finding.topic == "write"));
}

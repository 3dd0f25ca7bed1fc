//! `onceward check` against real Redis servers, each with a fault: every finding has a sentence and a fix.

use std::net::TcpListener;
use std::time::Duration;

use onceward_tests::command_output::{parsed, said};
use onceward_tests::faulty_tcp_proxy::{Delay, Proxy};
use onceward_tests::listening_port::free_port;
use onceward_tests::polling::{until, until_blocking};
use onceward_tests::redis_cluster::RedisCluster;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::sentinels::Sentinels;
use onceward_tests::service::{OncewardServer, command, run};
use serde_json::Value;
use tokio::time::Instant;

fn check(store: &str) -> (i32, Value) {
    let output = run(&["check", "--json", "--store", store]);
    (output.status.code().unwrap(), parsed(&output))
}

/// Returns the level and the text of the finding on this topic.
#[track_caller]
fn found(said: &Value, topic: &str) -> (String, String) {
    let finding = said["findings"].as_array().unwrap().iter().find(|finding| finding["topic"] == topic);
    let finding = finding.unwrap_or_else(|| panic!("{topic} is not in {said:#}"));
    let text = format!("{} {}", finding["says"].as_str().unwrap(), finding["fix"].as_str().unwrap_or_default());
    (finding["level"].as_str().unwrap().to_owned(), text)
}

#[track_caller]
fn expect(said: &Value, topic: &str, level: &str, parts: &[&str]) {
    let (is, text) = found(said, topic);
    assert_eq!(is, level, "{text}");
    for part in parts {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

#[test]
fn eviction_without_persistence_is_reported_with_its_risk() {
    for (arguments, when) in [
        (&["--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb"][..], "is used up"),
        (&["--maxmemory-policy", "allkeys-lru"], "as soon as maxmemory is set"),
    ] {
        let redis = RedisServer::start_with(arguments);
        let (code, said) = check(&redis.url());
        assert_eq!((code, &said["ok"]), (1, &Value::Bool(false)));
        let parts = ["allkeys-lru", when, "may run a second time", "noeviction", "--allow-eviction"];
        expect(&said, "eviction", "problem", &parts);
        expect(&said, "persistence", "warning", &["nothing to disk", "restart loses every record", "appendonly yes"]);
        let lost = said["can_be_lost"].to_string();
        assert!(lost.contains("crashes") && lost.contains("memory is used up"), "{lost}");
        let (code, text) = self::said(&run(&["check", "--store", &redis.url(), "--allow-eviction"]));
        assert!(code == 0 && text.contains("warning  eviction") && text.contains("Fit for use."), "{text}");
        assert!(
            text.contains("What can be lost\n  If Redis or its machine crashes: A restart loses every record"),
            "{text}"
        );
        let (code, text) = self::said(&run(&["check", "--strict", "--store", &redis.url(), "--allow-eviction"]));
        assert!(code == 1 && text.ends_with("Not fit for use: see the warnings above (--strict).\n"), "{text}");
        let (code, text) = self::said(&run(&["check", "--strict", "--store", &redis.url()]));
        assert!(code == 1 && text.ends_with("Not fit for use: see the problems above.\n"), "{text}");
        // A service that starts on it names it.
        let (code, text) = self::said(&run(&["--listen", "127.0.0.1:0", "--store", &redis.url()]));
        let names = format!("store: Redis at 127.0.0.1:{} evicts any record, ", redis.port());
        assert!(code == 1 && text.contains(&names), "{text}");
    }
}

#[test]
fn each_persistence_mode_reports_what_a_crash_loses() {
    for (arguments, level, parts) in [
        (&["--appendonly", "yes", "--appendfsync", "always"][..], "ok", ["always", "loses nothing"]),
        (&["--appendonly", "yes", "--appendfsync", "everysec"], "note", ["everysec", "a second or two"]),
        (&["--appendonly", "yes", "--appendfsync", "no"], "warning", ["appendfsync no", "half a minute"]),
        (&["--save", "3600 1"], "warning", ["save 3600 1", "last snapshot"]),
    ] {
        let redis = RedisServer::start_with(arguments);
        let (code, said) = check(&redis.url());
        assert_eq!(code, 0, "{said:#}");
        expect(&said, "persistence", level, &parts);
        for fine in ["reach", "version", "role", "eviction", "memory", "permissions", "clock"] {
            expect(&said, fine, "ok", &[]);
        }
        let is_empty = until_blocking(Duration::from_secs(1), || redis.keys().is_empty());
        assert!(is_empty, "the test records are removed again: {:?}", redis.keys());
    }
}

#[test]
fn wrong_and_missing_passwords_have_different_errors() {
    let redis = RedisServer::start_with(&["--requirepass", "right-canary"]);
    for (login, says) in [
        ("", "requires a password, and --store has none"),
        (":wrong-canary@", "rejects the password"),
        ("nobody:wrong-canary@", "rejects the user name or the password"),
    ] {
        let (code, said) = check(&format!("redis://{login}127.0.0.1:{}", redis.port()));
        assert_eq!(code, 1);
        expect(&said, "reach", "problem", &[says, "redis://", "--store-file"]);
        assert!(!said.to_string().contains("canary"), "{said:#}");
    }
    let (code, said) = check(&format!("redis://:right-canary@127.0.0.1:{}", redis.port()));
    assert!(code == 0 && !said.to_string().contains("canary"), "{said:#}");
}

#[test]
fn replica_is_reported_with_its_master() {
    let master = RedisServer::start();
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    let (code, said) = check(&replica.url());
    assert_eq!(code, 1);
    let there = format!("127.0.0.1:{}", master.port());
    expect(&said, "role", "problem", &["replica of", &there, &format!("--store redis://{there}"), "no writes"]);
    let is_known = until_blocking(Duration::from_secs(10), || found(&check(&master.url()).1, "role").0 == "note");
    assert!(is_known, "the master reports its replica");
    let (_, said) = check(&master.url());
    expect(&said, "role", "note", &["1 replica", "failover"]);
}

/// A service that starts on such a Redis reports the same, and a running one is not ready.
#[tokio::test]
async fn service_reports_why_a_reachable_redis_is_unusable() {
    let start = |store: &str| said(&run(&["--listen", "127.0.0.1:0", "--wait-for", "300ms", "--store", store]));
    let locked = RedisServer::start_with(&["--requirepass", "right-canary"]);
    for (login, says) in [("", "requires a password, and --store has none"), (":wrong-canary@", "rejects the password")]
    {
        let (code, text) = start(&format!("redis://{login}127.0.0.1:{}", locked.port()));
        let last = text.lines().last().unwrap();
        assert!(code == 1 && last.contains(says) && !text.contains("canary"), "{text}");
    }
    let master = RedisServer::start();
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    let (code, text) = start(&replica.url());
    let there = format!("--store redis://127.0.0.1:{}", master.port());
    let names = format!("store: Redis at 127.0.0.1:{} is a replica", replica.port());
    let [waits, ends] = text.lines().collect::<Vec<_>>()[..] else { panic!("two lines: {text}") };
    assert!(waits.contains(&names) && waits.contains("accepts no writes; retrying for 300 ms"), "{text}");
    assert!(code == 1 && ends.contains(&format!("{names} of")) && ends.contains(&there), "{text}");
    let (code, text) = start(&format!("redis://127.0.0.1:{}", free_port()));
    assert!(
        code == 1 && text.contains("refuses connections (retried for 300 ms, see --wait-for). Start Redis"),
        "{text}"
    );

    let service = OncewardServer::start(&["--store", &master.url()]);
    let listen = service.url.trim_start_matches("http://");
    let ready = || said(&run(&["healthcheck", "--listen", listen]));
    assert_eq!(ready().0, 0);
    let _: () = master.ask(&format!("REPLICAOF 127.0.0.1 {}", free_port()));
    // Readiness is cached for a moment.
    until("the service is not ready", Duration::from_secs(5), || std::future::ready(ready().0 == 1)).await;
    let (code, text) = ready();
    assert!(code == 1 && text.contains("store_unavailable"), "the store can be read but not written: {text}");
    let _: () = master.ask("REPLICAOF NO ONE");
    until("the service is ready again", Duration::from_secs(10), || std::future::ready(ready().0 == 0)).await;
}

#[test]
fn store_failure_is_reported_once() {
    let nowhere = format!("redis://127.0.0.1:{}", free_port());
    let (code, text) = said(&run(&["token", "issue", "--wait-for", "300ms", "--store", &nowhere]));
    assert_eq!((code, text.matches("refuses connections").count()), (1, 1), "{text}");
}

/// A retry would not help, so the service ends long before `wait_for`.
#[test]
fn rejected_login_and_missing_permission_end_the_service_at_once() {
    let redis = RedisServer::start();
    redis.ask::<()>("ACL SETUSER shop on >right-canary ~onceward:* +@all -set");
    redis.ask::<()>("ACL SETUSER default resetpass >right-canary");
    for (store, says) in [
        ("redis://:wrong-canary@", "rejects the password"),
        ("redis://shop:wrong-canary@", "rejects the user name or the password"),
        ("redis+cluster://:wrong-canary@", "rejects the password"),
        ("redis://", "requires a password"),
        ("redis://shop:right-canary@", "has no permissions to run the 'set' command"),
        ("redis+cluster://:right-canary@", "cluster support is disabled"),
    ] {
        let store = format!("{store}127.0.0.1:{}", redis.port());
        for arguments in [&["--listen", "127.0.0.1:0"][..], &["token", "issue"]] {
            let begun = Instant::now();
            let (code, text) = said(&run(&[arguments, &["--wait-for", "1h", "--store", &store]].concat()));
            assert!(begun.elapsed() < Duration::from_secs(60), "{text}");
            assert_eq!((code, text.matches(says).count(), text.lines().count()), (1, 1, 1), "{text}");
            assert!(!text.contains("canary"), "{text}");
        }
    }
}

#[test]
fn unreachable_redis_is_logged_once_while_the_service_retries() {
    let port = free_port();
    let store = format!("redis://:canary@127.0.0.1:{port}");
    let (code, text) = said(&run(&["--listen", "127.0.0.1:0", "--wait-for", "2s", "--store", &store]));
    let [waits, ends] = text.lines().collect::<Vec<_>>()[..] else { panic!("two lines: {text}") };
    assert!(waits.contains(&format!("Redis at 127.0.0.1:{port} refuses connections; retrying for 2 s")), "{text}");
    assert!(
        ends.contains(&format!(
            "Redis at 127.0.0.1:{port} refuses connections (retried for 2 s, see --wait-for). Start Redis"
        )),
        "{text}"
    );
    assert!(code == 1 && !text.contains("canary"), "{text}");
}

/// The silent server accepts connections, and the other one does not speak TLS.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_redis_ends_the_service_soon_after_the_wait() {
    let redis = RedisServer::start();
    let secured = redis.url().replace("redis://", "rediss://");
    for (store, wait, fix) in
        [(&redis.url(), "1s", "SLOWLOG GET"), (&secured, "3s", "write redis:// instead of rediss://")]
    {
        redis.freeze();
        if store == &secured {
            redis.thaw();
        }
        let begun = Instant::now();
        let (code, text) = said(&run(&["--listen", "127.0.0.1:0", "--wait-for", wait, "--store", store]));
        let took = begun.elapsed();
        redis.thaw();
        let [waits, ends] = text.lines().collect::<Vec<_>>()[..] else { panic!("two lines: {text}") };
        let name = format!("Redis at 127.0.0.1:{}", redis.port());
        let retried = format!("{name} accepts connections but does not reply in time (retried for {} s,", &wait[..1]);
        assert!(code == 1 && ends.contains(&retried) && ends.contains(fix), "{text}");
        assert!(waits.contains(&name) && waits.contains("; retrying for "), "{text}");
        assert!(took < Duration::from_secs(wait[..1].parse::<u64>().unwrap() + 2), "{took:?}");
    }
}

/// A full backlog drops further connection attempts, as a firewall does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_host_is_not_said_to_accept_connections() {
    let listener = tokio::net::TcpSocket::new_v4().unwrap();
    listener.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = listener.listen(1).unwrap();
    let place = listener.local_addr().unwrap();
    let connect = || tokio::time::timeout(Duration::from_millis(200), tokio::net::TcpStream::connect(place));
    let mut filled = Vec::new();
    while let Ok(Ok(connection)) = connect().await {
        filled.push(connection);
    }
    let store = format!("redis://{place}");
    let (code, found) = check(&store);
    assert_eq!(code, 1);
    expect(&found, "reach", "problem", &["cannot be reached: no connection within", "the firewall"]);
    let (code, text) = said(&run(&["token", "issue", "--wait-for", "300ms", "--store", &store]));
    assert!(code == 1 && text.contains(&format!("Redis at {place} cannot be reached: no connection within")), "{text}");
}

#[test]
fn database_that_is_not_a_number_is_quoted() {
    for arguments in [&["check"][..], &["token", "issue"], &["--listen", "127.0.0.1:0"]] {
        let (code, text) = said(&run(&[arguments, &["--store", "redis://127.0.0.1:6379/abc"]].concat()));
        assert!(code == 2 && text.contains("`abc` is not a database number") && !text.contains("memory:"), "{text}");
    }
}

#[test]
fn part_of_a_password_is_not_quoted() {
    for store in ["redis://:can/ary?x@127.0.0.1:6379", "rediss://u:can/ary#x@h", "postgres://u:5432/can?ary@h/db"] {
        for arguments in [&["check"][..], &["token", "issue"], &["--listen", "127.0.0.1:0"]] {
            let (code, text) = said(&run(&[arguments, &["--store", store]].concat()));
            assert!(code == 2 && text.contains("%2F") && text.contains("%3F") && text.contains("%23"), "{text}");
            let text = text.replace("sqlite:/var/lib/onceward.db", "");
            assert!(!text.contains("can") && !text.contains("ary"), "{text}");
        }
    }
}

#[test]
fn port_that_is_not_a_number_is_named() {
    let (code, text) = said(&run(&["check", "--store", "redis://h:abc/1"]));
    assert!(code == 2 && text.contains("it has a port that is not a number from 1 to 65535"), "{text}");
}

#[test]
fn missing_database_and_socket_file_are_named() {
    let redis = RedisServer::start();
    let (code, found) = check(&format!("{}/99", redis.url()));
    assert_eq!(code, 1);
    expect(&found, "reach", "problem", &[&format!("Redis at 127.0.0.1:{} has no database 99.", redis.port())]);
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("redis.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let store = format!("unix://{}?pass=canary", socket.display());
    let says = format!("Redis at {} refuses connections", socket.display());
    let (code, found) = check(&store);
    assert!(code == 1 && !found.to_string().contains("canary"), "{found:#}");
    expect(&found, "reach", "problem", &[&says, "unix:///run/redis.sock"]);
    let (code, text) = said(&run(&["token", "issue", "--wait-for", "200ms", "--store", &store]));
    assert!(code == 1 && text.contains(&says) && !text.contains("canary"), "{text}");
}

#[test]
fn restart_of_the_memory_store_is_described_with_and_without_secret() {
    let (code, text) = said(&run(&["check"]));
    assert!(code == 0 && text.contains("rejected as invalid, or as stale if `secret` is set"), "{text}");
}

#[test]
fn full_redis_is_reported_with_what_still_works() {
    let redis = RedisServer::start_with(&["--maxmemory", "6mb", "--maxmemory-policy", "noeviction"]);
    let mut connection = redis.connection();
    let mut fill = |size: usize| {
        let write = |at: usize| {
            let (name, value) = (format!("fill:{size}:{at}"), "x".repeat(size));
            redis::cmd("SET").arg(name).arg(value).query::<()>(&mut connection)
        };
        (0..20_000).map(write).any(|written| written.is_err())
    };
    assert!(fill(50_000) && fill(500) && fill(1), "Redis is not full");
    let (code, said) = check(&redis.url());
    assert_eq!(code, 1, "{said:#}");
    expect(
        &said,
        "memory",
        "problem",
        &["It is full", "6.0 MiB", "503", "no key is claimed", "Issued tokens are still redeemed", "Raise maxmemory"],
    );
}

#[test]
fn missing_permissions_are_named() {
    let redis = RedisServer::start();
    let as_user = |rules: &str| {
        let _: () = redis.ask("ACL DELUSER shop");
        let _: () = redis.ask(&format!("ACL SETUSER shop on >pass {rules}"));
        check(&format!("redis://shop:pass@127.0.0.1:{}", redis.port()))
    };
    let every = "~onceward:* +get +set +del +pexpire +eval +evalsha +ping +info +hello +client +select";
    let (code, said) = as_user(every);
    assert_eq!(code, 0, "the permissions that `check` names are enough: {said:#}");
    expect(&said, "permissions", "ok", &[]);
    expect(&said, "persistence", "warning", &["may not read"]);
    let (code, said) = as_user(&format!("{every} -del -eval"));
    assert_eq!(code, 1);
    expect(&said, "permissions", "problem", &["User shop may not send DEL, EVAL", "ACL SETUSER shop ~onceward:*"]);
    let (code, said) = as_user(&every.replace("onceward", "other"));
    assert_eq!(code, 1);
    expect(&said, "permissions", "problem", &["keys that begin with onceward:", "--prefix"]);
    let (code, said) = as_user(&format!("{every} -info"));
    assert_eq!(code, 0);
    expect(&said, "info", "warning", &["may not send INFO", "ACL SETUSER shop +info"]);
    let (code, said) = as_user(&format!("{every} -ping"));
    assert_eq!(code, 1);
    expect(&said, "reach", "problem", &["does not allow user shop to send PING", "ACL SETUSER shop +ping"]);
}

/// Returns the ACL line that `check` prints for missing permissions.
fn line(said: &Value) -> Option<String> {
    let fixes = said["findings"].as_array().unwrap().iter().filter_map(|finding| finding["fix"].as_str());
    let mut lines = fixes.filter_map(|fix| fix.split("ACL SETUSER ").nth(1));
    let line = lines.next()?.split([',', ';']).next().unwrap().trim_end_matches('.');
    Some(format!("ACL SETUSER {}", line.replace("<user>", "shop")))
}

/// Applies the printed lines until `check` finds nothing more, and returns how many there were.
fn obey(store: &str, servers: &[&RedisServer]) -> usize {
    for times in 0..5 {
        let (code, said) = check(store);
        let Some(line) = line(&said).filter(|_| code != 0) else {
            assert_eq!(code, 0, "{said:#}");
            expect(&said, "permissions", "ok", &[]);
            return times;
        };
        servers.iter().for_each(|server| server.ask(&line));
    }
    panic!("the printed lines are not enough");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn printed_acl_lines_create_a_working_user() {
    let new = "ACL SETUSER shop on >pass +ping";
    let issue = |store: &str| said(&run(&["token", "issue", "--action", "pay", "--store", store]));
    let redis = RedisServer::start();
    redis.ask::<()>(new);
    let store = format!("redis://shop:pass@127.0.0.1:{}", redis.port());
    assert!(obey(&store, &[&redis]) >= 1);
    let (code, token) = issue(&store);
    assert_eq!(code, 0, "{token}");
    let (code, text) = said(&run(&["token", "inspect", token.trim(), "--action", "pay", "--store", &store]));
    assert!(code == 0 && text.contains("The token can be used."), "{text}");

    let cluster = RedisCluster::start().await;
    let servers: Vec<_> = cluster.nodes.iter().map(|node| &node.server).collect();
    servers.iter().for_each(|server| server.ask(new));
    let store = cluster.address().replace("redis+cluster://", "redis+cluster://shop:pass@");
    let (code, said) = check(&store);
    assert_eq!(code, 1);
    expect(&said, "reach", "problem", &["user shop to send CLUSTER SLOTS", "ACL SETUSER shop +cluster|slots"]);
    assert!(obey(&store, &servers) >= 2, "one to find the nodes, then one for each node");
    assert_eq!(issue(&store).0, 0);
    servers.iter().for_each(|server| server.ask("ACL SETUSER shop -asking"));
    let (code, said) = check(&store);
    assert_eq!(code, 1);
    expect(&said, "permissions", "problem", &["may not send ASKING", "+asking"]);
}

/// A service that starts on it reports the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_and_cluster_faults_have_their_own_messages() {
    let wrong = |store: &str, parts: &[&str]| {
        let (code, said) = check(store);
        assert_eq!(code, 1, "{said:#}");
        expect(&said, "reach", "problem", parts);
        let started = run(&["--listen", "127.0.0.1:0", "--wait-for", "300ms", "--store", store]);
        let (code, text) = self::said(&started);
        assert!(code == 1 && parts.iter().all(|part| text.contains(part)) && !text.contains("canary"), "{text}");
    };
    let plain = RedisServer::start();
    wrong(&plain.url().replace("redis://", "redis+cluster://"), &["cluster support is disabled", "--store redis://"]);
    let alone = RedisServer::start_with(&["--cluster-enabled", "yes"]);
    let unfinished = alone.url().replace("redis://", "redis+cluster://");
    wrong(&unfinished, &["no slot assignments", "--cluster create"]);

    let nowhere = format!("redis+sentinel://127.0.0.1:{}/m", free_port());
    wrong(&nowhere, &["Redis (Sentinel at 127.0.0.1:", "refuses connections"]);

    let sentinels = Sentinels::start().await;
    let (hosts, _) = sentinels.address().rsplit_once('/').map(|(hosts, name)| (hosts.to_owned(), name.len())).unwrap();
    wrong(&format!("{hosts}/other"), &["no master of that name", "SENTINEL MASTERS"]);
    for sentinel in &sentinels.sentinels {
        sentinel.ask::<()>(&["ACL", "SETUSER", "default", "resetpass", ">right-canary"]).unwrap();
    }
    wrong(&sentinels.address(), &["the sentinels reject the password"]);
    let with = sentinels.address().replace("://", "://:wrong-canary@");
    wrong(&with, &["the sentinels reject the password"]);
}

/// A master with eviction is found even if another master cannot be checked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evicting_cluster_node_is_named_with_its_address() {
    let cluster = RedisCluster::start().await;
    let mut masters: Vec<_> = cluster.masters();
    masters.sort_by_key(|number| format!("127.0.0.1:{}", cluster.nodes[*number].proxy.port()));
    // Not the node that the reachability check uses.
    let monitors: Vec<_> = masters.iter().map(|number| cluster.nodes[*number].server.monitor()).collect();
    let _service = OncewardServer::start(&["--store", &cluster.address()]);
    let is_asked = |at: usize| monitors[at].commands().iter().any(|command| command.contains("\"PX\" \"1\""));
    let asked = (0..3).find(|at| is_asked(*at)).expect("one was asked");
    let [silent, evicting] = match asked {
        0 => [1, 2],
        1 => [0, 2],
        _ => [0, 1],
    };
    let evicting = &cluster.nodes[masters[evicting]];
    evicting.server.ask::<()>("CONFIG SET maxmemory-policy allkeys-lru");
    let place = format!("127.0.0.1:{}", evicting.proxy.port());
    let (code, said) = check(&cluster.address());
    let findings = said["findings"].as_array().unwrap();
    let problems: Vec<_> = findings.iter().filter(|finding| finding["level"] == "problem").collect();
    assert_eq!((code, problems.len()), (1, 1), "{said:#}");
    assert!(problems[0]["says"].as_str().unwrap().starts_with(&format!("{place}: It evicts any record")), "{said:#}");
    assert!(findings.iter().any(|finding| finding["says"].as_str().unwrap().contains("which were not checked")));

    cluster.nodes[masters[silent]].server.freeze();
    let secret = "a-secret-so-that-none-is-fetched";
    // With an address that is in use, so that the service exits in any case.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let (code, text) = self::said(&run(&["--listen", &listen, "--secret", secret, "--store", &cluster.address()]));
    cluster.nodes[masters[silent]].server.thaw();
    let names = format!("Redis at {place} evicts any record");
    assert!(code == 1 && text.contains(&names) && text.contains("--allow-eviction"), "{text}");
}

/// With high latency: connecting takes longer than the store timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn distant_redis_is_awaited_and_a_slow_one_reported() {
    let redis = RedisServer::start();
    let delay =
        |connect, answer| Delay { connect: Duration::from_millis(connect), answer: Duration::from_millis(answer) };
    let far = Proxy::slowly_before(redis.port(), delay(400, 20)).await;
    let store = format!("redis://127.0.0.1:{}", far.port());
    let (code, token) = said(&run(&["token", "issue", "--store", &store]));
    assert_eq!(code, 0, "{token}");
    let (code, text) = said(&run(&["token", "inspect", token.trim(), "--store", &store]));
    assert!(code == 0 && text.contains("The token can be used."), "{text}");
    let slow = Proxy::slowly_before(redis.port(), delay(0, 300)).await;
    let store = format!("redis://127.0.0.1:{}", slow.port());
    let (code, told) = check(&store);
    assert_eq!(code, 1, "{told:#}");
    expect(&told, "time", "problem", &["store_timeout is 250ms", "--store-timeout"]);
    let (code, text) = said(&run(&["token", "issue", "--wait-for", "300ms", "--store", &store]));
    assert!(code == 1 && text.contains("--store-timeout"), "{text}");
    assert_eq!(said(&run(&["token", "issue", "--store-timeout", "2s", "--store", &store])).0, 0);
}

#[test]
fn absent_and_silent_redis_have_different_errors() {
    let (code, said) = check(&format!("redis://127.0.0.1:{}", free_port()));
    assert_eq!(code, 1);
    expect(&said, "reach", "problem", &["refuses connections", "--store"]);
    let redis = RedisServer::start();
    redis.freeze();
    let (code, said) = check(&redis.url());
    redis.thaw();
    assert_eq!(code, 1);
    expect(&said, "reach", "problem", &["does not reply"]);
}

#[test]
fn every_setting_is_shown_with_its_source_without_secrets() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "rate_burst = 7\napi_key = \"canary-key-canary\"").unwrap();
    let path = file.path().to_str().unwrap();
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "canary-secret-canary\n").unwrap();
    let mut command = command(&["check", "--config", path, "--listen", "127.0.0.1:9999"]);
    command.env("ONCEWARD_TOKEN_TTL", "5m").env("ONCEWARD_SECRET_FILE", secret.path()).env("ONCEWARD_TOKEN_TLL", "x");
    let (code, text) = said(&command.output().unwrap());
    assert_eq!(code, 0, "{text}");
    let row = |name: &str| {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.unwrap_or_else(|| panic!("{name} is not in\n{text}"))
            .split_whitespace()
            .skip(1)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(row("listen"), "127.0.0.1:9999 --listen");
    assert_eq!(row("rate_burst"), format!("7 {path}"));
    assert_eq!(row("token_ttl"), "5m ONCEWARD_TOKEN_TTL");
    assert_eq!(row("secret"), "******** ONCEWARD_SECRET_FILE");
    assert_eq!(row("api_key"), format!("******** {path}"));
    assert_eq!((row("prefix"), row("cors_origins")), ("onceward the default".into(), "- not set".into()));
    assert!(!text.contains("canary"), "{text}");
    assert!(text.contains("ONCEWARD_TOKEN_TLL") && text.contains("did you mean ONCEWARD_TOKEN_TTL?"), "{text}");
    let (code, text) = said(&run(&["check", "--listen", "0.0.0.0:8080"]));
    assert!(code == 2 && text.contains("ONCEWARD_API_KEY"), "{text}");
}

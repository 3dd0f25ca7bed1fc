//! After a crash, `audit` finds exactly the claims of dead owners, `key settle` settles them, and a retry receives the right response.

use std::time::Duration;

use onceward_tests::client::{Answer, send};
use onceward_tests::command_output::{parsed, said};
use onceward_tests::key_routes::{PATIENT, THEN, buy, under};
use onceward_tests::ledger::Ledger;
use onceward_tests::peer::Peer;
use onceward_tests::polling::until;
use onceward_tests::postgres::PostgresServer;
use onceward_tests::redis_cluster::RedisCluster;
use onceward_tests::redis_server::RedisServer;
use onceward_tests::service::{OncewardServer, run, run_with};
use onceward_tests::service_calls::post;
use onceward_tests::shop::STATUS;
use serde_json::{Value, json as object};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::PEER;

const LONG: Duration = Duration::from_secs(10);

/// Processes on one Redis, each with its own log.
struct Bed {
    redis: RedisServer,
    ledger: Ledger,
    folder: TempDir,
    peers: Vec<Peer>,
}

impl Bed {
    fn start(peers: usize) -> Self {
        let (redis, ledger, folder) = (RedisServer::start(), Ledger::new(), tempfile::tempdir().unwrap());
        let log = |at: usize| folder.path().join(format!("{at}.log"));
        let start = |at| Peer::start_logging(PEER, "onceward", &redis.url(), &ledger, &log(at));
        let peers = (0..peers).map(start).collect();
        Self { redis, ledger, folder, peers }
    }

    /// Runs a command on the store and returns its exit code and JSON output.
    fn ask(&self, arguments: &[&str]) -> (i32, Value) {
        let output = run(&[arguments, &["--json", "--store", &self.redis.url()]].concat());
        (output.status.code().unwrap(), if output.stdout.is_empty() { Value::Null } else { parsed(&output) })
    }

    fn audit(&self, more: &[&str]) -> (i32, Value) {
        let logs: Vec<_> = (0..self.peers.len()).map(|at| self.folder.path().join(format!("{at}.log"))).collect();
        let logs: Vec<_> = logs.iter().map(|path| path.to_str().unwrap()).collect();
        self.ask(&[&["audit"], more, &logs].concat())
    }

    /// Starts a slow request and waits for its effect.
    async fn begin(&self, peer: usize, path: &'static str, key: &str) -> JoinHandle<Result<Answer, reqwest::Error>> {
        let request = under(&self.peers[peer].url, path, key, key).header(THEN, "60000");
        let sent = tokio::spawn(async move { Ok(Answer::of(request.send().await?).await) });
        until("the effect has happened", LONG, || std::future::ready(self.ledger.count(key) == 1)).await;
        sent
    }
}

/// Returns fate and action of each listed claim, sorted.
fn listed(said: &Value) -> Vec<(String, String)> {
    let text = |claim: &Value, name: &str| claim[name].as_str().unwrap().to_owned();
    let claims = said["claims"].as_array().unwrap().iter();
    let mut listed: Vec<_> = claims.map(|claim| (text(claim, "fate"), text(claim, "action"))).collect();
    listed.sort();
    listed
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(fate, action)| ((*fate).to_owned(), (*action).to_owned())).collect()
}

/// Returns ticket and run of the first claim with this fate.
fn first(said: &Value, fate: &str) -> (String, String) {
    let claim = said["claims"].as_array().unwrap().iter().find(|claim| claim["fate"] == fate).unwrap();
    (claim["ticket"].as_str().unwrap().to_owned(), claim["run"].as_str().unwrap().to_owned())
}

const HELD: &str = "/keyed/held";
const PLAIN: &str = "/keyed/orders";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_lists_exactly_the_claims_of_a_killed_process() {
    // A lease long enough for a command to run before the dead owner is detected.
    const HELD: &str = "/keyed/held/patient";
    const PLAIN: &str = "/keyed/patient";
    let mut bed = Bed::start(3);
    let alive = bed.begin(1, HELD, "alive-held").await;
    let also_alive = bed.begin(2, PLAIN, "alive-plain").await;
    for peer in 0..3 {
        assert_eq!(buy(&bed.peers[peer].url, PLAIN, &format!("done-{peer}"), "done").await.status, 200);
        let failed = under(&bed.peers[peer].url, PLAIN, &format!("failed-{peer}"), "failed").header(STATUS, 503);
        assert_eq!(send(failed).await.status, 503, "not applied, so the key is free again");
    }
    for key in ["dead-1", "dead-2"] {
        bed.begin(0, HELD, key).await.abort();
    }
    bed.begin(0, PLAIN, "dead-plain").await.abort();
    let (code, before) = bed.audit(&["--wait"]);
    assert_eq!((code, listed(&before), &before["alive"]), (0, pairs(&[]), &object!(5)), "all alive: {before:#}");

    bed.peers[0].kill();
    let (code, at_once) = bed.audit(&[]);
    assert_eq!((code, listed(&at_once)), (0, pairs(&[])), "undecided until the lease expires: {at_once:#}");
    let within = at_once["known_within_ms"].as_u64().unwrap();
    assert!(at_once["in_doubt"] == 5 && (1..=PATIENT.as_millis() as u64).contains(&within), "{at_once:#}");

    let (code, after) = bed.audit(&["--wait"]);
    let dead = pairs(&[
        ("held", "POST /keyed/held/patient"),
        ("held", "POST /keyed/held/patient"),
        ("lapsed", "POST /keyed/patient"),
    ]);
    assert_eq!(
        (code, listed(&after), &after["alive"], &after["in_doubt"]),
        (1, dead, &object!(2), &object!(0)),
        "{after:#}"
    );

    // By the printed ticket: applied.
    let other = bed.peers[1].url.clone();
    assert_eq!(buy(&other, HELD, "dead-1", "dead-1").await.said(), "409 outcome_unknown");
    let tickets: Vec<_> =
        after["claims"].as_array().unwrap().iter().map(|claim| claim["ticket"].as_str().unwrap()).collect();
    let (_, look) = bed.ask(&["key", "look", "--key", "dead-1", "--action", "POST /keyed/held/patient"]);
    assert_eq!(look["state"], "unknown");
    let ticket = look["ticket"].as_str().unwrap();
    assert!(tickets.contains(&ticket), "{tickets:?} {ticket}");
    let body = bed.folder.path().join("answer.txt");
    std::fs::write(&body, "found in the books").unwrap();
    let answer = ["--status", "201", "--body-file", body.to_str().unwrap(), "--header", "location: /receipts/7"];
    let (code, settled) = bed.ask(&[&["key", "settle", ticket, "--applied"], &answer[..]].concat());
    assert_eq!((code, &settled["event"]), (0, &object!("completed")), "{settled:#}");
    let replayed = buy(&other, HELD, "dead-1", "dead-1").await;
    assert_eq!((replayed.said().as_str(), &replayed.body[..]), ("201 replayed", &b"found in the books"[..]));
    assert_eq!((&replayed.headers["location"], bed.ledger.count("dead-1")), (&"/receipts/7".parse().unwrap(), 1));

    // By the key: not applied.
    let key = ["--key", "dead-2", "--action", "POST /keyed/held/patient"];
    let (code, released) = bed.ask(&[&["key", "settle"], &key[..], &["--not-applied"]].concat());
    assert_eq!((code, &released["event"]), (0, &object!("released")), "{released:#}");
    assert_eq!(buy(&other, HELD, "dead-2", "dead-2").await.said(), "200 executed");
    assert_eq!(bed.ledger.count("dead-2"), 2);

    // A live run is left alone.
    let (_, look) = bed.ask(&["key", "look", "--key", "alive-held", "--action", "POST /keyed/held/patient"]);
    assert_eq!(look["state"], "running");
    let output =
        run(&["key", "settle", look["ticket"].as_str().unwrap(), "--not-applied", "--store", &bed.redis.url()]);
    let (code, text) = said(&output);
    assert!(code == 1 && text.contains("may still be alive") && text.contains("nothing was changed"), "{text}");
    assert!(!alive.is_finished() && !also_alive.is_finished());

    // Settled claims are recognized by their record or their log line.
    let line = bed.folder.path().join("settled.log");
    std::fs::write(&line, format!("{released}\n")).unwrap();
    let (_, rest) = bed.audit(&["--wait", line.to_str().unwrap()]);
    assert_eq!(listed(&rest), pairs(&[("lapsed", "POST /keyed/patient")]), "{rest:#}");
    alive.abort();
    also_alive.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_outcome_is_listed_while_held() {
    let bed = Bed::start(1);
    let url = bed.peers[0].url.clone();
    for (path, key) in [(HELD, "held"), (PLAIN, "plain")] {
        assert_eq!(send(under(&url, path, key, key).header(STATUS, 502)).await.status, 502);
    }
    let (code, said) = bed.audit(&["--wait"]);
    assert_eq!((code, listed(&said)), (1, pairs(&[("unknown", "POST /keyed/held")])), "{said:#}");
    let (ticket, run) = first(&said, "unknown");
    assert_eq!(buy(&url, HELD, "held", "held").await.said(), "409 outcome_unknown");
    let stranger = "00000000-0000-4000-8000-000000000001";
    assert_eq!(bed.ask(&["key", "settle", &ticket, "--run", stranger, "--not-applied"]).0, 1, "another run");
    let (code, settled) = bed.ask(&["key", "settle", &ticket, "--run", &run, "--applied"]);
    assert_eq!((code, &settled["settled"]), (0, &object!(true)));
    let (code, again) = bed.ask(&["key", "settle", &ticket, "--run", &run, "--applied", "--status", "201"]);
    assert_eq!((code, &again["settled"]), (0, &object!(false)), "already settled: {again:#}");
    assert_eq!(bed.ask(&["key", "settle", &ticket, "--not-applied"]).0, 1, "it is settled as applied");
    assert_eq!(buy(&url, HELD, "held", "held").await.said(), "409 reply_not_kept");
    assert_eq!((bed.audit(&["--wait"]).0, bed.ledger.count("held")), (0, 1));
}

/// The log of the service, piped into the command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_claim_is_found_in_the_service_log() {
    let redis = RedisServer::start();
    let service = OncewardServer::start(&["--store", &redis.url()]);
    let claim = async |key: &str| {
        let asked = object!({"key": key, "action": "pay", "subject": "alice", "lease": "500ms"});
        post(&service.url, "/claim", &asked).await
    };
    let gone = claim("gone").await;
    let done: Value = serde_json::from_slice(&claim("done").await.body).unwrap();
    assert_eq!(post(&service.url, "/claim/complete", &object!({"pass": done["pass"]})).await.status, 204);
    assert_eq!(gone.status, 200);
    // Another thread reads the log and may lag.
    let is_whole = || service.log().iter().any(|line| line.contains("\"completed\""));
    until("the end of the other run is logged", LONG, || std::future::ready(is_whole())).await;
    let log = service.log().join("\n") + "\n";
    let output = run_with(&["audit", "--wait", "--store", &redis.url()], &log);
    let named = run_with(&["audit", "--wait", "--store", &redis.url(), "-"], &log);
    assert_eq!((said(&named), named.stdout.is_empty()), (said(&output), false), "`-` is standard input too");
    let (code, text) = said(&output);
    assert!(code == 1 && text.contains("1 claim(s) whose owner is gone") && text.contains("  pay\n"), "{text}");
    let command = text.split("then: onceward ").nth(1).unwrap().split(" (or --not-applied)").next().unwrap();
    assert_eq!(claim("gone").await.said(), "409 outcome_unknown");
    let arguments: Vec<_> = command.split(' ').chain(["--status", "202", "--store"]).collect();
    let (code, text) = said(&run(&[&arguments[..], &[&redis.url()]].concat()));
    assert!(code == 0 && text.contains("Settled."), "the printed command works: {text}");
    let answer: Value = serde_json::from_slice(&claim("gone").await.body).unwrap();
    assert_eq!((&answer["outcome"], &answer["reply"]["status"]), (&object!("replay"), &object!(202)));
    let after = run_with(&["audit", "--store", &redis.url()], &log);
    assert_eq!(after.status.code(), Some(0));
}

/// On any store: the unfinished run of a killed process is found, settled and replayed.
async fn assert_is_found_and_settled(store: &str) {
    let asked = object!({"key": "k", "action": "pay", "subject": "alice", "lease": "1s"});
    let service = OncewardServer::start(&["--store", store]);
    assert_eq!(post(&service.url, "/claim", &asked).await.status, 200);
    let is_told = || service.log().iter().any(|line| line.contains("\"claimed\""));
    until("the claim is logged", LONG, || std::future::ready(is_told())).await;
    let log = service.log().join("\n") + "\n";
    // SIGKILL, not a graceful shutdown.
    drop(service);
    let audit = |more: &[&str]| run_with(&[&["audit", "--json", "--store", store], more].concat(), &log);
    let listed = audit(&["--wait"]);
    assert_eq!(
        (listed.status.code(), &parsed(&listed)["claims"][0]["fate"]),
        (Some(1), &object!("held")),
        "{listed:?}"
    );
    let (ticket, run_id) = first(&parsed(&listed), "held");
    let (code, look) = said(&run(&["key", "look", &ticket, "--store", store]));
    assert!(code == 0 && look.contains("state   unknown"), "{look}");
    let service = OncewardServer::start(&["--store", store]);
    assert_eq!(post(&service.url, "/claim", &asked).await.said(), "409 outcome_unknown");
    let settle = ["key", "settle", &ticket, "--run", &run_id, "--applied", "--status", "202", "--store", store];
    let (code, text) = said(&run(&settle));
    assert!(code == 0 && text.contains("Settled."), "{text}");
    let answer: Value = serde_json::from_slice(&post(&service.url, "/claim", &asked).await.body).unwrap();
    assert_eq!((&answer["outcome"], &answer["reply"]["status"]), (&object!("replay"), &object!(202)));
    assert_eq!(audit(&[]).status.code(), Some(0));

    let (code, token) = said(&run(&["token", "issue", "--store", store]));
    assert_eq!(code, 0, "{token}");
    let token = token.trim();
    assert_eq!(said(&run(&["token", "inspect", token, "--store", store])).0, 0);
    assert_eq!(said(&run(&["token", "revoke", token, "--store", store])).0, 0);
    assert_eq!(post(&service.url, "/token/redeem", &object!({ "token": token })).await.said(), "410 token_revoked");
    let stats = run(&["stats", "--json", "--listen", service.url.trim_start_matches("http://")]);
    assert!(stats.status.success(), "{stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_run_in_a_database_is_found_and_settled() {
    let (server, folder) = (PostgresServer::start(), tempfile::tempdir().unwrap());
    for store in [server.url(), format!("sqlite:{}", folder.path().join("store.db").display())] {
        assert_eq!(run(&["migrate", "--store", &store]).status.code(), Some(0));
        assert_is_found_and_settled(&store).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_run_in_a_cluster_is_found_and_settled() {
    let cluster = RedisCluster::start().await;
    assert_is_found_and_settled(&cluster.address()).await;
}

/// A settlement is final, so a response that could not be stored as given is rejected before anything is settled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_response_or_unknown_key_settles_nothing() {
    let redis = RedisServer::start();
    let service = OncewardServer::start(&["--store", &redis.url()]);
    let asked = object!({"key": "k", "action": "pay", "subject": "alice", "lease": "200ms"});
    assert_eq!(post(&service.url, "/claim", &asked).await.status, 200);
    let settle = |key: &[&str], more: &[&str]| {
        let output = run(&[&["key", "settle", "--store", &redis.url()], key, more].concat());
        said(&output)
    };
    let own = ["--key", "k", "--action", "pay", "--subject", "alice"];
    let is_unknown = || async { post(&service.url, "/claim", &asked).await.said() == "409 outcome_unknown" };
    until("the owner counts as dead", LONG, is_unknown).await;

    let large = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(large.path(), vec![b'x'; 1024 * 1024 + 1]).unwrap();
    for (more, part) in [
        (["--header", "bad header: x"], "`bad header: x` is malformed"),
        (["--header", "x: a\nb"], "is malformed"),
        (["--header", "content-type"], "is malformed"),
        (["--header", "Set-Cookie: a=b"], "`Set-Cookie` is never stored"),
        (["--body-file", large.path().to_str().unwrap()], "larger than 1 MiB"),
        (["--status", "100"], "200 to 599"),
        (["--retain", "0s"], "between 1s and 400d"),
    ] {
        let (code, text) = settle(&own, &[&["--applied"], &more[..]].concat());
        assert!(code == 2 && text.contains(part), "{more:?}: {code} {text}");
    }
    for effect in ["--applied", "--not-applied"] {
        let (code, text) = settle(&["--key", "k", "--action", "pay"], &[effect]);
        assert!(code == 1 && text.contains("there is no record") && text.contains("subject"), "{effect}: {text}");
    }
    assert!(is_unknown().await, "nothing was settled");
    assert_eq!(settle(&own, &["--not-applied"]).0, 0);
}

/// The record has no token expiry, so a token cannot be released by its ticket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_settled_by_ticket_as_not_applied_stays_used() {
    let bed = Bed::start(1);
    let url = bed.peers[0].url.clone();
    let token = onceward_tests::client::token(&url).await;
    let order = |url: &str| {
        onceward_tests::client::http().post(format!("{url}/remembered/orders")).header("onceward-token", &token)
    };
    let sent = order(&url).header(STATUS, 502);
    assert_eq!(send(sent).await.status, 502);
    let (_, said) = bed.audit(&["--wait"]);
    let (ticket, run) = first(&said, "unknown");
    assert!(ticket.starts_with("ticket:token:"), "{ticket}");
    let (code, settled) = bed.ask(&["key", "settle", &ticket, "--run", &run, "--not-applied"]);
    let says = settled["says"].as_str().unwrap();
    assert!(code == 0 && says.contains("does not work again") && !says.contains("runs it"), "{settled:#}");
    assert_eq!(send(order(&url)).await.said(), "409 token_used");
    let (_, look) = bed.ask(&["key", "look", &ticket]);
    assert!(!look["says"].as_str().unwrap().contains("runs"), "{look:#}");
}

/// A log line at level info, without a run.
const QUIET: &str = "{\"timestamp\":\"2026-11-16T10:00:00Z\",\"level\":\"INFO\",\"message\":\"listening\"}\n";
/// A log line at level warn, which does not prove that events are logged.
const WARNING: &str = "{\"timestamp\":\"2026-11-16T10:00:00Z\",\"level\":\"WARN\",\"message\":\"slow\"}\n";
const RUN: &str = "00000000-0000-4000-8000-00000000000a";

fn event(time: &str, name: &str) -> String {
    let ticket = onceward::Ticket::of(onceward::Kind::Key, b"k");
    object!({"timestamp": time, "level": "INFO", "event": name, "ticket": ticket.to_string(), "run": RUN}).to_string()
        + "\n"
}

/// An audit of an unreadable log knows nothing about the claims, so it must not exit with 0.
#[test]
fn audit_of_an_unreadable_log_exits_with_2() {
    let redis = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let binary = [&b"\x1f\x8b\x08\x00"[..], &[0xff; 300], b"\n\x00\x01\n"].concat();
    for (name, log, found) in [
        ("human", &b"2026-11-16T10:00:00Z  INFO event=claimed action=\"pay\"\n"[..], "1 line(s) that are not JSON"),
        ("cut", b"no line end", "1 line(s) that are not JSON"),
        ("binary", &binary, "not JSON"),
        ("empty", b"", "is empty"),
        ("blank", b"\n\n \n", "is empty"),
        ("prefixed", b"onceward-1  | {\"timestamp\":\"2026-11-16T10:00:00Z\"}\n", "not JSON"),
        (
            "other",
            b"{\"ts\":1,\"msg\":\"hello\"}\n{\"ts\":2,\"msg\":\"hello\"}\n",
            "2 JSON line(s) without a timestamp",
        ),
        ("array", b"[1,2]\n", "1 JSON line(s) without a timestamp"),
        ("level", WARNING.repeat(2).as_bytes(), "2 line(s) of the levels warn and error"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, log).unwrap();
        let path = path.to_str().unwrap();
        let (code, text) = said(&run(&["audit", "--store-timeout", "5s", "--store", &redis.url(), path]));
        assert!(code == 2 && text.contains(path) && text.contains(found), "{name}: {code} {text}");
        assert!(text.contains("--log json") && text.contains("info"), "the expected format is named: {text}");
        assert!(!text.contains("No claim has lost its owner"), "{text}");
        // A readable log beside it does not change the result.
        let good = folder.path().join("good");
        std::fs::write(&good, QUIET).unwrap();
        let (code, text) =
            said(&run(&["audit", "--store-timeout", "5s", "--store", &redis.url(), good.to_str().unwrap(), path]));
        let is_rotated = ["empty", "blank"].contains(&name);
        assert_eq!(code, if is_rotated { 0 } else { 2 }, "{name}: {text}");
        assert!(text.contains(path), "{name}: {text}");
    }
    let (code, text) =
        said(&run(&["audit", "--store-timeout", "5s", "--store", &redis.url(), folder.path().to_str().unwrap()]));
    assert!(code == 2 && text.contains("cannot be read"), "a folder: {code} {text}");
    let (code, text) = said(&run_with(&["audit", "--store-timeout", "5s", "--store", &redis.url()], ""));
    assert!(code == 2 && text.contains("stdin is empty"), "{code} {text}");
    let output =
        run_with(&["audit", "--json", "--store-timeout", "5s", "--store", &redis.url()], "2026 INFO event=claimed\n");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && told.contains("\"error\""), "{told}");
}

/// A log without events is readable: no run started in it.
#[test]
fn audit_of_a_log_without_claims_exits_with_0() {
    let redis = RedisServer::start();
    let (code, text) = said(&run_with(&["audit", "--store-timeout", "5s", "--store", &redis.url()], QUIET));
    assert!(code == 0 && text.contains("No run started or ended in this log"), "{code} {text}");
}

/// Foreign lines are counted, and the exit code depends on the findings.
#[test]
fn audit_counts_foreign_lines_and_exits_by_its_findings() {
    let redis = RedisServer::start();
    let foreign = "Starting up\n{\"ts\":1}\n";
    let undated = event("yesterday", "claimed");
    for (event, code) in [("completed", 0), ("claimed", 1)] {
        let log = [QUIET, foreign, &self::event("2026-11-16T10:00:00Z", event), &undated].concat();
        let output = run_with(&["audit", "--json", "--store-timeout", "5s", "--store", &redis.url()], &log);
        let told = parsed(&output);
        assert_eq!((output.status.code(), &told["events"]), (Some(code), &object!(1)), "{told:#}");
        assert_eq!((&told["skipped"], &told["skipped_events"]), (&object!(3), &object!(1)), "{told:#}");
        let (_, text) = said(&run_with(&["audit", "--store-timeout", "5s", "--store", &redis.url()], &log));
        assert!(text.contains("3 line(s) were skipped") && text.contains("1 of them"), "{text}");
    }
}

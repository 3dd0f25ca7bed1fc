//! The service on PostgreSQL and on SQLite: the same guarantees, also after a crash.

use std::any::Any;

use onceward::store::Sql;
use onceward_tests::client::{Answer, token};
use onceward_tests::command_output::{parsed, said};
use onceward_tests::database::TestDatabase;
use onceward_tests::listening_port::free_port;
use onceward_tests::postgres::{PASSWORD, PostgresServer};

use onceward_tests::service::{OncewardServer, command, run};
use onceward_tests::service_calls::post;
use serde_json::{Value, json};

/// Starts a server and creates a file, both without tables, and returns their addresses.
fn both() -> [(Box<dyn Any>, String); 2] {
    let (server, folder) = (PostgresServer::start(), tempfile::tempdir().unwrap());
    let (at_server, at_folder) = (server.url(), format!("sqlite:{}", folder.path().join("store.db").display()));
    [(Box::new(server), at_server), (Box::new(folder), at_folder)]
}

/// The statement that `check` prints for a restored backup.
#[tokio::test]
async fn printed_statement_changes_the_epoch() {
    for database in TestDatabase::both().await {
        let (code, text) = said(&run(&["check", "--store", &database.url()]));
        assert_eq!(code, 0, "{text}");
        let statement = text.lines().find_map(|line| Some(&line[line.find("UPDATE onceward_schema SET reign")?..]));
        database.execute("CREATE TABLE before AS SELECT reign FROM onceward_schema").await;
        database.execute(statement.unwrap_or_else(|| panic!("{text}"))).await;
        let changed = "SELECT count(*) FROM onceward_schema, before WHERE onceward_schema.reign <> before.reign";
        assert_eq!(database.number(changed).await, 1);
        Sql::open(&database.url()).await.unwrap();
    }
}

/// Starts the service on this store with a long timeout, for a busy machine.
fn patient(store: &str) -> OncewardServer {
    OncewardServer::start(&["--store", store, "--store-timeout", "10s"])
}

fn body(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

async fn redeem(url: &str, token: &str) -> String {
    post(url, "/token/redeem", &json!({ "token": token })).await.said()
}

fn asked(key: &str) -> Value {
    json!({"key": key, "action": "POST /payments", "subject": "alice", "fingerprint": "10 EUR"})
}

#[test]
fn missing_tables_stop_startup_with_the_migrate_command() {
    for (_kept, store) in both() {
        let (code, text) = said(&run(&["--listen", "127.0.0.1:0", "--store", &store]));
        let command = format!("onceward migrate --store {}\n", store.replace(PASSWORD, "PASSWORD"));
        assert!(code == 1 && text.contains(&command) && !text.contains(PASSWORD), "{code} {text}");
        let (code, text) = said(&run(&["check", "--store", &store]));
        assert!(code == 1 && text.contains(&command) && !text.contains(PASSWORD), "{code} {text}");
        let (code, text) = said(&run(&["migrate", "--store", &store]));
        assert!(code == 0 && text.contains("created the tables"), "{code} {text}");
        let again = run(&["migrate", "--json", "--store", &store]);
        assert_eq!((again.status.code(), &parsed(&again)["made"]), (Some(0), &Value::Bool(false)));
        let (code, text) = said(&run(&["check", "--store", &store]));
        assert!(code == 0 && text.contains("Fit for use") && !text.contains(PASSWORD), "{code} {text}");
    }
    for other in ["memory:", "redis://127.0.0.1:1"] {
        let (code, text) = said(&run(&["migrate", "--store", other]));
        assert!(code == 2 && text.contains("needs no tables"), "{code} {text}");
    }
}

#[tokio::test]
async fn printed_statements_are_those_executed() {
    let server = PostgresServer::start();
    let (code, script) = said(&run(&["migrate", "--print-sql", "--store", &server.url()]));
    assert_eq!(code, 0);
    for _ in 0..2 {
        server.execute(&script).await;
    }
    Sql::open(&server.url()).await.unwrap();
    assert_eq!(server.number("SELECT count(*) FROM onceward_schema").await, 1);
}

#[tokio::test]
async fn used_tokens_and_replies_survive_a_kill() {
    for (_kept, store) in both() {
        Sql::migrate(&store).await.unwrap();
        let service = patient(&store);
        let url = &service.url;
        let (used, fresh) = (token(url).await, token(url).await);
        assert_eq!(redeem(url, &used).await, "200 redeemed");
        let run = post(url, "/claim", &asked("k")).await;
        assert_eq!(body(&run)["outcome"], "run", "{run:?}");
        let reply = json!({"status": 201, "headers": [["content-type", "text/plain"]], "body": "cGFpZA=="});
        let completed = post(url, "/claim/complete", &json!({"pass": body(&run)["pass"], "reply": reply})).await;
        assert_eq!(completed.status, 204, "{completed:?}");
        // SIGKILL, not a graceful shutdown.
        drop(service);

        let service = patient(&store);
        let other = patient(&store);
        assert_eq!(redeem(&service.url, &used).await, "409 token_used", "{store}");
        assert_eq!(redeem(&other.url, &fresh).await, "200 redeemed", "{store}");
        assert_eq!(redeem(&service.url, &fresh).await, "409 token_used", "{store}");
        let again = post(&other.url, "/claim", &asked("k")).await;
        assert_eq!((&body(&again)["outcome"], &body(&again)["reply"]), (&json!("replay"), &reply), "{store}");
        let mut otherwise = asked("k");
        otherwise["fingerprint"] = "20 EUR".into();
        assert_eq!(post(&service.url, "/claim", &otherwise).await.said(), "422 key_reused");
        assert!(service.log().iter().all(|line| !line.contains(PASSWORD)), "{:?}", service.log());
    }
}

#[tokio::test]
async fn unavailable_database_rejects_every_request() {
    let mut server = PostgresServer::start();
    Sql::migrate(&server.url()).await.unwrap();
    let service = patient(&server.url());
    let token = token(&service.url).await;
    server.kill();
    for _ in 0..3 {
        let answer = redeem(&service.url, &token).await;
        assert!(["503 store_unavailable", "503 redeem_unknown"].contains(&answer.as_str()), "{answer}");
    }
    server.restart();
    let mut answers = Vec::new();
    while answers.last().is_none_or(|answer: &String| answer.starts_with("503")) && answers.len() < 100 {
        answers.push(redeem(&service.url, &token).await);
    }
    assert_eq!(answers.last().map(String::as_str), Some("200 redeemed"), "{answers:?}");
}

#[test]
fn check_reports_what_a_database_may_lose() {
    let hasty = PostgresServer::start_with(&["synchronous_commit=off", "fsync=on"]);
    assert_eq!(run(&["migrate", "--store", &hasty.url()]).status.code(), Some(0));
    let (code, text) = said(&run(&["check", "--store", &hasty.url()]));
    assert!(code == 0 && text.contains("synchronous_commit off") && text.contains("loses the last commits"), "{text}");
    let unreachable = command(&["check", "--store", "postgres://user:canary@127.0.0.1:1/shop"]).output().unwrap();
    let (code, text) = said(&unreachable);
    assert!(code == 1 && text.contains("postgres://127.0.0.1:1/shop") && !text.contains("canary"), "{text}");
}

/// Each error has its own message, chosen by SQLSTATE and independent of the language of the database.
#[tokio::test]
async fn check_reports_why_a_reachable_database_is_unusable() {
    let server = PostgresServer::start();
    assert_eq!(run(&["migrate", "--store", &server.url()]).status.code(), Some(0));
    server.execute("CREATE ROLE shop LOGIN PASSWORD 'right-canary'").await;
    let told = |login: &str, database: &str| {
        let store = format!("postgres://{login}@127.0.0.1:{}/{database}", server.port());
        let (code, text) = said(&run(&["check", "--store", &store]));
        assert!(!text.contains("canary"), "{text}");
        (code, text)
    };
    for (login, database, parts) in [
        ("shop:wrong-canary", "postgres", ["rejects the user name or the password", "--store-file"]),
        ("nobody:wrong-canary", "postgres", ["rejects the user name or the password", "--store-file"]),
        ("shop:right-canary", "nowhere", ["has no database nowhere", "createdb"]),
        (
            "shop:right-canary",
            "postgres",
            ["lacks permissions: SELECT onceward_schema", "GRANT SELECT, INSERT, UPDATE, DELETE ON"],
        ),
    ] {
        let (code, text) = told(login, database);
        assert!(code == 1 && parts.iter().all(|part| text.contains(part)), "{login} {database}: {text}");
    }
    // A service and a command that use it report the same, at once.
    for (login, database, says) in [
        ("shop:wrong-canary", "postgres", "rejects the user name or the password. Correct --store"),
        ("shop:right-canary", "nowhere", "has no database nowhere. Create it (createdb)"),
        ("shop:right-canary", "postgres", "User shop lacks permissions: SELECT onceward_schema"),
    ] {
        let place = format!("127.0.0.1:{}", server.port());
        let store = format!("postgres://{login}@{place}/{database}");
        for arguments in [&["--listen", "127.0.0.1:0"][..], &["token", "issue"]] {
            let (code, text) = said(&run(&[arguments, &["--wait-for", "1h", "--store", &store]].concat()));
            assert_eq!((code, text.lines().count(), text.matches(says).count()), (1, 1, 1), "{text}");
            assert!(!text.contains("canary") && (text.contains("User shop") || text.contains(&place)), "{text}");
        }
        let (code, text) = said(&run(&["migrate", "--store", &store]));
        assert!(code == 1 && (text.contains(says) || text.contains("permission denied for table")), "{text}");
    }
    // A user that may delete but not write is not enough.
    server.execute("GRANT SELECT ON onceward_schema TO shop; GRANT SELECT, DELETE ON onceward_records TO shop").await;
    let (code, text) = told("shop:right-canary", "postgres");
    assert!(
        code == 1 && text.contains("lacks permissions: INSERT onceward_records, UPDATE onceward_records"),
        "{text}"
    );
    assert!(!text.contains("this user may write to them"), "{text}");
    let store = format!("postgres://shop:right-canary@127.0.0.1:{}/postgres", server.port());
    server.execute("REVOKE DELETE ON onceward_records FROM shop").await;
    let (code, started) = said(&run(&["--listen", "127.0.0.1:0", "--wait-for", "1h", "--store", &store]));
    let says = "User shop lacks permissions: INSERT onceward_records, UPDATE onceward_records, DELETE onceward_records";
    assert!(code == 1 && started.lines().last().is_some_and(|line| line.contains(says)), "{started}");
    let line = text.lines().find_map(|line| line.split("-> ").nth(1).filter(|fix| fix.starts_with("GRANT"))).unwrap();
    server.execute(line).await;
    let (code, text) = told("shop:right-canary", "postgres");
    assert!(code == 0 && text.contains("this user may write to them"), "the printed grants are enough: {text}");
    assert_eq!(server.number("SELECT count(*) FROM onceward_records").await, 0, "the test record is removed again");
}

#[test]
fn refusing_postgres_is_logged_once_while_the_service_retries() {
    let place = format!("127.0.0.1:{}", free_port());
    let store = format!("postgres://shop:canary@{place}/shop");
    let says = format!("PostgreSQL at {place} refuses connections");
    let (code, text) = said(&run(&["--listen", "127.0.0.1:0", "--wait-for", "1s", "--store", &store]));
    let [waits, ends] = text.lines().collect::<Vec<_>>()[..] else { panic!("two lines: {text}") };
    assert!(waits.contains(&format!("{says}; retrying for 1 s")), "{text}");
    assert!(ends.contains(&format!("{says} (retried for 1 s, see --wait-for). Start PostgreSQL")), "{text}");
    assert!(code == 1 && !text.contains("canary") && !text.contains("os error"), "{text}");
    for arguments in [["check", "--store", &store], ["migrate", "--store", &store]] {
        let (code, text) = said(&run(&arguments));
        assert!(code == 1 && text.contains(&says) && !text.contains("os error"), "{text}");
    }
}

/// Root ignores file permissions, so a folder in place of the WAL file causes the error.
#[test]
fn unopenable_file_is_not_reported_as_missing_tables() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = format!("sqlite:{}", path.display());
    assert_eq!(run(&["migrate", "--store", &store]).status.code(), Some(0));
    std::fs::create_dir(folder.path().join("store.db-wal")).unwrap();
    let start = ["--listen", "127.0.0.1:0", "--wait-for", "300ms", "--store", &store];
    for arguments in [&["check", "--store", &store][..], &start, &["migrate", "--store", &store]] {
        let (code, text) = said(&run(arguments));
        assert!(code == 1 && text.contains("cannot be opened by this user"), "{arguments:?}: {text}");
        assert!(!text.contains("onceward migrate"), "{arguments:?}: {text}");
    }
    let nowhere = format!("sqlite:{}", folder.path().join("nowhere/store.db").display());
    let (code, text) = said(&run(&["migrate", "--store", &nowhere]));
    assert!(code == 1 && text.contains("nowhere of the SQLite file does not exist"), "{text}");
}

//! A SQLite file that is deleted or replaced while a process has it open.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onceward::store::{Sql, StoreError};
use onceward::{Binding, Guard, Intent, Key, KeyRules, Policy, Subject, Verdict};
use onceward_tests::service::{OncewardServer, run};
use onceward_tests::service_calls::post;
use serde_json::json;

const LONG: Duration = Duration::from_secs(10);

async fn open(path: &Path) -> Guard {
    let address = format!("sqlite:{}", path.display());
    Sql::migrate(&address).await.unwrap();
    Guard::new(Sql::open_within(&address, LONG).await.unwrap())
}

/// Claims a key and returns true if it may run.
async fn may_run(guard: &Guard, key: &str) -> Result<bool, StoreError> {
    let key = Key::new(key).unwrap();
    let intent = Intent::new("pay", Subject::named("alice")).key(&key);
    match guard.check(&Policy::key(KeyRules::at_most_once()), &intent).await? {
        Verdict::Run(pass) => pass.complete(None).await.map(|_| true),
        _ => Ok(false),
    }
}

/// Returns the file and the WAL files beside it.
fn all(path: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|end| PathBuf::from(format!("{}{end}", path.display())))
}

fn delete(path: &Path) {
    for file in all(path) {
        let _ = fs::remove_file(file);
    }
}

#[tokio::test]
async fn nothing_runs_on_a_deleted_or_replaced_file() {
    for is_replaced in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let former = open(&path).await;
        assert!(may_run(&former, "before").await.unwrap());
        let token = former.issue(LONG, Binding::none()).await.unwrap();
        delete(&path);
        let present = if is_replaced { Some(open(&path).await) } else { None };
        for key in ["before", "after"] {
            let mut runs = 0;
            let refused = may_run(&former, key).await;
            let error = refused.expect_err("the file was deleted or replaced").to_string();
            assert!(error.contains("deleted or replaced") && error.contains("restart the process"), "{error}");
            if let Some(present) = &present {
                for _ in 0..2 {
                    runs += usize::from(may_run(present, key).await.unwrap());
                }
                assert_eq!(runs, 1, "{key}");
            }
        }
        let intent = Intent::new("pay", Subject::anonymous()).credential(token.as_str());
        assert!(former.check(&Policy::token(), &intent).await.is_err(), "no token is accepted either");
        assert!(former.ping().await.is_err(), "the store is not ready");
    }
}

#[tokio::test]
async fn restored_file_is_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let (path, away) = (folder.path().join("store.db"), folder.path().join("away.db"));
    let guard = open(&path).await;
    assert!(may_run(&guard, "k").await.unwrap());
    fs::rename(&path, &away).unwrap();
    assert!(may_run(&guard, "k").await.is_err());
    fs::rename(&away, &path).unwrap();
    assert!(!may_run(&guard, "k").await.unwrap(), "the record of the run is still there");
}

/// An operator recreates the file and restarts one of two processes.
#[tokio::test]
async fn service_with_a_replaced_file_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = format!("sqlite:{}", path.display());
    let start = || {
        assert!(run(&["migrate", "--store", &store]).status.success());
        OncewardServer::start(&["--store", &store, "--store-timeout", "10s"])
    };
    let asked = json!({"key": "k", "action": "POST /payments", "subject": "alice"});
    let former = start();
    delete(&path);
    let present = start();
    let told = [post(&former.url, "/claim", &asked).await, post(&present.url, "/claim", &asked).await];
    assert_eq!([told[0].said(), told[1].said()], ["503 store_unavailable", "200 "]);
    let ready =
        async |service: &OncewardServer| reqwest::get(format!("{}/readyz", service.url)).await.unwrap().status();
    assert_eq!((ready(&former).await.as_u16(), ready(&present).await.as_u16()), (503, 200));
}

//! A `main` that returns `io::Result`, as actix-web's do, passes on the errors of everything that it builds.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::Duration;

use onceward::store::{BadAddress, Redis, Sql, SqlError};
use onceward::{BadPointer, Fields, KeyRules, Secret, SettingError, WeakSecret};

/// The error is of this kind, and the original one is in it, with its text.
#[track_caller]
fn assert_keeps<E: Error + 'static>(result: io::Result<()>, kind: ErrorKind) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    let original = error.get_ref().and_then(|inner| inner.downcast_ref::<E>()).expect("the original error");
    assert_eq!(original.to_string(), error.to_string());
}

#[tokio::test]
async fn startup_error_becomes_an_io_error_and_keeps_its_cause() {
    let redis = || -> io::Result<()> { Ok(drop(Redis::open("nowhere")?)) };
    assert_keeps::<BadAddress>(redis(), ErrorKind::InvalidInput);
    let sql = async |address: &str| -> io::Result<()> { Ok(drop(Sql::open(address).await?)) };
    assert_keeps::<SqlError>(sql("nowhere").await, ErrorKind::InvalidInput);
    assert_keeps::<SqlError>(sql("sqlite:/no/such/folder/onceward.db").await, ErrorKind::NotFound);
    let secret = || -> io::Result<()> { Ok(drop(Secret::new("short")?)) };
    assert_keeps::<WeakSecret>(secret(), ErrorKind::InvalidInput);
    let lease = || -> io::Result<()> { Ok(drop(KeyRules::retryable().lease(Duration::ZERO)?)) };
    assert_keeps::<SettingError>(lease(), ErrorKind::InvalidInput);
    let fields = || -> io::Result<()> { Ok(drop(Fields::only(["amount"])?)) };
    assert_keeps::<BadPointer>(fields(), ErrorKind::InvalidInput);
}

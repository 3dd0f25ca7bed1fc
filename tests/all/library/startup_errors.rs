//! Startup errors convert to `io::Error`, for a `main` that returns `io::Result`, as in actix-web.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::Duration;

use onceward::store::{BadAddress, Redis, Sql, SqlError};
use onceward::{BadPointer, Fields, KeyRules, Secret, SettingError, WeakSecret};

/// Asserts that the error has this kind, the original error inside, and its text.
#[track_caller]
fn assert_keeps<E: Error + 'static>(result: io::Result<impl Sized>, kind: ErrorKind) {
    let error = result.err().expect("an error");
    assert_eq!(error.kind(), kind, "{error}");
    let original = error.get_ref().and_then(|inner| inner.downcast_ref::<E>()).expect("the original error");
    assert_eq!(original.to_string(), error.to_string());
}

#[tokio::test]
async fn startup_error_becomes_an_io_error_and_keeps_its_cause() {
    let redis = || -> io::Result<Redis> { Ok(Redis::open("nowhere")?) };
    assert_keeps::<BadAddress>(redis(), ErrorKind::InvalidInput);
    let sql = async |address: &str| -> io::Result<Sql> { Ok(Sql::open(address).await?) };
    assert_keeps::<SqlError>(sql("nowhere").await, ErrorKind::InvalidInput);
    assert_keeps::<SqlError>(sql("sqlite:/no/such/folder/onceward.db").await, ErrorKind::NotFound);
    let secret = || -> io::Result<Secret> { Ok(Secret::new("short")?) };
    assert_keeps::<WeakSecret>(secret(), ErrorKind::InvalidInput);
    let lease = || -> io::Result<KeyRules> { Ok(KeyRules::retryable().lease(Duration::ZERO)?) };
    assert_keeps::<SettingError>(lease(), ErrorKind::InvalidInput);
    let fields = || -> io::Result<Fields> { Ok(Fields::only(["amount"])?) };
    assert_keeps::<BadPointer>(fields(), ErrorKind::InvalidInput);
}

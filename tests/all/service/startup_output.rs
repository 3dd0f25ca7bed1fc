//! Output of the service at startup, on a terminal and elsewhere.

use std::fs::File;
use std::io::Read as _;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward_tests::client::{http, send};
use onceward_tests::polling::until;
use onceward_tests::service::{OncewardServer, ServiceProcess, command};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use serde_json::Value;

const LONG: Duration = Duration::from_secs(5);

/// Opens a pseudoterminal and returns its two ends: output to read, and the service's stdout.
fn terminal() -> (File, Stdio) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    let shown = openpt(flags).unwrap();
    grantpt(&shown).and_then(|()| unlockpt(&shown)).unwrap();
    let written = ioctl_tiocgptpeer(&shown, flags).unwrap();
    (shown.into(), written.into())
}

/// Collects everything read from this file.
fn keep(mut from: File) -> Arc<Mutex<String>> {
    let kept = Arc::new(Mutex::new(String::new()));
    let keeper = Arc::clone(&kept);
    std::thread::spawn(move || {
        let mut some = [0; 1024];
        while let Ok(count @ 1..) = from.read(&mut some) {
            keeper.lock().unwrap().push_str(&String::from_utf8_lossy(&some[..count]));
        }
    });
    kept
}

#[tokio::test]
async fn terminal_output_shows_url_and_store() {
    let (shown, written) = terminal();
    let shown = keep(shown);
    let service = ServiceProcess::start(&[], &[], written, Stdio::null());
    let said = || shown.lock().unwrap().clone();
    until("the banner is shown", LONG, || std::future::ready(said().contains("Ctrl-C"))).await;
    for told in [&format!("{}/docs/", service.url), "memory:", "this process only", "--store redis://"] {
        assert!(said().contains(told), "{told} is not in\n{}", said());
    }
    assert!(!said().contains("{\""), "{}", said());
    for path in ["/", "/docs/"] {
        assert_eq!(send(http().get(format!("{}{path}", service.url))).await.status, 200);
    }
    until("the log is in the human format", LONG, || std::future::ready(said().contains("answered"))).await;
}

#[test]
fn non_terminal_output_is_one_json_line() {
    let service = OncewardServer::spawn(command(&["--listen", "127.0.0.1:0"]));
    let log = service.log();
    let line: Value = serde_json::from_str(&log[0]).unwrap();
    assert_eq!((log.len(), &line["message"], &line["store"]), (1, &"listening".into(), &"memory:".into()), "{log:?}");
    assert_eq!(line["version"], env!("CARGO_PKG_VERSION"));
}

#[tokio::test]
async fn service_runs_on_with_closed_output() {
    for form in ["human", "json"] {
        let (gone, written) = std::io::pipe().unwrap();
        drop(gone);
        let service = ServiceProcess::start(&["--log", form], &[], written.into(), Stdio::null());
        for _ in 0..3 {
            assert_eq!(send(http().post(format!("{}/token", service.url))).await.status, 201, "{form}");
        }
    }
}

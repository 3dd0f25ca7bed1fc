//! A guard on a memory store that every worker builds for itself: the workers would not share records, so the server must not start.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock, mpsc};
use std::thread;
use std::time::Duration;

use actix_web::dev::{Server, ServerHandle};
use actix_web::test::{TestRequest, call_service, init_service};
use actix_web::{App, HttpResponse, HttpServer, web};
use futures_util::future::join_all;
use onceward::actix::protect::KeyPolicy;
use onceward::actix::{Protect, SubjectFrom, token_route};
use onceward::store::Memory;
use onceward::{Guard, KeyRules};
use onceward_tests::key_routes::buy;
use onceward_tests::ledger::Ledger;
use onceward_tests::polling::until_blocking;

use crate::PEER;

/// Maximum time for a server to start, or to fail.
const LONG: Duration = Duration::from_secs(60);

/// The async runtime of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Runtime {
    Actix,
    Tokio,
}

/// A running server, which is stopped on drop.
pub(crate) struct RunningServer {
    pub(crate) url: String,
    handle: ServerHandle,
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        drop(self.handle.stop(false));
    }
}

/// Starts this many servers, each from a listener, and waits until all of them respond or one has failed.
pub(crate) fn start(
    runtime: Runtime,
    count: usize,
    server: impl FnMut(TcpListener) -> io::Result<Server> + Send + 'static,
) -> io::Result<Vec<RunningServer>> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind(("127.0.0.1", 0)).unwrap()).collect();
    let addresses: Vec<_> = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
    let (sender, receiver) = mpsc::channel();
    let run = async move {
        let servers: Vec<Server> = listeners.into_iter().map(server).collect::<io::Result<_>>().unwrap();
        sender.send(Ok(servers.iter().map(Server::handle).collect())).unwrap();
        for ended in join_all(servers).await {
            // The test may have ended.
            let _ = sender.send(ended.map(|()| Vec::new()));
        }
    };
    thread::spawn(move || match runtime {
        Runtime::Actix => actix_web::rt::System::new().block_on(run),
        Runtime::Tokio => tokio::runtime::Runtime::new().unwrap().block_on(run),
    });
    let handles = receiver.recv_timeout(LONG).expect("the servers are built")?;
    let mut ended = None;
    let answers = |address: &SocketAddr| TcpStream::connect(address).is_ok_and(is_answered);
    let is_decided = until_blocking(LONG, || {
        ended = receiver.try_recv().ok();
        ended.is_some() || addresses.iter().all(answers)
    });
    assert!(is_decided, "neither a response nor an error");
    ended.transpose()?;
    let urls = addresses.iter().map(|address| format!("http://{address}"));
    Ok(urls.zip(handles).map(|(url, handle)| RunningServer { url, handle }).collect())
}

/// Returns true if a worker responds: the system accepts connections before a worker runs.
fn is_answered(mut stream: TcpStream) -> bool {
    let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
    let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: shop\r\n\r\n");
    stream.read(&mut [0]).is_ok_and(|read| read > 0)
}

/// Protects the route. The check for a store per worker is by source line of the caller, so each test calls this on its own line.
#[track_caller]
fn by_key(guard: &Guard) -> Protect<KeyPolicy> {
    Protect::key(guard, SubjectFrom::anonymous(), KeyRules::at_most_once())
}

/// Builds a server whose closure calls `protect`, which builds a guard or uses an existing one.
fn server(
    listener: TcpListener,
    workers: usize,
    ledger: &Ledger,
    protect: impl Fn() -> Protect<KeyPolicy> + Clone + Send + 'static,
) -> io::Result<Server> {
    let ledger = web::Data::new(ledger.clone());
    let server = HttpServer::new(move || {
        let pay = async |ledger: web::Data<Ledger>| {
            ledger.record("paid");
            HttpResponse::Created().finish()
        };
        let pay = web::resource("/pay").wrap(protect()).route(web::post().to(pay));
        App::new().app_data(ledger.clone()).service(pay)
    });
    Ok(server.workers(workers).disable_signals().listen(listener)?.run())
}

/// Starts one server whose closure calls `protect`.
fn start_one(
    runtime: Runtime,
    workers: usize,
    ledger: &Ledger,
    protect: impl Fn() -> Protect<KeyPolicy> + Clone + Send + 'static,
) -> io::Result<Vec<RunningServer>> {
    let ledger = ledger.clone();
    start(runtime, 1, move |listener| server(listener, workers, &ledger, protect.clone()))
}

/// Pays 40 times under one key, each over a new connection, so that every worker receives some requests.
async fn pays_once(running: &[RunningServer], ledger: &Ledger) {
    for RunningServer { url, .. } in running {
        let before = ledger.runs().len();
        for _ in 0..40 {
            let answer = buy(url, "/pay", "k", "").await;
            assert_eq!(answer.status, 201, "{answer:?}");
        }
        assert_eq!(ledger.runs().len() - before, 1);
    }
}

#[tokio::test]
async fn memory_guard_of_each_worker_stops_the_server() {
    for runtime in [Runtime::Actix, Runtime::Tokio] {
        let by_value = || by_key(&Guard::new(Memory::new()));
        assert!(start_one(runtime, 4, &Ledger::new(), by_value).is_err(), "{runtime:?}");
        let by_pointer = || by_key(&Guard::builder(Arc::new(Memory::new())).build());
        assert!(start_one(runtime, 4, &Ledger::new(), by_pointer).is_err(), "{runtime:?}");
        let tokens = |listener| {
            let server = HttpServer::new(|| {
                App::new().service(token_route(&Guard::new(Memory::new()), SubjectFrom::anonymous()))
            });
            Ok(server.workers(4).disable_signals().listen(listener)?.run())
        };
        assert!(start(runtime, 1, tokens).is_err(), "{runtime:?}");
    }
}

#[tokio::test]
async fn memory_guard_per_worker_is_reported_without_a_logger() {
    let errors = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new(PEER);
    command.args(["inside", "memory:"]).arg(Ledger::new().path());
    let mut child = command.stdout(Stdio::null()).stderr(errors.reopen().unwrap()).spawn().unwrap();
    let mut status = None;
    until_blocking(LONG, || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    if status.is_none() {
        child.kill().and_then(|()| child.wait()).unwrap();
    }
    assert!(status.is_some_and(|status| !status.success()), "{status:?}");
    let said = std::fs::read_to_string(errors.path()).unwrap();
    assert!(said.contains("build the guard before `HttpServer::new` and move a clone into the closure"), "{said}");
    assert!(said.contains("tests/src/"), "the error names the source line: {said}");
}

#[tokio::test]
async fn guard_built_before_the_server_is_shared_by_its_workers() {
    for runtime in [Runtime::Actix, Runtime::Tokio] {
        let (ledger, guard) = (Ledger::new(), Guard::new(Memory::new()));
        let running = start_one(runtime, 4, &ledger, move || by_key(&guard)).unwrap();
        pays_once(&running, &ledger).await;
    }
}

#[tokio::test]
async fn memory_built_before_the_server_may_have_a_guard_in_each_worker() {
    for runtime in [Runtime::Actix, Runtime::Tokio] {
        let (ledger, memory) = (Ledger::new(), Arc::new(Memory::new()));
        let running = start_one(runtime, 4, &ledger, move || by_key(&Guard::new(Arc::clone(&memory)))).unwrap();
        pays_once(&running, &ledger).await;
    }
}

#[tokio::test]
async fn static_guard_may_be_built_by_the_first_worker() {
    static OF_ACTIX: LazyLock<Guard> = LazyLock::new(|| Guard::new(Memory::new()));
    static OF_TOKIO: LazyLock<Guard> = LazyLock::new(|| Guard::new(Memory::new()));
    let ledger = Ledger::new();
    let running = start_one(Runtime::Actix, 4, &ledger, || by_key(&OF_ACTIX)).unwrap();
    pays_once(&running, &ledger).await;
    let running = start_one(Runtime::Tokio, 4, &ledger, || by_key(&OF_TOKIO)).unwrap();
    pays_once(&running, &ledger).await;
}

#[tokio::test]
async fn servers_of_one_process_may_have_a_memory_store_each() {
    for runtime in [Runtime::Actix, Runtime::Tokio] {
        let ledger = Ledger::new();
        let book = ledger.clone();
        let running = start(runtime, 3, move |listener| {
            let guard = Guard::new(Memory::new());
            server(listener, 2, &book, move || by_key(&guard))
        });
        let running = running.unwrap();
        pays_once(&running, &ledger).await;
    }
}

#[tokio::test]
async fn only_worker_may_build_the_guard_itself() {
    for runtime in [Runtime::Actix, Runtime::Tokio] {
        for _ in 0..2 {
            let ledger = Ledger::new();
            let running = start_one(runtime, 1, &ledger, || by_key(&Guard::new(Memory::new()))).unwrap();
            pays_once(&running, &ledger).await;
        }
    }
    // Several at the same time, each in its own runtime.
    let ledger = Ledger::new();
    let each = [Runtime::Actix, Runtime::Actix, Runtime::Tokio, Runtime::Tokio];
    let running: Vec<_> = each
        .into_iter()
        .flat_map(|runtime| start_one(runtime, 1, &ledger, || by_key(&Guard::new(Memory::new()))).unwrap())
        .collect();
    pays_once(&running, &ledger).await;
}

#[test]
fn applications_of_tests_may_build_a_guard_on_every_thread() {
    let threads: Vec<_> = (0..8)
        .map(|_| {
            thread::spawn(|| {
                actix_web::rt::System::new().block_on(async {
                    let guard = Guard::new(Memory::new());
                    let protect = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable());
                    let pay = web::resource("/pay").wrap(protect).route(web::post().to(HttpResponse::Created));
                    let app = init_service(App::new().service(pay)).await;
                    let request = TestRequest::post().uri("/pay").insert_header(("idempotency-key", "k"));
                    call_service(&app, request.to_request()).await.status()
                })
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 201);
    }
}

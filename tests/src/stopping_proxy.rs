//! A TCP proxy that stops at the n-th message, so that a test can kill a process exactly there.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::polling::until;

/// The side of a message on which the proxy stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The request has not arrived.
    Before,
    /// The request was executed, and its reply has not arrived.
    After,
}

/// The state of the proxy: stopped, or the number of messages until then.
#[derive(Debug, Clone, Copy, Default)]
struct StopState {
    /// Number of messages that pass before it stops.
    left: Option<(usize, Stop)>,
    is_stopped: bool,
}

/// A proxy in front of one server.
pub struct StoppingProxy {
    port: u16,
    gate: Arc<Mutex<StopState>>,
    cut: watch::Sender<u64>,
}

impl StoppingProxy {
    /// Starts a proxy in front of the server on this port.
    pub async fn before(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let own = listener.local_addr().expect("its own address").port();
        let (cut, _) = watch::channel(0);
        let proxy = Self { port: own, gate: Arc::default(), cut };
        let (gate, cut) = (Arc::clone(&proxy.gate), proxy.cut.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (gate, mut cut) = (Arc::clone(&gate), cut.subscribe());
                tokio::spawn(async move {
                    tokio::select! {
                        _ = carry(client, port, gate) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        proxy
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Lets this many messages of a client pass, and stops at the next.
    pub fn stop_after(&self, messages: usize, stop: Stop) {
        *self.gate.lock().expect("lock not poisoned") = StopState { left: Some((messages, stop)), is_stopped: false };
    }

    /// Returns true if it has stopped.
    pub fn is_stopped(&self) -> bool {
        self.gate.lock().expect("lock not poisoned").is_stopped
    }

    /// Waits until it has stopped, or until `is_over` returns true.
    pub async fn stopped_or(&self, is_over: impl Fn() -> bool) {
        until("the proxy stops", Duration::from_secs(20), async || self.is_stopped() || is_over()).await;
    }

    /// Cuts every connection, and lets everything pass from now on.
    pub fn cut(&self) {
        *self.gate.lock().expect("lock not poisoned") = StopState::default();
        self.cut.send_modify(|cuts| *cuts += 1);
    }
}

/// Relays bytes in both directions until one side closes.
async fn carry(mut client: TcpStream, port: u16, gate: Arc<Mutex<StopState>>) -> Option<()> {
    let mut server = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let (mut asked, mut answered) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let request = &asked[..read.ok().filter(|read| *read > 0)?];
                let stop = pass(&gate);
                if stop == Some(Stop::Before) {
                    halt(&gate).await;
                }
                server.write_all(request).await.ok()?;
                if stop == Some(Stop::After) {
                    // The reply proves that the request was executed.
                    let _ = server.read(&mut answered).await.ok()?;
                    halt(&gate).await;
                }
            }
            read = server.read(&mut answered) => {
                let answer = &answered[..read.ok().filter(|read| *read > 0)?];
                client.write_all(answer).await.ok()?;
            }
        }
    }
}

/// Counts a message. Returns the side to stop on if it is the n-th one.
fn pass(gate: &Mutex<StopState>) -> Option<Stop> {
    let mut gate = gate.lock().expect("lock not poisoned");
    match gate.left {
        Some((0, stop)) => {
            gate.left = None;
            Some(stop)
        }
        Some((left, stop)) => {
            gate.left = Some((left - 1, stop));
            None
        }
        None => None,
    }
}

/// Stops until the connection is cut.
async fn halt(gate: &Mutex<StopState>) {
    gate.lock().expect("lock not poisoned").is_stopped = true;
    std::future::pending().await
}

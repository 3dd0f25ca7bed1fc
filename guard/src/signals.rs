//! The signals that ask a process to stop: SIGTERM and SIGINT.

use std::io;

/// Waits for SIGTERM or SIGINT, and then for `stop`, a graceful shutdown: [`Guard::shut_down`](crate::Guard::shut_down), and then the end of
/// the server. A second signal ends it early, with `abort`. For servers that have no `serve` in an adapter of this crate.
///
/// # Errors
/// If the signal handlers cannot be installed.
pub async fn stop_on_signal(stop: impl Future<Output = ()>, abort: impl Future<Output = ()>) -> io::Result<()> {
    Signals::listen()?.stop_gracefully(stop, abort).await;
    Ok(())
}

/// The signals that ask a process to stop.
#[cfg(unix)]
pub(crate) struct Signals(tokio::signal::unix::Signal, tokio::signal::unix::Signal);

#[cfg(unix)]
impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self(signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
    }

    /// Returns the name of the next signal.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.0.recv() => "SIGTERM",
            _ = self.1.recv() => "SIGINT",
        }
    }
}

/// The signal that asks a process to stop.
#[cfg(not(unix))]
pub(crate) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    /// Returns the name of the next signal.
    async fn next(&mut self) -> &'static str {
        match tokio::signal::ctrl_c().await {
            Ok(()) => "Ctrl-C",
            Err(_) => std::future::pending().await,
        }
    }
}

impl Signals {
    /// Waits for a signal, and then for `stop`, a graceful shutdown. A second signal ends it early, with `abort`.
    pub(crate) async fn stop_gracefully(mut self, stop: impl Future<Output = ()>, abort: impl Future<Output = ()>) {
        let signal = self.next().await;
        tracing::info!(signal, "signal received; stopping");
        tokio::select! {
            () = stop => {}
            signal = self.next() => {
                tracing::warn!(signal, "second signal received; stopping at once, handlers in flight are aborted");
                abort.await;
            }
        }
    }
}

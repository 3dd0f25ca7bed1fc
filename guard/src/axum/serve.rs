use std::convert::Infallible;
use std::fmt;
use std::io;

use axum::extract::Request;
use axum::response::Response;
use axum::serve::{IncomingStream, Listener, Serve};
use tokio::sync::oneshot;
use tower_service::Service;

use crate::guard::Guard;
use crate::signals::Signals;

/// Runs a server until SIGTERM or SIGINT, then shuts it down gracefully. A second signal stops it at once.
///
/// `axum::serve(..).with_graceful_shutdown(..)` waits for open connections, without a limit, and then the runtime drops the handler of a
/// client that has disconnected. This function first lets responses close their connections, then rejects new work and waits for all
/// handlers in flight, with or without a client, and only then stops the server. It waits for handlers, and then for the connections that
/// are still open, for the guard's `drain_limit` each. A handler that has not completed by then is dropped when the runtime shuts down, so
/// return from `main` after this. The signal and each step are logged.
///
/// ```no_run
/// use axum::Router;
/// use onceward::Guard;
/// use onceward::store::Memory;
///
/// # async fn example() -> std::io::Result<()> {
/// let guard = Guard::new(Memory::new());
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
/// onceward::axum::serve(axum::serve(listener, Router::new()), &guard).await
/// # }
/// ```
///
/// # Errors
/// If the server fails, or the signal handlers cannot be installed.
pub async fn serve<L, M, S>(server: Serve<L, M, S>, guard: &Guard) -> io::Result<()>
where
    L: Listener,
    L::Addr: fmt::Debug,
    M: for<'a> Service<IncomingStream<'a, L>, Error = Infallible, Response = S> + Send + 'static,
    for<'a> <M as Service<IncomingStream<'a, L>>>::Future: Send,
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let signals = Signals::listen()?;
    let (close, closing) = oneshot::channel::<()>();
    // Completes when `close` is dropped.
    let server = server.with_graceful_shutdown(async { drop(closing.await) }).into_future();
    // Connections are accepted until the end: a late client receives a rejection, which is better than no response.
    let stop = async {
        if guard.shut_down().await {
            drop(close);
            let waited = guard.drain_limit();
            tokio::time::sleep(waited).await;
            tracing::warn!(?waited, "drain limit exceeded by open connections; not waiting for them any longer");
        }
    };
    tokio::select! {
        ended = server => ended?,
        () = signals.stop_gracefully(stop, async {}) => {}
    }
    tracing::info!("the server has stopped");
    Ok(())
}

use std::fmt;
use std::future::Future;
use std::io;

use actix_http::Request;
use actix_service::IntoServiceFactory;
use actix_web::body::MessageBody;
use actix_web::dev::{AppConfig, Response, Server, Service, ServiceFactory};
use actix_web::{Error, HttpServer};

use crate::guard::Guard;
use crate::signals::Signals;

/// Runs a server until SIGTERM or SIGINT, then shuts it down gracefully. A second signal stops it at once.
///
/// actix-web waits for open connections when it stops, and aborts the handler of a client that has disconnected. This function avoids
/// that: it first lets responses close their connections, then rejects new work and waits for all handlers in flight, and only then stops
/// the server. A handler that has not completed within the guard's `drain_limit` is aborted. The signal and each step are logged.
///
/// ```no_run
/// use actix_web::{App, HttpServer};
/// use onceward::Guard;
/// use onceward::store::Memory;
///
/// # async fn example() -> std::io::Result<()> {
/// let guard = Guard::new(Memory::new());
/// let server = HttpServer::new(App::new).bind(("127.0.0.1", 8080))?;
/// onceward::actix::serve(server, &guard).await
/// # }
/// ```
///
/// # Errors
/// If the server fails, or the signal handlers cannot be installed.
pub async fn serve<F, I, S, B>(server: HttpServer<F, I, S, B>, guard: &Guard) -> io::Result<()>
where
    F: Fn() -> I + Send + Clone + 'static,
    I: IntoServiceFactory<S, Request>,
    S: ServiceFactory<Request, Config = AppConfig> + 'static,
    S::Error: Into<Error> + 'static,
    S::InitError: fmt::Debug,
    S::Response: Into<Response<B>> + 'static,
    <S::Service as Service<Request>>::Future: 'static,
    S::Service: 'static,
    B: MessageBody + 'static,
{
    let server = server.disable_signals().run();
    let handle = server.handle();
    // Connections are accepted until the end: a late client receives a rejection, which is better than no response.
    let stop = async {
        let is_drained = guard.shut_down().await;
        handle.stop(is_drained).await;
    };
    serve_until_signal(server, stop).await
}

/// Runs a server until SIGTERM or SIGINT, and then `stop`, which has to stop the server: for an application with its own graceful shutdown
/// around [`Guard::shut_down`]. A second signal stops the server at once. Build the server with `disable_signals`.
///
/// # Errors
/// If the server fails, or the signal handlers cannot be installed.
pub async fn serve_until_signal(server: Server, stop: impl Future<Output = ()>) -> io::Result<()> {
    let signals = Signals::listen()?;
    let handle = server.handle();
    let end = signals.stop_gracefully(stop, async { handle.stop(false).await });
    join(server, end).await.inspect(|()| tracing::info!("the server has stopped"))
}

/// Runs a server until it stops, by itself or because of `end`.
async fn join(mut server: Server, end: impl Future<Output = ()>) -> io::Result<()> {
    tokio::select! {
        ended = &mut server => ended,
        () = end => server.await,
    }
}

use std::fmt;
use std::future::Future;
use std::io;

use actix_http::Request;
use actix_service::IntoServiceFactory;
use actix_web::body::MessageBody;
use actix_web::dev::{AppConfig, Response, Server, ServerHandle, Service, ServiceFactory};
use actix_web::{Error, HttpServer};

use crate::guard::Guard;

/// Runs a server until SIGTERM or SIGINT, and then ends it without cutting off a single run. A second signal ends it at
/// once, for whoever cannot wait.
///
/// A server that is stopped waits for its connections, and drops what has none: the run of a client that has hung up
/// would be cut in the middle. So this first has answers close their connections, then lets nothing new begin and waits
/// for everything that runs, and only then stops. What has not ended by the guard's `drain_limit` is cut off all the same.
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
/// If the server fails, or the signals cannot be listened for.
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
    until_signalled(server.disable_signals().run(), guard).await
}

async fn until_signalled(server: Server, guard: &Guard) -> io::Result<()> {
    let mut signals = Signals::listen()?;
    let handle = server.handle();
    let end = async {
        signals.next().await;
        tokio::select! {
            () = finish(&handle, guard) => {}
            () = signals.next() => handle.stop(false).await,
        }
    };
    join(server, end).await
}

/// Closes the connections that are in use, lets nothing new begin, waits for what runs, and stops. Connections are taken to
/// the end: whoever comes late gets a rejection, which is better than no answer.
async fn finish(handle: &ServerHandle, guard: &Guard) {
    let is_drained = guard.shut_down().await;
    handle.stop(is_drained).await;
}

/// Runs a server until it ends, by itself or because of `end`.
async fn join(mut server: Server, end: impl Future<Output = ()>) -> io::Result<()> {
    tokio::select! {
        ended = &mut server => ended,
        () = end => server.await,
    }
}

/// The signals by which a process is asked to end.
#[cfg(unix)]
struct Signals(tokio::signal::unix::Signal, tokio::signal::unix::Signal);

#[cfg(unix)]
impl Signals {
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self(signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}

/// The signal by which a process is asked to end.
#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    }
}

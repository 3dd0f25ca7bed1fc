use std::fmt;
use std::future::Future;
use std::io;

use actix_http::Request;
use actix_service::IntoServiceFactory;
use actix_web::body::MessageBody;
use actix_web::dev::{AppConfig, Response, Server, Service, ServiceFactory};
use actix_web::{Error, HttpServer};

use crate::guard::Guard;

/// Runs a server until SIGTERM or SIGINT, and then ends it without cutting off a single run.
///
/// A server that is stopped waits for its connections, and drops what has none: the run of a client that has hung up
/// would be cut in the middle. So this first takes no more connections, then lets everything that runs come to its
/// end, and only then stops.
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
    serve_until(server.disable_signals().run(), guard, told_to_stop()?).await
}

/// What [`serve`] does, for a server that runs already, until `stop` comes to its end. The server must have been made
/// with `disable_signals`, or it ends by itself, too early.
///
/// # Errors
/// If the server fails.
pub async fn serve_until(mut server: Server, guard: &Guard, stop: impl Future<Output = ()>) -> io::Result<()> {
    let handle = server.handle();
    tokio::select! {
        ended = &mut server => return ended,
        () = stop => {}
    }
    let end = async {
        handle.pause().await;
        guard.drain().await;
        handle.stop(true).await;
    };
    let (ended, ()) = tokio::join!(server, end);
    ended
}

/// The signals by which a process is asked to end. They are listened for from this call on.
#[cfg(unix)]
fn told_to_stop() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// The signal by which a process is asked to end.
#[cfg(not(unix))]
fn told_to_stop() -> io::Result<impl Future<Output = ()>> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}

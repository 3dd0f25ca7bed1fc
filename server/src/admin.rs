//! The server at `admin_listen`, for operators and health checks. It has a listener, a worker and a connection limit of its own, so that
//! a flood on the public address does not delay them.

use std::future::pending;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use actix_web::dev::ServerHandle;
use actix_web::middleware::from_fn;
use actix_web::web::Data;
use actix_web::{App, HttpServer};

use crate::config::Config;
use crate::context::Context;
use crate::http::{head_requests, panic_handler};
use crate::metrics::MetricsRecorder;
use crate::network::client_connections::ClientConnections;
use crate::network::connections::{Connections, KEEP_ALIVE};
use crate::{logging, routes};

/// Maximum number of open connections.
pub(crate) const CONNECTIONS: usize = 64;

/// Runs until the end of a graceful shutdown, also while the service waits for requests in flight.
pub(crate) struct AdminServer {
    address: SocketAddr,
    handle: ServerHandle,
    connections: Arc<Connections>,
}

impl AdminServer {
    /// Starts the server.
    pub(crate) fn begin(
        (listener, address): (TcpListener, SocketAddr),
        context: &Data<Context>,
        recorder: &MetricsRecorder,
        config: &Config,
    ) -> io::Result<Self> {
        let (context, recorder) = (context.clone(), recorder.clone());
        let server = HttpServer::new(move || {
            App::new()
                .app_data(context.clone())
                .configure(routes::dashboard_and_metrics(recorder.clone()))
                .configure(routes::admin)
                .wrap(from_fn(routes::explain_not_found))
                .wrap(from_fn(panic_handler::catch_failures))
                .wrap(from_fn(head_requests::answer_as_get))
                .wrap(from_fn(logging::observe))
        });
        let clients = ClientConnections::new(CONNECTIONS, Some(CONNECTIONS), config.trusted_proxies.clone());
        let connections = Arc::new(Connections::new(config.request_timeout, clients));
        let welcoming = Arc::clone(&connections);
        let server = server
            .workers(1)
            .max_connections(CONNECTIONS)
            .keep_alive(KEEP_ALIVE)
            .client_request_timeout(config.request_timeout)
            .on_connect(move |io, data| welcoming.welcome(io, data));
        let server = server.listen(listener)?.disable_signals().run();
        let handle = server.handle();
        actix_web::rt::spawn(server);
        Ok(Self { address, handle, connections })
    }

    /// Closes connections without a complete request, for as long as this future is polled.
    pub(crate) async fn watch(this: Option<&Self>) {
        match this {
            Some(admin_server) => admin_server.connections.watch().await,
            None => pending().await,
        }
    }

    /// Returns the address that the server listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops the server and closes its connections. No submission runs on them.
    pub(crate) async fn end(self) {
        self.handle.stop(false).await;
    }
}

//! The server at `admin_listen`, for whoever runs the service.

use std::io;
use std::net::{SocketAddr, TcpListener};

use actix_web::dev::ServerHandle;
use actix_web::middleware::from_fn;
use actix_web::web::Data;
use actix_web::{App, HttpServer};

use crate::desk::Desk;
use crate::meters::Meters;
use crate::{mishap, routes, telemetry};

/// It answers to the last, also while the service waits for what still runs.
pub(crate) struct Administration {
    address: SocketAddr,
    handle: ServerHandle,
}

impl Administration {
    /// Answers from now on.
    pub(crate) fn begin(
        (listener, address): (TcpListener, SocketAddr),
        desk: &Data<Desk>,
        meters: &Meters,
    ) -> io::Result<Self> {
        let (desk, meters) = (desk.clone(), meters.clone());
        let server = HttpServer::new(move || {
            App::new()
                .app_data(desk.clone())
                .configure(routes::watched(meters.clone()))
                .configure(routes::administered)
                .wrap(from_fn(routes::explain))
                .wrap(from_fn(mishap::contain))
                .wrap(from_fn(telemetry::observe))
        });
        let server = server.workers(1).listen(listener)?.disable_signals().run();
        let handle = server.handle();
        actix_web::rt::spawn(server);
        Ok(Self { address, handle })
    }

    /// Where it is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts off whoever still asks: nobody's submission is among them.
    pub(crate) async fn end(self) {
        self.handle.stop(false).await;
    }
}

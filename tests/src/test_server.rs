//! A server in its own thread.

use std::io;
use std::net::TcpListener;
use std::sync::mpsc;

use actix_web::dev::Server;
use axum::Router;

use crate::axum_server::AxumServer;

/// A server in its own thread. It stops when this value is dropped.
pub struct TestServer {
    /// Its URL.
    pub url: String,
    stop: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl TestServer {
    /// Runs the actix-web server that `server` builds on a listener.
    pub fn run(server: impl FnOnce(TcpListener) -> io::Result<Server> + Send + 'static) -> Self {
        let (listener, url) = listen();
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let server = server(listener).expect("the server starts");
                tell.send(server.handle()).expect("the test waits for the handle");
                server.await.expect("the server ends without an error");
            });
        });
        let handle = told.recv().expect("the server starts");
        Self { url, stop: Some(Box::new(move || drop(handle.stop(false)))) }
    }
}

impl TestServer {
    /// Runs a router of axum on two threads.
    pub fn run_router(router: Router) -> Self {
        let server = AxumServer::serve(router);
        Self { url: server.url.clone(), stop: Some(Box::new(move || drop(server))) }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            stop();
        }
    }
}

/// Listens on a free port, and returns the URL too.
fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("its own address"));
    (listener, url)
}

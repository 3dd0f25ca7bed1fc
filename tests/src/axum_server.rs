//! An axum application on a free port, with a multi-threaded runtime of its own.

use std::io;
use std::net::{SocketAddr, TcpListener};

use axum::Router;
use tokio::runtime::{Builder, Runtime};

/// A running application. Dropping it stops its runtime at once.
pub struct AxumServer {
    /// Its URL.
    pub url: String,
    runtime: Option<Runtime>,
}

impl AxumServer {
    /// Serves an application with two worker threads.
    pub fn serve(app: Router) -> Self {
        Self::run(|listener| async move {
            axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await
        })
    }

    /// Runs the server that `server` builds on a listener, with two worker threads.
    pub fn run<F>(server: impl FnOnce(tokio::net::TcpListener) -> F + Send + 'static) -> Self
    where
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a socket of tokio is not blocking");
        let url = format!("http://{}", listener.local_addr().expect("its own address"));
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a socket of tokio");
            server(listener).await
        });
        Self { url, runtime: Some(runtime) }
    }
}

impl Drop for AxumServer {
    fn drop(&mut self) {
        // A test drops it on a thread of its own runtime, where waiting is not allowed.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

//! The proxy as a program: built from settings, and run until SIGTERM or SIGINT.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

use actix_web::web::Data;
use onceward::{Clock, WarningLimits, stop_on_signal};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::route_table::RouteTable;
use super::service::ProxyService;
use super::settings::UpstreamAddress;
use super::worker::{self, ConnectionLimits, Phase};
use crate::admin::AdminServer;
use crate::app::BuildError;
use crate::config::Config;
use crate::context::Context;
use crate::guard_setup::{guard_builder, refuse_eviction};
use crate::http::access::Access;
use crate::http::admission::AdmissionLimits;
use crate::http::rate_limit::RateLimiter;
use crate::metrics::MetricsRecorder;
use crate::network::client_connections::ClientConnections;
use crate::network::listener::bind;
use crate::network::{file_limit, graceful_shutdown};
use crate::startup_message;

/// A proxy that is bound to its addresses.
pub(crate) struct Proxy {
    listener: TcpListener,
    address: SocketAddr,
    admin: Option<(TcpListener, SocketAddr)>,
    recorder: MetricsRecorder,
    context: Data<Context>,
    connections: usize,
    upstream: UpstreamAddress,
    config: Config,
}

impl Proxy {
    /// Connects to the store, waits until it is reachable, and binds the port.
    ///
    /// # Errors
    /// If one of these fails.
    pub(crate) async fn build(config: Config) -> Result<Self, BuildError> {
        let upstream = config.proxy.upstream.clone().ok_or(BuildError::NoUpstream)?;
        // Before the guard is created, which uses the recorder that is installed at that time.
        let recorder = MetricsRecorder::install()?;
        let builder = guard_builder(&config, &|text| tracing::warn!("store: {text}")).await?;
        let guard = builder.problem_base(format!("{}/problems/", config.proxy.proxy_path)).build();
        refuse_eviction(&config).await?;
        let (listener, address) = bind("listen", config.listen)?;
        let admin = config.admin_listen.map(|admin| bind("admin_listen", admin)).transpose()?;
        let access = Access::new(config.api_key.as_ref(), config.trusted_proxies.clone());
        let rate_limiter = RateLimiter::new(config.rate_limit, config.rate_burst, config.rate_limit_total);
        let limits = AdmissionLimits::new(config.max_in_flight.get() as usize, config.request_timeout);
        let limits = limits.buffering(config.proxy.buffer_limit);
        let context = Data::new(Context::new(guard, access, rate_limiter).within(limits).logging(config.request_log));
        let connections = file_limit::make_room(config.max_connections.get() as usize);
        Ok(Self { listener, address, admin, recorder, context, connections, upstream, config })
    }

    /// Serves requests until SIGTERM or SIGINT, and then until the requests in flight have completed (graceful shutdown).
    ///
    /// # Errors
    /// If the certificates of the upstream cannot be read, or a worker fails.
    pub(crate) async fn run(self) -> io::Result<()> {
        let admin_server = match self.admin.as_ref() {
            Some((listener, address)) => {
                let listening = (listener.try_clone()?, *address);
                Some(AdminServer::begin(listening, &self.context, &self.recorder, &self.config)?)
            }
            None => None,
        };
        let (phase, receiver) = watch::channel(Phase::Serving);
        let limits = self.limits();
        let workers = self.start_workers(&limits, &receiver)?;
        let (ended, mut all_ended) = watch::channel(None);
        tokio::task::spawn_blocking(move || ended.send_replace(Some(join(workers).map_err(|error| error.to_string()))));
        let guard = self.context.guard().clone();
        // Not a clone: the system accepts connections until the last one is closed.
        let door = self.listener;
        let admin = admin_server.as_ref().map(AdminServer::address);
        startup_message::announce_proxy(self.address, admin, &self.upstream, &self.config);
        // One deadline for all steps. Runs that have not ended by then are cut off.
        let limit = self.config.last_call + self.config.drain_limit;
        let mut drained = all_ended.clone();
        let stop = async {
            let _ = limits.deadline.set(Instant::now() + limit);
            let is_drained = guard.shut_down().await;
            graceful_shutdown::close(door).await;
            phase.send_replace(if is_drained { Phase::Stopping } else { Phase::Aborting });
            let _ = drained.wait_for(Option::is_some).await;
        };
        let abort = async {
            phase.send_replace(Phase::Aborting);
        };
        let stopped = tokio::select! {
            stopped = stop_on_signal(stop, abort) => stopped,
            () = self.recorder.add_up() => Ok(()),
            () = AdminServer::watch(admin_server.as_ref()) => Ok(()),
            // A worker ends before a signal only if its runtime cannot be built.
            _ = wait_for_end(&mut all_ended) => Ok(()),
        };
        // After a failure nothing else stops the workers.
        phase.send_replace(Phase::Aborting);
        let joined = wait_for_end(&mut all_ended).await;
        if let Some(admin_server) = admin_server {
            admin_server.end().await;
        }
        stopped.and(joined.map_err(io::Error::other))
    }

    fn limits(&self) -> Arc<ConnectionLimits> {
        let share = self.config.max_connections_per_client.map(|share| share.get() as usize);
        let clients = ClientConnections::new(self.connections, share, self.config.trusted_proxies.clone());
        Arc::new(ConnectionLimits {
            connections: Arc::new(Semaphore::new(self.connections)),
            clients: Mutex::new(clients),
            request_timeout: self.config.request_timeout,
            deadline: OnceLock::new(),
            warnings: WarningLimits::new(Clock::system()),
        })
    }

    fn start_workers(
        &self,
        limits: &Arc<ConnectionLimits>,
        phase: &watch::Receiver<Phase>,
    ) -> io::Result<Vec<JoinHandle<io::Result<()>>>> {
        let routes = Arc::new(RouteTable::new(self.config.proxy.routes.clone()));
        let count = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let start = |number| {
            let context = self.context.clone().into_inner();
            let service = ProxyService::new(context, Arc::clone(&routes), &self.config, &self.upstream);
            let service = Arc::new(service.map_err(io::Error::other)?);
            worker::start(number, self.listener.try_clone()?, Arc::clone(limits), phase.clone(), service)
        };
        (0..count).map(start).collect()
    }
}

/// Waits for the result of all workers.
async fn wait_for_end(ended: &mut watch::Receiver<Option<Result<(), String>>>) -> Result<(), String> {
    match ended.wait_for(Option::is_some).await {
        Ok(result) => result.clone().unwrap_or(Ok(())),
        Err(_) => Err("a worker panicked".to_owned()),
    }
}

/// Waits until all workers have ended.
fn join(workers: Vec<JoinHandle<io::Result<()>>>) -> io::Result<()> {
    for worker in workers {
        worker.join().map_err(|_| io::Error::other("a worker panicked"))??;
    }
    Ok(())
}

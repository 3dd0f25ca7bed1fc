//! The service: built from settings, and run until SIGTERM or SIGINT.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::Arc;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceFactory, ServiceRequest, ServiceResponse};
use actix_web::middleware::{Condition, from_fn};
use actix_web::web::{Data, ServiceConfig};
use actix_web::{App, Error, HttpServer};
use onceward::SettingError;
use onceward::store::{BadAddress, SqlError, StoreError};
use onceward_demo::Shop;
use utoipa_actix_web::AppExt as _;
use utoipa_swagger_ui::SwaggerUi;

use crate::admin::AdminServer;
use crate::config::{Config, ConfigError};
use crate::context::Context;
use crate::guard_setup::{build_guard, refuse_eviction};
use crate::http::access::Access;
use crate::http::admission::{self, AdmissionLimits};
use crate::http::cors::{self, CorsOrigins};
use crate::http::rate_limit::RateLimiter;
use crate::http::{head_requests, panic_handler};
use crate::logging;
use crate::metrics::MetricsRecorder;
use crate::network::client_connections::ClientConnections;
use crate::network::connections::{Connections, KEEP_ALIVE};
use crate::network::listener::{BindError, bind};
use crate::network::{file_limit, graceful_shutdown};
use crate::openapi::document;
use crate::routes::{self, api, pages, pages_and_fallbacks};
use crate::startup_message;

/// A service that is bound to its addresses.
pub struct Application {
    listener: TcpListener,
    address: SocketAddr,
    admin: Option<(TcpListener, SocketAddr)>,
    recorder: MetricsRecorder,
    context: Data<Context>,
    shop: Option<Data<Shop>>,
    /// Maximum number of open connections: `max_connections`, or fewer if the system does not allow so many open files.
    connections: usize,
    config: Config,
}

/// An error at startup.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// `token_ttl` is out of range.
    #[error("token_ttl: {0}")]
    TokenTtl(#[from] SettingError),
    /// The address of the store is invalid.
    #[error("store: {0}")]
    Store(#[from] BadAddress),
    /// The database cannot be used.
    #[error("store: {store}: {error}")]
    Database {
        /// The address of the store.
        store: String,
        /// The cause.
        error: SqlError,
    },
    /// The store is not reachable.
    #[error("store: {store}: {error} (retried for {wait}, see --wait-for). Check --store, or raise --store-timeout.")]
    Silent {
        /// The address of the store.
        store: String,
        /// The value of `wait_for`.
        wait: String,
        /// The last error.
        error: StoreError,
    },
    /// The store is reachable, but cannot be used or may evict records.
    #[error("store: {says} {fix}")]
    Unfit {
        /// The problem.
        says: String,
        /// The fix.
        fix: String,
    },
    /// The proxy has no upstream.
    #[error("upstream: it is not set. Set --upstream http://127.0.0.1:3000.")]
    NoUpstream,
    /// The service cannot listen on an address.
    #[error(transparent)]
    Listen(#[from] BindError),
    /// Another metrics recorder is already installed in this process.
    #[error("metrics: {0}")]
    MetricsRecorder(#[from] metrics_exporter_prometheus::BuildError),
}

impl Application {
    /// Connects to the store, waits until it is reachable, and binds the port.
    ///
    /// # Errors
    /// If one of these fails.
    pub async fn build(config: Config) -> Result<Self, BuildError> {
        // Before the guard is created, which uses the recorder that is installed at that time.
        let recorder = MetricsRecorder::install()?;
        let guard = build_guard(&config, &|text| tracing::warn!("store: {text}")).await?;
        refuse_eviction(&config).await?;
        // Bound only now, so that early clients are refused immediately and do not wait.
        let (listener, address) = bind("listen", config.listen)?;
        let admin = config.admin_listen.map(|admin| bind("admin_listen", admin)).transpose()?;
        let access = Access::new(config.api_key.as_ref(), config.trusted_proxies.clone());
        let rate_limiter = RateLimiter::new(config.rate_limit, config.rate_burst, config.rate_limit_total);
        let shop = config.demo.then(|| Data::new(Shop::new(guard.clone())));
        let limits = AdmissionLimits::new(config.max_in_flight.get() as usize, config.request_timeout);
        let context = Data::new(Context::new(guard, access, rate_limiter).within(limits).logging(config.request_log));
        let connections = file_limit::make_room(config.max_connections.get() as usize);
        Ok(Self { listener, address, admin, recorder, context, shop, connections, config })
    }

    /// Serves requests until SIGTERM or SIGINT, and then until the requests in flight have completed (graceful shutdown).
    ///
    /// # Errors
    /// If the server fails.
    pub async fn run(self) -> io::Result<()> {
        let Self { listener, address, admin, recorder, context, shop, connections, config } = self;
        let guard = context.guard().clone();
        let origins = Arc::new(CorsOrigins::new(config.cors_origins.clone()));
        let admin_server =
            admin.map(|listening| AdminServer::begin(listening, &context, &recorder, &config)).transpose()?;
        // With `admin_listen`, metrics are served only there.
        let shown = admin_server.is_none().then(|| recorder.clone());
        let server = HttpServer::new(move || {
            let app = app(context.clone(), Arc::clone(&origins), shop.clone());
            app.configure(|config| {
                shown.clone().into_iter().for_each(|recorder| routes::dashboard_and_metrics(recorder)(config))
            })
        });
        let share = config.max_connections_per_client.map(|share| share.get() as usize);
        let clients = ClientConnections::new(connections, share, config.trusted_proxies.clone());
        let each = connections.div_ceil(workers());
        let connections = Arc::new(Connections::new(config.request_timeout, clients));
        let welcoming = Arc::clone(&connections);
        let server = server
            .max_connections(each)
            .keep_alive(KEEP_ALIVE)
            .client_request_timeout(config.request_timeout)
            .on_connect(move |io, data| welcoming.welcome(io, data));
        let admin = admin_server.as_ref().map(AdminServer::address);
        let door = listener.try_clone()?;
        let server = server.listen(listener)?.disable_signals().run();
        // The server is polled first: when the message appears, it already listens, also for signals.
        let serving = async {
            tokio::join!(graceful_shutdown::serve(server, door, &guard), async {
                startup_message::announce(address, admin, &config)
            })
        };
        let ended = tokio::select! {
            (ended, ()) = serving => ended,
            () = recorder.add_up() => Ok(()),
            () = connections.watch() => Ok(()),
            () = AdminServer::watch(admin_server.as_ref()) => Ok(()),
        };
        if let Some(admin_server) = admin_server {
            admin_server.end().await;
        }
        ended
    }
}

/// Installs the panic hook, reads the settings and starts the log.
///
/// # Errors
/// If the settings are invalid.
pub fn prepare(load: impl FnOnce() -> Result<Config, ConfigError>) -> Result<Config, ConfigError> {
    panic_handler::install_hook();
    let config = load()?;
    logging::begin(config.log, config.log_level);
    Ok(config)
}

/// Builds the application of each worker: every route behind every middleware. Routes that are added to it are behind them too.
pub fn app(
    context: Data<Context>,
    origins: Arc<CorsOrigins>,
    shop: Option<Data<Shop>>,
) -> App<
    impl ServiceFactory<
        ServiceRequest,
        Config = (),
        Response = ServiceResponse<impl MessageBody>,
        Error = Error,
        InitError = (),
    >,
> {
    let (app, _) = App::new().into_utoipa_app().configure(api).split_for_parts();
    let cors = Condition::new(!origins.is_empty(), origins.cors());
    // The last middleware is the outermost.
    app.app_data(context)
        .app_data(Data::from(origins))
        .service(SwaggerUi::new("/docs/{_:.*}").url("/openapi.json", document()).config(docs()))
        .configure(|config| start(config, shop))
        .configure(pages_and_fallbacks)
        .wrap(from_fn(admission::admit))
        .wrap(from_fn(routes::explain_not_found))
        .wrap(from_fn(panic_handler::catch_failures))
        .wrap(cors)
        .wrap(from_fn(cors::explain_preflight))
        .wrap(from_fn(cors::log_origin))
        .wrap(from_fn(routes::forward_auth::translate))
        .wrap(from_fn(head_requests::answer_as_get))
        .wrap(from_fn(logging::observe))
}

/// Returns the number of workers.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Adds the page at `/`: the demo, or the start page.
fn start(config: &mut ServiceConfig, shop: Option<Data<Shop>>) {
    match shop {
        Some(shop) => onceward_demo::mount(shop)(config),
        None => drop(config.service(pages::start)),
    }
}

/// Returns the settings of Swagger UI: without the validator badge, which would send this URL to another host.
fn docs() -> utoipa_swagger_ui::Config<'static> {
    utoipa_swagger_ui::Config::default().validator_url("none")
}

//! Connections to the upstream: TCP, with TLS for `https`.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::Uri;
use http::uri::Scheme;
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;

use crate::proxy::body::{AnyBody, BoxError};
use crate::proxy::settings::{ProxySettings, UpstreamAddress};

/// Idle time after which the system checks whether the upstream is still there.
const TCP_KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Opens connections to the upstream, within a time for all steps: the lookup of the name, TCP and TLS.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    connector: HttpsConnector<HttpConnector>,
    within: Duration,
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(context)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let connection = timeout(self.within, self.connector.call(target));
        Box::pin(async { connection.await.map_err(|_| "no connection in time")? })
    }
}

/// Maximum size of a response's head, and of a read: what the proxy holds of a response that its client reads slowly.
const BUFFER: usize = 64 * 1024;

/// Creates a client with a pool of its own.
///
/// # Errors
/// If the certificates cannot be read.
pub(super) fn client(settings: &ProxySettings, address: &UpstreamAddress) -> io::Result<Client<Connector, AnyBody>> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(TCP_KEEP_ALIVE));
    let tls = tls(settings.upstream_ca.as_deref(), &address.scheme)?;
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp);
    let connector = Connector { connector, within: time_to_connect(settings) };
    let mut client = Client::builder(TokioExecutor::new());
    client.set_host(false).http1_max_buf_size(BUFFER);
    client.pool_timer(TokioTimer::new()).pool_idle_timeout(settings.upstream_keep_alive);
    if settings.upstream_keep_alive.is_zero() {
        client.pool_max_idle_per_host(0);
    }
    Ok(client.build(connector))
}

/// Returns the time for all steps of connecting. It ends before the other timeouts, after which it is unknown whether the upstream has
/// received the request.
fn time_to_connect(settings: &ProxySettings) -> Duration {
    let shortest = settings.upstream_read_timeout.min(settings.upstream_timeout);
    settings.upstream_connect_timeout.min(shortest * 9 / 10)
}

/// Trusts the authorities in this file, or those of the system. Without TLS none is needed, and the system need not have any.
fn tls(authorities: Option<&Path>, scheme: &Scheme) -> io::Result<ClientConfig> {
    let provider = rustls::crypto::ring::default_provider();
    let config = ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    match authorities {
        Some(path) => Ok(config.with_root_certificates(read(path)?).with_no_client_auth()),
        None if *scheme == Scheme::HTTPS => Ok(config.with_native_roots()?.with_no_client_auth()),
        None => Ok(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth()),
    }
}

fn read(path: &Path) -> io::Result<RootCertStore> {
    let named = |error: String| io::Error::other(format!("upstream_ca: {}: {error}", path.display()));
    let mut roots = RootCertStore::empty();
    let mut file = BufReader::new(File::open(path).map_err(|error| named(error.to_string()))?);
    for certificate in CertificateDer::pem_reader_iter(&mut file) {
        let certificate = certificate.map_err(|error| named(error.to_string()))?;
        roots.add(certificate).map_err(|error| named(error.to_string()))?;
    }
    if roots.is_empty() { Err(named("contains no certificate".to_owned())) } else { Ok(roots) }
}

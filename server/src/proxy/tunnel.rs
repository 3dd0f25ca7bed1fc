//! Connections that switch to another protocol, such as WebSocket: the proxy copies bytes in both directions.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Response};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::body::{AnyBody, whole};
use super::forward;
use super::worker::ConnectionPlace;

/// A request to switch to another protocol.
pub(super) struct UpgradeRequest {
    /// The protocol.
    pub(super) protocol: HeaderValue,
    client: OnUpgrade,
    /// The connection of the client counts until the tunnel ends.
    place: Option<Arc<ConnectionPlace>>,
}

impl UpgradeRequest {
    /// Takes it out of a request; `None` if the request asks for no other protocol.
    pub(super) fn of(parts: &mut Parts) -> Option<Self> {
        let protocol = forward::upgrade(&parts.headers)?;
        let client = parts.extensions.remove::<OnUpgrade>()?;
        Some(Self { protocol, client, place: parts.extensions.remove::<Arc<ConnectionPlace>>() })
    }
}

/// Connects the client with the upstream, which has agreed to switch to another protocol. Returns the response for the client; `None` if
/// the client has not asked for that.
pub(super) fn open(mut response: Response<Incoming>, request: Option<UpgradeRequest>) -> Option<Response<AnyBody>> {
    let protocol = forward::upgrade(response.headers())?;
    let UpgradeRequest { client, place, .. } = request?;
    let upstream = hyper::upgrade::on(&mut response);
    tokio::spawn(async move {
        let _held = place;
        if let Err(error) = copy(client, upstream).await {
            tracing::debug!(error, "a connection with another protocol ended");
        }
    });
    let mut response = response.map(|_| whole(Bytes::new()));
    forward::remove_hop_by_hop(response.headers_mut());
    forward::set_upgrade(response.headers_mut(), protocol);
    Some(response)
}

async fn copy(client: OnUpgrade, upstream: OnUpgrade) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (client, upstream) = tokio::try_join!(client, upstream)?;
    tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(upstream)).await?;
    Ok(())
}

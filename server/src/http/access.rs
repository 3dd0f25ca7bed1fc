//! Access control: backends are identified by the API key, clients by their address.

mod forwarded_for;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Once;

use actix_web::HttpRequest;
use actix_web::http::header::HOST;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ipnet::IpNet;
use onceward::http::RequestHead;
use onceward::{Attempt, Clock, Language, Rejection, WarningLimits};
use onceward_api::{Code, header};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use self::forwarded_for::ForwardedHeader;
pub(crate) use self::forwarded_for::forwarded_hosts;
use super::bad_request;
use crate::config::ApiKey;

const AUTHORIZATION: &str = "authorization";

/// The API key and the trusted proxies.
#[derive(Debug)]
pub struct Access {
    /// The digest of the key, for a comparison in constant time.
    key: Option<[u8; 32]>,
    trusted: Vec<IpNet>,
    warnings: Warnings,
}

impl Access {
    /// Accepts this key, and trusts these proxies.
    pub fn new(key: Option<&ApiKey>, trusted: Vec<IpNet>) -> Self {
        let key = key.map(|key| Sha256::digest(key.as_bytes()).into());
        let warnings =
            Warnings { forwarded: Once::new(), attempt: Once::new(), key: WarningLimits::new(Clock::system()) };
        Self { key, trusted, warnings }
    }

    /// Returns true if an API key is set.
    pub fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// Returns true if the request has the API key.
    pub fn is_backend(&self, request: &impl RequestHead) -> bool {
        let sent =
            request.header(AUTHORIZATION).next().and_then(|value| std::str::from_utf8(value).ok()).and_then(key_in);
        match (self.key, sent) {
            (Some(key), Some(sent)) => {
                let sent: [u8; 32] = Sha256::digest(sent).into();
                key.ct_eq(&sent).into()
            }
            _ => false,
        }
    }

    /// Returns the attempt that a trusted gateway names. A client that could choose the attempt could have one token accepted twice.
    ///
    /// # Errors
    /// If the attempt is malformed.
    pub fn attempt(&self, request: &impl RequestHead) -> Result<Option<Attempt>, Rejection> {
        let mut sent = request.header(header::ATTEMPT);
        let Some(name) = sent.next() else { return Ok(None) };
        let peer = peer(request);
        if !self.is_backend(request) && !self.is_trusted(&peer) {
            self.warnings.attempt.call_once(|| {
                tracing::warn!(
                    "{peer} sends {} and is not trusted, so the header is ignored and a repeated request is rejected; if {peer} is your gateway, \
                     give it the API key, or set trusted_proxies = \"{peer}\"",
                    header::ATTEMPT
                );
            });
            return Ok(None);
        }
        let attempt = std::str::from_utf8(name).ok().filter(|_| sent.next().is_none()).map(Attempt::new);
        match attempt {
            Some(Ok(attempt)) => Ok(Some(attempt)),
            _ => Err(bad_request(
                format!("`{}` must be sent once, with 1 to 255 visible ASCII characters.", header::ATTEMPT),
                format!("`{}` 必须发送一次，由 1 到 255 个可见的 ASCII 字符组成。", header::ATTEMPT),
            )),
        }
    }

    /// Requires the API key. Without a configured key, every request is accepted: the service then listens on loopback only.
    ///
    /// # Errors
    /// If the key is missing or wrong.
    pub fn require_backend(&self, request: &impl RequestHead) -> Result<(), Rejection> {
        if !self.has_key() || self.is_backend(request) {
            return Ok(());
        }
        self.warn_of_key(request);
        Err(Rejection::new(Code::Unauthorized)
            .detail("The API key is missing or wrong. Send it as `Authorization: Bearer …`.")
            .detail_in(Language::SIMPLIFIED_CHINESE, "API 密钥缺失或错误。请以 `Authorization: Bearer …` 发送。"))
    }

    /// Returns the address of the client. Forwarding headers count only from a trusted proxy.
    pub fn client(&self, request: &impl RequestHead) -> IpAddr {
        let peer = peer(request);
        let Some(field) = ForwardedHeader::of(request) else { return peer };
        if !self.is_trusted(&peer) {
            self.warn_once(&peer, field);
            return peer;
        }
        self.behind(peer, field.hops(request))
    }

    /// Returns the host of the request. Forwarding headers count only from a trusted proxy.
    pub fn host(&self, request: &HttpRequest) -> String {
        if self.is_trusted(&peer(request)) {
            return request.connection_info().host().to_owned();
        }
        request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned()
    }

    /// Returns the nearest hop that is not a trusted proxy: the client can forge all hops before it.
    fn behind(&self, peer: IpAddr, hops: Vec<Option<IpAddr>>) -> IpAddr {
        let mut client = peer;
        for hop in hops {
            let Some(address) = hop else { break };
            client = address.to_canonical();
            if !self.is_trusted(&client) {
                break;
            }
        }
        client
    }

    /// Returns whether the forwarding headers of this address count.
    pub fn is_trusted(&self, address: &IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(address))
    }

    /// Logs a backend or gateway without the right key: it rejects every submission until the operator fixes the key.
    fn warn_of_key(&self, request: &impl RequestHead) {
        if let Some(suppressed) = self.warnings.key.admit(&peer(request).to_string()) {
            let key = if request.header(AUTHORIZATION).next().is_some() { "wrong" } else { "missing" };
            tracing::warn!(
                peer = %peer(request),
                path = request.path(),
                key,
                suppressed,
                "a caller without the API key was rejected; give it the key of the setting `api_key`"
            );
        }
    }

    fn warn_once(&self, peer: &IpAddr, field: ForwardedHeader) {
        self.warnings.forwarded.call_once(|| {
            let name = field.name();
            tracing::warn!(
                "{peer} sends {name} and is not trusted, so all its clients count as one client; \
                 if it is your proxy, set trusted_proxies = \"{peer}\""
            );
        });
    }
}

/// The state of warnings that are limited in number.
#[derive(Debug)]
struct Warnings {
    forwarded: Once,
    attempt: Once,
    key: WarningLimits,
}

/// Returns the key in an `Authorization` header: a bearer token, or a basic-auth password, for gateways that can only set it in a URL.
fn key_in(authorization: &str) -> Option<Vec<u8>> {
    let (scheme, sent) = authorization.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(sent.as_bytes().to_vec());
    }
    let pair = STANDARD.decode(sent).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(pair[colon + 1..].to_vec())
}

/// Returns the address of the peer.
fn peer(request: &impl RequestHead) -> IpAddr {
    request.client_address().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.to_canonical())
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn access(trusted: &str) -> Access {
        let trusted = trusted.split(',').filter(|text| !text.is_empty()).map(|text| text.parse().unwrap()).collect();
        Access::new(None, trusted)
    }

    fn client(access: &Access, peer: &str, forwarded: &[&str]) -> String {
        let request = TestRequest::default().peer_addr(format!("{peer}:1").parse().unwrap());
        let request =
            forwarded.iter().fold(request, |request, value| request.append_header(("x-forwarded-for", *value)));
        access.client(&request.to_http_request()).to_string()
    }

    #[test]
    fn forwarded_headers_are_read_only_from_trusted_proxies() {
        assert_eq!(client(&access(""), "10.0.0.1", &["1.2.3.4"]), "10.0.0.1");
        let access = access("10.0.0.0/8");
        assert_eq!(client(&access, "10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(client(&access, "10.0.0.1", &["1.2.3.4"]), "1.2.3.4");
        assert_eq!(client(&access, "9.9.9.9", &["1.2.3.4"]), "9.9.9.9");
        assert_eq!(
            client(&access, "10.0.0.1", &["6.6.6.6, 1.2.3.4, 10.0.0.2"]),
            "1.2.3.4",
            "hops before the first untrusted one are ignored"
        );
        assert_eq!(client(&access, "10.0.0.1", &["6.6.6.6", "1.2.3.4"]), "1.2.3.4");
        assert_eq!(client(&access, "10.0.0.1", &["1.2.3.4:5678"]), "1.2.3.4");
        assert_eq!(client(&access, "10.0.0.1", &["[2001:db8::1]:5678"]), "2001:db8::1");
        assert_eq!(client(&access, "10.0.0.1", &["nonsense"]), "10.0.0.1");
        assert_eq!(client(&access, "10.0.0.1", &["1.2.3.4, nonsense"]), "10.0.0.1");
    }

    #[test]
    fn trusted_proxy_may_use_either_header() {
        let access = access("10.0.0.0/8");
        let client = |peer: &str, line: &str| {
            let request = TestRequest::default().peer_addr(format!("{peer}:1").parse().unwrap());
            access.client(&request.append_header(("forwarded", line)).to_http_request()).to_string()
        };
        assert_eq!(client("10.0.0.1", "for=1.2.3.4"), "1.2.3.4");
        assert_eq!(client("10.0.0.1", "for=6.6.6.6, for=\"[2001:db8::1]:80\", for=10.0.0.2"), "2001:db8::1");
        assert_eq!(client("10.0.0.1", "for=1.2.3.4, for=_hidden"), "10.0.0.1");
        assert_eq!(client("9.9.9.9", "for=1.2.3.4"), "9.9.9.9");
    }

    #[test]
    fn forwarded_host_is_read_only_from_trusted_proxies() {
        let access = access("10.0.0.0/8");
        for (name, line) in [("x-forwarded-host", "evil.example"), ("forwarded", "host=evil.example")] {
            let host = |peer: &str| {
                let request = TestRequest::default().peer_addr(format!("{peer}:1").parse().unwrap());
                let request = request.insert_header(("host", "shop.example:8080")).insert_header((name, line));
                access.host(&request.to_http_request())
            };
            assert_eq!((host("9.9.9.9").as_str(), host("10.0.0.1").as_str()), ("shop.example:8080", "evil.example"));
        }
        assert_eq!(access.host(&TestRequest::default().to_http_request()), "");
    }
}

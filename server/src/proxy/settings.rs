//! The settings of the proxy.

use std::path::PathBuf;
use std::time::Duration;

use http::uri::{Authority, Scheme};
use http::{HeaderName, Method};
use onceward::http::{Envelope, Profile};

use super::rejection_template::RejectionTemplate;
use super::route::ProxyRoute;

/// The settings of the proxy.
#[derive(Debug, Clone)]
pub struct ProxySettings {
    /// The application behind the proxy; `onceward proxy` requires it.
    pub upstream: Option<UpstreamAddress>,
    /// A file with the certificates of the authorities that sign the certificate of the upstream; `None`: those of the system.
    pub upstream_ca: Option<PathBuf>,
    /// The `Host` that the upstream receives.
    pub upstream_host: UpstreamHost,
    /// Timeout for connecting to the upstream: name lookup, TCP and TLS. At most nine tenths of the two timeouts below.
    pub upstream_connect_timeout: Duration,
    /// Maximum time between two reads from the upstream.
    pub upstream_read_timeout: Duration,
    /// Maximum time of a protected request, from sending it to the end of its response.
    pub upstream_timeout: Duration,
    /// Time for which an idle connection to the upstream is reused.
    pub upstream_keep_alive: Duration,
    /// The path under which the proxy serves its own routes, without a slash at the end.
    pub proxy_path: String,
    /// Which submissions are rejected if they carry no id.
    pub require: Require,
    /// The contract by which requests with a key are answered.
    pub profile: Profile,
    /// The format of rejections.
    pub rejections: RejectionShape,
    /// The envelope of `rejections = "envelope"`.
    pub envelope: Envelope,
    /// The template of `rejections = "template"`, which requires it.
    pub template: Option<RejectionTemplate>,
    /// The response header that says how long a response is stored; `None` if no header does.
    pub retention_header: Option<HeaderName>,
    /// True if `/.well-known/onceward` is a path of the proxy.
    pub well_known: bool,
    /// True if HTML pages receive the script.
    pub inject: bool,
    /// Headers with credentials, beside `Authorization` and `Cookie`.
    pub credential_headers: Vec<HeaderName>,
    /// Maximum number of bytes of a protected request body, which the proxy reads to its end before it forwards the request.
    pub body_limit: usize,
    /// Maximum number of bytes of all these bodies that are in memory at the same time.
    pub buffer_limit: usize,
    /// The routes, in the order of the file.
    pub routes: Vec<ProxyRoute>,
}

impl ProxySettings {
    /// Returns which submissions with this method are rejected without an id, on paths without a route of their own: a profile may demand
    /// a key on every POST.
    pub fn require_for(&self, method: &Method) -> Require {
        match self.require {
            Require::Nothing | Require::Either if self.profile.requires_key() && method == Method::POST => Require::Key,
            require => require,
        }
    }

    /// Returns a warning if the script fetches tokens for forms that need a key, which a form cannot send.
    pub fn warning_of_forms(&self) -> Option<&'static str> {
        (self.inject && self.require_for(&Method::POST) == Require::Key).then_some(
            "with `inject`, forms are sent with a token, and on paths without a route every POST needs an Idempotency-Key, so such a form \
             receives 400 key_missing; set require to either, or give the paths of forms a [[proxy.route]] with the policy token",
        )
    }
}

/// The address of the upstream: `http://127.0.0.1:3000`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamAddress {
    /// `http` or `https`.
    pub scheme: Scheme,
    /// Host, and port if one is given.
    pub authority: Authority,
}

/// The `Host` header that the upstream receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamHost {
    /// The one that the client sent.
    Client,
    /// The address of the upstream.
    Upstream,
}

/// Which submissions without an id are rejected, on paths without a route of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Require {
    /// None: a submission without a token or key passes.
    Nothing,
    /// Those without a token.
    Token,
    /// Those without a key.
    Key,
    /// Those without a token and without a key.
    Either,
}

/// The format of rejections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectionShape {
    /// That of the profile.
    Profile,
    /// A problem of RFC 9457.
    Problem,
    /// An envelope.
    Envelope,
    /// The template of the settings file.
    Template,
}

impl RejectionShape {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::Profile, Self::Problem, Self::Envelope, Self::Template];

    /// Returns the name, as in settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Profile => "profile",
            Self::Problem => "problem",
            Self::Envelope => "envelope",
            Self::Template => "template",
        }
    }

    /// Returns the format with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shape| shape.as_str() == name)
    }
}

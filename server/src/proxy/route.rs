//! One route of the proxy: `[[proxy.route]]` in the settings file.

use std::time::Duration;

use http::{HeaderName, Method};
use onceward::http::Profile;
use onceward::{Effect, Fields, IntervalRules, KeyRules};

use super::pattern::PathPattern;
use super::settings::RejectionShape;

/// The rules for the requests that match a path and a method.
#[derive(Debug, Clone)]
pub struct ProxyRoute {
    /// The paths.
    pub path: PathPattern,
    /// The methods; empty for every method but GET, HEAD and OPTIONS.
    pub methods: Vec<Method>,
    /// The policy and its rules.
    pub policy: RoutePolicy,
    /// The source of the subject.
    pub subject: RouteSubject,
    /// The contract, in place of the common one.
    pub profile: Option<Profile>,
    /// The format of rejections, in place of the common one.
    pub rejections: Option<RejectionShape>,
    /// The header that says how long a response is stored, in place of the common one; `Some(None)` if no header does.
    pub retention_header: Option<Option<HeaderName>>,
    /// The limit for this route, in place of the common one.
    pub body_limit: Option<usize>,
    /// The statuses that the route judges itself.
    pub effects: StatusEffects,
}

impl ProxyRoute {
    /// Returns true if the route has this method.
    pub fn takes(&self, method: &Method) -> bool {
        if self.methods.is_empty() { !is_safe(method) } else { self.methods.contains(method) }
    }
}

/// Returns true if the guard never checks requests with this method.
pub fn is_safe(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}

/// The policy of a route.
#[derive(Debug, Clone)]
pub enum RoutePolicy {
    /// A token is required.
    Token {
        /// True if the token has to be issued for the action of the request.
        bound: bool,
        /// The rules by which the response is stored; `None` if it is not.
        remember: Option<KeyRules>,
        /// Maximum time that a duplicate waits for the first request; `None`: the default of the library.
        wait: Option<Duration>,
        /// The body fields that are compared.
        fields: Fields,
    },
    /// A key is required.
    Key {
        /// The rules by which the key is claimed and its response is stored.
        rules: KeyRules,
        /// The source of the key.
        from: KeyLocation,
        /// Maximum time that a duplicate waits for the first request; `None`: it does not wait.
        wait: Option<Duration>,
        /// The body fields that are compared.
        fields: Fields,
    },
    /// At most one equivalent request per subject and interval.
    Interval {
        /// The interval.
        rules: IntervalRules,
        /// True if the response is stored until the interval ends.
        remember: bool,
        /// The source of a name, in place of the content.
        from: Option<KeyLocation>,
        /// Maximum time that a duplicate waits for the first request, if the response is stored; `None`: the default of the library.
        wait: Option<Duration>,
        /// The body fields that are compared.
        fields: Fields,
    },
    /// The request passes.
    None,
}

/// The source of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyLocation {
    /// A header.
    Header(HeaderName),
    /// A query parameter.
    Query(String),
    /// A field of the body, by JSON pointer.
    Body(String),
    /// A parameter of the route's path.
    Path(String),
}

/// The source of the subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteSubject {
    /// None is configured: requests with different credentials (`Authorization`, `Cookie`) have different content.
    Credentials,
    /// All clients share one subject.
    Anonymous,
    /// The client address, as trusted proxies report it.
    ClientAddress,
    /// A header that a trusted gateway sets.
    Header(HeaderName),
    /// The digest of a cookie.
    Cookie(String),
}

impl RouteSubject {
    /// Returns the header that it is read from.
    pub fn header(&self) -> Option<&HeaderName> {
        match self {
            Self::Header(name) => Some(name),
            _ => None,
        }
    }
}

/// The effects of responses by status, where the route differs from the table of the library.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusEffects(pub Vec<(u16, Effect)>);

impl StatusEffects {
    /// Returns the effect of a response with this status, if the route states it.
    pub fn of(&self, status: u16) -> Option<Effect> {
        self.0.iter().find(|(stated, _)| *stated == status).map(|(_, effect)| *effect)
    }
}

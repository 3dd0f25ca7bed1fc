use std::fmt;
use std::sync::Arc;

use actix_web::HttpRequest;
use onceward_api::Code;

use crate::intent::Subject;
use crate::rejection::Rejection;

type Resolver = Arc<dyn Fn(&HttpRequest) -> Option<String> + Send + Sync>;

/// How a request is traced to whoever sent it. There is no default: being nobody has to be written out.
#[derive(Clone)]
pub struct SubjectFrom(SubjectSource);

#[derive(Clone)]
enum SubjectSource {
    Anonymous,
    ClientAddress,
    Resolver(Resolver),
}

impl SubjectFrom {
    /// Nobody in particular: all callers are one.
    pub fn anonymous() -> Self {
        Self(SubjectSource::Anonymous)
    }

    /// The address at the other end of the connection. Behind a proxy that is the proxy's, and all callers are one.
    pub fn client_address() -> Self {
        Self(SubjectSource::ClientAddress)
    }

    /// What the application says. `None` means that nobody was found: the request is refused with 401, and never
    /// taken for an anonymous one. Give a user id, not an access token: that changes when it is refreshed.
    pub fn resolver(resolve: impl Fn(&HttpRequest) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(SubjectSource::Resolver(Arc::new(resolve)))
    }

    pub(super) fn resolve(&self, request: &HttpRequest) -> Result<Subject<'static>, Rejection> {
        let found = match &self.0 {
            SubjectSource::Anonymous => Some(Subject::anonymous()),
            SubjectSource::ClientAddress => request.peer_addr().map(|address| Subject::client_address(address.ip())),
            SubjectSource::Resolver(resolve) => resolve(request).map(Subject::named),
        };
        found.ok_or_else(|| Rejection::new(Code::Unauthorized))
    }
}

impl fmt::Debug for SubjectFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            SubjectSource::Anonymous => "anonymous",
            SubjectSource::ClientAddress => "client address",
            SubjectSource::Resolver(_) => "resolver",
        })
    }
}

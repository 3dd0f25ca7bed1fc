use std::fmt;
use std::sync::Arc;

use actix_web::HttpRequest;
use onceward_api::Code;

use crate::rejection::Rejection;
use crate::subject::Subject;

type Resolver = Arc<dyn Fn(&HttpRequest) -> Option<String> + Send + Sync>;

/// The source of a request's subject. There is no default: anonymous has to be written explicitly.
#[derive(Clone)]
pub struct SubjectFrom(SubjectSource);

#[derive(Clone)]
enum SubjectSource {
    Anonymous,
    ClientAddress,
    Resolver(Resolver),
}

impl SubjectFrom {
    /// Uses the anonymous subject: all clients share it.
    pub fn anonymous() -> Self {
        Self(SubjectSource::Anonymous)
    }

    /// Uses the client address of the connection. Behind a proxy that is the proxy's address, and all clients share it.
    pub fn client_address() -> Self {
        Self(SubjectSource::ClientAddress)
    }

    /// Uses the subject that the application returns. `None` means that the client is not authenticated: the request is rejected with
    /// 401, and never treated as anonymous. Return a user id, not an access token, which changes when it is refreshed.
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

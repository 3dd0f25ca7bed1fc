//! The source of a request's subject.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use onceward_api::Code;

use super::request::RequestHead;
use crate::rejection::Rejection;
use crate::subject::Subject;

type Resolver<R> = Arc<dyn Fn(&R) -> Option<String> + Send + Sync>;
type Lookup<R> = Arc<dyn Fn(&R) -> PendingSubject + Send + Sync>;
type PendingSubject = Pin<Box<dyn Future<Output = Option<String>> + Send>>;

/// The source of the subject of a request of type `R`. There is no default: anonymous has to be written explicitly.
///
/// Adapters call it `SubjectFrom`.
pub struct SubjectSource<R>(Source<R>);

enum Source<R> {
    Anonymous,
    ClientAddress,
    Resolver(Resolver<R>),
    Lookup(Lookup<R>),
}

impl<R: RequestHead> SubjectSource<R> {
    /// Uses the anonymous subject: all clients share it.
    pub fn anonymous() -> Self {
        Self(Source::Anonymous)
    }

    /// Uses the client address of the connection. Behind a proxy that is the proxy's address, and all clients share it. If the server does
    /// not record client addresses, requests are rejected with 401. On axum, serve
    /// `app.into_make_service_with_connect_info::<SocketAddr>()`, which records them.
    pub fn client_address() -> Self {
        Self(Source::ClientAddress)
    }

    /// Uses the subject that the application returns. `None` means that the client is not authenticated: the request is rejected with
    /// 401, and never treated as anonymous. Return a user id, not an access token, which changes when it is refreshed.
    pub fn resolver(resolve: impl Fn(&R) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Source::Resolver(Arc::new(resolve)))
    }

    /// Like [`resolver`](Self::resolver), with a function that has to wait, for example for the session store. The function copies what
    /// it needs from the request, and returns a future.
    pub fn lookup<F>(resolve: impl Fn(&R) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<String>> + Send + 'static,
    {
        Self(Source::Lookup(Arc::new(move |request| Box::pin(resolve(request)))))
    }

    pub(crate) async fn resolve(&self, request: &R) -> Result<Subject<'static>, Rejection> {
        let found = match &self.0 {
            Source::Anonymous => Some(Subject::anonymous()),
            Source::ClientAddress => request.client_address().map(Subject::client_address),
            Source::Resolver(resolve) => resolve(request).map(Subject::named),
            Source::Lookup(resolve) => resolve(request).await.map(Subject::named),
        };
        found.ok_or_else(|| Rejection::new(Code::Unauthorized))
    }
}

impl<R> Clone for SubjectSource<R> {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Source::Anonymous => Source::Anonymous,
            Source::ClientAddress => Source::ClientAddress,
            Source::Resolver(resolve) => Source::Resolver(Arc::clone(resolve)),
            Source::Lookup(resolve) => Source::Lookup(Arc::clone(resolve)),
        })
    }
}

impl<R> fmt::Debug for SubjectSource<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::Anonymous => "anonymous",
            Source::ClientAddress => "client address",
            Source::Resolver(_) => "resolver",
            Source::Lookup(_) => "lookup",
        })
    }
}

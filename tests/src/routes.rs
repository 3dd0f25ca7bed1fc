//! Routes of the acceptance suite: a table that each web framework mounts.

use std::sync::Arc;
use std::time::Duration;

use onceward::Guard;
use onceward::http::{Exempt, Protect, RequireProtection, SubjectSource};
use reqwest::Method;

use crate::call::Call;
use crate::handler::Handler;
use crate::reply::Reply;
use crate::web_framework::WebFramework;

/// A table of routes and scopes.
pub struct Routes<F: WebFramework> {
    /// The entries.
    pub entries: Vec<Entry<F>>,
    /// The layers around all of them, the innermost first.
    pub layers: Vec<Layer<F>>,
}

/// An entry of a table.
pub enum Entry<F: WebFramework> {
    /// One route.
    Route(Route<F>),
    /// Routes under a common prefix; an empty prefix groups routes that share layers.
    Scope(String, Routes<F>),
    /// `POST /token`.
    Tokens(Guard, SubjectSource<F::Request>),
}

/// One route.
pub struct Route<F: WebFramework> {
    /// The pattern of its path, such as `/orders/{id}`.
    pub path: String,
    /// Its methods; empty for every method.
    pub methods: Vec<Method>,
    /// Its handler.
    pub handler: Handler,
    /// The layers around the handler, the innermost first.
    pub layers: Vec<Layer<F>>,
}

/// A function that may respond in place of the handler.
pub type Answer = Arc<dyn Fn(&Call) -> Option<Reply> + Send + Sync>;

/// A function that limits the time of a request.
pub type TimeLimit = fn(&Call) -> Option<Duration>;

/// Middleware.
pub enum Layer<F: WebFramework> {
    /// A guard.
    Protect(Box<Protect<F>>),
    /// Finds unprotected routes.
    Require(RequireProtection),
    /// Needs no guard.
    Exempt,
    /// Compresses responses.
    Compress,
    /// Responds in place of the handler.
    Answer(Answer),
    /// Drops the handler after this time, and responds with 503.
    Timeout(TimeLimit),
}

impl<F: WebFramework> Routes<F> {
    /// An empty table.
    pub fn new() -> Self {
        Self { entries: Vec::new(), layers: Vec::new() }
    }

    /// Adds a route.
    #[must_use]
    pub fn route(self, route: Route<F>) -> Self {
        self.with(Entry::Route(route))
    }

    /// Adds a route for POST under a guard.
    #[must_use]
    pub fn post<P>(self, path: &str, protect: Protect<F, P>, handler: Handler) -> Self {
        self.route(Route::post(path, handler).wrap(protect))
    }

    /// Adds a route for every method under a guard.
    #[must_use]
    pub fn any<P>(self, path: &str, protect: Protect<F, P>, handler: Handler) -> Self {
        self.route(Route::any(path, handler).wrap(protect))
    }

    /// Adds routes under a common prefix.
    #[must_use]
    pub fn scope(self, prefix: &str, routes: Self) -> Self {
        self.with(Entry::Scope(prefix.to_owned(), routes))
    }

    /// Adds the route that issues tokens.
    #[must_use]
    pub fn tokens(self, guard: &Guard, subject: SubjectSource<F::Request>) -> Self {
        self.with(Entry::Tokens(guard.clone(), subject))
    }

    /// Adds the entries of another table without layers.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        assert!(other.layers.is_empty(), "use a scope");
        self.entries.extend(other.entries);
        self
    }

    /// Wraps a layer around all routes.
    #[must_use]
    pub fn wrap(mut self, layer: impl Into<Layer<F>>) -> Self {
        self.layers.push(layer.into());
        self
    }

    fn with(mut self, entry: Entry<F>) -> Self {
        self.entries.push(entry);
        self
    }
}

impl<F: WebFramework> Route<F> {
    /// A route for every method.
    pub fn any(path: &str, handler: Handler) -> Self {
        Self { path: path.to_owned(), methods: Vec::new(), handler, layers: Vec::new() }
    }

    /// A route for POST.
    pub fn post(path: &str, handler: Handler) -> Self {
        Self::on([Method::POST], path, handler)
    }

    /// A route for these methods.
    pub fn on(methods: impl IntoIterator<Item = Method>, path: &str, handler: Handler) -> Self {
        Self { methods: methods.into_iter().collect(), ..Self::any(path, handler) }
    }

    /// Wraps a layer around the handler.
    #[must_use]
    pub fn wrap(mut self, layer: impl Into<Layer<F>>) -> Self {
        self.layers.push(layer.into());
        self
    }
}

impl<F: WebFramework> Layer<F> {
    /// A layer that responds in place of the handler if `answer` returns a response.
    pub fn answer(answer: impl Fn(&Call) -> Option<Reply> + Send + Sync + 'static) -> Self {
        Self::Answer(Arc::new(answer))
    }
}

impl<F: WebFramework, P> From<Protect<F, P>> for Layer<F> {
    fn from(protect: Protect<F, P>) -> Self {
        Self::Protect(Box::new(protect.into_any()))
    }
}

impl<F: WebFramework> From<RequireProtection> for Layer<F> {
    fn from(require: RequireProtection) -> Self {
        Self::Require(require)
    }
}

impl<F: WebFramework> From<Exempt> for Layer<F> {
    fn from(_: Exempt) -> Self {
        Self::Exempt
    }
}

impl<F: WebFramework> Default for Routes<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F: WebFramework> Clone for Routes<F> {
    fn clone(&self) -> Self {
        Self { entries: self.entries.clone(), layers: self.layers.clone() }
    }
}

impl<F: WebFramework> Clone for Entry<F> {
    fn clone(&self) -> Self {
        match self {
            Self::Route(route) => Self::Route(route.clone()),
            Self::Scope(prefix, routes) => Self::Scope(prefix.clone(), routes.clone()),
            Self::Tokens(guard, subject) => Self::Tokens(guard.clone(), subject.clone()),
        }
    }
}

impl<F: WebFramework> Clone for Route<F> {
    fn clone(&self) -> Self {
        let (path, methods) = (self.path.clone(), self.methods.clone());
        Self { path, methods, handler: self.handler.clone(), layers: self.layers.clone() }
    }
}

impl<F: WebFramework> Clone for Layer<F> {
    fn clone(&self) -> Self {
        match self {
            Self::Protect(protect) => Self::Protect(protect.clone()),
            Self::Require(require) => Self::Require(require.clone()),
            Self::Exempt => Self::Exempt,
            Self::Compress => Self::Compress,
            Self::Answer(answer) => Self::Answer(Arc::clone(answer)),
            Self::Timeout(limit) => Self::Timeout(*limit),
        }
    }
}

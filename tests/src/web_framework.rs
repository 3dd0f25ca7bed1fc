//! A web framework on which the acceptance suite runs.

use onceward::http::Framework;
use onceward::store::Store;
use onceward::{Effect, Guard};

use crate::ledger::Ledger;
use crate::routes::Routes;
use crate::shop::{self, Shop};
use crate::test_server::TestServer;

/// A web framework with an adapter. A test of the acceptance suite is a function over it.
pub trait WebFramework: Framework + Sized {
    /// The function that serves with a graceful shutdown.
    const SERVE: &'static str;
    /// Whether the router decodes a path before it matches. Then a fixed part matches in every percent-encoded spelling, and `%%34%31`
    /// reaches a handler as the parameter `A`. Otherwise a fixed part has one spelling, and a parameter is decoded once.
    const DECODES_PATHS: bool;
    /// Whether the layers of a scope run for a path below its prefix that no route matches. On axum the outer router responds to it.
    const SCOPES_INCLUDE_UNMATCHED: bool;
    /// Whether a client that has closed its sending half still receives the response. hyper closes the connection; a handler that has
    /// begun finishes.
    const ANSWERS_HALF_CLOSED: bool;
    /// Whether the adapter knows some errors of extractors by their type. Otherwise only the mark of a handler tells them from its
    /// responses, and a run without a claim has no mark.
    const KNOWS_EXTRACTOR_ERRORS: bool;
    /// Whether a client that still sends a large body always receives the rejection. hyper closes a connection whose request it has not
    /// read, and a client that is sending may notice that first.
    const ANSWERS_UNREAD_BODIES: bool;
    /// Whether a path parameter may have a regular expression, as in `{name:.*}`.
    const HAS_PATTERNS: bool;
    /// The patterns that together match every path.
    const EVERY_PATH: &'static [&'static str];
    /// The effect of a 408 that a handler without a mark returns, where a 408 of a marked handler means that nothing took effect. On
    /// axum it is unknown: a `TimeoutLayer` responds with 408 after it has dropped the handler.
    const UNMARKED_TIMEOUT: Effect;

    /// Serves these routes with two worker threads.
    fn serve(ledger: &Ledger, routes: Routes<Self>) -> TestServer;

    /// Like [`serve`](Self::serve), and notices a client that closes its connection while a duplicate waits.
    fn serve_watching(ledger: &Ledger, routes: Routes<Self>) -> TestServer {
        Self::serve(ledger, routes)
    }

    /// Serves the shop: the common routes, and those that only this framework has.
    fn serve_shop(guard: &Guard, ledger: &Ledger) -> TestServer {
        Self::serve(ledger, shop::routes(guard))
    }

    /// Returns the kind of `peer` that is, on this framework, what `kind` is on actix-web.
    fn peer(kind: &str) -> String;

    /// Returns the name of a header, in lower case.
    fn header_name(name: &'static str) -> Self::HeaderName;

    /// Returns the status of a response.
    fn status(head: &Self::ResponseHead) -> u16;

    /// Returns whether a response has this header.
    fn has_header(head: &Self::ResponseHead, name: &str) -> bool;

    /// Opens the shop on a store.
    fn shop(store: impl Store) -> Shop {
        Self::shop_with(Guard::new(store))
    }

    /// Opens the shop with a guard.
    fn shop_with(guard: Guard) -> Shop {
        Shop::serve::<Self>(guard)
    }
}

/// Runs each of these tests, a function over a [`WebFramework`], on every framework: `actix::name` and `axum::name`. `(threads)` after
/// a name runs the test itself on two threads.
#[macro_export]
macro_rules! on_every_framework {
    ($($name:ident $(($threads:ident))?),+ $(,)?) => {
        mod actix {
            $($crate::on_every_framework!(@test $name, onceward::actix::Actix $(, $threads)?);)+
        }
        mod axum {
            $($crate::on_every_framework!(@test $name, onceward::tower::Tower $(, $threads)?);)+
        }
    };
    (@test $name:ident, $framework:ty) => {
        #[tokio::test]
        async fn $name() {
            super::$name::<$framework>().await;
        }
    };
    (@test $name:ident, $framework:ty, threads) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            super::$name::<$framework>().await;
        }
    };
}

//! Middleware that rewrites the path, outside of the guard and inside of it.

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceFactory, ServiceRequest, ServiceResponse};
use actix_web::middleware::NormalizePath;
use actix_web::{App, Error, HttpServer, web};
use onceward::actix::protect::{IntervalPolicy, KeyPolicy};
use onceward::actix::{Protect, SubjectFrom};
use onceward::store::Memory;
use onceward::{Guard, IntervalRules, KeyRules};
use onceward_tests::actix_handlers::purchase;
use onceward_tests::client::Answer;
use onceward_tests::key_routes::KEY;
use onceward_tests::ledger::Ledger;
use onceward_tests::raw_http::post;
use onceward_tests::shop::TestServer;

/// Three spellings of one path after `NormalizePath`.
const TARGETS: [&str; 3] = ["/pay", "/pay/", "//pay"];

/// An application with one route, and its ledger.
struct Bed {
    served: TestServer,
    ledger: Ledger,
}

impl Bed {
    fn with<T, B>(app: impl Fn() -> App<T> + Clone + Send + 'static) -> Self
    where
        T: ServiceFactory<ServiceRequest, Config = (), Response = ServiceResponse<B>, Error = Error, InitError = ()>
            + 'static,
        B: MessageBody + 'static,
    {
        let ledger = Ledger::new();
        let data = web::Data::new(ledger.clone());
        let served = TestServer::run(move |listener| {
            let server = HttpServer::new(move || app().app_data(data.clone()));
            Ok(server.workers(1).disable_signals().listen(listener)?.run())
        });
        Self { served, ledger }
    }

    async fn pay(&self, target: &str) -> Answer {
        post(&self.served.url, target, &[(KEY, "k")], "10").await
    }

    /// Sends each spelling, one after the other, and returns status and outcome of the responses.
    async fn said(&self) -> [String; 3] {
        let [one, two, three] = TARGETS;
        [self.pay(one).await.said(), self.pay(two).await.said(), self.pay(three).await.said()]
    }
}

fn key() -> Protect<KeyPolicy> {
    Protect::key(&Guard::new(Memory::new()), SubjectFrom::anonymous(), KeyRules::at_most_once())
}

fn interval() -> Protect<IntervalPolicy> {
    Protect::interval(&Guard::new(Memory::new()), SubjectFrom::anonymous(), IntervalRules::new())
}

/// As documented for `Protect::action`: the middleware that is wrapped last runs first.
#[tokio::test]
async fn normalize_path_outside_application_guard_makes_one_action() {
    for (protect, again) in [(key().into_any(), "200 replayed"), (interval().into_any(), "409 too_soon")] {
        let bed = Bed::with(move || {
            App::new()
                .wrap(protect.clone())
                .wrap(NormalizePath::trim())
                .service(web::resource("/pay").route(web::post().to(purchase)))
        });
        assert_eq!(bed.said().await, ["200 executed", again, again]);
        assert_eq!(bed.ledger.runs().len(), 1);
    }
}

/// Middleware of the application runs before middleware of a route.
#[tokio::test]
async fn normalize_path_outside_route_guard_makes_one_action() {
    for (protect, again) in [(key().into_any(), "200 replayed"), (interval().into_any(), "409 too_soon")] {
        let bed = Bed::with(move || {
            App::new()
                .wrap(NormalizePath::trim())
                .service(web::resource("/pay").wrap(protect.clone()).route(web::post().to(purchase)))
        });
        assert_eq!(bed.said().await, ["200 executed", again, again]);
        assert_eq!(bed.ledger.runs().len(), 1);
    }
}

/// Inside of the guard it runs too late: the guard has named the action by the raw path. With a named action, the route has one action,
/// and a different path is different content.
#[tokio::test]
async fn normalize_path_inside_needs_a_named_action() {
    let protect = key().action("pay");
    let bed = Bed::with(move || {
        App::new()
            .wrap(NormalizePath::trim())
            .wrap(protect.clone())
            .service(web::resource("/pay").route(web::post().to(purchase)))
    });
    assert_eq!(bed.said().await, ["200 executed", "422 key_reused", "422 key_reused"]);
    assert_eq!(bed.ledger.runs().len(), 1);
}

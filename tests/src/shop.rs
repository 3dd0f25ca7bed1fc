//! The application under test: a shop with a route for each policy.

use actix_web::HttpResponse;
use actix_web::web::{self, ServiceConfig};
use onceward::actix::{Actix, HasToken};
use onceward::http::protect::TokenPolicy;
use onceward::http::{Protect, RequestHead as _, SubjectSource};
use onceward::store::Store;
use onceward::{Effect, Guard};

use crate::actix_framework::mount;
use crate::handler::Handler;
use crate::ledger::Ledger;
use crate::routes::{Route, Routes};
pub use crate::shop_handlers::{EFFECT, ORDER, STATUS, TAKES, USER};
use crate::shop_handlers::{block, echo, order, panics, streamed};
pub use crate::test_server::TestServer;
use crate::web_framework::WebFramework;
use crate::{browser_pages, interval_routes, key_routes, remembered_routes};

/// A shop on a store, with its ledger.
pub struct Shop {
    /// Its guard.
    pub guard: Guard,
    /// The ledger of its handlers.
    pub ledger: Ledger,
    served: TestServer,
}

impl Shop {
    /// Opens a shop on a store, on actix-web.
    pub fn on(store: impl Store) -> Self {
        Self::with(Guard::new(store))
    }

    /// Opens a shop with a guard, on actix-web.
    pub fn with(guard: Guard) -> Self {
        Self::serve::<Actix>(guard)
    }

    /// Opens a shop with a guard.
    pub fn serve<F: WebFramework>(guard: Guard) -> Self {
        let ledger = Ledger::new();
        Self { served: F::serve_shop(&guard, &ledger), guard, ledger }
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.served.url
    }
}

/// Reads the subject from the header [`USER`].
pub fn user<F: WebFramework>() -> SubjectSource<F::Request> {
    SubjectSource::resolver(|request| text_of::<F>(request, USER).map(str::to_owned))
}

/// Returns the value of a header of a request.
pub fn text_of<'a, F: WebFramework>(request: &'a F::Request, name: &'a str) -> Option<&'a str> {
    std::str::from_utf8(request.header(name).next()?).ok()
}

/// The shop's routes on every framework.
pub fn routes<F: WebFramework>(guard: &Guard) -> Routes<F> {
    let token = |subject| Protect::<F, TokenPolicy>::token(guard, subject);
    let (free, user) = (|| token(SubjectSource::anonymous()), user::<F>);
    let order = || Handler::of_body(order);
    let judged = free().judge(|head| {
        // An application that always responds with 200 and reports failures in a header.
        F::has_header(head, "x-failed").then_some(Effect::NotApplied)
    });
    Routes::new()
        .and(key_routes::routes(guard))
        .and(remembered_routes::routes(guard))
        .and(interval_routes::routes(guard))
        .tokens(guard, SubjectSource::anonymous())
        .scope("/my", Routes::new().tokens(guard, user()))
        .any("/orders", free(), order())
        .any("/orders/{id}", free(), order())
        .any("/bound", free().bound(), order())
        .any("/named", free().bound().action("place-order"), order())
        .any("/mine", token(user()), order())
        .any("/mine/bound", token(user()).bound(), order())
        .any("/here", token(SubjectSource::client_address()).bound(), order())
        .any("/next", free().next_token(), order())
        .any("/judged", judged, order())
        .post("/panic", free(), Handler::of_head(panics))
        .post("/echo", free(), Handler::of_stream(echo))
        .post("/streamed", free(), Handler::of_stream(streamed))
        .post("/block", free(), Handler::of_head(block))
        .route(Route::any("/open", order()))
}

/// The shop's routes on actix-web, with those that need something that only actix-web has: a routing guard, an error of a client
/// library, and pages for browsers.
pub fn actix_routes(guard: &Guard, ledger: &Ledger) -> impl Fn(&mut ServiceConfig) + Clone + Send + use<> {
    let (guard, ledger, routes) = (guard.clone(), ledger.clone(), routes::<Actix>(guard));
    // The pages have their own memory store, which all workers share.
    let pages = browser_pages::routes(&guard);
    move |config| {
        mount(config, &routes, &ledger);
        config
            .app_data(web::Data::new(ledger.clone()))
            .configure(key_routes::charging_routes(&guard))
            .configure(pages.clone())
            .service(
                web::resource("/presented")
                    .route(web::post().guard(HasToken::new(&guard)).to(HttpResponse::Ok))
                    .route(web::post().to(HttpResponse::NotFound)),
            );
    }
}

//! Routes of the shop that are protected by an interval or a lock.

use std::time::Duration;

use actix_web::dev::HttpServiceFactory;
use actix_web::web::{self, ServiceConfig};
use onceward::actix::{KeyFrom, Protect, SubjectFrom};
use onceward::{Guard, IntervalRules};
use reqwest::RequestBuilder;

use crate::client::http;
use crate::key_routes::purchase;
use crate::shop::{ORDER, USER, header};

/// An interval of less than a second.
pub const HALF: Duration = Duration::from_millis(500);

/// Returns the rules of an interval of this length.
pub fn every(every: Duration) -> IntervalRules {
    IntervalRules::new().every(every).expect("an interval of 1 ms or more")
}

/// The shop's routes with an interval.
pub fn routes(guard: &Guard) -> impl Fn(&mut ServiceConfig) + Clone + Send + use<> {
    let guard = guard.clone();
    move |config| {
        let user = || SubjectFrom::resolver(|request| header(request, USER).map(str::to_owned));
        let spaced = |rules| Protect::interval(&guard, SubjectFrom::anonymous(), rules);
        let locked = spaced(every(HALF).release_always()).from(KeyFrom::path("id"));
        config
            .service(protect("/second", spaced(IntervalRules::new())))
            .service(protect("/half", spaced(every(HALF))))
            .service(protect("/fifth", spaced(every(Duration::from_millis(200)))))
            .service(protect("/mine", Protect::interval(&guard, user(), every(Duration::from_secs(60)))))
            .service(protect("/locked/{id}", locked))
            .service(protect("/open", spaced(IntervalRules::new().fail_open())));
    }
}

/// A route under `/spaced` with this protection.
fn protect<P: 'static>(path: &str, protect: Protect<P>) -> impl HttpServiceFactory + use<P> {
    web::resource(format!("/spaced{path}")).wrap(protect).route(web::route().to(purchase))
}

/// Builds a submission without a token or key, without sending it.
pub fn plainly(url: &str, path: &str, order: &str) -> RequestBuilder {
    http().post(format!("{url}{path}")).header(ORDER, order)
}

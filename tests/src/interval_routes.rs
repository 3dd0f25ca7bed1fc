//! The part of the shop that takes the same once in a while.

use std::time::Duration;

use actix_web::web::{self, ServiceConfig};
use onceward::actix::{KeyFrom, Protect, SubjectFrom};
use onceward::{Guard, IntervalRules};
use reqwest::RequestBuilder;

use crate::client::http;
use crate::key_routes::purchase;
use crate::shop::{ORDER, USER, header};

/// An interval of less than a second.
pub const HALF: Duration = Duration::from_millis(500);

/// The rules of an interval.
pub fn every(every: Duration) -> IntervalRules {
    IntervalRules::new().every(every).expect("it is some time")
}

/// The shop's routes with an interval.
pub fn routes(guard: &Guard) -> impl Fn(&mut ServiceConfig) + Clone + Send + use<> {
    let guard = guard.clone();
    move |config| {
        let user = || SubjectFrom::resolver(|request| header(request, USER).map(str::to_owned));
        let spaced = |rules| Protect::interval(&guard, SubjectFrom::anonymous(), rules);
        let protect = |path: &str, protect| {
            web::resource(format!("/spaced{path}")).wrap(protect).route(web::route().to(purchase))
        };
        config
            .service(protect("/second", spaced(IntervalRules::new())))
            .service(protect("/half", spaced(every(HALF))))
            .service(protect("/fifth", spaced(every(Duration::from_millis(200)))))
            .service(protect("/mine", Protect::interval(&guard, user(), every(Duration::from_secs(60)))))
            .service(protect("/locked/{id}", spaced(every(HALF).release_always()).from(KeyFrom::path("id"))))
            .service(protect("/open", spaced(IntervalRules::new().fail_open())));
    }
}

/// A submission with nothing to tell it by but what it says, not sent yet.
pub fn plainly(url: &str, path: &str, order: &str) -> RequestBuilder {
    http().post(format!("{url}{path}")).header(ORDER, order)
}

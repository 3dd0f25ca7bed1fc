//! Routes of the shop that are protected by an interval or a lock.

use std::time::Duration;

use onceward::http::protect::IntervalPolicy;
use onceward::http::{KeySource, Protect, SubjectSource};
use onceward::{Guard, IntervalRules};
use reqwest::RequestBuilder;

use crate::client::http;
use crate::handler::Handler;
use crate::routes::Routes;
use crate::shop::user;
use crate::shop_handlers::{ORDER, purchase};
use crate::web_framework::WebFramework;

/// A remembered interval.
const BRIEF: Duration = Duration::from_secs(2);

/// An interval of less than a second.
pub const HALF: Duration = Duration::from_millis(500);

/// Returns the rules of an interval of this length.
pub fn every(every: Duration) -> IntervalRules {
    IntervalRules::new().every(every).expect("an interval of 1 ms or more")
}

/// The shop's routes with an interval.
pub fn routes<F: WebFramework>(guard: &Guard) -> Routes<F> {
    let with = |subject, rules| Protect::<F, IntervalPolicy>::interval(guard, subject, rules);
    let spaced = |rules| with(SubjectSource::anonymous(), rules);
    let locked = spaced(every(HALF).release_always()).from(KeySource::path("id"));
    let remembered = |long| with(user::<F>(), every(long)).remember();
    let purchase = || Handler::of_body(purchase);
    Routes::new()
        .any("/spaced/second", spaced(IntervalRules::new()), purchase())
        .any("/spaced/half", spaced(every(HALF)), purchase())
        .any("/spaced/fifth", spaced(every(Duration::from_millis(200))), purchase())
        .any("/spaced/mine", with(user::<F>(), every(Duration::from_secs(60))), purchase())
        .any("/spaced/remembered", remembered(Duration::from_secs(60)), purchase())
        .any("/spaced/remembered/brief", remembered(BRIEF).wait(Duration::ZERO), purchase())
        .any("/spaced/locked/{id}", locked, purchase())
        .any("/spaced/open", spaced(IntervalRules::new().fail_open()), purchase())
}

/// Builds a submission without a token or key, without sending it.
pub fn plainly(url: &str, path: &str, order: &str) -> RequestBuilder {
    http().post(format!("{url}{path}")).header(ORDER, order)
}

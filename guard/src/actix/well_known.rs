use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpResponse, Resource, guard, web};
use onceward_api::Description;

use crate::http::body_of;

/// Creates the route `GET /.well-known/onceward`, which responds with the description of the application's rules.
///
/// ```
/// use actix_web::{App, HttpResponse, web};
/// use onceward::KeyRules;
/// use onceward::actix::{Protect, SubjectFrom, well_known};
/// use onceward::api::Description;
///
/// let (guard, _clock) = onceward::testing::guard();
/// let payments = Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::at_most_once());
/// let description = Description::new().route(payments.describe("POST /payments"));
/// let app = App::new()
///     .service(well_known(&description))
///     .service(web::resource("/payments").wrap(payments).route(web::post().to(HttpResponse::Created)));
/// # let _ = app;
/// ```
pub fn well_known(description: &Description) -> Resource {
    let body = body_of(description);
    let respond = move || {
        let mut response = HttpResponse::Ok();
        response.insert_header((CACHE_CONTROL, "no-store")).content_type("application/json");
        let response = response.body(body.clone());
        async move { response }
    };
    let is_read = guard::Any(guard::Get()).or(guard::Head());
    web::resource(Description::PATH).route(web::route().guard(is_read).to(respond))
}

//! The effect that a handler states itself.

use crate::effect::Effect;

/// Lets a handler state whether its response means that the submission took effect, if the status does not show it.
///
/// ```
/// use actix_web::HttpResponse;
/// use onceward::Effect;
/// use onceward::actix::MarkEffect as _;
///
/// let response = HttpResponse::Ok().body("sold out").effect(Effect::NotApplied);
/// # let _ = response;
/// ```
///
/// On axum, an [`Effect`] is also a part of a response: `(Effect::NotApplied, "sold out")`.
pub trait MarkEffect {
    /// States whether the submission took effect.
    #[must_use]
    fn effect(self, effect: Effect) -> Self;
}

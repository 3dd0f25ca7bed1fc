//! What a handler extracts from a guarded request, and how the guard knows whether the handler was called.

mod entered;
mod extractor_error;
#[cfg(feature = "sql")]
mod request_intent;
mod run_id;

pub use self::entered::entered;
pub use self::extractor_error::ExtractorError;
#[cfg(feature = "sql")]
pub use self::request_intent::RequestIntent;
#[cfg(feature = "sql")]
pub(super) use self::request_intent::leave_rules;

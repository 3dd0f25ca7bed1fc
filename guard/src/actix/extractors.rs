//! What a handler extracts from a guarded request, and how the guard knows whether the handler was called.

mod entered;
mod extractor_error;
mod request_intent;
mod run_id;

pub use self::entered::entered;
pub use self::extractor_error::ExtractorError;
pub use self::request_intent::RequestIntent;
pub(super) use self::request_intent::leave_rules;

//! The mode of the handler, set by the page's switches. It is sent in a header, which is not part of the order: the same order sent again
//! with another switch is still the same order.

use std::time::Duration;

use actix_web::HttpRequest;

/// The header: some of `slow`, `fails` and `loses`, separated by commas.
const HEADER: &str = "demo-handler";

/// Duration of a slow handler.
pub(crate) const SLOW: Duration = Duration::from_millis(1_200);

/// The behaviour of the handler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HandlerMode {
    /// True if the handler is slow.
    pub(crate) is_slow: bool,
    /// True if the handler fails before it places the order.
    pub(crate) fails: bool,
    /// True if the handler places the order and the response is lost.
    pub(crate) loses: bool,
}

impl HandlerMode {
    /// Reads the mode from the header of a request.
    pub(crate) fn of(request: &HttpRequest) -> Self {
        let text = request.headers().get(HEADER).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let has = |word: &str| text.split(',').any(|part| part.trim() == word);
        Self { is_slow: has("slow"), fails: has("fails"), loses: has("loses") }
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn header_selects_the_handler_mode() {
        let mode = |text| HandlerMode::of(&TestRequest::default().insert_header((HEADER, text)).to_http_request());
        assert_eq!(mode("slow, loses"), HandlerMode { is_slow: true, fails: false, loses: true });
        assert_eq!(mode("fails"), HandlerMode { fails: true, ..HandlerMode::default() });
        assert_eq!(mode("slowly, nonsense"), HandlerMode::default());
    }
}

//! The mode of the handler, set by the page's switches. It is sent in a header, which is not part of the order: the same order sent again with
//! another switch is still the same order.

use std::time::Duration;

use actix_web::HttpRequest;

/// The header: some of `slow`, `fails` and `loses`, separated by commas.
const HEADER: &str = "demo-handler";

/// How long a slow handler takes.
pub(crate) const SLOW: Duration = Duration::from_millis(1_200);

/// How the handler behaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HandlerMode {
    /// It takes its time.
    pub(crate) is_slow: bool,
    /// It fails before anything is ordered.
    pub(crate) fails: bool,
    /// It orders, and the connection is cut before the answer is there.
    pub(crate) loses: bool,
}

impl HandlerMode {
    /// What this request asks for.
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
    fn the_header_says_how_it_behaves() {
        let mode = |text| HandlerMode::of(&TestRequest::default().insert_header((HEADER, text)).to_http_request());
        assert_eq!(mode("slow, loses"), HandlerMode { is_slow: true, fails: false, loses: true });
        assert_eq!(mode("fails"), HandlerMode { fails: true, ..HandlerMode::default() });
        assert_eq!(mode("slowly, nonsense"), HandlerMode::default());
    }
}

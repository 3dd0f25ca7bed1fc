//! How the handler behaves, as the page's switches have it. It stands in a header, which is no part of what is ordered: the
//! same order sent again with another switch is still the same order.

use std::time::Duration;

use actix_web::HttpRequest;

/// The header: some of `slow`, `fails` and `loses`, separated by commas.
const HEADER: &str = "demo-handler";

/// How long a slow handler takes.
pub(crate) const SLOW: Duration = Duration::from_millis(1_200);

/// How the handler behaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Conduct {
    /// It takes its time.
    pub(crate) is_slow: bool,
    /// It fails before anything is ordered.
    pub(crate) fails: bool,
    /// It orders, and the connection is cut before the answer is there.
    pub(crate) loses: bool,
}

impl Conduct {
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
        let conduct = |text| Conduct::of(&TestRequest::default().insert_header((HEADER, text)).to_http_request());
        assert_eq!(conduct("slow, loses"), Conduct { is_slow: true, fails: false, loses: true });
        assert_eq!(conduct("fails"), Conduct { fails: true, ..Conduct::default() });
        assert_eq!(conduct("slowly, nonsense"), Conduct::default());
    }
}

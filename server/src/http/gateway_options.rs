//! What a gateway asks for in the query of its question: which statuses it understands, and whether it wants a token for the next submission.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use onceward::Rejection;
use onceward_api::path::canonical;

use super::bad_request;
use super::forwarded_request::{ForwardedRequest, PATH};

/// Which statuses a gateway understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Style {
    /// Every status but a 5xx.
    #[default]
    Plain,
    /// 204 and 403.
    Nginx,
    /// Every status.
    Traefik,
}

impl Style {
    /// What is sent in the place of a status. Only success may look like one, and no failure like one of the service, which
    /// some gateways take for leave.
    pub(crate) fn status(self, meant: StatusCode) -> StatusCode {
        match self {
            Self::Nginx if meant == StatusCode::OK => StatusCode::NO_CONTENT,
            Self::Nginx => StatusCode::FORBIDDEN,
            Self::Plain if meant.is_server_error() => StatusCode::FORBIDDEN,
            Self::Plain | Self::Traefik => meant,
        }
    }
}

/// What the gateway asks for in its query.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct GatewayOptions {
    style: Style,
    pub(crate) next_token: bool,
}

impl GatewayOptions {
    /// As the query says, unless it is that of the original request: it stands behind an address, and Caddy leaves it there.
    pub(crate) fn of(request: &HttpRequest, original: &ForwardedRequest) -> Result<Self, Rejection> {
        let query = request.query_string();
        if canonical(request.path()) == PATH && query != original.query {
            Self::read(query)
        } else {
            Ok(Self::default())
        }
    }

    fn read(query: &str) -> Result<Self, Rejection> {
        let mut options = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair {
                "style=nginx" => options.style = Style::Nginx,
                "style=traefik" => options.style = Style::Traefik,
                "next_token=true" => options.next_token = true,
                "next_token=false" => options.next_token = false,
                _ => {
                    let name = pair.split('=').next().unwrap_or_default();
                    return Err(match name {
                        "style" => bad_request("`style` can only be `nginx` or `traefik`."),
                        "next_token" => bad_request("`next_token` has to be `true` or `false`."),
                        _ => bad_request("There is `style` and `next_token`, and nothing else to ask for here."),
                    });
                }
            }
        }
        Ok(options)
    }

    /// The style, also if the rest is not to be understood. A client may not ask for a 5xx, so the query of the original request
    /// does not count there.
    pub(crate) fn style(request: &HttpRequest) -> Style {
        let query = request.query_string();
        let asks_for = |style: &str| canonical(request.path()) == PATH && query.split('&').any(|pair| pair == style);
        let is_original = || ForwardedRequest::of(request).map_or(true, |original| original.query == query);
        match (asks_for("style=nginx"), asks_for("style=traefik")) {
            (true, _) => Style::Nginx,
            (false, true) if !is_original() => Style::Traefik,
            _ => Style::Plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn no_gateway_sees_a_5xx_and_nginx_sees_two_statuses() {
        for meant in (200..600).filter_map(|status| StatusCode::from_u16(status).ok()) {
            let (plain, nginx) = (Style::Plain.status(meant), Style::Nginx.status(meant));
            assert_eq!(plain == StatusCode::OK, meant == StatusCode::OK);
            assert_eq!(nginx == StatusCode::NO_CONTENT, meant == StatusCode::OK);
            assert!(!plain.is_server_error() && (nginx.is_success() || nginx == StatusCode::FORBIDDEN));
            assert_eq!(Style::Traefik.status(meant), meant);
        }
    }

    #[test]
    fn a_client_cannot_ask_for_a_5xx() {
        let style = |uri: &str, original: &str| {
            let request = TestRequest::with_uri(uri).insert_header(("x-forwarded-method", "POST"));
            GatewayOptions::style(&request.insert_header(("x-forwarded-uri", original)).to_http_request())
        };
        assert_eq!(style("/forward-auth?style=traefik", "/orders?a=1"), Style::Traefik);
        assert_eq!(style("/forward-auth?style=traefik", "/orders?style=traefik"), Style::Plain);
        assert_eq!(style("/forward-auth/orders?style=traefik", "/orders"), Style::Plain);
        assert_eq!(style("/forward-auth?style=traefik", ""), Style::Plain);
    }

    #[test]
    fn a_wish_that_is_not_known_is_refused_by_name() {
        assert_eq!(GatewayOptions::read(""), Ok(GatewayOptions::default()));
        assert_eq!(
            GatewayOptions::read("style=nginx&next_token=true"),
            Ok(GatewayOptions { style: Style::Nginx, next_token: true })
        );
        for (query, named) in
            [("style=apache", "`style`"), ("style", "`style`"), ("next_token=1", "`next_token`"), ("a=1", "`style`")]
        {
            let detail = GatewayOptions::read(query).unwrap_err().problem().detail;
            assert!(detail.contains(named), "{query}: {detail}");
        }
    }
}

//! The options of a gateway, in the query of its request: the statuses it supports, and whether it needs a token for the next submission.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use onceward::Rejection;
use onceward_api::path::canonical;

use super::bad_request;
use super::forwarded_request::{ForwardedRequest, PATH};

/// The statuses that a gateway supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Style {
    /// Every status except 5xx.
    #[default]
    Plain,
    /// 204 and 403.
    Nginx,
    /// Every status.
    Traefik,
}

impl Style {
    /// Translates a status. Only a success becomes a success. Except for Traefik, a 5xx becomes 403: some gateways treat a 5xx from the auth
    /// endpoint as "allow".
    pub(crate) fn status(self, meant: StatusCode) -> StatusCode {
        match self {
            Self::Nginx if meant == StatusCode::OK => StatusCode::NO_CONTENT,
            Self::Nginx => StatusCode::FORBIDDEN,
            Self::Plain if meant.is_server_error() => StatusCode::FORBIDDEN,
            Self::Plain | Self::Traefik => meant,
        }
    }
}

/// The options in the query of a gateway.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct GatewayOptions {
    style: Style,
    pub(crate) next_token: bool,
}

impl GatewayOptions {
    /// Reads the query, unless it is that of the original request: it is part of an appended URI, and Caddy passes it on.
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
                        "style" => bad_request(
                            "`style` must be `nginx` or `traefik`.",
                            "`style` 必须是 `nginx` 或 `traefik`。",
                        ),
                        "next_token" => bad_request(
                            "`next_token` must be `true` or `false`.",
                            "`next_token` 必须是 `true` 或 `false`。",
                        ),
                        _ => bad_request(
                            "Unknown option: the query may contain only `style` and `next_token`.",
                            "未知选项：查询参数只能包含 `style` 和 `next_token`。",
                        ),
                    });
                }
            }
        }
        Ok(options)
    }

    /// Returns the style, even if the other options are invalid. The query of the original request is ignored for `traefik`, because a client
    /// must not be able to select 5xx responses.
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
    fn plain_style_sends_no_5xx_and_nginx_two_statuses() {
        for meant in (200..600).filter_map(|status| StatusCode::from_u16(status).ok()) {
            let (plain, nginx) = (Style::Plain.status(meant), Style::Nginx.status(meant));
            assert_eq!(plain == StatusCode::OK, meant == StatusCode::OK);
            assert_eq!(nginx == StatusCode::NO_CONTENT, meant == StatusCode::OK);
            assert!(!plain.is_server_error() && (nginx.is_success() || nginx == StatusCode::FORBIDDEN));
            assert_eq!(Style::Traefik.status(meant), meant);
        }
    }

    #[test]
    fn client_cannot_select_a_5xx_style() {
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
    fn unknown_option_is_rejected_by_name() {
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

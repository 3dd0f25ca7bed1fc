//! A token in a server-rendered page.

use std::fmt;
use std::time::Duration;

use onceward_api::header;

use super::rejection_page::escape;
use crate::binding::Binding;
use crate::guard::{Guard, IssueError};
use crate::token::Token;

/// A token in a server-rendered page: the form that contains it is protected without JavaScript.
///
/// Its `Display` output is the hidden input field. Make it the first field of the form, and use [`remember`](super::Protect::remember)
/// on the route, since a browser shows the response to the second click. Every page needs its own token: send the page with
/// `Cache-Control: no-store`.
///
/// ```
/// use actix_web::{HttpResponse, web};
/// use onceward::actix::HiddenToken;
/// use onceward::{Binding, Guard};
///
/// async fn order_form(guard: web::Data<Guard>) -> HttpResponse {
///     let Ok(token) = HiddenToken::issue(&guard, Binding::none().action("POST /orders")).await else {
///         return HttpResponse::ServiceUnavailable().body("Try again in a moment.");
///     };
///     HttpResponse::Ok().insert_header(("cache-control", "no-store")).content_type("text/html").body(format!(
///         "<form method=\"post\" action=\"/orders\" data-onceward>{token}<input name=\"item\"><button>Order</button></form>"
///     ))
/// }
/// ```
///
/// On axum, a handler can also [extract](crate::axum) it, if a [`Guard`] is in the state of the router.
///
/// If the page also uses the browser SDK, the first submission uses this token, or a new one if it has expired.
#[derive(Debug)]
pub struct HiddenToken {
    token: Token,
    ttl: Duration,
}

impl HiddenToken {
    /// Issues a token for a page, bound to `bound`.
    ///
    /// # Errors
    /// If the store is unavailable. A form with an empty field would be rejected later, so report the error now.
    pub async fn issue(guard: &Guard, bound: Binding<'_>) -> Result<Self, IssueError> {
        let ttl = guard.token_ttl();
        Ok(Self { token: guard.issue(ttl, bound).await?, ttl })
    }
}

impl fmt::Display for HiddenToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, token, seconds) = (header::FIELD, escape(self.token.as_str()), self.ttl.as_secs());
        write!(f, "<input type=\"hidden\" name=\"{name}\" value=\"{token}\" data-expires-in=\"{seconds}\">")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[tokio::test]
    async fn display_is_a_hidden_field_and_debug_hides_the_token() {
        let (guard, _clock) = testing::guard();
        let hidden = HiddenToken::issue(&guard, Binding::none()).await.unwrap();
        let token = hidden.token.as_str().to_owned();
        assert!(token.starts_with("ow1_"));
        let field = format!("<input type=\"hidden\" name=\"_onceward\" value=\"{token}\" data-expires-in=\"1800\">");
        assert_eq!(hidden.to_string(), field);
        assert!(!format!("{hidden:?}").contains(&token));
    }
}

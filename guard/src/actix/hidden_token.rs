use std::fmt;
use std::time::Duration;

use onceward_api::header;

use super::answer::escape;
use crate::guard::{Guard, IssueError};
use crate::intent::Binding;
use crate::token::Token;

/// A token in a page that the server renders: the form that holds it is protected without any script.
///
/// Its text is the hidden field. Put it first into the form, and let the route [`remember`](super::Protect::remember), since a
/// browser shows the answer to the second click. Every page needs a token of its own: send it with `Cache-Control: no-store`.
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
/// With the browser SDK on the page too, the first submission takes this token, or another if it has expired meanwhile.
#[derive(Debug)]
pub struct HiddenToken {
    token: Token,
    ttl: Duration,
}

impl HiddenToken {
    /// Issues a token for a page, bound as told.
    ///
    /// # Errors
    /// If the store cannot be asked. A page with a field that is empty would be refused later: better say so now.
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
    async fn its_text_is_a_hidden_field_with_a_token_that_its_debug_does_not_show() {
        let (guard, _clock) = testing::guard();
        let hidden = HiddenToken::issue(&guard, Binding::none()).await.unwrap();
        let token = hidden.token.as_str().to_owned();
        assert!(token.starts_with("ow1_"));
        let field = format!("<input type=\"hidden\" name=\"_onceward\" value=\"{token}\" data-expires-in=\"1800\">");
        assert_eq!(hidden.to_string(), field);
        assert!(!format!("{hidden:?}").contains(&token));
    }
}

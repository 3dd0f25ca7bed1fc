//! The OpenAPI document: generated from the handlers, plus headers and security schemes.

use std::collections::BTreeMap;

use actix_web::App;
use onceward_api::{Problem, header};
use utoipa::OpenApi;
use utoipa::openapi::schema::Type;
use utoipa::openapi::{Header, HeaderBuilder, ObjectBuilder, Ref, RefOr};
use utoipa_actix_web::AppExt as _;

use crate::http::forwarded_request::PATH;
use crate::routes::api;

/// Builds the OpenAPI document.
pub fn document() -> utoipa::openapi::OpenApi {
    let (_, mut specification) =
        App::new().into_utoipa_app().openapi(ApiDoc::openapi()).configure(api).split_for_parts();
    // An optional body is an object if it is present, never `null`.
    let token = specification.paths.paths.get_mut("/token").and_then(|path| path.post.as_mut());
    if let Some(RefOr::T(body)) = token.and_then(|post| post.request_body.as_mut())
        && let Some(RefOr::T(content)) = body.content.get_mut("application/json")
    {
        content.schema = Some(Ref::from_schema_name("TokenRequest").into());
    }
    add_headers(&mut specification);
    specification
}

/// The parts of the document that no handler states.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Onceward",
        description = "Makes a submission take effect once, however often it is sent. A page fetches a token before it \
                       submits; the backend redeems the token; a second redeem is rejected. All error codes are listed at \
                       [/problems](/problems).",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    modifiers(&ApiKeyScheme),
    tags(
        (name = "tokens", description = "For browsers and SDKs"),
        (name = "backends", description = "For backends, with the API key if one is set"),
        (name = "gateways", description = "For gateways that check a request before they forward it (forward auth)"),
        (name = "operation", description = "For operators"),
    ),
)]
struct ApiDoc;

/// The security scheme of the API key.
struct ApiKeyScheme;

impl utoipa::Modify for ApiKeyScheme {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("api_key", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    }
}

/// A documented response. Its headers depend on these fields.
struct ResponseKind<'a> {
    path: &'a str,
    status: &'a str,
    is_problem: bool,
}

/// A response header: its name, type and description, and the responses that carry it.
type HeaderDescription = (&'static str, Type, &'static str, fn(&ResponseKind<'_>) -> bool);

/// Every documented response header.
const HEADERS: [HeaderDescription; 10] = [
    (
        header::REQUEST_ID,
        Type::String,
        "The id of the request, also in the log: the one that the client sent, or a new one",
        |_| true,
    ),
    (header::OUTCOME, Type::String, "The outcome: `redeemed`, `unprotected`, or the code of the problem", |response| {
        response.is_problem || response.path == PATH || (response.path, response.status) == ("/token/redeem", "200")
    }),
    ("cache-control", Type::String, "`no-store`: the response is for this client and this request only", |response| {
        response.status != "204" || response.path == PATH
    }),
    (
        header::RETRY_AFTER,
        Type::Integer,
        "Whole seconds to wait before the next attempt; with 409 only if the code is `in_progress`",
        |response| ["429", "503"].contains(&response.status) || (response.path, response.status) == ("/claim", "409"),
    ),
    (
        header::RATE_LIMIT,
        Type::String,
        "The rest of the client's quota, and the seconds until it is full again; not with the API key",
        |response| response.has_rate_limit(),
    ),
    (
        header::RATE_LIMIT_POLICY,
        Type::String,
        "The quota of a client, and the seconds in which it refills",
        |response| response.has_rate_limit(),
    ),
    ("content-language", Type::String, "The language of `title` and `detail`: `en` or `zh-CN`", |response| {
        response.is_problem
    }),
    ("vary", Type::String, "`Accept-Language`, unless the setting `language` fixes the language", |response| {
        response.is_problem
    }),
    ("allow", Type::String, "The methods that this URL supports", |response| response.status == "405"),
    ("www-authenticate", Type::String, "`Bearer`: send the API key as a bearer token", |response| {
        response.status == "401"
    }),
];

impl ResponseKind<'_> {
    /// Returns true if this response carries the `RateLimit` headers.
    fn has_rate_limit(&self) -> bool {
        ["/token", "/tokens"].contains(&self.path) && ["201", "429"].contains(&self.status)
    }
}

/// Describes each header once and refers to it from every response that carries it.
fn add_headers(specification: &mut utoipa::openapi::OpenApi) {
    for (path, item) in &mut specification.paths.paths {
        for operation in [&mut item.get, &mut item.post].into_iter().flatten() {
            for (status, documented) in &mut operation.responses.responses {
                if let RefOr::T(documented) = documented {
                    let is_problem = documented.content.contains_key(Problem::CONTENT_TYPE);
                    documented.headers = headers(&ResponseKind { path, status, is_problem });
                }
            }
        }
    }
    let described = HEADERS.map(|(name, kind, text, _)| (name.to_owned(), header(kind, text).into()));
    specification.components.get_or_insert_default().headers.extend(described);
}

/// Returns references to the headers of a response.
fn headers(response: &ResponseKind<'_>) -> BTreeMap<String, RefOr<Header>> {
    let reference = |name| RefOr::Ref(Ref::new(format!("#/components/headers/{name}")));
    let own = HEADERS.into_iter().filter(|(.., is_in)| is_in(response));
    own.map(|(name, ..)| (name.to_owned(), reference(name))).collect()
}

fn header(kind: Type, text: &str) -> Header {
    let schema = ObjectBuilder::new().schema_type(kind).build();
    HeaderBuilder::new().schema(Some(schema)).description(Some(text)).build()
}

#[cfg(test)]
mod tests {
    use onceward::Attempt;
    use regex_lite::Regex;
    use serde_json::Value;

    use super::*;

    /// Returns the schema of a field of a body.
    fn field(body: &str, name: &str) -> Value {
        let specification: Value = serde_json::from_str(&document().to_json().unwrap()).unwrap();
        specification["components"]["schemas"][body]["properties"][name].clone()
    }

    fn pattern(body: &str, name: &str) -> Regex {
        Regex::new(field(body, name)["pattern"].as_str().unwrap()).unwrap()
    }

    #[test]
    fn ttl_schema_matches_the_parser() {
        let written = [
            "250ms", "0s", "90s", "10m", "24h", "7d", "", "90", "s", "-5s", "+5s", "1.5s", "1 s", "1h30m", "1S", "1s\n",
        ];
        for body in ["TokenRequest", "TokensRequest"] {
            let pattern = pattern(body, "ttl");
            for text in written {
                assert_eq!(pattern.is_match(text), onceward_api::duration::parse(text).is_ok(), "{text:?}");
            }
        }
    }

    #[test]
    fn attempt_schema_matches_the_parser() {
        for body in ["RedeemRequest", "ReleaseRequest"] {
            let (field, pattern) = (field(body, "attempt"), pattern(body, "attempt"));
            assert_eq!((&field["minLength"], &field["maxLength"]), (&1.into(), &255.into()), "{field}");
            for text in ["4711", "!", "~", "a/b?c#d", "", " ", "a b", "a\nb", "a\n", "\u{7f}", "é", "a\u{0}"] {
                assert_eq!(pattern.is_match(text), Attempt::new(text).is_ok(), "{text:?}");
            }
        }
        assert!(Attempt::new("a".repeat(255)).is_ok() && Attempt::new("a".repeat(256)).is_err());
    }

    #[test]
    fn operation_ids_are_unique() {
        let document: Value = serde_json::from_str(&document().to_json().unwrap()).unwrap();
        let paths = document["paths"].as_object().unwrap().values();
        let operations = paths.flat_map(|path| path.as_object().unwrap().values());
        let ids: Vec<_> = operations.map(|operation| operation["operationId"].as_str().unwrap()).collect();
        let unique: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(unique.len(), ids.len(), "{ids:?}");
    }
}

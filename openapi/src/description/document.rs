//! Adds the protection of routes to the OpenAPI document of an application: parameters, responses and the schema of a problem.

use std::collections::BTreeMap;
use std::fmt;

use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::schema::Type;
use utoipa::openapi::{Content, ObjectBuilder, OpenApi, Ref, RefOr, Required, Response};

use super::rejection_schema::RejectionSchema;
use super::{DescribedPolicy, DescribedRoute, Description, KeyPlace};
use crate::header;
use crate::problem::Code;

/// Routes of a description that the document does not have; see [`Description::add_to`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotDocumented(
    /// The paths.
    pub Vec<String>,
);

impl fmt::Display for NotDocumented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the document has no operation for {}", self.0.join(", "))
    }
}

impl std::error::Error for NotDocumented {}

impl Description {
    /// Adds to each operation of a described route the headers that carry its token or key, and the rejections that a client has to
    /// expect: 400, 409, 422 and others, each with its codes and the schema of its format: `OncewardProblem`, `OncewardAcpError`,
    /// `OncewardUcpError` or `OncewardStripeError`. Parameters and texts that the application has written itself stay.
    ///
    /// With rejections in an envelope, or in a format of the application, only the parameters are added: their shape is not known here.
    ///
    /// # Errors
    /// If the document has no operation for a route. All other routes have been added.
    pub fn add_to(&self, document: &mut OpenApi) -> Result<(), NotDocumented> {
        let mut missing = Vec::new();
        for route in self.routes.iter().filter(|route| route.policy != DescribedPolicy::None) {
            let mut operations: Vec<_> =
                document.paths.paths.get_mut(&route.path).map(|item| operations(item, route)).unwrap_or_default();
            operations.iter_mut().for_each(|operation| add(operation, route));
            if operations.is_empty() {
                missing.push(route.path.clone());
            }
        }
        let schemas = &mut document.components.get_or_insert_default().schemas;
        for schema in self.routes.iter().filter_map(|route| RejectionSchema::of(&route.rejections)) {
            schemas.insert(schema.name.to_owned(), schema.build());
        }
        if missing.is_empty() { Ok(()) } else { Err(NotDocumented(missing)) }
    }
}

/// Returns the operations of a path that the route protects.
fn operations<'a>(item: &'a mut PathItem, route: &DescribedRoute) -> Vec<&'a mut Operation> {
    let methods = [
        ("POST", &mut item.post),
        ("PUT", &mut item.put),
        ("PATCH", &mut item.patch),
        ("DELETE", &mut item.delete),
        ("TRACE", &mut item.trace),
        ("QUERY", &mut item.query),
    ];
    let is_protected = |name: &str| route.methods.is_empty() || route.methods.iter().any(|method| method == name);
    methods.into_iter().filter(|(name, _)| is_protected(name)).filter_map(|(_, operation)| operation.as_mut()).collect()
}

fn add(operation: &mut Operation, route: &DescribedRoute) {
    let own = operation.parameters.get_or_insert_default();
    for parameter in parameters(route) {
        if !own.iter().any(|other| is_same(other, &parameter)) {
            own.push(RefOr::T(parameter));
        }
    }
    for (status, text) in rejections(route) {
        let response = operation.responses.responses.entry(status.to_string());
        if let RefOr::T(response) = response.or_insert_with(|| RefOr::T(Response::default())) {
            describe(response, &text, RejectionSchema::of(&route.rejections));
        }
    }
}

/// Adds a rejection to a response, which may also be one of the handler.
fn describe(response: &mut Response, text: &str, schema: Option<RejectionSchema>) {
    let before = if response.description.is_empty() { "" } else { "\n\n" };
    response.description += &format!("{before}{text}");
    if let Some(schema) = schema.filter(|schema| !response.content.contains_key(schema.content_type)) {
        let content = Content::new(Some(Ref::from_schema_name(schema.name)));
        response.content.insert(schema.content_type.to_owned(), content.into());
    }
}

/// Header names are compared without case.
fn is_same(one: &RefOr<Parameter>, other: &Parameter) -> bool {
    let RefOr::T(one) = one else { return false };
    let is_header = matches!(one.parameter_in, ParameterIn::Header);
    match (&one.parameter_in, &other.parameter_in) {
        (ParameterIn::Header, ParameterIn::Header) | (ParameterIn::Query, ParameterIn::Query) => {
            one.name == other.name || (is_header && one.name.eq_ignore_ascii_case(&other.name))
        }
        _ => false,
    }
}

fn parameters(route: &DescribedRoute) -> Vec<Parameter> {
    match (&route.policy, &route.key_from) {
        (DescribedPolicy::Token, _) => {
            let text = format!(
                "A token that is valid once. A form sends it as the field `{}` instead{}.",
                header::FIELD,
                if route.required { "; without either, the request is rejected" } else { "" }
            );
            vec![parameter(ParameterIn::Header, "Onceward-Token", false, text)]
        }
        (_, Some(place)) => of_key(place, route.required),
        (_, None) => Vec::new(),
    }
}

/// Returns the parameters of a key. The application itself documents its paths and bodies.
fn of_key(place: &KeyPlace, is_required: bool) -> Vec<Parameter> {
    let key = |place, name: &str| {
        let text = "The id of this submission. A request with the same one is a duplicate, and does not run again.";
        vec![parameter(place, name, is_required, text.to_owned())]
    };
    match place {
        KeyPlace::Header(name) if name == header::IDEMPOTENCY_KEY => key(ParameterIn::Header, "Idempotency-Key"),
        KeyPlace::Header(name) => key(ParameterIn::Header, name),
        KeyPlace::Query(name) => key(ParameterIn::Query, name),
        KeyPlace::Body(_) | KeyPlace::Path(_) => Vec::new(),
        KeyPlace::Parts(parts) => parts.iter().flat_map(|part| of_key(part, is_required)).collect(),
    }
}

fn parameter(place: ParameterIn, name: &str, is_required: bool, text: String) -> Parameter {
    let schema = ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).build();
    let required = if is_required { Required::True } else { Required::False };
    let parameter = ParameterBuilder::new().name(name).parameter_in(place).required(required);
    parameter.description(Some(text)).schema(Some(schema)).build()
}

/// Returns the text for each status with which the guard rejects requests; none if the format is not known here.
fn rejections(route: &DescribedRoute) -> BTreeMap<u16, String> {
    let mut texts: BTreeMap<u16, String> = BTreeMap::new();
    if ["envelope", "own"].contains(&route.rejections.as_str()) {
        return texts;
    }
    for code in codes(route) {
        let text = texts.entry(status(code, &route.rejections)).or_default();
        let before = if text.is_empty() { "" } else { "; " };
        *text += &format!("{before}`{code}`: {}", code.title());
    }
    texts
}

/// Returns the status of a rejection in this format: profiles have others for a key that is used again.
fn status(code: Code, format: &str) -> u16 {
    match (code, format) {
        (Code::KeyReused, "ucp") => 409,
        (Code::KeyReused, "stripe") => 400,
        _ => code.status(),
    }
}

/// Returns the codes by which the guard of a route rejects requests.
fn codes(route: &DescribedRoute) -> Vec<Code> {
    let is_stored = route.retention.is_some();
    // A function of the application may read the key or name: then its place is not described, but it is required.
    let has_id = match route.policy {
        DescribedPolicy::Key => true,
        DescribedPolicy::Interval => route.required || route.key_from.is_some(),
        DescribedPolicy::Token | DescribedPolicy::None => false,
    };
    let by_policy: &[(bool, &[Code])] = match route.policy {
        DescribedPolicy::Token => &[
            (route.required, &[Code::TokenMissing]),
            (true, &[Code::TokenMalformed, Code::TokenInvalid, Code::TokenUsed]),
            (true, &[Code::TokenExpired, Code::TokenStale, Code::TokenRevoked]),
        ],
        DescribedPolicy::Key => &[(true, &[Code::KeyReused])],
        DescribedPolicy::Interval => &[
            (route.lock, &[Code::Locked]),
            (!route.lock && !is_stored, &[Code::TooSoon]),
            (is_stored && has_id, &[Code::KeyReused]),
        ],
        DescribedPolicy::None => &[],
    };
    let common: &[(bool, &[Code])] = &[
        (has_id && route.required, &[Code::KeyMissing]),
        (has_id, &[Code::KeyMalformed]),
        (is_stored, &[Code::InProgress, Code::OutcomeUnknown, Code::ReplyNotKept]),
        (true, &[Code::StoreUnavailable]),
    ];
    let applying = by_policy.iter().chain(common).filter(|(applies, _)| *applies);
    applying.flat_map(|(_, codes)| codes.iter().copied()).collect()
}

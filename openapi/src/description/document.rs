//! Adds the protection of routes to the OpenAPI document of an application: parameters, responses and the schema of a problem.

use std::collections::BTreeMap;
use std::fmt;

use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::schema::Type;
use utoipa::openapi::{Components, Content, ObjectBuilder, OpenApi, Ref, RefOr, Required, Response};

use super::rejection_schema::RejectionSchema;
use super::{DescribedPolicy, DescribedRoute, Description, KeyPlace};
use crate::header;
use crate::problem::Code;

/// The parts of a description that could not be added to a document; see [`Description::add_to`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotDocumented {
    /// The paths of the routes without an operation.
    pub paths: Vec<String>,
    /// The references of parameters and responses that do not lead to a component of the document.
    pub references: Vec<String>,
}

impl fmt::Display for NotDocumented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths = (&self.paths, "the document has no operation for");
        let references = (&self.references, "the document has no component for the reference");
        let parts = [paths, references].into_iter().filter(|(names, _)| !names.is_empty());
        let parts: Vec<_> = parts.map(|(names, text)| format!("{text} {}", names.join(", "))).collect();
        f.write_str(&parts.join("; "))
    }
}

impl std::error::Error for NotDocumented {}

impl Description {
    /// Adds to each operation of a described route the headers that carry its token or key, and the rejections that a client has to
    /// expect: 400, 409, 422 and others, each with its codes and the schema of its format: `OncewardProblem`, `OncewardAcpError`,
    /// `OncewardUcpError` or `OncewardStripeError`. Parameters and texts that the application has written itself stay.
    ///
    /// A reference to a response in the components is replaced by a copy of that response, with the rejections.
    ///
    /// With rejections in an envelope, or in a format of the application, only the parameters are added: their shape is not known here.
    ///
    /// # Errors
    /// If the document has no operation for a route, or if a parameter or response is a reference that leads out of the document. The
    /// operation with such a reference lacks the parameters, or that response the rejections; everything else has been added.
    pub fn add_to(&self, document: &mut OpenApi) -> Result<(), NotDocumented> {
        let mut missing = NotDocumented::default();
        let components = document.components.get_or_insert_default();
        for route in self.routes.iter().filter(|route| route.policy != DescribedPolicy::None) {
            let item = document.paths.paths.get_mut(&route.path);
            let shared = item.as_ref().and_then(|item| item.parameters.clone()).unwrap_or_default();
            let operations = item.map(|item| operations(item, route)).unwrap_or_default();
            if operations.is_empty() {
                missing.paths.push(route.path.clone());
            }
            for operation in operations {
                missing.references.extend(add_parameters(operation, &shared, route, components).err());
                missing.references.extend(add_rejections(operation, route, components));
            }
        }
        for schema in self.routes.iter().filter_map(|route| RejectionSchema::of(&route.rejections)) {
            components.schemas.insert(schema.name.to_owned(), schema.build());
        }
        if missing == NotDocumented::default() { Ok(()) } else { Err(missing) }
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

/// Adds the parameters that the operation, or its path, does not have. Returns the reference that leads nowhere, if there is one: it may
/// stand for any parameter.
fn add_parameters(
    operation: &mut Operation,
    shared: &[RefOr<Parameter>],
    route: &DescribedRoute,
    components: &Components,
) -> Result<(), String> {
    let added = parameters(route);
    if added.is_empty() {
        return Ok(());
    }
    let own = operation.parameters.get_or_insert_default();
    let known = own.iter().chain(shared).map(|parameter| resolve(parameter, &components.parameters, PARAMETERS));
    let known = known.collect::<Result<Vec<_>, _>>()?;
    let new = added.into_iter().filter(|added| !known.iter().any(|known| is_same(known, added)));
    let new: Vec<_> = new.map(RefOr::T).collect();
    own.extend(new);
    Ok(())
}

/// Adds the rejections to the responses. Returns the references that lead nowhere.
fn add_rejections(operation: &mut Operation, route: &DescribedRoute, components: &Components) -> Vec<String> {
    let mut lost = Vec::new();
    for (status, text) in rejections(route) {
        let responses = &mut operation.responses.responses;
        let described = responses.entry(status.to_string()).or_insert_with(|| RefOr::T(Response::default()));
        match resolve(described, &components.responses, RESPONSES) {
            Ok(response) => {
                let mut response = response.clone();
                // Next to a reference, a description replaces that of the component.
                if let RefOr::Ref(reference) = described
                    && !reference.description.is_empty()
                {
                    response.description.clone_from(&reference.description);
                }
                describe(&mut response, &text, RejectionSchema::of(&route.rejections));
                *described = RefOr::T(response);
            }
            Err(reference) => lost.push(reference),
        }
    }
    lost
}

const PARAMETERS: &str = "#/components/parameters/";
const RESPONSES: &str = "#/components/responses/";

/// Follows references to the component, whose location begins with `place`. Returns the one that leads nowhere as the error.
fn resolve<'a, T>(
    mut value: &'a RefOr<T>,
    components: &'a BTreeMap<String, RefOr<T>>,
    place: &str,
) -> Result<&'a T, String> {
    // References to each other end too.
    for _ in 0..=components.len() {
        let RefOr::Ref(Ref { ref_location, .. }) = value else { break };
        let name = ref_location.strip_prefix(place);
        value = name.and_then(|name| components.get(name)).ok_or_else(|| ref_location.clone())?;
    }
    match value {
        RefOr::T(value) => Ok(value),
        RefOr::Ref(reference) => Err(reference.ref_location.clone()),
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
fn is_same(one: &Parameter, other: &Parameter) -> bool {
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

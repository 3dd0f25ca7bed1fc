//! The schemas of rejections, by their format.

use utoipa::PartialSchema as _;
use utoipa::openapi::schema::{Schema, Type};
use utoipa::openapi::{ObjectBuilder, RefOr};

use crate::problem::{Code, Problem, Retry};

/// The body of a format's rejections.
pub(super) struct RejectionSchema {
    /// The name of its schema. An application may have a `Problem` of its own.
    pub(super) name: &'static str,
    /// Its `Content-Type`.
    pub(super) content_type: &'static str,
    build: fn() -> RefOr<Schema>,
}

impl RejectionSchema {
    /// Returns the body of a format; `None` if its shape is the application's.
    pub(super) fn of(format: &str) -> Option<Self> {
        let json = |name, build| Some(Self { name, content_type: "application/json", build });
        match format {
            "problem" => Some(Self { name: "OncewardProblem", content_type: Problem::CONTENT_TYPE, build: problem }),
            "acp" => json("OncewardAcpError", || texts(&["type", "code", "message"]).into()),
            "ucp" => json("OncewardUcpError", || texts(&["code", "content"]).into()),
            "stripe" => json("OncewardStripeError", || {
                let error = texts(&["type", "code", "message"]);
                ObjectBuilder::new().schema_type(Type::Object).property("error", error).required("error").into()
            }),
            _ => None,
        }
    }

    /// Builds the schema, without references to others.
    pub(super) fn build(&self) -> RefOr<Schema> {
        (self.build)()
    }
}

/// Returns an object whose members are texts.
fn texts(names: &[&str]) -> ObjectBuilder {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let add = |object: ObjectBuilder, name: &&str| object.property(*name, text()).required(*name);
    names.iter().fold(ObjectBuilder::new().schema_type(Type::Object), add)
}

fn problem() -> RefOr<Schema> {
    let mut schema = Problem::schema();
    if let RefOr::T(Schema::Object(object)) = &mut schema {
        object.properties.insert("code".to_owned(), Code::schema());
        object.properties.insert("retry".to_owned(), Retry::schema());
    }
    schema
}

//! Problem responses that several operations have in common, for the OpenAPI document.

use onceward_api::Problem;
use utoipa::IntoResponses;

/// The problems of every operation that reads a body.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "it documents responses")]
pub(super) enum CommonResponses {
    /// `method_not_allowed`
    #[response(status = 405, content_type = "application/problem+json")]
    Method(Problem),
    /// `body_too_large`
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(Problem),
    /// `unsupported_media_type`
    #[response(status = 415, content_type = "application/problem+json")]
    MediaType(Problem),
    /// `internal`: an internal error of the service
    #[response(status = 500, content_type = "application/problem+json")]
    Internal(Problem),
}

/// `unauthorized`: the API key is missing or wrong
#[derive(IntoResponses)]
#[response(status = 401, content_type = "application/problem+json")]
#[expect(dead_code, reason = "it documents a response")]
pub(super) struct AuthenticationFailure(Problem);

/// `bad_request`: the detail names the field
#[derive(IntoResponses)]
#[response(status = 400, content_type = "application/problem+json")]
#[expect(dead_code, reason = "it documents a response")]
pub(super) struct InvalidField(Problem);

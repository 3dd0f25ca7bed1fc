//! Header names, and the one name that stands for a token outside the headers.

/// Request: a one-time token.
pub const TOKEN: &str = "onceward-token";
/// Response: a fresh token for the next submission, on routes that ask for it.
pub const NEXT_TOKEN: &str = "onceward-next-token";
/// Request: a key that the caller made, as in the IETF draft of the same name.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Response: `true` where this is the first answer again.
pub const IDEMPOTENT_REPLAYED: &str = "idempotent-replayed";
/// Response: what became of the request; on every answer of a protected route.
pub const OUTCOME: &str = "onceward-outcome";
/// Response: the outcome once more, as `onceward;desc=…`. A page's script can read it after a navigation, which shows it no other header.
/// Of several, the last one counts.
pub const SERVER_TIMING: &str = "server-timing";
/// Request: `true` answers from the record only and never runs the handler. `false` is as good as absent. Any other value is refused
/// with 400 `bad_request`, and nothing runs. A guard that is off, or only observes, does not obey it.
pub const LOOK: &str = "onceward-look";
/// Request: names one try, from a caller that is trusted to.
pub const ATTEMPT: &str = "onceward-attempt";
/// Response to a gateway: names the use of a token by an attempt, for an application that releases it.
pub const RUN_ID: &str = "onceward-run-id";
/// Response: the problem, on one line of ASCII, for a gateway that keeps nothing of an answer but its headers.
pub const PROBLEM: &str = "onceward-problem";
/// Response: the same as a page, on one line of ASCII, if the client prefers HTML.
pub const PAGE: &str = "onceward-page";
/// Response: whole seconds to wait before the next try.
pub const RETRY_AFTER: &str = "retry-after";
/// Response: what is left of a client's quota.
pub const RATE_LIMIT: &str = "ratelimit";
/// Response: how large that quota is, and how fast it comes back.
pub const RATE_LIMIT_POLICY: &str = "ratelimit-policy";
/// Request and response: names a request, in its answer and in the log of whoever answers it.
pub const REQUEST_ID: &str = "x-request-id";

/// What an application's CORS layer has to expose so that scripts can read every answer.
pub const EXPOSED: [&str; 4] = [NEXT_TOKEN, IDEMPOTENT_REPLAYED, OUTCOME, RETRY_AFTER];

/// What an application's CORS layer has to allow so that scripts can send it.
pub const ALLOWED: [&str; 3] = [TOKEN, IDEMPOTENCY_KEY, LOOK];

/// The form field, multipart part and query parameter that carries a token.
pub const FIELD: &str = "_onceward";

//! Header names, and the name of the token field in forms and queries.

/// Request: a one-time token.
pub const TOKEN: &str = "onceward-token";
/// Response: a new token for the next submission, on routes that are configured to send one.
pub const NEXT_TOKEN: &str = "onceward-next-token";
/// Request: a key that the client chose, as in the IETF draft of the same name.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Response: `true` if this is a stored response.
pub const IDEMPOTENT_REPLAYED: &str = "idempotent-replayed";
/// Response: the outcome of the request; on every response of a protected route.
pub const OUTCOME: &str = "onceward-outcome";
/// Response: repeats the outcome, as `onceward;desc=…`. It is the only header that the script of a page can read after a navigation.
/// Of several, the last one counts.
pub const SERVER_TIMING: &str = "server-timing";
/// Response: whole seconds for which the response is stored, counted from the first one (in an interval, from the first
/// request), on routes that are configured to send it.
pub const RETENTION: &str = "onceward-retention";
/// Request: `true` returns the recorded outcome and never runs the handler. `false` has no effect. Any other value is rejected
/// with 400 `bad_request`, and nothing runs. A guard that is off, or only observes, ignores this header.
pub const LOOK: &str = "onceward-look";
/// Request: names one attempt; accepted from trusted callers only.
pub const ATTEMPT: &str = "onceward-attempt";
/// Request to the application behind the proxy: the id of this run. A submission that was released (not applied) and is sent again has another
/// id: where such a retry must not charge twice, the application sends the token or the client's key to a payment provider, otherwise this id.
pub const RUN: &str = "onceward-run";
/// Response to a gateway: names the use of a token by an attempt, for an application that releases it.
pub const RUN_ID: &str = "onceward-run-id";
/// Response: the problem, on one line of ASCII, for a gateway that forwards only the headers of a response.
pub const PROBLEM: &str = "onceward-problem";
/// Response: the problem as an HTML page, on one line of ASCII, if the client prefers HTML.
pub const PAGE: &str = "onceward-page";
/// Response: the next step after a rejection: `same`, `new_token` or `no`, as the member `retry` of a problem.
pub const RETRY: &str = "onceward-retry";
/// Response: whole seconds to wait before the next attempt.
pub const RETRY_AFTER: &str = "retry-after";
/// Response: the rest of a client's quota.
pub const RATE_LIMIT: &str = "ratelimit";
/// Response: the size of that quota, and its refill rate.
pub const RATE_LIMIT_POLICY: &str = "ratelimit-policy";
/// Request and response: the id of a request, in its response and in the log of the server.
pub const REQUEST_ID: &str = "x-request-id";

/// Headers that an application's CORS layer must expose, so that scripts can read every response.
pub const EXPOSED: [&str; 6] = [NEXT_TOKEN, IDEMPOTENT_REPLAYED, OUTCOME, RETENTION, RETRY, RETRY_AFTER];

/// Headers that an application's CORS layer must allow, so that scripts can send them.
pub const ALLOWED: [&str; 3] = [TOKEN, IDEMPOTENCY_KEY, LOOK];

/// The form field, multipart part and query parameter that carries a token.
pub const FIELD: &str = "_onceward";

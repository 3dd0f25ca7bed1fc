// The wire contract. Generated from openapi/ by `npm run wire`: do not edit.

/** Request: a one-time token. */
export const TOKEN = "onceward-token";

/** Request: a key that the client chose, as in the IETF draft of the same name. */
export const IDEMPOTENCY_KEY = "idempotency-key";

/** Response: `true` if this is a stored response. */
export const IDEMPOTENT_REPLAYED = "idempotent-replayed";

/** Response: the outcome of the request; on every response of a protected route. */
export const OUTCOME = "onceward-outcome";

/** Response: the next step after a rejection: `same`, `new_token` or `no`, as the member `retry` of a problem. */
export const RETRY = "onceward-retry";

/** Response: whole seconds to wait before the next attempt. */
export const RETRY_AFTER = "retry-after";

/** The form field, multipart part and query parameter that carries a token. */
export const FIELD = "_onceward";

/** The reason for a rejection: the `code` of a problem. */
export type Code =
  | "token_missing"
  | "token_malformed"
  | "token_invalid"
  | "token_expired"
  | "token_used"
  | "token_revoked"
  | "token_stale"
  | "redeem_unknown"
  | "key_missing"
  | "key_malformed"
  | "key_reused"
  | "in_progress"
  | "outcome_unknown"
  | "not_found"
  | "reply_not_kept"
  | "claim_lost"
  | "store_unavailable"
  | "too_soon"
  | "locked"
  | "rate_limited"
  | "overloaded"
  | "unauthorized"
  | "bad_request"
  | "body_too_large"
  | "method_not_allowed"
  | "unsupported_media_type"
  | "upstream_unavailable"
  | "upstream_timeout"
  | "upstream_failed"
  | "internal";

/** The next step for a client that received a problem. */
export type Retry =
  | "same"
  | "new_token"
  | "no";

/** A problem of RFC 9457, extended by the members `code` and `retry`. */
export interface Problem {
  /** The reason, for programs. */
  code: Code;
  /** The cause, and the next step. */
  detail: string;
  /** The path of the request, without the query. */
  instance?: string;
  /** The next step for the client. */
  retry: Retry;
  /** The HTTP status of the response. */
  status: number;
  /** A short summary. */
  title: string;
  /** The URL of a page that explains the code. */
  type: string;
}

/** Body of `POST /token`. Every field is optional, and so is the body. */
export interface TokenRequest {
  /** The only operation that accepts the token. A route without a name of its own is named by method and path, as in `POST /orders`, however the path is percent-encoded. Without it, every operation accepts the token. */
  action?: string;
  /** The only subject that may use the token. */
  subject?: string;
  /** Time until the token expires, from `1s` to `24h`. More than the configured `token_ttl` requires the API key. */
  ttl?: string;
}

/** Response to `POST /token`: a token and its expiry. */
export interface IssuedToken {
  /** The time at which the token expires. */
  expires_at: string;
  /** Whole seconds until the token expires. */
  expires_in: number;
  /** The token itself. Treat it as opaque. */
  token: string;
}

// The wire contract. Written by `npm run wire` from openapi/: change it there.

/** Request: a one-time token. */
export const TOKEN = "onceward-token";

/** Request: a key that the caller made, as in the IETF draft of the same name. */
export const IDEMPOTENCY_KEY = "idempotency-key";

/** Response: `true` where this is the first answer again. */
export const IDEMPOTENT_REPLAYED = "idempotent-replayed";

/** Response: what became of the request; on every answer of a protected route. */
export const OUTCOME = "onceward-outcome";

/** Response: whole seconds to wait before the next try. */
export const RETRY_AFTER = "retry-after";

/** The form field, multipart part and query parameter that carries a token. */
export const FIELD = "_onceward";

/** Why nothing ran, or why no answer can be given: the `code` of a problem. */
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
  | "internal";

/** The next step for whoever got the problem. */
export type Retry =
  | "same"
  | "new_token"
  | "no";

/** A problem as RFC 9457 has it, with two members of ours: `code` and `retry`. */
export interface Problem {
  /** What a program goes by. */
  code: Code;
  /** What happened this time. */
  detail: string;
  /** Which request it happened to: its path, without the query. */
  instance?: string;
  /** The next step. */
  retry: Retry;
  /** The HTTP status, again. */
  status: number;
  /** What happened, in a few words. */
  title: string;
  /** A page that explains the code. */
  type: string;
}

/** Body of `POST /token`. All of it is optional, and so is the body. */
export interface TokenRequest {
  /** The only operation the token will be good for; a route that has no name of its own is called by method and path, as in `POST /orders`, however that path is percent-encoded. Without it, the token is good for every operation. */
  action?: string;
  /** The only caller the token will be good for. */
  subject?: string;
  /** How long the token lives, from `1s` to `24h`; longer than usual only with the API key. */
  ttl?: string;
}

/** A token and how long it lives: the answer to `POST /token`. */
export interface IssuedToken {
  /** When it expires. */
  expires_at: string;
  /** How many whole seconds are left. */
  expires_in: number;
  /** The token itself. Treat it as opaque. */
  token: string;
}

// Problems (RFC 9457): why a request was rejected, and the next step.

/** The next step for a client that received a problem. */
export type Retry = "same" | "new_token" | "no";

/** A rejection, as the client receives it. */
export interface Problem {
  readonly status: number;
  /** The reason, for programs. */
  readonly code: string;
  readonly retry: Retry;
  readonly body: string;
  readonly contentType: string;
  /** Seconds until the next attempt. */
  readonly retryAfter?: string | undefined;
}

/** The codes that this package creates itself. The texts are those of the service. */
export const OWN = {
  token_missing: [400, "new_token", "A token is missing", "This submission needs a one-time token, in the Onceward-Token header or the _onceward field. Fetch one and send again."],
  token_malformed: [400, "new_token", "The token is malformed", "The value sent as the token is not in the format of a token. Fetch a token and send again."],
  key_missing: [400, "no", "The idempotency key is missing", "This submission needs an idempotency key, chosen by the client and the same for every retry."],
  key_malformed: [400, "no", "The idempotency key is malformed", "An idempotency key is 1 to 255 visible ASCII characters, sent once."],
  bad_request: [400, "no", "The request is invalid", "Part of the request is missing or malformed. Nothing ran."],
  unauthorized: [401, "no", "Authentication required", "The subject of this request could not be identified. Sign in or send credentials."],
  not_found: [404, "no", "Not found", "No record exists for this submission."],
  in_progress: [409, "same", "The first request is still running", "The same submission is still in flight. Send the same request again in a moment."],
  outcome_unknown: [409, "no", "The outcome is unknown", "The first request started, and its outcome was never recorded. It does not run again until the application or an operator settles it."],
  reply_not_kept: [409, "no", "The first response was not stored", "It was carried out; no response was stored, so it cannot be sent again."],
  body_too_large: [413, "no", "The body is too large", "The body exceeds the size limit. Nothing ran."],
  redeem_unknown: [503, "new_token", "The check could not be finished", "The reply of the store was lost while the token was being redeemed. This request ran nothing, but its token may be used. Fetch a new one and send again."],
  store_unavailable: [503, "same", "The store is unavailable", "The store is unavailable, so duplicates cannot be detected. Nothing ran. Send the same request again in a moment."],
} as const satisfies Record<string, readonly [number, Retry, string, string]>;

export type OwnCode = keyof typeof OWN;

/** Creates a problem of the package itself. `detail` replaces the usual one. */
export function createProblem(code: OwnCode, detail?: string): Problem {
  const [status, retry, title, usual] = OWN[code];
  const body = JSON.stringify({ type: `/problems/${code}`, title, status, detail: detail ?? usual, code, retry });
  return { status, code, retry, body, contentType: "application/problem+json", retryAfter: (retry as Retry) === "same" ? "1" : undefined };
}

/** Parses a problem of the service. Returns `undefined` if the response is not one. */
export function parseProblem(status: number, body: string, contentType: string, retryAfter?: string): Problem | undefined {
  const problem = parseObject(body);
  if (typeof problem?.code !== "string" || typeof problem.retry !== "string") return undefined;
  return { status, code: problem.code, retry: problem.retry as Retry, body, contentType, retryAfter };
}

/** Parses a JSON object. Returns `undefined` for anything else. */
export function parseObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? { ...value } : undefined;
  } catch {
    return undefined;
  }
}

/** The work did not run: it was rejected, or Onceward could not be reached (`store_unavailable`). */
export class Rejected extends Error {
  override name = "Rejected";
  readonly problem: Problem;

  constructor(problem: Problem) {
    super(`rejected as ${problem.code}`);
    this.problem = problem;
  }

  /** The reason, for programs. */
  get code(): string {
    return this.problem.code;
  }
}

/** The service rejects what this backend asks for, such as a lease that is too long. The client of the backend has nothing to mend. */
export class BackendRejected extends Rejected {}

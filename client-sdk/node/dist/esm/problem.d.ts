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
export declare const OWN: {
    readonly token_missing: readonly [400, "new_token", "A token is missing", "This submission needs a one-time token, in the Onceward-Token header or the _onceward field. Fetch one and send again."];
    readonly token_malformed: readonly [400, "new_token", "The token is malformed", "The value sent as the token is not in the format of a token. Fetch a token and send again."];
    readonly key_missing: readonly [400, "no", "The idempotency key is missing", "This submission needs an idempotency key, chosen by the client and the same for every retry."];
    readonly key_malformed: readonly [400, "no", "The idempotency key is malformed", "An idempotency key is 1 to 255 visible ASCII characters, sent once."];
    readonly bad_request: readonly [400, "no", "The request is invalid", "Part of the request is missing or malformed. Nothing ran."];
    readonly unauthorized: readonly [401, "no", "Authentication required", "The subject of this request could not be identified. Sign in or send credentials."];
    readonly not_found: readonly [404, "no", "Not found", "No record exists for this submission."];
    readonly in_progress: readonly [409, "same", "The first request is still running", "The same submission is still in flight. Send the same request again in a moment."];
    readonly outcome_unknown: readonly [409, "no", "The outcome is unknown", "The first request started, and its outcome was never recorded. It does not run again until the application or an operator settles it."];
    readonly reply_not_kept: readonly [409, "no", "The first response was not stored", "It was carried out; no response was stored, so it cannot be sent again."];
    readonly body_too_large: readonly [413, "no", "The body is too large", "The body exceeds the size limit. Nothing ran."];
    readonly redeem_unknown: readonly [503, "new_token", "The check could not be finished", "The reply of the store was lost while the token was being redeemed. This request ran nothing, but its token may be used. Fetch a new one and send again."];
    readonly store_unavailable: readonly [503, "same", "The store is unavailable", "The store is unavailable, so duplicates cannot be detected. Nothing ran. Send the same request again in a moment."];
};
export type OwnCode = keyof typeof OWN;
/** Creates a problem of the package itself. `detail` replaces the usual one. */
export declare function createProblem(code: OwnCode, detail?: string): Problem;
/** Parses a problem of the service. Returns `undefined` if the response is not one. */
export declare function parseProblem(status: number, body: string, contentType: string, retryAfter?: string): Problem | undefined;
/** Parses a JSON object. Returns `undefined` for anything else. */
export declare function parseObject(text: string): Record<string, unknown> | undefined;
/** The work did not run: it was rejected, or Onceward could not be reached (`store_unavailable`). */
export declare class Rejected extends Error {
    name: string;
    readonly problem: Problem;
    constructor(problem: Problem);
    /** The reason, for programs. */
    get code(): string;
}
/** The service rejects what this backend asks for, such as a lease that is too long. The client of the backend has nothing to mend. */
export declare class BackendRejected extends Rejected {
}

import { type AttemptProblem } from "./retry_rules.js";
import { type TimedToken } from "./token.js";
/** The options of `fetch`, and three more. */
export interface SubmissionInit extends RequestInit {
    /** Your own idempotency key, sent instead of a token. Concurrent calls with the same key are one submission. */
    key?: string;
    /** The action that the token is bound to, as in `POST /orders`. */
    action?: string;
    /**
     * The form to send. Calls for the same form and content are one submission while the first is in flight, and for one second after its start
     * unless the form is edited or reset. `body` defaults to the fields of the form, `method` to POST.
     */
    form?: HTMLFormElement;
}
/** The result of a submission. `executed` and `replayed` have the handler's response, with any status. */
export type Result = {
    outcome: "executed";
    response: Response;
} | {
    outcome: "replayed";
    response: Response;
} | {
    /** `duplicate`: received before. `unknown`: it may have taken effect. `rejected`: nothing ran. */
    outcome: "duplicate" | "unknown" | "rejected";
    /** The last response, if there was one. */
    response?: Response | undefined;
    /** The problem in the last response, if there was one. */
    problem?: AttemptProblem;
    /** The reason why there is no response. */
    error?: unknown;
};
/** The dependencies of a submission. */
export interface SubmissionContext {
    fetch: typeof globalThis.fetch;
    token(action: string | undefined, signal: AbortSignal): Promise<TimedToken>;
    /** Deadline for all attempts together, in milliseconds. */
    limit: number;
}
/** Sends a submission, with retries, until it has an outcome. Rejects only if the caller's signal aborts. */
export declare function submit({ fetch, token, limit }: SubmissionContext, request: Request, init: SubmissionInit): Promise<Result>;
/** Returns the outcome in a response. */
export declare function outcomeOf(response: Response): string;

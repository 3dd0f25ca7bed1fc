import { type TimedToken } from "./token.js";
import { type Problem } from "./wire_contract.js";
/** What `fetch` takes, and three members of ours. */
export interface SubmissionInit extends RequestInit {
    /** An idempotency key of your own, sent instead of a token. Calls under one key at the same time are one submission. */
    key?: string;
    /** The action that the token is to be bound to, as in `POST /orders`. */
    action?: string;
    /**
     * The form that this sends. Calls for the same form and content are one submission while the first is in flight, and for a second from it
     * unless the form is edited or reset. Without `body` its fields are sent, without `method` by POST.
     */
    form?: HTMLFormElement;
}
/** What became of a submission. `executed` and `replayed` have the handler's response, whatever its status. */
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
    /** What it said, if it was a problem. */
    problem?: Problem | undefined;
    /** Why there is no response. */
    error?: unknown;
};
/** What a submission needs of its surroundings. */
export interface SubmissionContext {
    fetch: typeof globalThis.fetch;
    token(action: string | undefined, signal: AbortSignal): Promise<TimedToken>;
    /** How long all attempts together may take. */
    limit: number;
}
/** Sends until there is an outcome. Rejects only if the caller's signal says so. */
export declare function submit({ fetch, token, limit }: SubmissionContext, request: Request, init: SubmissionInit): Promise<Result>;
/** What a response says became of the request. */
export declare function outcomeOf(response: Response): string;

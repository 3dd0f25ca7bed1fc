import { type Messages } from "./form_status.js";
import { type Result, type SubmissionInit } from "./submission.js";
export type { FormState, Messages } from "./form_status.js";
export type { Result, SubmissionInit } from "./submission.js";
export type { Code, IssuedToken, Problem, Retry, TokenRequest } from "./wire_contract.js";
/** Settings, all of them optional. */
export interface Options {
    /** Where tokens come from: `token` below this. The page's own origin if nothing is said. */
    baseUrl?: string | undefined;
    /** Other origins that tokens may be sent to, beside the page's own and that of `baseUrl`. */
    origins?: string[];
    /** Another `fetch`. */
    fetch?: typeof globalThis.fetch;
    /** How long all attempts of one `fetch` may take together, in milliseconds: a minute. */
    limit?: number;
    /** How long a submit waits for a token, and a form for a response, in milliseconds: 10 seconds. */
    patience?: number;
}
/** What makes submissions take effect once. */
export interface Onceward {
    /**
     * Like `fetch`, with a token of its own or your key, the same over all attempts. Each call is one submission: two calls are two orders, unless
     * both name the same `key`, or the same `form` with the same content, while the first is in flight or, for a form, within a second.
     */
    fetch(url: string | URL, init?: SubmissionInit): Promise<Result>;
    /** Guards every `form[data-onceward]` of the page, also those that are added later. */
    watch(): void;
    /** For a page that sends a guarded form by itself: how its last submit ended, or `null` if no response came. Another form is not affected. */
    answered(form: HTMLFormElement, response: Response | null): void;
    /**
     * Fetches a token for code that sends by itself, in the header `Onceward-Token` or the field `_onceward`. Each call returns a new token, good
     * for one submission. With a form, calls for the same content within a second return the same token, unless the form is edited or reset in
     * between; in the submit handler of a guarded form it is the token that the form's data contains.
     */
    token(form?: HTMLFormElement): Promise<string>;
    /** What is told to people. Change it to tell it in other words. */
    messages: Messages;
}
/** Makes one. */
export declare function createOnceward(options?: Options): Onceward;

import { type Messages } from "./form_status.js";
import { type Result, type SubmissionInit } from "./submission.js";
export type { FormState, Messages } from "./form_status.js";
export type { Result, SubmissionInit } from "./submission.js";
export type { Code, IssuedToken, Problem, Retry, TokenRequest } from "./wire_contract.js";
/** Optional settings. */
export interface Options {
    /** Base URL for tokens: they are fetched from `baseUrl` + `/token`. Default: the page's own origin. */
    baseUrl?: string | undefined;
    /** `"all"`: `watch` guards every POST form, also without `data-onceward`. Default: only forms with `data-onceward`. */
    forms?: "all" | undefined;
    /** Further origins that tokens may be sent to, besides the page's own and that of `baseUrl`. */
    origins?: string[];
    /** A replacement for the global `fetch`. */
    fetch?: typeof globalThis.fetch;
    /** Deadline for all attempts of one `fetch`, in milliseconds. Default: one minute. */
    limit?: number;
    /** Maximum time that a submit waits for a token, and a form for a response, in milliseconds. Default: 10 seconds. */
    patience?: number;
}
/** The API of this package. */
export interface Onceward {
    /**
     * Like `fetch`, with retries that all carry the same token or key. Each call is one submission: two calls are two orders, unless both have the
     * same `key`, or the same `form` with the same content, while the first is in flight or, for a form, within a second.
     */
    fetch(url: string | URL, init?: SubmissionInit): Promise<Result>;
    /** Guards every `form[data-onceward]` of the page, or every POST form (see `Options.forms`), also those that are added later. */
    watch(): void;
    /** Reports the response to the last submit of a guarded form that the page sends itself, or `null` if none came. */
    answered(form: HTMLFormElement, response: Response | null): void;
    /**
     * Fetches a token for code that sends it itself, in the header `Onceward-Token` or the field `_onceward`. Each call returns a new token, valid
     * for one submission. With a form, calls for the same content within a second return the same token, unless the form is edited or reset in
     * between; in the submit handler of a guarded form it is the token in the form's data.
     */
    token(form?: HTMLFormElement): Promise<string>;
    /** The messages shown to users. Assign your own texts to change or translate them. */
    messages: Messages;
}
/** Creates the API. It guards no form until `watch` is called. */
export declare function createOnceward(options?: Options): Onceward;

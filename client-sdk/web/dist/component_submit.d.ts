import { type Options, type Result } from "./index.js";
/** The state that a component shows. */
export interface SubmissionState {
    /** True while a submission is in flight. */
    pending: boolean;
    /** The result of the last submission. */
    result?: Result | undefined;
}
/** The settings of `createOnceward`, and those of the request. */
export interface SubmitOptions extends Options {
    /** Default: POST. */
    method?: string;
    headers?: HeadersInit;
    /** The action that the token is bound to, as in `POST /orders`. */
    action?: string;
}
/** An event of a form or a button, as of the browser or of a framework. */
export interface SubmitLikeEvent {
    preventDefault(): void;
    currentTarget: EventTarget | null;
    target: EventTarget | null;
    nativeEvent?: unknown;
}
/**
 * What is sent: the form of an event, a body, or any other object as JSON. Without it, or with a button's event, the body is empty. Two calls
 * have the same content if URL, method and fields, text or bytes are the same. A stream is never the same.
 */
export type Submittable = SubmitLikeEvent | BodyInit | object;
/** Sends a submission, or returns the result of one with the same content. Never rejects. */
export type ComponentSubmit = (url: string | URL, options: SubmitOptions, given?: Submittable) => Promise<Result>;
/** Creates the `submit` of one component. `show` receives each new state. */
export declare function componentSubmit(show: (state: SubmissionState) => void): ComponentSubmit;

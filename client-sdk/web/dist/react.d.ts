import { type SubmissionState, type Submittable, type SubmitOptions } from "./component_submit.js";
import type { Result } from "./index.js";
export type { SubmissionState, SubmitLikeEvent, Submittable, SubmitOptions } from "./component_submit.js";
/** The state of a component's submission, and the function that sends it. */
export interface Submission extends SubmissionState {
    /**
     * Sends the form of a submit event, a body, or another object as JSON. While a submission is in flight, and for a double click, further calls with
     * the same content return its result; other content is sent afterwards. Never rejects.
     */
    submit(given?: Submittable): Promise<Result>;
}
/** Sends each submission once: `const { submit, pending, result } = useSubmission("/orders")`, and `<form onSubmit={submit}>`. */
export declare function useSubmission(url: string | URL, options?: SubmitOptions): Submission;

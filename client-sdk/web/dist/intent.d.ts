import type { Problem } from "./wire.js";
/**
 * How the last try of a form ended, as far as the page can know.
 *
 * - `none`: without an answer, or with a failure that names no outcome, as a proxy sends it. It may have run.
 * - `lost`: the same, and so did an earlier try with its token.
 * - `doubt`: an answer came that does not tell, or not of the try that was lost before.
 * - `seen`: the person was shown an answer, but nobody told the page which.
 * - `again`: an answer after which the same may be sent again; or the page sends by itself and has not reported a response yet.
 * - `final`: an answer that ends the submission.
 */
export type Ended = "none" | "lost" | "doubt" | "seen" | "again" | "final";
/** `keep` the token, take a `fresh` one, or `ask` the person first. */
export type Choice = "keep" | "fresh" | "ask";
/** Which token the next try of a form takes. */
export declare function choose(ended: Ended, isSame: boolean, isExpired: boolean): Choice;
/** How long a double or triple click may take, in milliseconds. */
export declare const DOUBLE_CLICK = 1000;
/**
 * Whether a submit of the same content belongs to the click that sent it `gap` milliseconds earlier, whatever was answered in between.
 * A script that took over the first submit may have stopped it for a check and submit the form itself: before the page reports a response,
 * only a person's submit counts as a second click.
 */
export declare function isSameClick(gap: number, isByHand: boolean, isAnswered: boolean): boolean;
/** How a try ended, by its answer. `wasLost` if an earlier try with its token has none. */
export declare function learned(status: number, outcome: string, wasLost: boolean): Ended;
/** Whether a response with this outcome is the handler's, or its stored one. */
export declare function isHandlers(outcome: string): boolean;
/** What one try of a submission came to: the problem that it was answered with, or nothing if it may have run unheard. */
export type Tried = Pick<Problem, "code" | "retry"> | undefined;
/** Send the `same` again, fetch a `new_token` and send, or end the submission with this outcome. */
export type Step = "same" | "new_token" | "duplicate" | "unknown" | "refused";
/**
 * The next step after these tries. `new_token` is obeyed only while every earlier try was answered by a problem that says
 * the same: after a try without an answer the submission ends as unknown, since the lost one may have run. A lock is waited for only
 * while no earlier try can hold it: once it is free, the same would run a second time.
 */
export declare function nextStep(tries: Tried[], mayRepeat: boolean): Step;

import type { Problem } from "./wire_contract.js";
/**
 * How the last attempt of a form ended, as far as the page can know.
 *
 * - `none`: without a response, or with a failure that names no outcome, as a proxy sends it. It may have run.
 * - `lost`: the same, and so did an earlier attempt with its token.
 * - `doubt`: a response came that does not tell, or not of the attempt that was lost before.
 * - `seen`: the person was shown a response, but nobody told the page which.
 * - `again`: a response after which the same may be sent again; or the page sends by itself and has not reported a response yet.
 * - `final`: a response that ends the submission.
 */
export type AttemptEnd = "none" | "lost" | "doubt" | "seen" | "again" | "final";
/** `keep` the token, take a `fresh` one, or `ask` the person first. */
export type TokenChoice = "keep" | "fresh" | "ask";
/** Which token the next attempt of a form takes. */
export declare function chooseToken(ended: AttemptEnd, isSame: boolean, isExpired: boolean): TokenChoice;
/** How long a double or triple click may take, in milliseconds. */
export declare const DOUBLE_CLICK = 1000;
/**
 * Whether a submit of the same content belongs to the click that sent it `gap` milliseconds earlier, whatever was answered in between.
 * A script that took over the first submit may have stopped it for a check and submit the form itself: before the page reports a response,
 * only a person's submit counts as a second click.
 */
export declare function isSameClick(gap: number, isByHand: boolean, isAnswered: boolean): boolean;
/** How an attempt ended, by its response. `wasLost` if an earlier attempt with its token has none. */
export declare function endOfAttempt(status: number, outcome: string, wasLost: boolean): AttemptEnd;
/** Whether a response with this outcome is the handler's, or its stored one. */
export declare function isHandlers(outcome: string): boolean;
/** What one attempt of a submission came to: the problem that it was answered with, or nothing if it may have run unheard. */
export type AttemptProblem = Pick<Problem, "code" | "retry"> | undefined;
/** Send the `same` again, fetch a `new_token` and send, or end the submission with this outcome. */
export type NextStep = "same" | "new_token" | "duplicate" | "unknown" | "rejected";
/**
 * The next step after these attempts. `new_token` is obeyed only while every earlier attempt was answered by a problem that says
 * the same: after an attempt without a response the submission ends as unknown, since the lost one may have run. A lock is waited for only
 * while no earlier attempt can hold it: once it is free, the same would run a second time.
 */
export declare function nextStep(attempts: AttemptProblem[], mayRepeat: boolean): NextStep;

import type { Problem } from "./wire_contract.js";
/**
 * The end of the last attempt of a form, as far as the page knows.
 *
 * - `none`: no response, or a failure without an outcome, for example from a proxy. It may have run.
 * - `lost`: like `none`, and so was an earlier attempt with the same token.
 * - `doubt`: a response that leaves the outcome unknown, or settles this attempt but not a lost earlier one.
 * - `seen`: the user was shown a response that the page cannot read.
 * - `again`: a response after which the same token may be sent again; or the page sends the form itself and has not reported a response yet.
 * - `final`: a response that ends the submission.
 */
export type AttemptEnd = "none" | "lost" | "doubt" | "seen" | "again" | "final";
/** `keep` the token, use a `fresh` one, or `ask` the user first. */
export type TokenChoice = "keep" | "fresh" | "ask";
/** Chooses the token for the next attempt of a form. */
export declare function chooseToken(ended: AttemptEnd, isSame: boolean, isExpired: boolean): TokenChoice;
/** Maximum duration of a double or triple click, in milliseconds. */
export declare const DOUBLE_CLICK = 1000;
/**
 * Returns true if a submit of the same content belongs to the click that sent it `gap` milliseconds earlier, even if a response came in between.
 * A script may cancel the first submit for a check, and then submit the form itself: before the page reports a response, only a user's submit
 * counts as a second click.
 */
export declare function isSameClick(gap: number, isByHand: boolean, isAnswered: boolean): boolean;
/**
 * Returns the end of an attempt, by its response. `wasLost` is true if an earlier attempt with its token has no response.
 *
 * The patterns match `status outcome`, and an outcome by its first letters, which a test checks. A rejection counts by its code, since the
 * application chooses its status. As in the guard, a 500, 501 or 503 of the handler had no effect, and any other 5xx may have had one. A gateway
 * that sends `redeemed` does not know whether the failure is the handler's. Without an outcome, a 503 may come from a proxy.
 */
export declare function endOfAttempt(status: number, outcome: string, wasLost: boolean): AttemptEnd;
/** Returns true if a guard rejected the request with this outcome, whatever its status: not the handler, a gateway or an application without a guard. */
export declare function isRejection(outcome: string): boolean;
/** Returns true if a response with this outcome is the handler's, or its stored response. */
export declare function isHandlers(outcome: string): boolean;
/** The rejection of one attempt, or undefined if the attempt may have run. */
export type AttemptProblem = (Pick<Problem, "code"> & Partial<Problem>) | undefined;
/** Retry with the `same` token, retry with a `new_token`, or end the submission with this outcome. */
export type NextStep = "same" | "new_token" | "duplicate" | "unknown" | "rejected";
/**
 * Returns the next step after these attempts. `new_token` is followed only if every earlier attempt was rejected with `new_token` too: after an
 * attempt without a response the submission ends as unknown, since the lost attempt may have run. A lock is retried only if no earlier attempt
 * can hold it: otherwise the submission would run a second time once the lock is free.
 */
export declare function nextStep(attempts: AttemptProblem[], mayRepeat: boolean): NextStep;

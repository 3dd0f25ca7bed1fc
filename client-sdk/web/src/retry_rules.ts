// The retry rules: whether another attempt is the same submission or a new one. Pure functions.

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

/** The choices for edited content, for the same content, and for the same content with an expired token, after an attempt without a response. */
const UNANSWERED = "ask keep ask";
/** The choices after any other end. */
const TOKEN_CHOICES: Partial<Record<AttemptEnd, string>> = {
  doubt: "ask ask ask",
  seen: "fresh ask ask",
  again: "fresh keep fresh",
  final: "fresh fresh fresh",
};

/** Chooses the token for the next attempt of a form. */
export function chooseToken(ended: AttemptEnd, isSame: boolean, isExpired: boolean): TokenChoice {
  return (TOKEN_CHOICES[ended] ?? UNANSWERED).split(" ")[isSame ? +isExpired + 1 : 0] as TokenChoice;
}

/** Maximum duration of a double or triple click, in milliseconds. */
export const DOUBLE_CLICK = 1000;

/**
 * Returns true if a submit of the same content belongs to the click that sent it `gap` milliseconds earlier, even if a response came in between.
 * A script may cancel the first submit for a check, and then submit the form itself: before the page reports a response, only a user's submit
 * counts as a second click.
 */
export function isSameClick(gap: number, isByHand: boolean, isAnswered: boolean): boolean {
  return gap < DOUBLE_CLICK && (isByHand || isAnswered);
}

/**
 * Returns the end of an attempt, by its response. `wasLost` is true if an earlier attempt with its token has no response.
 *
 * The patterns match `status outcome`, and an outcome by its first letters, which a test checks. A rejection counts by its code, since the
 * application chooses its status. As in the guard, a 500, 501 or 503 of the handler had no effect, and any other 5xx may have had one. A gateway
 * that sends `redeemed` does not know whether the failure is the handler's. Without an outcome, a 503 may come from a proxy.
 */
export function endOfAttempt(status: number, outcome: string, wasLost: boolean): AttemptEnd {
  const said = `${status} ${outcome}`;
  // Without a guard, and behind a gateway: a success.
  if (/^[23].* (redeemed)?$/.test(said)) return "final";
  // store_unavailable, overloaded; with a 5xx also unauthorized; except with a 4xx also not_applied: the token is still valid.
  const ended = / (st|ov)|^5.* una|^[^4].* not_a/.test(said)
    ? "again"
    // No effect, and the token is used or may be. Codes, but not token_used, in_progress, outcome_unknown, reply_not_kept, upstream and internal;
    // executed, replayed, unprotected; a 4xx without an outcome, except 409, which a backend sends for a duplicate.
    : / ([bklm]|t(?!oken_u)|ra|redeem_|un[as]|not_)|^([234]|50[013]).* (e|repla|unp)|^4(?!09).* (red|$)|50[01] $/.test(said)
      ? "final"
      : /^5.* $/.test(said)
        ? "none"
        : "doubt";
  if (!wasLost) return ended;
  // A response of the handler belongs to the only run that this token had.
  return /ag|no/.test(ended) ? "lost" : isHandlers(outcome) ? ended : "doubt";
}

/** Returns true if a guard rejected the request with this outcome, whatever its status: not the handler, a gateway or an application without a guard. */
export function isRejection(outcome: string): boolean {
  return !isHandlers(outcome) && !/^(redeemed)?$/.test(outcome);
}

/** Returns true if a response with this outcome is the handler's, or its stored response. */
export function isHandlers(outcome: string): boolean {
  // executed, replayable, replayed, unknown, unprotected, not_applied, not_released: no code of a rejection starts like these, which a test checks.
  return /^(e|repla|un[kp]|not_[ar])/.test(outcome);
}

/** The rejection of one attempt, or undefined if the attempt may have run. */
export type AttemptProblem = (Pick<Problem, "code"> & Partial<Problem>) | undefined;

/** Retry with the `same` token, retry with a `new_token`, or end the submission with this outcome. */
export type NextStep = "same" | "new_token" | "duplicate" | "unknown" | "rejected";

/**
 * Returns the next step after these attempts. `new_token` is followed only if every earlier attempt was rejected with `new_token` too: after an
 * attempt without a response the submission ends as unknown, since the lost attempt may have run. A lock is retried only if no earlier attempt
 * can hold it: otherwise the submission would run a second time once the lock is free.
 */
export function nextStep(attempts: AttemptProblem[], mayRepeat: boolean): NextStep {
  const last = attempts.at(-1);
  const code = last?.code;
  const retry = last ? last.retry : "same";
  const isUsed = /_used|soon/.test(code!);
  // An earlier attempt may have run. Or it was rejected because the reply of the store was lost, and used the token or started the interval.
  const isOpen = attempts.some((attempt) => !attempt || attempt.code == "in_progress" || (isUsed && attempt.retry == "same"));
  if (/kept/.test(code!)) return "duplicate";
  if (/^int|outc|m_[tf]/.test(code!) || (isOpen && code == "locked")) return "unknown";
  if (mayRepeat && (retry == "same" || (retry == "new_token" && attempts.every((attempt) => attempt?.retry == retry)))) return retry;
  if (isOpen) return "unknown";
  // The codes with which nothing ran, by their first letters, which a test checks. One of a later version of the contract may say something else.
  return isUsed ? "duplicate" : /^([bklm]|to|ra|re|st|ov|cl|no|up|un[as])/.test(code!) ? "rejected" : "unknown";
}

// The rules of retries: whether another attempt is the same submission or a new one. Plain functions over plain data.

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

/** For edited content, for the same content, and for the same with a token that has expired since. Here after an attempt without a response. */
const UNANSWERED = "ask keep ask";
/** And after the others. */
const TOKEN_CHOICES: Partial<Record<AttemptEnd, string>> = {
  doubt: "ask ask ask",
  seen: "fresh ask ask",
  again: "fresh keep fresh",
  final: "fresh fresh fresh",
};

/** Which token the next attempt of a form takes. */
export function chooseToken(ended: AttemptEnd, isSame: boolean, isExpired: boolean): TokenChoice {
  return (TOKEN_CHOICES[ended] ?? UNANSWERED).split(" ")[isSame ? +isExpired + 1 : 0] as TokenChoice;
}

/** How long a double or triple click may take, in milliseconds. */
export const DOUBLE_CLICK = 1000;

/**
 * Whether a submit of the same content belongs to the click that sent it `gap` milliseconds earlier, whatever was answered in between.
 * A script that took over the first submit may have stopped it for a check and submit the form itself: before the page reports a response,
 * only a person's submit counts as a second click.
 */
export function isSameClick(gap: number, isByHand: boolean, isAnswered: boolean): boolean {
  return gap < DOUBLE_CLICK && (isByHand || isAnswered);
}

/**
 * How an attempt ended that was answered with a 4xx or 5xx, by `status outcome`: the first line that matches. The patterns know an outcome by its
 * first letters, which a test checks. As in the guard, a 500, 501 or 503 of the handler had no effect, and every other 5xx may have had one.
 * A gateway that says `redeemed` does not know whether the failure is the handler's. Without an outcome, a 503 may come from a proxy.
 */
const ATTEMPT_ENDS: [RegExp, AttemptEnd][] = [
  // unknown, internal; and a duplicate: any 409 but the handler's own. After too_soon the interval decides about the next one.
  [/ (unk|int)|^409 (?!e|no|too|repla|unp)/, "doubt"],
  // not_applied, store_unavailable, overloaded, unauthorized: the token is still valid.
  [/^5.* (not_a|st|ov|una)/, "again"],
  // not_released, redeem_unknown; executed, replayed, unprotected; no outcome: no effect, and the token is used, or may be.
  [/^4| (not_r|redeem_)|50[013] (e|repla|unp)|50[01] $/, "final"],
  [/ $/, "none"],
];

/** How an attempt ended, by its response. `wasLost` if an earlier attempt with its token has none. */
export function endOfAttempt(status: number, outcome: string, wasLost: boolean): AttemptEnd {
  if (status < 400) return "final";
  const ended = ATTEMPT_ENDS.find(([pattern]) => pattern.test(`${status} ${outcome}`))?.[1] ?? "doubt";
  if (!wasLost) return ended;
  // A response of the handler belongs to the only run that this token had.
  return /ag|no/.test(ended) ? "lost" : isHandlers(outcome) ? ended : "doubt";
}

/** Whether a response with this outcome is the handler's, or its stored one. */
export function isHandlers(outcome: string): boolean {
  // executed, replayable, replayed, unknown, unprotected, not_applied, not_released: no code of a rejection begins like these, which a test checks.
  return /^(e|repla|un[kp]|not_[ar])/.test(outcome);
}

/** What one attempt of a submission came to: the problem that it was answered with, or nothing if it may have run unheard. */
export type AttemptProblem = Pick<Problem, "code" | "retry"> | undefined;

/** Send the `same` again, fetch a `new_token` and send, or end the submission with this outcome. */
export type NextStep = "same" | "new_token" | "duplicate" | "unknown" | "rejected";

/**
 * The next step after these attempts. `new_token` is obeyed only while every earlier attempt was answered by a problem that says
 * the same: after an attempt without a response the submission ends as unknown, since the lost one may have run. A lock is waited for only
 * while no earlier attempt can hold it: once it is free, the same would run a second time.
 */
export function nextStep(attempts: AttemptProblem[], mayRepeat: boolean): NextStep {
  const last = attempts.at(-1);
  const code = last?.code;
  const retry = last ? last.retry : "same";
  const isUsed = /_used|soon/.test(code!);
  // An earlier attempt may have run. Or it is what the last one met: a store whose response was lost may have used the token, or begun the interval.
  const isOpen = attempts.some((attempt) => !attempt || attempt.code == "in_progress" || (isUsed && attempt.retry == "same"));
  if (code == "reply_not_kept") return "duplicate";
  if (code == "outcome_unknown" || code == "internal" || (isOpen && code == "locked")) return "unknown";
  if (mayRepeat && (retry == "same" || (retry == "new_token" && attempts.every((attempt) => attempt?.retry == retry)))) return retry;
  return isOpen ? "unknown" : isUsed ? "duplicate" : "rejected";
}

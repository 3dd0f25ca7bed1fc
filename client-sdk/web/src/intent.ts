// The intent rule: what another try is, the same submission or a new one. Plain functions over plain data.

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

/** For edited content, for the same content, and for the same with a token that has expired since. Here after a try without an answer. */
const UNANSWERED = "ask keep ask";
/** And after the others. */
const CHOICES: Partial<Record<Ended, string>> = {
  doubt: "ask ask ask",
  seen: "fresh ask ask",
  again: "fresh keep fresh",
  final: "fresh fresh fresh",
};

/** Which token the next try of a form takes. */
export function choose(ended: Ended, isSame: boolean, isExpired: boolean): Choice {
  return (CHOICES[ended] ?? UNANSWERED).split(" ")[isSame ? +isExpired + 1 : 0] as Choice;
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
 * How a try ended that was answered with a 4xx or 5xx, by `status outcome`: the first line that matches. The patterns know an outcome by its
 * first letters, which a test checks. As in the guard, a 500, 501 or 503 of the handler had no effect, and every other 5xx may have had one.
 * A gateway that says `redeemed` does not know whether the failure is the handler's. Without an outcome, a 503 may come from a proxy.
 */
const ENDS: [RegExp, Ended][] = [
  // unknown, internal; and a duplicate: any 409 but the handler's own. After too_soon the interval decides about the next one.
  [/ (unk|int)|^409 (?!e|no|too|repla|unp)/, "doubt"],
  // not_applied, store_unavailable, overloaded, unauthorized: the token is still valid.
  [/^5.* (not_a|st|ov|una)/, "again"],
  // not_released, redeem_unknown; executed, replayed, unprotected; no outcome: no effect, and the token is used, or may be.
  [/^4| (not_r|redeem_)|50[013] (e|repla|unp)|50[01] $/, "final"],
  [/ $/, "none"],
];

/** How a try ended, by its answer. `wasLost` if an earlier try with its token has none. */
export function learned(status: number, outcome: string, wasLost: boolean): Ended {
  if (status < 400) return "final";
  const ended = ENDS.find(([answer]) => answer.test(`${status} ${outcome}`))?.[1] ?? "doubt";
  if (!wasLost) return ended;
  // A response of the handler belongs to the only run that this token had.
  return /ag|no/.test(ended) ? "lost" : isHandlers(outcome) ? ended : "doubt";
}

/** Whether a response with this outcome is the handler's, or its stored one. */
export function isHandlers(outcome: string): boolean {
  // executed, replayable, replayed, unknown, unprotected, not_applied, not_released: no code of a refusal begins like these, which a test checks.
  return /^(e|repla|un[kp]|not_[ar])/.test(outcome);
}

/** What one try of a submission came to: the problem that it was answered with, or nothing if it may have run unheard. */
export type Tried = Pick<Problem, "code" | "retry"> | undefined;

/** Send the `same` again, fetch a `new_token` and send, or end the submission with this outcome. */
export type Step = "same" | "new_token" | "duplicate" | "unknown" | "refused";

/**
 * The next step after these tries. `new_token` is obeyed only while every earlier try was answered by a problem that says
 * the same: after a try without an answer the submission ends as unknown, since the lost one may have run. A lock is waited for only
 * while no earlier try can hold it: once it is free, the same would run a second time.
 */
export function nextStep(tries: Tried[], mayRepeat: boolean): Step {
  const last = tries.at(-1);
  const code = last?.code;
  const retry = last ? last.retry : "same";
  const isUsed = /_used|soon/.test(code!);
  // An earlier try may have run. Or it is what the last one met: a store whose answer was lost may have used the token, or begun the interval.
  const isOpen = tries.some((tried) => !tried || tried.code == "in_progress" || (isUsed && tried.retry == "same"));
  if (code == "reply_not_kept") return "duplicate";
  if (code == "outcome_unknown" || code == "internal" || (isOpen && code == "locked")) return "unknown";
  if (mayRepeat && (retry == "same" || (retry == "new_token" && tries.every((tried) => tried?.retry == retry)))) return retry;
  return isOpen ? "unknown" : isUsed ? "duplicate" : "refused";
}

// The effect of a run: whether it happened, as far as its response or its error tells.

import { isTimeout } from "./timeout.js";

/** The effect of a run. `unknown` is never guessed into yes or no. */
export type Effect = "applied" | "not_applied" | "unknown";

/**
 * The policy of a claim: its key or token, and its state after a crash. `at_most_once`: a key; nothing runs again until an operator settles the
 * run. `retryable`: a key; it is free after its lease, so the handler may run again. `token`: a token, always claimed at most once.
 */
export type Policy = "at_most_once" | "retryable" | "token";

const UNKNOWN_AT_MOST_ONCE = [408, 500, 501, 503];
const NOT_APPLIED = [401, 403, 408, 425, 429, 500, 501, 503];

/** Returns the effect that the status of a response implies. */
export function effectOfStatus(policy: Policy, status: number): Effect {
  if (status < 400) return "applied";
  if (policy === "token") return status <= 501 || status === 503 ? "not_applied" : "unknown";
  if (policy === "at_most_once" && UNKNOWN_AT_MOST_ONCE.includes(status)) return "unknown";
  if (NOT_APPLIED.includes(status)) return "not_applied";
  return status < 500 ? "applied" : "unknown";
}

/** Returns the effect that an error of the handler implies: the same as a 500, unless the error shows it. */
export function effectOfError(policy: Policy, error: unknown): Effect {
  return shownBy(error) ?? effectOfStatus(policy, 500);
}

/** Returns the effect that an error shows: the one that it states, or `unknown` if it is that of a timeout. */
export function shownBy(error: unknown): Effect | undefined {
  return statedBy(error) ?? (isTimeout(error) ? "unknown" : undefined);
}

/** Returns the effect that an error states. Errors of another copy of this package (ESM beside CJS) count as well. */
function statedBy(error: unknown): Effect | undefined {
  if (typeof error !== "object" || error === null || !(STATED in error)) return undefined;
  return error[STATED] as Effect;
}

/** The property of an error that states an effect. */
export const STATED = Symbol.for("onceward.effect");

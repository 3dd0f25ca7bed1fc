/** The effect of a run. `unknown` is never guessed into yes or no. */
export type Effect = "applied" | "not_applied" | "unknown";
/**
 * The policy of a claim: its key or token, and its state after a crash. `at_most_once`: a key; nothing runs again until an operator settles the
 * run. `retryable`: a key; it is free after its lease, so the handler may run again. `token`: a token, always claimed at most once.
 */
export type Policy = "at_most_once" | "retryable" | "token";
/** Returns the effect that the status of a response implies. */
export declare function effectOfStatus(policy: Policy, status: number): Effect;
/** Returns the effect that an error of the handler implies: the same as a 500, unless the error shows it. */
export declare function effectOfError(policy: Policy, error: unknown): Effect;
/** Returns the effect that an error shows: the one that it states, or `unknown` if it is that of a timeout. */
export declare function shownBy(error: unknown): Effect | undefined;
/** The property of an error that states an effect. */
export declare const STATED: unique symbol;

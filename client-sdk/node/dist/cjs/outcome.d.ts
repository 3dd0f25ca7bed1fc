import type { Settled } from "./claim.js";
import type { Effect } from "./effect.js";
import type { Header } from "./reply.js";
/** The outcome of a run. `unprotected`: it took effect, but that could not be recorded yet, so a duplicate may run. */
export type Outcome = "executed" | "not_applied" | "not_released" | "unknown" | "unprotected";
/** Returns the outcome of a run with this effect. `settled` is how the service took it. */
export declare function outcomeOf(effect: Effect, settled: Settled | undefined): Outcome;
/** Returns the headers that report an outcome, or the code of a rejection. Scripts cannot read the first after a navigation. */
export declare function outcomeHeaders(outcome: string): Header[];

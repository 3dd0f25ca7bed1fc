// The outcome of a request, as its response reports it.

import type { Settled } from "./claim.js";
import type { Effect } from "./effect.js";
import type { Header } from "./reply.js";

/** The outcome of a run. `unprotected`: it took effect, but that could not be recorded yet, so a duplicate may run. */
export type Outcome = "executed" | "not_applied" | "not_released" | "unknown" | "unprotected";

/** Returns the outcome of a run with this effect. `settled` is how the service took it. */
export function outcomeOf(effect: Effect, settled: Settled | undefined): Outcome {
  if (effect === "unknown") return "unknown";
  if (settled === "lost") return "unprotected";
  if (effect === "applied") return settled === "recorded" ? "executed" : "unprotected";
  return settled === "recorded" ? "not_applied" : "not_released";
}

/** Returns the headers that report an outcome, or the code of a rejection. Scripts cannot read the first after a navigation. */
export function outcomeHeaders(outcome: string): Header[] {
  return [["onceward-outcome", outcome], ["server-timing", `onceward;desc=${outcome}`]];
}

// The outcome of a request, as its response reports it.
/** Returns the outcome of a run with this effect. `settled` is how the service took it. */
export function outcomeOf(effect, settled) {
    if (effect === "unknown")
        return "unknown";
    if (settled === "lost")
        return "unprotected";
    if (effect === "applied")
        return settled === "recorded" ? "executed" : "unprotected";
    return settled === "recorded" ? "not_applied" : "not_released";
}
/** Returns the headers that report an outcome, or the code of a rejection. Scripts cannot read the first after a navigation. */
export function outcomeHeaders(outcome) {
    return [["onceward-outcome", outcome], ["server-timing", `onceward;desc=${outcome}`]];
}

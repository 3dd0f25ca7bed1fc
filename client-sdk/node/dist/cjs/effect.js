"use strict";
// The effect of a run: whether it happened, as far as its response or its error tells.
Object.defineProperty(exports, "__esModule", { value: true });
exports.STATED = void 0;
exports.effectOfStatus = effectOfStatus;
exports.effectOfError = effectOfError;
exports.shownBy = shownBy;
const timeout_js_1 = require("./timeout.js");
const UNKNOWN_AT_MOST_ONCE = [408, 500, 501, 503];
const NOT_APPLIED = [401, 403, 408, 425, 429, 500, 501, 503];
/** Returns the effect that the status of a response implies. */
function effectOfStatus(policy, status) {
    if (status < 400)
        return "applied";
    if (policy === "token")
        return status <= 501 || status === 503 ? "not_applied" : "unknown";
    if (policy === "at_most_once" && UNKNOWN_AT_MOST_ONCE.includes(status))
        return "unknown";
    if (NOT_APPLIED.includes(status))
        return "not_applied";
    return status < 500 ? "applied" : "unknown";
}
/** Returns the effect that an error of the handler implies: the same as a 500, unless the error shows it. */
function effectOfError(policy, error) {
    return shownBy(error) ?? effectOfStatus(policy, 500);
}
/** Returns the effect that an error shows: the one that it states, or `unknown` if it is that of a timeout. */
function shownBy(error) {
    return statedBy(error) ?? ((0, timeout_js_1.isTimeout)(error) ? "unknown" : undefined);
}
/** Returns the effect that an error states. Errors of another copy of this package (ESM beside CJS) count as well. */
function statedBy(error) {
    if (typeof error !== "object" || error === null || !(exports.STATED in error))
        return undefined;
    return error[exports.STATED];
}
/** The property of an error that states an effect. */
exports.STATED = Symbol.for("onceward.effect");

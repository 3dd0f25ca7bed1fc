// What the handler of the current request says about its effect.
import { AsyncLocalStorage } from "node:async_hooks";
import { effectOfError, effectOfStatus, shownBy, STATED } from "./effect.js";
/** The statement of one handler. */
export class Statement {
    /** The effect that the handler stated. */
    effect;
    /** The error of the handler, or the last one that was created with an effect: a framework may hide which error led to its response. */
    error;
}
const GLOBAL = Symbol.for("onceward.statement");
const shared = globalThis;
/** The statement of the current request, shared by all copies of this package (ESM beside CJS). */
export const current = (shared[GLOBAL] ??= new AsyncLocalStorage());
/**
 * States the effect of the current request. It outweighs the status of the response and the type of an error.
 *
 * Throws an `Error` if it is called outside of a protected request: its statement would be lost.
 */
export function stateEffect(effect) {
    const statement = current.getStore();
    if (!statement)
        throw new Error("stateEffect() was called outside of a request that Onceward protects");
    statement.effect = effect;
}
/** The status of a response that a timeout creates while the handler still runs. */
const OF_TIMEOUTS = [408, 503];
class EffectError extends Error {
    [STATED];
    constructor(effect, message, options) {
        super(message, options);
        this[STATED] = effect;
        const statement = current.getStore();
        if (statement)
            statement.error = this;
    }
}
/** Throw this in a handler that took no effect: the key or token is free again. Create it only to throw it. */
export class NotApplied extends EffectError {
    name = "NotApplied";
    constructor(message = "nothing took effect", options) {
        super("not_applied", message, options);
    }
}
/** Throw this in a handler that does not know whether it took effect: the key or token stays claimed. Create it only to throw it. */
export class Unknown extends EffectError {
    name = "Unknown";
    constructor(message = "it is unknown whether this took effect", options) {
        super("unknown", message, options);
    }
}
/**
 * Decides the effect of a request: by the handler's statement, then by its error, then by the status of its response.
 *
 * A framework turns an error into a response, whose status counts unless the error states an effect or is that of a timeout. An error
 * that the handler created and then handled itself does not count: the response is then no error. `isHandlers` is false if the response may be that of a timeout,
 * whose handler still runs.
 */
export function judge(policy, statement, status, isHandlers = true) {
    if (statement.effect)
        return statement.effect;
    if (status === undefined)
        return effectOfError(policy, statement.error);
    if (!isHandlers && OF_TIMEOUTS.includes(status))
        return "unknown";
    return (status >= 400 ? shownBy(statement.error) : undefined) ?? effectOfStatus(policy, status);
}

// What the handler of the current request says about its effect.
import { AsyncLocalStorage } from "node:async_hooks";
import { effectOfError, effectOfStatus, STATED, statedBy } from "./effect.js";
/** What one handler has said about its effect. */
export class Statement {
    /** The effect that the handler stated. */
    effect;
    /** The last error that was created with an effect. A framework may hide which error led to its response. */
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
 * A framework turns an error into a response, whose status counts unless the error states an effect. An error that the handler created
 * and then handled itself does not count: the response is then no error.
 */
export function judge(policy, statement, status) {
    if (statement.effect)
        return statement.effect;
    if (status === undefined)
        return effectOfError(policy, statement.error);
    return (status >= 400 ? statedBy(statement.error) : undefined) ?? effectOfStatus(policy, status);
}

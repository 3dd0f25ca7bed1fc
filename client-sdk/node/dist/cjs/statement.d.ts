import { AsyncLocalStorage } from "node:async_hooks";
import { type Effect, type Policy, STATED } from "./effect.js";
/** The statement of one handler. */
export declare class Statement {
    /** The effect that the handler stated. */
    effect?: Effect;
    /** The error of the handler, or the last one that was created with an effect: a framework may hide which error led to its response. */
    error?: unknown;
}
/** The statement of the current request, shared by all copies of this package (ESM beside CJS). */
export declare const current: AsyncLocalStorage<Statement>;
/**
 * States the effect of the current request. It outweighs the status of the response and the type of an error.
 *
 * Throws an `Error` if it is called outside of a protected request: its statement would be lost.
 */
export declare function stateEffect(effect: Effect): void;
declare class EffectError extends Error {
    readonly [STATED]: Effect;
    constructor(effect: Effect, message?: string, options?: ErrorOptions);
}
/** Throw this in a handler that took no effect: the key or token is free again. Create it only to throw it. */
export declare class NotApplied extends EffectError {
    name: string;
    constructor(message?: string, options?: ErrorOptions);
}
/** Throw this in a handler that does not know whether it took effect: the key or token stays claimed. Create it only to throw it. */
export declare class Unknown extends EffectError {
    name: string;
    constructor(message?: string, options?: ErrorOptions);
}
/**
 * Decides the effect of a request: by the handler's statement, then by its error, then by the status of its response.
 *
 * A framework turns an error into a response, whose status counts unless the error states an effect or is that of a timeout. An error
 * that the handler created and then handled itself does not count: the response is then no error. `isHandlers` is false if the response may be that of a timeout,
 * whose handler still runs.
 */
export declare function judge(policy: Policy, statement: Statement, status: number | undefined, isHandlers?: boolean): Effect;
export {};

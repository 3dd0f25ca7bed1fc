import type { Onceward } from "./onceward.js";
import { type KeyOptions, type TokenOptions } from "./protection.js";
export * from "./index.js";
/** A handler. Frameworks pass more arguments, such as a context. */
export type Handler<A extends unknown[] = []> = (request: Request, ...more: A) => Response | Promise<Response>;
/** Options of handlers of the Fetch API. */
export interface FetchOptions {
    /** Turns an error of the handler into a response, which then reports the outcome. By default the error is thrown again. */
    onError?: (error: unknown) => Response | Promise<Response>;
}
/** A handler that runs once. */
export type Protected<A extends unknown[]> = (request: Request, ...more: A) => Promise<Response>;
/** Runs the handler once per `Idempotency-Key`; a duplicate receives the stored response. */
export declare function protectKey<A extends unknown[]>(onceward: Onceward, options: KeyOptions<Request> & FetchOptions, handler: Handler<A>): Protected<A>;
/** Runs the handler once per token, from the header `Onceward-Token` or the form field `_onceward`. */
export declare function protectToken<A extends unknown[]>(onceward: Onceward, options: TokenOptions<Request> & FetchOptions, handler: Handler<A>): Protected<A>;

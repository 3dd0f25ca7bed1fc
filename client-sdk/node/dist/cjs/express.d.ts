import type { ServerResponse } from "node:http";
import { type NodeRequest } from "./node_body.js";
import type { Onceward } from "./onceward.js";
import { type KeyOptions, type TokenOptions } from "./protection.js";
export * from "./index.js";
/** The request of Express, as far as a `subject` usually needs it. For the rest, name its type: `protectKey<express.Request>(…)`. */
export type ExpressRequest = NodeRequest & {
    get(name: string): string | undefined;
};
type Next = (error?: unknown) => void;
export type Middleware<R> = (request: R, response: ServerResponse, next: Next) => void;
/** Runs the handlers behind it once per `Idempotency-Key`; a duplicate receives the stored response. */
export declare function protectKey<R extends NodeRequest = ExpressRequest>(onceward: Onceward, options: KeyOptions<R>): Middleware<R>;
/** Runs the handlers behind it once per token, from the header `Onceward-Token` or the form field `_onceward`. */
export declare function protectToken<R extends NodeRequest = ExpressRequest>(onceward: Onceward, options: TokenOptions<R>): Middleware<R>;

import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { Readable } from "node:stream";
import type { Onceward } from "./onceward.js";
import { type KeyOptions, type TokenOptions } from "./protection.js";
export * from "./index.js";
type Payload = FastifyRequest["raw"] | Readable;
type Done = (error?: Error | null, payload?: Payload) => void;
/**
 * The hooks that protect a route. To add hooks of your own beside them, use `protectAll` or arrays: an option of the same name replaces
 * the hook here.
 */
export interface ProtectedRoute {
    preParsing(request: FastifyRequest, reply: FastifyReply, payload: Payload, done: Done): void;
    preHandler(request: FastifyRequest, reply: FastifyReply, done: (error?: Error) => void): void;
    onError(request: FastifyRequest, reply: FastifyReply, error: unknown): Promise<void>;
    onSend(request: FastifyRequest, reply: FastifyReply, payload: unknown): Promise<unknown>;
}
/** Runs the handler of a route once per `Idempotency-Key`; a duplicate receives the stored response. */
export declare function protectKey(onceward: Onceward, options: KeyOptions<FastifyRequest>): ProtectedRoute;
/** Runs the handler of a route once per token, from the header `Onceward-Token` or the form field `_onceward`. */
export declare function protectToken(onceward: Onceward, options: TokenOptions<FastifyRequest>): ProtectedRoute;
/** A plugin that protects all routes that its scope registers afterwards: `app.register(protectAll, protectKey(…))`. */
export declare function protectAll(app: FastifyInstance, { preParsing, preHandler, onError, onSend }: ProtectedRoute): Promise<void>;

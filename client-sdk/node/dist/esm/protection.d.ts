import type { ClaimOptions } from "./intent.js";
import type { Onceward } from "./onceward.js";
import { type Problem } from "./problem.js";
import type { Header } from "./reply.js";
import { ProtectedRun } from "./protected_run.js";
import type { Log } from "./service.js";
import { type Subject } from "./subject.js";
/** Options of a protected route. `R` is the framework's request. */
export interface ProtectOptions<R> extends ClaimOptions {
    /**
     * The client, as the application knows it, such as the id of its user. One client never receives the response to another. `undefined`
     * rejects the request with 401. `anonymous` makes all clients one. Take it from your authentication: a client can choose what a header says.
     */
    subject: (request: R) => Subject | null | undefined | Promise<Subject | null | undefined>;
    /** The operation. Default: method and path, such as `POST /orders`. */
    action?: string;
    /** The maximum size of a request body. Default: 256 KiB. */
    bodyLimit?: number;
    /** The maximum size of a response body that is stored. Default: 1 MiB. */
    replyLimit?: number;
    /** Names of more response headers to store. */
    keepHeaders?: readonly string[];
}
export interface KeyOptions<R> extends ProtectOptions<R> {
    /** `false`: after a crash the key is free when its lease expires, so the handler may run again. Default: `true`. */
    atMostOnce?: boolean;
}
export interface TokenOptions<R> extends ProtectOptions<R> {
    /** Accept only a token that was issued for this action and subject. Default: `false`. */
    bound?: boolean;
}
/** A subject for routes without users: all clients are one. */
export declare function anonymous(): string;
/** A request, as every framework shows it. */
export interface RequestFacts {
    readonly method: string;
    /** The path, as sent, without the query. */
    readonly path: string;
    /** The query, as sent, without the question mark. */
    readonly query: string;
    readonly contentType: string;
    /** Returns a header, by its name in lower case. It may be empty; `undefined` if it was not sent. */
    readonly header: (name: string) => string | undefined;
}
/** The whole body of a request, and the token in its form if another parser has read that. */
export interface BodyFacts {
    readonly bytes: Uint8Array;
    readonly field?: string | undefined;
}
/** A response of this package, in place of the handler's. */
export interface OwnResponse {
    readonly status: number;
    readonly headers: readonly Header[];
    readonly body: Uint8Array;
}
/** Returns whether requests with this method are claimed. */
export declare function isClaimed(method: string): boolean;
/** The protection of a route. */
export declare class Protection<R> {
    #private;
    readonly bodyLimit: number;
    readonly replyLimit: number;
    readonly keepHeaders: readonly string[];
    readonly log: Log;
    constructor(onceward: Onceward, source: "key" | "token", options: KeyOptions<R> & TokenOptions<R>);
    /**
     * Claims a request. Returns the run of its handler, or the response in place of it. A request that only looks is not claimed. `body` reads
     * the body, and returns `undefined` if it is too large.
     */
    admit(request: R, facts: RequestFacts, body: () => Promise<BodyFacts | undefined>): Promise<ProtectedRun | OwnResponse>;
}
/** Returns the response to a rejected request. */
export declare function rejection({ status, code, retry, body, contentType, retryAfter }: Problem): OwnResponse;

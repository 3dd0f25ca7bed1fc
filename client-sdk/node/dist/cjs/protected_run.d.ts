import type { Claim } from "./claim.js";
import { type Header } from "./reply.js";
import type { Log } from "./service.js";
import { Statement } from "./statement.js";
/** The response of a handler. The body is `undefined` if it was streamed, or is too large to store. */
export interface HandlerResponse {
    readonly status: number;
    readonly headers: Iterable<Header>;
    readonly body: Uint8Array | undefined;
}
/** One run of a handler under a claim. */
export declare class ProtectedRun {
    #private;
    readonly statement: Statement;
    constructor(claim: Claim, keepHeaders: readonly string[], log: Log);
    /** Calls the handler, which may state its effect. */
    enter<T>(handler: () => T): T;
    /**
     * Settles the claim by the response, before the client receives it. Returns the headers that report the outcome. Call it where the
     * response was created: outside of the handler's context, it may be that of a timeout.
     */
    settle(response: HandlerResponse): Promise<Header[]>;
    /** Settles the claim of a request that was rejected before its handler was called. */
    settleUnentered(): Promise<Header[]>;
    /** Settles the claim by the error that was noted, where the framework responds elsewhere. */
    settleError(): Promise<void>;
    /** Leaves the effect unknown: the claim is not renewed any more. */
    leave(): void;
    /** Notes the error that the framework turns into a response. The first one counts: another is that of the error page. */
    noteError(error: unknown): void;
}

import type { Policy } from "./effect.js";
import { type Reply } from "./reply.js";
import { type Service } from "./service.js";
/** Milliseconds for which a claim is renewed at most. */
export declare const CEILING = 3600000;
/**
 * How the service took the result of a run. `lost`: the claim had expired, and may belong to another run. `pending`: not yet recorded; it
 * is sent again in the background.
 */
export type Settled = "recorded" | "lost" | "pending";
/** The verdict that the work must run now. */
export declare class Claim {
    #private;
    readonly outcome = "run";
    readonly policy: Policy;
    constructor(service: Service, policy: Policy, verdict: {
        pass: string;
        renew_every: string;
    }, timeout: number);
    /** Aborted once the claim is lost: another request may run the same, so stop if that is safe. */
    get signal(): AbortSignal;
    /** Whether the work has settled the claim itself. */
    get isSettled(): boolean;
    /** Records that the work took effect. Duplicates receive the reply from now on. */
    complete(reply?: Reply): Promise<Settled>;
    /** Records that the work had no effect: the key or token is free again. */
    release(): Promise<Settled>;
    /** Stops renewing the claim: it is unknown whether the work took effect. */
    leave(): void;
    /** At the end of `await using`: if the work did not settle the claim, its effect is unknown. */
    [Symbol.asyncDispose](): Promise<void>;
}
/** The verdict that the work ran before. */
export declare class Replay {
    readonly outcome = "replay";
    /** The stored response of the first run. */
    readonly reply: Required<Reply>;
    constructor(reply: Required<Reply>);
    /** Does nothing: there is nothing to settle. */
    [Symbol.asyncDispose](): Promise<void>;
}

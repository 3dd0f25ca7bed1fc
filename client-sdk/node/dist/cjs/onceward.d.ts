import { Claim, Replay } from "./claim.js";
import { type Intent } from "./intent.js";
import { type LookupIntent } from "./lookup.js";
import { type Reply } from "./reply.js";
import { type Log } from "./service.js";
import { type Subject } from "./subject.js";
export interface OncewardOptions {
    /** The API key of the service, if it has one. */
    apiKey?: string | undefined;
    /** Timeout of one call to the service, in milliseconds. Default: 5 s; at most a third of the lease. */
    timeout?: number;
    /** Writes one line of the log. Default: `console.error`. */
    log?: Log;
}
export interface IssueOptions {
    /** The only operation that accepts the token. */
    action?: string;
    /** The only subject that may use the token. */
    subject?: Subject;
    /** Time until the token expires, in milliseconds. */
    ttl?: number;
}
/** A token, as `POST /token` of the service returns it. */
export interface IssuedToken {
    token: string;
    expires_at: string;
    expires_in: number;
}
export interface RedeemIntent {
    token: string;
    subject: Subject;
    action?: string;
    bound?: boolean;
}
/** A client of the Onceward service. Create one per process. */
export declare class Onceward {
    #private;
    /** Writes one line of the log. */
    readonly log: Log;
    constructor(url: string, { apiKey, timeout, log }?: OncewardOptions);
    /** Issues a token. */
    issue({ action, subject, ttl }?: IssueOptions): Promise<IssuedToken>;
    /** Uses a token up. Throws `Rejected` if it is not valid, or was used before. */
    redeem(intent: RedeemIntent): Promise<Redeemed>;
    /**
     * Returns the stored reply of a submission, and changes nothing. Throws `Rejected` if there is none. A run may begin at any moment: to run
     * the work once, claim instead.
     */
    lookUp(intent: LookupIntent): Promise<Required<Reply>>;
    /** Claims a key or a token. Throws `Rejected` if the work must not run now. */
    claim(intent: Intent): Promise<Claim | Replay>;
    /**
     * Runs the work once: a duplicate receives the stored value, as JSON, without a run. The claim is completed with the value of the work,
     * or settled by the type of its error. Throws `Rejected` if the work must not run now, otherwise what the work throws.
     */
    claim<T>(intent: Intent, work: (claim: Claim) => T | Promise<T>): Promise<T>;
    /** Wraps a function, such as the consumer of a queue: it runs once per key, and returns the stored value afterwards. */
    once<A extends unknown[], T>(intent: (...args: A) => Intent, work: (...args: A) => T | Promise<T>): (...args: A) => Promise<T>;
}
/** A token that was used up. */
export declare class Redeemed {
    #private;
    constructor(release: () => Promise<boolean>);
    /** Makes the token valid again if nothing took effect. Returns whether the service has recorded that. */
    release(): Promise<boolean>;
}

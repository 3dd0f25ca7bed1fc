/** Writes one line of the log. */
export type Log = (message: string) => void;
/** The answer of the service to one call, or its absence. */
export interface Answer {
    /** 0 if there is none. */
    readonly status: number;
    readonly body: string;
    readonly contentType: string;
    readonly retryAfter?: string | undefined;
    /** False if the call certainly did not reach the service. */
    readonly wasSent: boolean;
    /** Why there is none. */
    readonly reason?: string;
}
/** Returns whether the service may have processed a call without a verdict about it. What it says about its store counts as a verdict. */
export declare function isOpen({ status, body, contentType, wasSent }: Answer): boolean;
/**
 * Returns whether the service has processed the call. It has not without the right API key; and a redirect, or a 4xx without a problem, is a
 * gateway's.
 */
export declare function isProcessed({ status, body, contentType }: Answer): boolean;
/** Returns whether an answer to a claim says that the work runs now, or ran before. */
export declare function isVerdict({ status, body }: Answer): boolean;
/** Posts to the service. */
export declare class Service {
    #private;
    readonly log: Log;
    constructor(url: string, apiKey: string | undefined, log: Log);
    /** Posts a body. Every call of this package can be repeated: it names its attempt or its pass. */
    post(path: string, body: unknown, timeout: number): Promise<Answer>;
    /** Returns the body of a success. Throws `Rejected` otherwise: without a verdict, nothing runs, and the code is `unanswered`. */
    verdict(answer: Answer, unanswered?: "store_unavailable" | "redeem_unknown"): Record<string, unknown>;
}

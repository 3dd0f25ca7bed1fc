import type { Answer } from "./service.js";
/** Returns for how long a claim that received this answer is tried. A claim whose answer was lost may exist for its lease. */
export declare function patience({ status, wasSent }: Answer, lease: number): number;
/** The retries of one claim. */
export declare class Retries {
    #private;
    constructor(lease: number);
    /** Returns the delay before the next try, `undefined` if the answer is final or the time is over. */
    delayAfter(answer: Answer): number | undefined;
}

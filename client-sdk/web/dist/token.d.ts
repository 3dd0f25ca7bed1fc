/** A token and its expiry, on this machine's clock. */
export interface TimedToken {
    token: string;
    until: number;
    /** Its lifetime, in milliseconds. */
    life: number;
}
/** Returns true if there is a token with more than a fifth of its lifetime left. */
export declare function isFresh(timed: TimedToken | undefined): timed is TimedToken;
/** Waits for this many milliseconds. */
export declare function sleep(millis: number): Promise<void>;
/** Returns the delay before the next attempt, in milliseconds: `Retry-After`, or exponential backoff with full jitter. */
export declare function backoff(response: Response | undefined, attempts: number): number;
/** Returns a signal that aborts after `limit` milliseconds, or when another signal aborts. */
export declare function timeoutSignal(limit: number, ...others: AbortSignal[]): AbortSignal;
/**
 * Fetches a token, with retries until the deadline. The error has the reason. If CORS does not allow the request, it fails without further
 * retries, and the `cause` names the setting.
 */
export declare function fetchToken(fetch: typeof globalThis.fetch, url: URL, action: string | undefined, limit: number, ...outer: AbortSignal[]): Promise<TimedToken>;

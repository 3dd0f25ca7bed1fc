/** A token and until when it is good, by this machine's clock. */
export interface TimedToken {
    token: string;
    until: number;
    /** How long it lives, in milliseconds. */
    life: number;
}
/** Whether there is a token that has not yet come into the last fifth of its life. */
export declare function isFresh(timed: TimedToken | undefined): timed is TimedToken;
/** Waits. */
export declare function sleep(millis: number): Promise<void>;
/** How long to wait after a response that says so, or else a little, each time more and never all at once. */
export declare function backoff(response: Response | undefined, attempts: number): number;
/** A signal that gives up after so many milliseconds, or when another one does. */
export declare function timeoutSignal(limit: number, ...others: AbortSignal[]): AbortSignal;
/**
 * Asks for a token until there is one or the time is over. Fails with a sentence that says why there is none. Where CORS does not allow the
 * request, it fails at once, and its `cause` names the setting.
 */
export declare function fetchToken(fetch: typeof globalThis.fetch, url: URL, action: string | undefined, limit: number, ...outer: AbortSignal[]): Promise<TimedToken>;

import type { TimedToken } from "./token.js";
/** The dependencies of a form controller. */
export interface FormContext {
    token(action: string | undefined): Promise<TimedToken>;
    /** True if a token may be sent to this origin. */
    isAllowedOrigin(origin: string): boolean;
    /** Maximum time that a form waits for a response, in milliseconds. */
    patience: number;
}
/** Controls the submits of one guarded form. */
export interface FormController {
    /** Resets the controller when the page is restored from the back/forward cache. */
    reset(): void;
    /** Fetches a token, unless one is fresh or being fetched. */
    ensureToken(): void;
    /** Renews the token of a form that has one: before it expires, and when the tab is shown again. */
    renew(): void;
    /** Records that the form was edited or reset. */
    touch(): void;
    /** Handles a submit event before the page receives it. `gesture` is the click or key press that caused it, if any. */
    submit(event: SubmitEvent, gesture?: Event): void;
    /** True if the last attempt has no known response: it may still need its token. */
    awaitsResponse(): boolean;
    /** Returns the token of that attempt, if the form still has the same content. */
    attemptToken(): string | undefined;
    /** Records the end of a request that the page sent. */
    requestEnded(entry: PerformanceResourceTiming): void;
    /** Records the response to an attempt that the page sent itself, or `null` if none came. */
    answered(response: Response | null): void;
    /** Records that the browser leaves this page for the response page. */
    leavePage(page: string): void;
}

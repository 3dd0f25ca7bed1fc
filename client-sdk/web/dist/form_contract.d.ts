import type { TimedToken } from "./token.js";
/** What the controller of a form needs from the page. */
export interface FormContext {
    token(action: string | undefined): Promise<TimedToken>;
    /** Whether a token may be sent to this origin. */
    isAllowedOrigin(origin: string): boolean;
    /** How long a form waits for a response, in milliseconds. */
    patience: number;
}
/** Controls the submits of one guarded form. */
export interface FormController {
    /** Begins anew, when the page comes back from the back/forward cache. */
    reset(): void;
    /** Sees to it that a token is there, or on its way, with time enough to write and send. */
    ensureToken(): void;
    /** The same for a form that somebody has touched: before its token expires, and on return to the tab. */
    renew(): void;
    /** The form was edited or reset. */
    touch(): void;
    /** Decides on a submit event before the page receives it. `gesture` is the click or key press that caused it, if one did. */
    submit(event: SubmitEvent, gesture?: Event): void;
    /** Whether the last attempt has no response yet, as far as the page can know: it may still need its token. */
    awaitsResponse(): boolean;
    /** The token of that attempt, if the form has the same content still. */
    attemptToken(): string | undefined;
    /** A request of the page has ended. */
    requestEnded(entry: PerformanceResourceTiming): void;
    /** The page says how the attempt ended that it sent by itself. */
    answered(response: Response | null): void;
    /** This page makes way for the one that is the response, as far as can be seen from here. */
    leavePage(page: string): void;
}

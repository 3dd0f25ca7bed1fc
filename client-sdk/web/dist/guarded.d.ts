import type { Held } from "./token.js";
/** What a form needs of its surroundings. */
export interface Surroundings {
    token(action: string | undefined): Promise<Held>;
    /** Whether a token may be sent to this origin. */
    isNamed(origin: string): boolean;
    /** How long a form waits for an answer, in milliseconds. */
    patience: number;
}
/** A form under guard. */
export interface GuardedForm {
    /** Begins anew, when the page comes back from the back/forward cache. */
    reset(): void;
    /** Sees to it that a token is there, or on its way, with time enough to write and send. */
    warm(): void;
    /** The same for a form that somebody has touched: before its token expires, and on return to the tab. */
    renew(): void;
    /** The form was edited or reset. */
    touch(): void;
    /** Decides on a submit event before the page receives it. `gesture` is the click or key press that caused it, if one did. */
    submit(event: SubmitEvent, gesture?: Event): void;
    /** Whether the last try has no response yet, as far as the page can know: it may still need its token. */
    isOwed(): boolean;
    /** The token of that try, if the form has the same content still. */
    taken(): string | undefined;
    /** A request of the page has ended. */
    heard(entry: PerformanceResourceTiming): void;
    /** The page says how the try ended that it sent by itself. */
    answered(response: Response | null): void;
    /** This page makes way for the one that is the answer, as far as can be seen from here. */
    left(page: string): void;
}

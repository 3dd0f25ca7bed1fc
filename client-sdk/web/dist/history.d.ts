import { type AttemptEnd } from "./retry_rules.js";
import type { TimedToken } from "./token.js";
/** The last attempt of a form. */
export interface LastAttempt extends Omit<TimedToken, "life"> {
    /** The digest of its content. */
    digest: number;
    ended: AttemptEnd;
}
/** Maps a response page to its form: by the URL of the page, and by the entry in the tab's history that it came from. */
interface ResponsePage {
    name: string;
    page: string;
}
/** Returns the name of a form in this tab. */
export declare function nameOf(form: HTMLFormElement): string;
/** Loads the value stored under a name. Storage may be blocked: then only the page itself knows the last attempt. */
export declare function load<T = LastAttempt>(name: string): T | null | undefined;
/** Stores a value under a name. */
export declare function save(name: string, value: LastAttempt | ResponsePage): void;
/** Stores which page is the response. Called on the page that sent the form. */
export declare function saveResponsePage(name: string, page: string): void;
/** Returns the outcome in `Server-Timing`, the only header that is readable here. A gateway adds its entry after those of the application. */
export declare function timingOutcome({ serverTiming }: PerformanceResourceTiming): string;
/** Records how the attempt ended. Called on the response page. */
export declare function recordResponsePage(): void;
export {};

import { type AttemptEnd } from "./retry_rules.js";
import type { TimedToken } from "./token.js";
/** The last attempt of a form. */
export interface LastAttempt extends Omit<TimedToken, "life"> {
    /** Of its content. */
    digest: number;
    ended: AttemptEnd;
}
/** Says which page is the response to which form: by its address, and the page in this tab's history that it came from. */
interface ResponsePage {
    name: string;
    page: string;
}
/** The name under which a form is known in this tab. */
export declare function nameOf(form: HTMLFormElement): string;
/** What is kept under a name. A browser that keeps nothing is no reason to send nothing: the page itself still knows. */
export declare function load<T = LastAttempt>(name: string): T | null | undefined;
/** Keeps something under a name. */
export declare function save(name: string, value: LastAttempt | ResponsePage): void;
/** On the page that sent a form: which page is the response. */
export declare function saveResponsePage(name: string, page: string): void;
/** The outcome that a response names: of its headers, timing shows a script no other. A gateway adds its entry after those of the application. */
export declare function timingOutcome({ serverTiming }: PerformanceResourceTiming): string;
/** On the page that is the response: how the attempt ended. */
export declare function recordResponsePage(): void;
export {};

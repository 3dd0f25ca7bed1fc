import { type Ended } from "./intent.js";
import type { Held } from "./token.js";
/** The last try of a form. */
export interface Past extends Omit<Held, "life"> {
    /** Of its content. */
    digest: number;
    ended: Ended;
}
/** Says which page is the answer to which form: by its address, and the page in this tab's history that it came from. */
interface Pointer {
    name: string;
    page: string;
}
/** The name under which a form is known in this tab. */
export declare function nameOf(form: HTMLFormElement): string;
/** What is kept under a name. A browser that keeps nothing is no reason to send nothing: the page itself still knows. */
export declare function recall<T = Past>(name: string): T | null | undefined;
/** Keeps something under a name. */
export declare function keep(name: string, value: Past | Pointer): void;
/** On the page that sent a form: which page is the answer. */
export declare function point(name: string, page: string): void;
/** The outcome that a response names: of its headers, timing shows a script no other. A gateway adds its entry after those of the application. */
export declare function told({ serverTiming }: PerformanceResourceTiming): string;
/** On the page that is the answer: how the try ended. */
export declare function learn(): void;
export {};

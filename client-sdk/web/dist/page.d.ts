import type { GuardedForm, Surroundings } from "./guarded.js";
/** The guarded forms of a page. */
export interface Page {
    /** Guards them, now and later. */
    watch(): void;
    /** Those that are guarded by now. */
    all: Map<HTMLFormElement, GuardedForm>;
}
/** Makes one that guards nothing yet. */
export declare function page(around: Surroundings): Page;

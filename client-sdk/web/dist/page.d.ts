import { type GuardedForm, type Surroundings } from "./form.js";
/** The guarded forms of a page. */
export interface Page {
    /** Guards them, now and later. */
    watch(): void;
    /** What is known of a form. */
    of(form: HTMLFormElement): GuardedForm;
    /** The token of the try that the page took over from this form, if it is guarded. */
    taken(form: HTMLFormElement): string | undefined;
}
/** Makes one that guards nothing yet. */
export declare function page(around: Surroundings): Page;

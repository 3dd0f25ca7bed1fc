import type { FormContext, GuardedForm } from "./guarded_form.js";
/** The guarded forms of a page. */
export interface GuardedForms {
    /** Guards them, now and later. */
    watch(): void;
    /** Those that are guarded by now. */
    all: Map<HTMLFormElement, GuardedForm>;
}
/** Makes one that guards nothing yet. */
export declare function guardedForms(context: FormContext): GuardedForms;

import type { FormContext, FormController } from "./form_contract.js";
/** The guarded forms of a page, each with its controller. */
export interface PageForms {
    /** Guards them, now and later. */
    watch(): void;
    /** Those that are guarded by now. */
    all: Map<HTMLFormElement, FormController>;
}
/** Makes one that guards nothing yet. */
export declare function pageForms(context: FormContext): PageForms;

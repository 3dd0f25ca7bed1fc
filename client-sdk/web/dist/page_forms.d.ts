import type { FormContext, FormController } from "./form_contract.js";
/** The guarded forms of a page, each with its controller. */
export interface PageForms {
    /** Starts to guard the forms of the page. */
    watch(): void;
    /** The forms that are guarded now. */
    all: Map<HTMLFormElement, FormController>;
}
/** Creates the set of forms: all of the page, or those with `data-onceward`. It guards none until `watch` is called. */
export declare function pageForms(context: FormContext, isAll: boolean): PageForms;

import type { FormContext, GuardedForm } from "./guarded_form.js";
/** Guards a form. */
export declare function guardForm(form: HTMLFormElement, { token, isAllowedOrigin, patience }: FormContext): GuardedForm;

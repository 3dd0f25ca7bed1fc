import type { GuardedForm, FormContext } from "./guarded_form.js";
/** Guards a form. */
export declare function guardForm(form: HTMLFormElement, { token, isAllowedOrigin, patience }: FormContext): GuardedForm;

import type { FormContext, FormController } from "./form_contract.js";
/** Guards a form: makes its controller. */
export declare function createFormController(form: HTMLFormElement, { token, isAllowedOrigin, patience }: FormContext): FormController;

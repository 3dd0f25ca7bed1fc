import type { FormContext, FormController } from "./form_contract.js";
/** Creates the controller that guards a form. */
export declare function createFormController(form: HTMLFormElement, { token, isAllowedOrigin, patience }: FormContext): FormController;

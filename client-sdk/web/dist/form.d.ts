import type { GuardedForm, Surroundings } from "./guarded.js";
/** Guards a form. */
export declare function guard(form: HTMLFormElement, { token, isNamed, patience }: Surroundings): GuardedForm;

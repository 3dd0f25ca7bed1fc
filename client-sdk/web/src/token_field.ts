// The places of a token in a form: the hidden field, and the query of the action.

import { FIELD } from "./wire_contract.js";

/** Returns the hidden field. It may be missing: a library that replaces the fields of a form removes it. */
export function findField(form: HTMLFormElement): HTMLInputElement | null {
  return form.querySelector(`input[name="${FIELD}"]`);
}

/** Writes a token into the hidden field. It is the first field: in an upload the token must come first. */
export function writeToField(form: HTMLFormElement, token: string): void {
  const field = findField(form) ?? document.createElement("input");
  field.type = "hidden";
  field.name = FIELD;
  field.value = token;
  field.disabled = false;
  form.prepend(field);
}

/** Omits the token from this submit. */
export function omitToken(form: HTMLFormElement): void {
  const field = findField(form);
  if (!field) return;
  field.disabled = true;
  setTimeout(() => (field.disabled = false));
}

/** Writes a token into the query of the form's action, or of the button's. */
export function writeToQuery(form: HTMLFormElement, submitter: HTMLElement | null, url: URL, token: string): void {
  url.searchParams.set(FIELD, token);
  if (submitter?.hasAttribute("formaction")) submitter.setAttribute("formaction", url.href);
  else form.setAttribute("action", url.href);
}

// The hidden field of a form, and the query of its action: where its token stands.

import { FIELD } from "./wire_contract.js";

/** The hidden field, if there is one: a library that replaces the fields of a form removes it. */
export function findField(form: HTMLFormElement): HTMLInputElement | null {
  return form.querySelector(`input[name="${FIELD}"]`);
}

/** Writes a token into the hidden field, which comes first in an upload. */
export function writeToField(form: HTMLFormElement, token: string): void {
  const field = findField(form) ?? document.createElement("input");
  field.type = "hidden";
  field.name = FIELD;
  field.value = token;
  field.disabled = false;
  form.prepend(field);
}

/** Leaves the token out of this submit. */
export function omitToken(form: HTMLFormElement): void {
  const field = findField(form);
  if (!field) return;
  field.disabled = true;
  setTimeout(() => (field.disabled = false));
}

/** Writes a token into the query of the action, or of the button's. */
export function writeToQuery(form: HTMLFormElement, submitter: HTMLElement | null, url: URL, token: string): void {
  url.searchParams.set(FIELD, token);
  if (submitter?.hasAttribute("formaction")) submitter.setAttribute("formaction", url.href);
  else form.setAttribute("action", url.href);
}

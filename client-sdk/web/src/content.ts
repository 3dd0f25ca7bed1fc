// What a form would send: told by a digest, so that no content is kept anywhere.

import { FIELD } from "./wire.js";

/** A digest of everything a form would send but its token. It is salted with the token and says nothing by itself. */
export function digest(form: HTMLFormElement, submitter: HTMLElement | null, salt?: string): string {
  const entries: unknown[] = [salt, attribute(form, submitter, "action")];
  for (const [name, value] of new FormData(form, submitter)) {
    if (name == FIELD) continue;
    entries.push(name, typeof value == "string" ? value : [value.name, value.size, value.type, value.lastModified]);
  }
  return hash(JSON.stringify(entries));
}

/** What a form, or the button that submits it, says of how it is sent. Not by property: a field may have the name of one. */
export function attribute(form: HTMLFormElement, submitter: HTMLElement | null, name: "action" | "method" | "target"): string {
  return submitter?.getAttribute("form" + name) ?? form.getAttribute(name) ?? "";
}

/** A hash that is quick and not secret, of two times 32 bits. */
function hash(text: string): string {
  let [one, other] = [7, 11];
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    one = Math.imul(one ^ unit, 0x01000193);
    other = (Math.imul(other, 31) + unit) | 0;
  }
  return `${one}.${other}`;
}

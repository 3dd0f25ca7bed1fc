// Digests of what a form sends: two submits are compared without keeping any content.

import { FIELD } from "./wire.js";

/** A digest of everything a form sends except its token, and of `target`: where and how it is sent. */
export function digest(data: FormData, target: unknown): number {
  const entries = [target];
  for (const [name, value] of data) {
    if (name == FIELD) continue;
    entries.push(name, typeof value == "string" ? value : [value.name, value.size, value.lastModified]);
  }
  return hash(JSON.stringify(entries));
}

/** What a form, or the button that submits it, says of how it is sent. Not by property: a field may have the name of one. */
export function attribute(form: HTMLFormElement, submitter: Element | null, name: "action" | "method" | "target"): string {
  return submitter?.getAttribute("form" + name) ?? form.getAttribute(name) ?? "";
}

/** Where a submit goes. */
export function target(form: HTMLFormElement, submitter: Element | null): URL {
  const url = new URL(attribute(form, submitter, "action") || location.href, document.baseURI);
  // It may be there from the last time.
  url.searchParams.delete(FIELD);
  return url;
}

/** An address without its query, or nothing if it is none. */
export function bare(address: string): string | undefined {
  try {
    const { origin, pathname } = new URL(address, document.baseURI);
    return origin + pathname;
  } catch {}
}

/** The addresses that a form and its button name in attributes, such as `action`, `formaction` or `hx-post`, without their queries. */
export function addresses(form: HTMLFormElement, submitter: Element | null): unknown[] {
  return [form, submitter].flatMap((element) =>
    // Not by `attributes`: a field may have that name. What begins with # is an anchor for a script.
    element?.getAttributeNames().map((name) => {
      const value = element.getAttribute(name)!;
      return /(action|post|put|patch|delete)$/.test(name) && /^[^#]/.test(value) && bare(value);
    }),
  );
}

/** A quick hash (after FNV-1a), which is no secret. A server that compares content does so by itself. */
function hash(text: string): number {
  return [...text].reduce((hash, char) => Math.imul(hash ^ char.codePointAt(0)!, 0x1000193), 0);
}

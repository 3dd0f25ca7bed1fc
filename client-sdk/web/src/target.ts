// Where and how a form is sent.

import { FIELD } from "./wire_contract.js";

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

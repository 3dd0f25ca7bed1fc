// The target of a form: its URL, method and browsing context.

import { FIELD } from "./wire_contract.js";

/** Returns an attribute of the form, or its override on the submit button. Not by property: a field may have the same name. */
export function attribute(form: HTMLFormElement, submitter: Element | null, name: "action" | "method" | "target"): string {
  return submitter?.getAttribute("form" + name) ?? form.getAttribute(name) ?? "";
}

/** Returns the URL of a submit. */
export function target(form: HTMLFormElement, submitter: Element | null): URL {
  const url = new URL(attribute(form, submitter, "action") || location.href, document.baseURI);
  // The token of the last submit may still be in it.
  url.searchParams.delete(FIELD);
  return url;
}

/** Returns a URL without its query, or undefined if it is invalid. */
export function bare(address: string): string | undefined {
  try {
    const { origin, pathname } = new URL(address, document.baseURI);
    return origin + pathname;
  } catch {}
}

/** Returns the URLs in the attributes of a form and its button, such as `action`, `formaction` or `hx-post`, without their queries. */
export function addresses(form: HTMLFormElement, submitter: Element | null): unknown[] {
  return [form, submitter].flatMap((element) =>
    // Not by `attributes`: a field may have that name. A value that starts with # is an anchor for a script.
    element?.getAttributeNames().map((name) => {
      const value = element.getAttribute(name)!;
      return /(action|post|put|patch|delete)$/.test(name) && /^[^#]/.test(value) && bare(value);
    }),
  );
}

// The script of a page, as built, in a page of a few stubs: which forms it looks for, and what a second copy of it does.

import { readFileSync } from "node:fs";
import { createContext, runInContext } from "node:vm";
import { expect, test } from "vitest";

const code = readFileSync(new URL("../dist/onceward.js", import.meta.url), "utf8");
const MARKED = "form[data-onceward]:not([data-onceward=off])";
const ALL = "form:not([data-onceward=off])";

/** A page without forms that records the listeners of the script, its selectors and its fetches. */
function page(globals: object = {}) {
  const seen = { listeners: 0, selectors: [] as string[], fetched: [] as string[] };
  const document = {
    currentScript: null as object | null,
    querySelectorAll: (selector: string) => (seen.selectors.push(selector), []),
  };
  class Observer {
    observe() {}
  }
  const context: any = createContext({
    document,
    URL,
    Error,
    location: { href: "https://shop.test/cart", pathname: "/cart" },
    performance: { getEntriesByType: () => [] },
    addEventListener: () => void seen.listeners++,
    MutationObserver: Observer,
    PerformanceObserver: Observer,
    AbortSignal,
    FormData,
    Promise,
    setTimeout,
    fetch: async (url: URL) => (seen.fetched.push(url.href), Response.json({ token: "ow1_a", expires_in: 60 })),
    ...globals,
  });
  context.window = context;
  /** Runs the script as a tag with these attributes does. */
  const load = (dataset: object = {}, src = "https://shop.test/sdk/onceward.js") => {
    document.currentScript = { src, dataset };
    runInContext(code, context);
    return context.onceward;
  };
  return { load, seen };
}

test("a script guards forms with data-onceward unless it says otherwise", () => {
  for (const dataset of [{}, { forms: "marked" }, { forms: "" }]) {
    const { load, seen } = page();
    load(dataset);
    expect(seen.selectors).toEqual([MARKED]);
  }
});

test("a script with data-forms=all guards every form that does not opt out", () => {
  const { load, seen } = page();
  load({ forms: "all" });
  expect(seen.selectors).toEqual([ALL]);
});

test("a second script on the page does nothing", () => {
  const { load, seen } = page();
  const first = load({ forms: "all" });
  const { listeners } = seen;
  expect(listeners).toBeGreaterThan(5);
  expect(load({ base: "https://other.test" })).toBe(first);
  expect([seen.listeners, seen.selectors]).toEqual([listeners, [ALL]]);
});

test("an element with the id onceward is not taken for a second script", () => {
  const element = { tagName: "FORM" };
  const { load, seen } = page({ onceward: element });
  expect(load()).not.toBe(element);
  expect(seen.selectors).toEqual([MARKED]);
});

test("a script under the path of a proxy fetches its tokens there", async () => {
  const { load, seen } = page();
  await load({ forms: "all" }, "https://shop.test/_onceward/sdk/onceward.js").token();
  expect(seen.fetched).toEqual(["https://shop.test/_onceward/token"]);
});

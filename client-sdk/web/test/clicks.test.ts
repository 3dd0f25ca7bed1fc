// One click and one submission: the rules, and calls that share a result.

import { describe, expect, test, vi } from "vitest";
import { digest } from "../src/digest.js";
import { createOnceward } from "../src/index.js";
import { DOUBLE_CLICK, isSameClick } from "../src/retry_rules.js";
import { showState } from "../src/form_status.js";
import { sharedCalls } from "../src/shared_calls.js";

describe("a submit of the same content", () => {
  const table: [gap: number, isByHand: boolean, isAnswered: boolean, isSame: boolean][] = [
    [50, true, false, true],
    [50, true, true, true],
    [999, true, true, true],
    [1000, true, false, false],
    [1000, true, true, false],
    [50, false, true, true],
    [50, false, false, false],
    [NaN, true, true, false],
  ];
  test.each(table)("%i ms after the first, by hand: %s, answered: %s, is part of its click: %s", (gap, isByHand, isAnswered, isSame) => {
    expect(isSameClick(gap, isByHand, isAnswered)).toBe(isSame);
  });
});

describe("a digest", () => {
  const data = (...entries: [string, string][]) => {
    const form = new FormData();
    entries.forEach(([name, value]) => form.append(name, value));
    return form;
  };
  test("leaves the token out, and distinguishes content, order and target", () => {
    const plain = digest(data(["item", "apple"], ["go", "order"]), "/orders");
    expect(digest(data(["_onceward", "ow1_a"], ["item", "apple"], ["go", "order"]), "/orders")).toBe(plain);
    expect(digest(data(["go", "order"], ["item", "apple"]), "/orders")).not.toBe(plain);
    expect(digest(data(["item", "pear"], ["go", "order"]), "/orders")).not.toBe(plain);
    expect(digest(data(["item", "apple"], ["go", "order"]), "/others")).not.toBe(plain);
  });
});

describe("calls of one owner", () => {
  /** Calls that the test resolves or rejects. */
  const begun = () => {
    const calls: PromiseWithResolvers<number>[] = [];
    const begin = vi.fn(() => {
      const { promise, resolve, reject } = resolvers<number>();
      calls.push({ promise, resolve, reject });
      return promise;
    });
    return { begin, calls };
  };
  const settled = () => new Promise((go) => setImmediate(go));

  test("are one while the first is in flight, and two afterwards", async () => {
    const [share, { begin, calls }] = [sharedCalls(), begun()];
    const [first, second] = [share("key", 1, begin), share("key", 1, begin)];
    share("other", 1, begin);
    calls[0]!.resolve(7);
    expect([await first, await second, begin.mock.calls.length]).toEqual([7, 7, 2]);
    await settled();
    share("key", 1, begin);
    expect(begin).toHaveBeenCalledTimes(3);
  });

  test("are two with other content", () => {
    const [share, { begin }] = [sharedCalls(), begun()];
    share("key", 1, begin);
    share("key", 2, begin);
    expect(begin).toHaveBeenCalledTimes(2);
  });

  test("are two once the first was rejected, also for a form", async () => {
    const [share, { begin, calls }, form] = [sharedCalls(), begun(), new EventTarget()];
    const first = share(form, 1, begin, form);
    calls[0]!.reject(new Error("aborted"));
    await expect(first).rejects.toThrow("aborted");
    await settled();
    share(form, 1, begin, form).catch(() => {});
    expect(begin).toHaveBeenCalledTimes(2);
  });

  test("for a form are one for the duration of a double click, also after the response", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout"] });
    const [share, { begin, calls }, form] = [sharedCalls(), begun(), new EventTarget()];
    share(form, 1, begin, form);
    calls[0]!.resolve(1);
    await vi.advanceTimersByTimeAsync(DOUBLE_CLICK - 1);
    share(form, 1, begin, form);
    expect(begin).toHaveBeenCalledTimes(1);
    await vi.advanceTimersByTimeAsync(1);
    share(form, 1, begin, form);
    expect(begin).toHaveBeenCalledTimes(2);
    vi.useRealTimers();
  });

  test.each(["input", "reset"])("for a form are two after its %s event, but not while the first is in flight", async (name) => {
    const [share, { begin, calls }, form] = [sharedCalls(), begun(), new EventTarget()];
    share(form, 1, begin, form);
    form.dispatchEvent(new Event(name));
    await settled();
    share(form, 1, begin, form);
    expect(begin).toHaveBeenCalledTimes(1);
    calls[0]!.resolve(1);
    await settled();
    share(form, 1, begin, form);
    expect(begin).toHaveBeenCalledTimes(2);
  });
});

describe("`fetch` with a form", () => {
  const shop = () => {
    const sent: { token: string | null; text: string }[] = [];
    let issued = 0;
    const fetch: typeof globalThis.fetch = async (input, init) => {
      const request = new Request(input, init);
      if (request.url.endsWith("/token")) return Response.json({ token: `t${++issued}`, expires_in: 60 });
      sent.push({ token: request.headers.get("onceward-token"), text: await request.text() });
      return new Response(`order ${sent.length}`, { status: 201, headers: { "onceward-outcome": "executed" } });
    };
    return { sent, onceward: createOnceward({ baseUrl: "https://shop.test", fetch }), issued: () => issued };
  };
  const form = () => Object.assign(new EventTarget(), { dataset: {} }) as unknown as HTMLFormElement;
  const body = (item: string) => {
    const data = new FormData();
    data.append("_onceward", "ow1_of_the_field");
    data.append("item", item);
    return data;
  };

  test("sends two calls for the same content once, by POST, with one token, and each has a copy of the response", async () => {
    const { sent, onceward } = shop();
    const one = form();
    const first = await onceward.fetch("/orders", { form: one, body: body("apple") });
    const second = await onceward.fetch("/orders", { form: one, body: body("apple") });
    expect([await first.response!.text(), await second.response!.text()]).toEqual(["order 1", "order 1"]);
    expect(sent.map(({ token }) => token)).toEqual(["t1"]);
    expect(sent[0]!.text).not.toContain("ow1_of_the_field");
  });

  test("sends other content, another URL and another form as separate submissions", async () => {
    const { sent, onceward } = shop();
    const one = form();
    await Promise.all([
      onceward.fetch("/orders", { form: one, body: body("apple") }),
      onceward.fetch("/orders", { form: one, body: body("pear") }),
      onceward.fetch("/others", { form: one, body: body("pear") }),
      onceward.fetch("/orders", { form: form(), body: body("apple") }),
    ]);
    expect(new Set(sent.map(({ token }) => token)).size).toBe(4);
  });
});

test("`fetch` treats an undefined member as absent", async () => {
  const sent: Request[] = [];
  const fetch: typeof globalThis.fetch = async (input, init) => {
    const request = new Request(input, init);
    if (request.url.endsWith("/token")) return Response.json({ token: "t1", expires_in: 60 });
    sent.push(request);
    return new Response();
  };
  const onceward = createOnceward({ baseUrl: "https://shop.test", fetch, origins: ["https://api.test"] });
  const form = Object.assign(new EventTarget(), { dataset: {} }) as unknown as HTMLFormElement;
  const nothing = { method: undefined, mode: undefined, redirect: undefined } as unknown as RequestInit;
  await onceward.fetch("/orders", { ...nothing, form, body: new FormData() });
  await onceward.fetch("https://api.test/orders", { ...nothing, form, body: new FormData() });
  expect(sent.map(({ method, mode, redirect }) => [method, mode, redirect])).toEqual([
    ["POST", "same-origin", "follow"],
    ["POST", "cors", "error"],
  ]);
});

describe("a form without a token", () => {
  const form = (state?: string) => ({ dataset: state ? { oncewardState: state } : {}, ariaBusy: "true" }) as unknown as HTMLFormElement;
  test("keeps no state and no aria-busy of the SDK", () => {
    const ours = form("waiting");
    showState(ours);
    expect(ours).toEqual({ dataset: {}, ariaBusy: null });
  });
  test("keeps the page's own aria-busy", () => {
    const theirs = form();
    showState(theirs);
    expect(theirs.ariaBusy).toBe("true");
  });
});

test("`token` without a form returns a new token with each call", async () => {
  let issued = 0;
  const fetch = async () => Response.json({ token: `t${++issued}`, expires_in: 60 });
  const onceward = createOnceward({ baseUrl: "https://shop.test", fetch });
  expect([await onceward.token(), await onceward.token()]).toEqual(["t1", "t2"]);
});

interface PromiseWithResolvers<T> {
  promise: Promise<T>;
  resolve(value: T): void;
  reject(error: unknown): void;
}

function resolvers<T>(): PromiseWithResolvers<T> {
  let resolve!: (value: T) => void;
  let reject!: (error: unknown) => void;
  const promise = new Promise<T>((...both) => ([resolve, reject] = both));
  return { promise, resolve, reject };
}

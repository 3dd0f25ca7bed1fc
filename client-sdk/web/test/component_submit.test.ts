// The submissions of one component of React or Vue, with a shop that accepts each token once.

import { describe, expect, test } from "vitest";
import { componentSubmit, type SubmissionState, type SubmitOptions, type Submittable } from "../src/component_submit.js";

const ORDERS = "https://shop.test/orders";

/** How the shop treats one request. It places an order and loses the response, is not available, or finds that the token has expired. */
type Fate = "lose" | "down" | "expired" | Promise<unknown> | undefined;

/** A shop, and a component that submits to it. */
function enter(fates: Fate[] = []) {
  const orders: string[] = [];
  const tokens: string[] = [];
  const replies = new Map<string, string>();
  let issued = 0;
  const fetch: typeof globalThis.fetch = async (target) => {
    if (!(target instanceof Request)) return Response.json({ token: `token${++issued}`, expires_in: 60 });
    const token = target.headers.get("onceward-token")!;
    const body = `${new URL(target.url).search}${target.headers.get("content-type")} ${await target.text()}`;
    tokens.push(token);
    const fate = fates.shift();
    if (fate == "down") return problem("store_unavailable");
    if (fate == "expired") return problem("token_expired", "new_token");
    if (typeof fate == "object") await fate;
    const earlier = replies.get(token);
    if (earlier) return new Response(earlier, { headers: { "onceward-outcome": "replayed", "idempotent-replayed": "true" } });
    orders.push(body);
    replies.set(token, `order ${orders.length}`);
    if (fate == "lose") throw new TypeError("the connection was lost");
    return new Response(replies.get(token)!, { headers: { "onceward-outcome": "executed" } });
  };
  const states: SubmissionState[] = [];
  const options: SubmitOptions = { baseUrl: "https://shop.test", fetch, limit: 5000 };
  const send = componentSubmit((state) => states.push(state));
  return { orders, tokens, states, send, options, submit: (given?: Submittable, url = ORDERS) => send(url, options, given), end: () => states.at(-1) };
}

function problem(code: string, retry = "same"): Response {
  const headers = { "content-type": "application/problem+json", "onceward-outcome": code, "onceward-retry": retry, "retry-after": "0.001" };
  return new Response(JSON.stringify({ code, retry }), { status: 503, headers });
}

/** Waits until a call no longer counts as part of the last double click. */
const later = () => new Promise((go) => setTimeout(go, 1100));
const moment = (millis = 30) => new Promise((go) => setTimeout(go, millis));
const LOST: Fate[] = ["lose", "down", "down", "down"];
const TEA = { item: "tea" };

describe("unknown outcome", () => {
  test("the same content keeps its token after further attempts were rejected", async () => {
    const { submit, tokens, orders } = enter([...LOST, "down", "down", "down", "down"]);
    expect((await submit(TEA)).outcome).toBe("unknown");
    await later();
    expect((await submit(TEA)).outcome).toBe("unknown");
    await later();
    const third = await submit(TEA);
    expect([third.outcome, await third.response!.text()]).toEqual(["replayed", "order 1"]);
    expect([new Set(tokens).size, orders.length]).toEqual([1, 1]);
    await later();
    expect((await submit(TEA)).outcome).toBe("executed");
    expect(orders.length).toBe(2);
  });

  test("the same content keeps its token although other content was sent since", async () => {
    const { submit, orders } = enter([...LOST]);
    expect((await submit(TEA)).outcome).toBe("unknown");
    expect((await submit({ item: "coffee" })).outcome).toBe("executed");
    expect((await submit(TEA)).outcome).toBe("replayed");
    expect(orders.length).toBe(2);
  });
});

test("the same content stays unknown when its token has expired, and other content is sent", async () => {
  const { submit, tokens, orders } = enter([...LOST, "expired"]);
  expect((await submit(TEA)).outcome).toBe("unknown");
  await later();
  expect(await submit(TEA)).toMatchObject({ outcome: "unknown", problem: { code: "token_expired" } });
  expect((await submit({ item: "coffee" })).outcome).toBe("executed");
  expect([new Set(tokens).size, orders.length]).toEqual([2, 2]);
});

describe("double click", () => {
  test("two calls with an object are one order, also after the response", async () => {
    const { submit, orders, states } = enter();
    const first = await submit({ ...TEA });
    await moment(100);
    const second = await submit({ ...TEA });
    expect([await first.response!.text(), await second.response!.text(), orders.length]).toEqual(["order 1", "order 1", 1]);
    await later();
    await submit({ ...TEA });
    expect(orders.length).toBe(2);
    expect(states.map(({ pending, result }) => [pending, result?.outcome])).toEqual([[true, undefined], [false, "executed"], [true, undefined], [false, "executed"]]);
  });

  test("an order to another URL is another order", async () => {
    const { submit, orders } = enter();
    await Promise.all([submit(TEA), submit(TEA, `${ORDERS}?express`)]);
    expect(orders.map((order) => order.split(/a/)[0])).toEqual(["", "?express"]);
  });

  test.each<[string, () => Submittable, () => Submittable]>([
    ["text", () => "tea", () => "coffee"],
    ["a blob", () => new Blob(["tea"]), () => new Blob(["sea"])],
    ["bytes", () => new TextEncoder().encode("tea"), () => new TextEncoder().encode("sea")],
    ["a buffer", () => new TextEncoder().encode("tea").buffer, () => new TextEncoder().encode("sea").buffer],
    ["parameters", () => new URLSearchParams("item=tea"), () => new URLSearchParams("item=sea")],
    ["form data", () => formData("tea"), () => formData("sea")],
  ])("%s is one order if it is the same, and another if not", async (_, one, two) => {
    const { submit, orders } = enter();
    const results = await Promise.all([submit(one()), submit(one()), submit(two())]);
    expect(results.map(({ outcome }) => outcome)).toEqual(Array(3).fill("executed"));
    expect(orders.length).toBe(2);
  });
});

function formData(item: string): FormData {
  const data = new FormData();
  data.set("item", item);
  return data;
}

test("other content in flight is sent afterwards, and each call receives its own result", async () => {
  let go = () => {};
  const held = new Promise<void>((open) => (go = open));
  const { submit, orders, states, end } = enter([held]);
  const sent = [submit(TEA), submit({ item: "coffee" }), submit(TEA)];
  await moment();
  expect([orders.length, end()]).toEqual([0, { pending: true }]);
  go();
  const texts = await Promise.all(sent.map(async (result) => (await result).response!.text()));
  expect(texts).toEqual(["order 1", "order 2", "order 1"]);
  expect(orders).toEqual(['application/json {"item":"tea"}', 'application/json {"item":"coffee"}']);
  expect(states.map(({ pending }) => pending)).toEqual([true, true, true, false]);
});

test("options of each call are used", async () => {
  const { send, options, orders } = enter();
  const other = enter();
  await send(ORDERS, options, { item: "one" });
  await send(ORDERS, other.options, { item: "two" });
  expect([orders.length, other.orders.length]).toEqual([1, 1]);
});

class Order {
  readonly item = "tea";
}

test.each<[string, unknown, string]>([
  ["text", "tea", "text/plain;charset=UTF-8 tea"],
  ["empty text", "", "text/plain;charset=UTF-8 "],
  ["an object", TEA, 'application/json {"item":"tea"}'],
  ["a class instance", new Order(), 'application/json {"item":"tea"}'],
  ["an array", [1], "application/json [1]"],
  ["an object without prototype", Object.assign(Object.create(null), TEA), 'application/json {"item":"tea"}'],
  ["a number", 7, "application/json 7"],
  ["nothing", undefined, "null "],
  ["null", null, "null "],
])("%s is sent as its kind of body", async (_, given, expected) => {
  const { submit, orders } = enter();
  expect((await submit(given as Submittable)).outcome).toBe("executed");
  expect(orders).toEqual([expected]);
});

test("a cycle, a wrong URL and a wrong setting are rejected, and nothing is thrown", async () => {
  const { submit, send, options, orders, end } = enter();
  const cycle: { self?: object } = {};
  cycle.self = cycle;
  const results = [await submit(cycle), await submit(TEA, "https://other.test/orders"), await send(ORDERS, { ...options, baseUrl: "//" }, TEA)];
  expect(results.map(({ outcome }) => outcome)).toEqual(Array(3).fill("rejected"));
  expect(results.every((result) => "error" in result && result.error instanceof Error)).toBe(true);
  expect([orders.length, end()?.pending, end()?.result?.outcome]).toEqual([0, false, "rejected"]);
  expect((await submit({ item: "coffee" })).outcome).toBe("executed");
});

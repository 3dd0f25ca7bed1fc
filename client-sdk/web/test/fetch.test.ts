// `onceward.fetch` with a scripted `fetch`, without a network.

import { describe, expect, test } from "vitest";
import { createOnceward, type Code, type Options, type Retry } from "../src/index.js";

const SHOP = "https://shop.test";

type Answer = () => Response | Promise<Response>;

/** A server that issues tokens t1, t2 … and responds to submissions from a list. */
function server(answers: Answer[], tokens?: Answer) {
  const sent: { url: string; method: string; headers: Headers; body: string; mode: string; redirect: string }[] = [];
  let issued = 0;
  const fetch: typeof globalThis.fetch = async (input, init) => {
    const request = new Request(input, init);
    if (new URL(request.url).pathname.endsWith("/token")) {
      issued++;
      return tokens ? tokens() : Response.json({ token: `t${issued}`, expires_at: "2030-01-01T00:00:00Z", expires_in: 60 }, { status: 201 });
    }
    const { url, method, headers, mode, redirect } = request;
    sent.push({ url, method, headers, body: await request.text(), mode, redirect });
    const answer = answers.shift();
    if (!answer) throw new Error("unexpected request");
    return answer();
  };
  const make = (options: Options = {}) => createOnceward({ baseUrl: SHOP, fetch, limit: 5000, patience: 1000, ...options });
  return { fetch, sent, make, issued: () => issued, tokens: () => sent.map(({ headers }) => headers.get("onceward-token")) };
}

const ok: Answer = () => new Response("ordered", { status: 201, headers: { "onceward-outcome": "executed" } });
const again: Answer = () => new Response("ordered", { headers: { "idempotent-replayed": "true", "onceward-outcome": "replayed" } });
const lost: Answer = () => Promise.reject(new TypeError("Failed to fetch"));
const problem =
  (code: Code, retry: Retry, status = 409, headers = {}): Answer =>
  () =>
    new Response(JSON.stringify({ type: `/problems/${code}`, title: code, status, detail: code, code, retry }), {
      status,
      headers: { "content-type": "application/problem+json", "onceward-outcome": code, ...headers },
    });

const post = { method: "POST", body: "item=apple" };

describe("a submission", () => {
  test("has its own token and response", async () => {
    const shop = server([ok, ok]);
    const onceward = shop.make();
    const result = await onceward.fetch("/orders", post);
    expect(result.outcome).toBe("executed");
    expect(await result.response!.text()).toBe("ordered");
    await onceward.fetch("/orders", post);
    expect(shop.tokens()).toEqual(["t1", "t2"]);
    expect(shop.sent[0]).toMatchObject({ url: `${SHOP}/orders`, body: "item=apple" });
  });

  test("keeps its token over retries, and sends the whole body each time", async () => {
    const shop = server([lost, () => new Response("", { status: 504 }), again]);
    const result = await shop.make().fetch("/orders", post);
    expect(result.outcome).toBe("replayed");
    expect(shop.tokens()).toEqual(["t1", "t1", "t1"]);
    expect(shop.sent.map(({ body }) => body)).toEqual(Array(3).fill("item=apple"));
  });

  test("fetches a new token if every attempt was rejected with new_token", async () => {
    const shop = server([problem("token_expired", "new_token", 410), ok]);
    expect((await shop.make().fetch("/orders", post)).outcome).toBe("executed");
    expect(shop.tokens()).toEqual(["t1", "t2"]);
  });

  test("retokened_retry: ends as unknown if a lost attempt may have run and its token has expired", async () => {
    const shop = server([lost, problem("token_expired", "new_token", 410)]);
    const result = await shop.make().fetch("/orders", post);
    expect(result).toMatchObject({ outcome: "unknown", problem: { code: "token_expired" } });
    expect([shop.sent.length, shop.issued()]).toEqual([2, 1]);
  });

  test("is a duplicate if another request used the token, and unknown if an own attempt may have used it", async () => {
    const used = problem("token_used", "no");
    expect((await server([used]).make().fetch("/orders", post)).outcome).toBe("duplicate");
    expect((await server([lost, used]).make().fetch("/orders", post)).outcome).toBe("unknown");
  });

  test("patient_client: a duplicate in an interval is returned at once and never retried", async () => {
    const soon = problem("too_soon", "no", 409);
    for (const [answers, outcome] of [[[soon, ok], "duplicate"], [[lost, soon, ok], "unknown"]] as const) {
      const shop = server([...answers]);
      expect((await shop.make().fetch("/orders", post)).outcome).toBe(outcome);
      expect(shop.sent.length).toBe(answers.length - 1);
    }
  });

  test("waits for a lock, unless an own attempt may hold it", async () => {
    const locked = problem("locked", "same", 429, { "retry-after": "1" });
    expect((await server([locked, ok]).make().fetch("/orders", post)).outcome).toBe("executed");
    const shop = server([lost, locked, ok]);
    expect((await shop.make().fetch("/orders", post)).outcome).toBe("unknown");
    expect(shop.sent.length).toBe(2);
  });

  test("waits for Retry-After and retries with the same token", async () => {
    const shop = server([problem("in_progress", "same", 409, { "retry-after": "1" }), again]);
    const begin = Date.now();
    expect((await shop.make().fetch("/orders", post)).outcome).toBe("replayed");
    expect(Date.now() - begin).toBeGreaterThanOrEqual(950);
    expect(shop.tokens()).toEqual(["t1", "t1"]);
  });

  test("does not wait beyond its deadline", async () => {
    const shop = server([problem("store_unavailable", "same", 503, { "retry-after": "60" })]);
    const begin = Date.now();
    expect((await shop.make().fetch("/orders", post)).outcome).toBe("rejected");
    expect(Date.now() - begin).toBeLessThan(5000);
  });

  test("ends as unknown if no attempt has a response", async () => {
    const shop = server([lost, lost, lost, lost]);
    const result = await shop.make().fetch("/orders", post);
    expect(result).toMatchObject({ outcome: "unknown", error: new TypeError("Failed to fetch") });
    expect(new Set(shop.tokens()).size).toBe(1);
  });

  test("ends as unknown if the server hangs", async () => {
    const shop = server([]);
    const fetch: typeof globalThis.fetch = (input, init) =>
      String(input).endsWith("/token") ? shop.fetch(input, init) : hangOn(input as Request);
    const hangOn = ({ signal }: Request) =>
      new Promise<Response>((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    expect((await createOnceward({ baseUrl: SHOP, fetch, limit: 200 }).fetch("/orders", post)).outcome).toBe("unknown");
  });

  test("returns the handler's own responses unchanged, also its problems and failures", async () => {
    const own = (outcome: string) =>
      new Response(JSON.stringify({ code: "sold_out", retry: "no" }), {
        status: 422,
        headers: { "content-type": "application/problem+json", "onceward-outcome": outcome },
      });
    for (const outcome of ["executed", "replayable", "not_applied", "not_released", "unprotected"]) {
      const result = await server([() => own(outcome)]).make().fetch("/orders", post);
      expect([result.outcome, result.response!.status]).toEqual(["executed", 422]);
    }
    for (const code of ["not_found", "unauthorized", "unsupported_media_type"]) {
      expect((await server([() => own(code)]).make().fetch("/orders", post)).outcome).toBe("rejected");
    }
    const failed = await server([() => new Response("broken", { status: 500 })]).make().fetch("/orders", post);
    expect([failed.outcome, failed.response!.status]).toEqual(["executed", 500]);
  });

  test("is unknown if the response says so, is not retried, and has that response", async () => {
    const shop = server([() => new Response("away", { status: 502, headers: { "onceward-outcome": "unknown" } })]);
    const result = await shop.make().fetch("/orders", post);
    expect([result.outcome, result.response?.status, shop.sent.length]).toEqual(["unknown", 502, 1]);
  });

  test("has a type that narrows after a check for executed and replayed", async () => {
    const result = await server([problem("key_reused", "no", 422)]).make().fetch("/orders", { ...post, key: "order-1" });
    if (result.outcome == "executed" || result.outcome == "replayed") throw new Error(`${result.response.status}`);
    expect([result.outcome, result.problem?.code]).toEqual(["rejected", "key_reused"]);
  });

  test("is rejected, and nothing is sent, if no token can be fetched", async () => {
    const shop = server([], () => new Response("<html>", { status: 404 }));
    const result = await shop.make().fetch("/orders", post);
    expect(result.outcome).toBe("rejected");
    expect(String((result as { error: unknown }).error)).toBe(`Error: Onceward: no token from ${SHOP}/token: 404`);
    expect(shop.sent).toEqual([]);
  });

  test("retries the fetch of a token", async () => {
    const answers: Answer[] = [lost, problem("rate_limited", "same", 429), () => Response.json({ token: "late", expires_in: 60 })];
    const shop = server([ok], () => answers.shift()!());
    expect((await shop.make({ patience: 5000 }).fetch("/orders", post)).outcome).toBe("executed");
    expect(shop.tokens()).toEqual(["late"]);
  });

  test("can be aborted by its caller", async () => {
    const controller = new AbortController();
    const shop = server([() => (controller.abort(new Error("enough")), lost())]);
    await expect(shop.make().fetch("/orders", { ...post, signal: controller.signal })).rejects.toThrow("enough");
  });
});

describe("a rejection in the format of the application", () => {
  const REJECTIONS: [code: Code, retry: Retry, status: number][] = [
    ["token_used", "no", 409],
    ["token_expired", "new_token", 410],
    ["redeem_unknown", "new_token", 503],
    ["key_reused", "no", 422],
    ["in_progress", "same", 409],
    ["outcome_unknown", "no", 409],
    ["reply_not_kept", "no", 409],
    ["store_unavailable", "same", 503],
    ["too_soon", "no", 409],
    ["locked", "same", 429],
    ["overloaded", "same", 503],
    ["unauthorized", "no", 401],
    ["upstream_timeout", "no", 504],
    ["upstream_failed", "no", 502],
    ["internal", "no", 500],
  ];
  /** The body, its content type, and the status, if it is not the one of the code. */
  const FORMATS: Record<string, (code: Code) => [body: BodyInit | null, type: string, status?: number]> = {
    envelope: (code) => [JSON.stringify({ code, message: "later", data: null }), "application/json"],
    "envelope with 200": () => [JSON.stringify({ code: 20001, message: "later", data: null, retry: "same" }), "application/json", 200],
    acp: () => [JSON.stringify({ type: "invalid_request", code: "idempotency_conflict", message: "later" }), "application/json"],
    ucp: (code) => [JSON.stringify({ code, content: "later" }), "application/json", 409],
    stripe: (code) => [JSON.stringify({ error: { type: "api_error", code, message: "later" } }), "application/json", 400],
    page: () => ["<!doctype html><p>later", "text/html", 200],
    "problem of another service": () => [JSON.stringify({ code: "sold_out", retry: "same" }), "application/problem+json", 422],
    "no body": () => [null, "text/plain", 204],
    "list with 502": () => ["[1]", "application/json", 502],
  };

  /** Sends one submission: an earlier attempt is lost, or not, and the second one is rejected. */
  async function submit(rejected: Answer, isLost: boolean) {
    const shop = server([...(isLost ? [lost] : []), rejected, again]);
    const result = await shop.make().fetch("/orders", post);
    const { code, retry } = ("problem" in result && result.problem) || {};
    return { outcome: result.outcome, code, retry, tokens: shop.tokens() };
  }

  test.each(Object.entries(FORMATS))("leads to the same decision as a problem: %s", { timeout: 60_000 }, async (_, format) => {
    const both = REJECTIONS.flatMap((line) => [[...line, false] as const, [...line, true] as const]);
    await Promise.all(
      both.map(async ([code, retry, status, isLost]) => {
        const [body, type, own = status] = format(code);
        const headers = { "content-type": type, "onceward-outcome": code, "onceward-retry": retry };
        const inFormat = await submit(() => new Response(body, { status: own, headers }), isLost);
        expect([code, isLost, inFormat]).toEqual([code, isLost, await submit(problem(code, retry, status), isLost)]);
      }),
    );
  });

  test("with 200 is not the handler's response, and its body is readable", async () => {
    const body = { code: 20001, message: "later", data: null };
    const headers = { "onceward-outcome": "token_used", "onceward-retry": "no" };
    const result = await server([() => Response.json(body, { headers })]).make().fetch("/orders", post);
    if (result.outcome != "duplicate") throw new Error(result.outcome);
    expect(result.problem).toEqual({ ...body, code: "token_used", retry: "no" });
    expect(await result.response!.json()).toEqual(body);
  });

  test("ends the submission, if CORS hides the retry header and the body does not have it", async () => {
    const soon: Answer = () => Response.json({ code: 20001, message: "later" }, { headers: { "onceward-outcome": "too_soon" } });
    const shop = server([soon, ok]);
    expect((await shop.make().fetch("/orders", post)).outcome).toBe("duplicate");
    expect(shop.sent.length).toBe(1);
  });

  test.each([200, 502])("by a proxy that did not reach the application is retried with the same token: %i", async (status) => {
    for (const outcome of ["not_applied", "not_released"]) {
      const headers = { "onceward-outcome": outcome, "onceward-retry": "same" };
      const unavailable: Answer = () => Response.json({ code: 50001, message: "later", data: null }, { status, headers });
      const shop = server([unavailable, ok]);
      expect((await shop.make().fetch("/orders", post)).outcome).toBe("executed");
      expect(shop.tokens()).toEqual(["t1", "t1"]);
      const ended = await server(Array(4).fill(unavailable)).make().fetch("/orders", post);
      expect(ended).toMatchObject({ outcome: "rejected", problem: { code: "upstream_unavailable", retry: "same" } });
      const lostBefore = await server([lost, unavailable, unavailable, unavailable]).make().fetch("/orders", post);
      expect(lostBefore.outcome).toBe("unknown");
    }
  });

  test.each([200, 502, 504])("by a proxy that lost the response of the application is unknown, and not retried: %i", async (status) => {
    const headers = { "onceward-outcome": "unknown", "onceward-retry": "no" };
    const shop = server([() => Response.json({ code: 50001 }, { status, headers }), ok]);
    expect((await shop.make().fetch("/orders", post)).outcome).toBe("unknown");
    expect(shop.sent.length).toBe(1);
  });

  test("by a proxy that lost the response is unknown, if only the body says so", async () => {
    for (const [code, status] of [["upstream_timeout", 504], ["upstream_failed", 502]] as const) {
      const shop = server([() => Response.json({ code, retry: "no", status }, { status }), ok]);
      expect((await shop.make().fetch("/orders", post)).outcome).toBe("unknown");
      expect(shop.sent.length).toBe(1);
    }
  });

  test("of another service, passed on by a handler that took effect, is the handler's response", async () => {
    const headers = { "onceward-outcome": "executed", "onceward-retry": "same" };
    const shop = server([() => Response.json({}, { headers })]);
    expect((await shop.make().fetch("/orders", post)).outcome).toBe("executed");
  });

  test("that is a problem is recognized by its body, if CORS hides its headers", async () => {
    const hidden: Answer = () => Response.json({ code: "token_expired", retry: "new_token", status: 410 }, { status: 410 });
    const shop = server([hidden, ok]);
    expect((await shop.make().fetch("/orders", post)).outcome).toBe("executed");
    expect(shop.tokens()).toEqual(["t1", "t2"]);
  });

  test("is not a response behind a gateway that accepted the token", async () => {
    const body = { code: "token_used", retry: "no" };
    const own: Answer = () => Response.json(body, { status: 409, headers: { "onceward-outcome": "redeemed" } });
    expect((await server([own]).make().fetch("/orders", post)).outcome).toBe("executed");
  });
});

describe("a request", () => {
  test("has a token bound to the action", async () => {
    let asked = "";
    const shop = server([ok]);
    const fetch: typeof globalThis.fetch = async (input, init) => {
      if (String(input).endsWith("/token")) asked = String(init?.body);
      return shop.fetch(input, init);
    };
    await createOnceward({ baseUrl: SHOP, fetch }).fetch("/orders", { ...post, action: "POST /orders" });
    expect(asked).toBe('{"action":"POST /orders"}');
  });

  test("has a key instead of a token if the caller sets one", async () => {
    const shop = server([lost, ok]);
    await shop.make().fetch("/orders", { ...post, key: "order-4711" });
    expect(shop.sent.map(({ headers }) => headers.get("idempotency-key"))).toEqual(["order-4711", "order-4711"]);
    expect([shop.issued(), shop.tokens()]).toEqual([0, [null, null]]);
  });

  test("never overrides the caller's header", async () => {
    for (const name of ["Onceward-Token", "Idempotency-Key"]) {
      const shop = server([problem("token_expired", "new_token", 410)]);
      const result = await shop.make().fetch("/orders", { ...post, key: "other", headers: { [name]: "mine" } });
      expect([shop.sent.length, shop.sent[0]!.headers.get(name), shop.issued()]).toEqual([1, "mine", 0]);
      expect(shop.sent[0]!.headers.get(name == "Idempotency-Key" ? "onceward-token" : "idempotency-key")).toBe(null);
      expect(result.outcome).toBe("rejected");
    }
  });

  test("has no token with a safe method", async () => {
    for (const method of ["GET", "HEAD", "OPTIONS"]) {
      const shop = server([() => new Response(null, { status: 200 })]);
      expect((await shop.make().fetch("/orders", { method })).outcome).toBe("executed");
      expect([shop.issued(), shop.tokens()]).toEqual([0, [null]]);
    }
  });

  test("is not sent to an origin that is not allowed", async () => {
    const shop = server([ok, ok]);
    await expect(shop.make().fetch("https://elsewhere.test/orders", post)).rejects.toThrow("https://elsewhere.test is not in origins");
    await expect(shop.make().fetch("https://shop.test.evil.test/orders", post)).rejects.toThrow("is not in origins");
    expect([shop.sent, shop.issued()]).toEqual([[], 0]);
    await shop.make({ origins: ["https://elsewhere.test"] }).fetch("https://elsewhere.test/orders", post);
    expect(shop.tokens()).toEqual(["t1"]);
  });

  test("to the page's origin follows no redirect to another origin", async () => {
    const shop = server([ok]);
    await shop.make().fetch("/orders", post);
    expect(shop.sent[0]!.mode).toBe("same-origin");
  });

  test("to another origin follows no redirect, unless the caller allows it", async () => {
    const shop = server([ok, ok]);
    const onceward = shop.make({ origins: ["https://api.test"] });
    await onceward.fetch("https://api.test/orders", post);
    await onceward.fetch("https://api.test/orders", { ...post, redirect: "follow" });
    expect(shop.sent.map(({ redirect }) => redirect)).toEqual(["error", "follow"]);
  });

  test.each(["https://once.test/below", "https://once.test/below/"])("fetches tokens below %s", async (baseUrl) => {
    const urls: string[] = [];
    const shop = server([ok]);
    const fetch: typeof globalThis.fetch = (input, init) => (urls.push(input instanceof Request ? input.url : String(input)), shop.fetch(input, init));
    await createOnceward({ baseUrl, fetch }).fetch("https://once.test/orders", post);
    expect(urls).toEqual(["https://once.test/below/token", "https://once.test/orders"]);
  });
});

describe("concurrent calls", () => {
  test("are separate submissions, with a token each", async () => {
    const shop = server([ok, ok]);
    const onceward = shop.make();
    await Promise.all([onceward.fetch("/orders", post), onceward.fetch("/orders", post)]);
    expect(shop.tokens().toSorted()).toEqual(["t1", "t2"]);
  });

  test("are one with the same key, and each has its own copy of the response", async () => {
    const shop = server([ok, ok]);
    const onceward = shop.make();
    const keyed = { ...post, key: "order-1" };
    const results = await Promise.all([1, 2, 3].map(() => onceward.fetch("/orders", keyed)));
    expect(await Promise.all(results.map(({ response }) => response!.text()))).toEqual(Array(3).fill("ordered"));
    expect(shop.sent.length).toBe(1);
    await onceward.fetch("/orders", keyed);
    expect(shop.sent.length).toBe(2);
  });

  test("are separate if content or URL differs: the server rejects the key", async () => {
    const shop = server([ok, ok, ok]);
    const onceward = shop.make();
    await Promise.all([
      onceward.fetch("/orders", { ...post, key: "k" }),
      onceward.fetch("/orders", { ...post, body: "item=pear", key: "k" }),
      onceward.fetch("/others", { ...post, key: "k" }),
    ]);
    expect(shop.sent.length).toBe(3);
  });

  test("key_leak: a key is not carried into the next call", async () => {
    const shop = server([ok, ok]);
    const onceward = shop.make();
    await onceward.fetch("/orders", { ...post, key: "k" });
    await onceward.fetch("/orders", post);
    expect(shop.sent[1]!.headers.get("idempotency-key")).toBe(null);
  });
});

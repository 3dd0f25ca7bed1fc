// The shops of all stacks: what the first request, a duplicate and a failure receive, and how often the effect happens.

import assert from "node:assert/strict";
import { onEveryStack, statusAndOutcome } from "./stage/every_stack.mjs";
import { API_KEY } from "./stage/service.mjs";
import { startShop, until } from "./stage/shop.mjs";

onEveryStack("duplicate receives the first response", async ({ shop, ledger }) => {
  const first = await shop.order("k", { "x-size": "1000" });
  assert.deepEqual(statusAndOutcome(first), [201, "executed"]);
  assert.equal(first.body.length, 256 + 36 + 1000);
  assert.ok(first.headers.get("set-cookie"));
  const again = await shop.order("k", { "x-size": "1000" });
  assert.deepEqual(statusAndOutcome(again), [201, "replayed"]);
  assert.deepEqual(again.body, first.body);
  for (const name of ["location", "content-type"]) assert.equal(again.headers.get(name), first.headers.get(name));
  assert.equal(again.headers.get("idempotent-replayed"), "true");
  assert.equal(again.headers.get("server-timing"), "onceward;desc=replayed");
  for (const name of ["set-cookie", "x-run"]) assert.equal(again.headers.get(name), null);
  assert.deepEqual(ledger.lines(), ["order"]);
});

onEveryStack("key belongs to its subject, path and content", async ({ shop, ledger }) => {
  await shop.order("k");
  const reused = await shop.order("k", {}, { body: "coffee" });
  assert.deepEqual(statusAndOutcome(reused), [422, "key_reused"]);
  assert.equal(reused.headers.get("onceward-retry"), "no");
  assert.equal(JSON.parse(reused.text).code, "key_reused");
  assert.equal((await shop.order("k", {}, { path: "/orders?express" })).outcome, "key_reused");
  assert.equal((await shop.order("k", { "content-type": "text/html" })).outcome, "key_reused");
  assert.equal((await shop.order("k", { "content-type": "text/plain; charset=utf-8" })).outcome, "replayed");
  assert.equal((await shop.order("k", { "x-user": "bob" })).outcome, "executed");
  assert.equal((await shop.order("k", {}, { path: "/retryable" })).outcome, "executed");
  assert.equal(ledger.lines().length, 3);
});

onEveryStack("request without a usable key or token is rejected", async ({ shop, ledger }) => {
  assert.deepEqual(statusAndOutcome(await shop.order()), [400, "key_missing"]);
  assert.deepEqual(statusAndOutcome(await shop.order("a, b")), [400, "key_malformed"]);
  assert.deepEqual(statusAndOutcome(await shop.order(undefined, {}, { path: "/forms" })), [400, "token_missing"]);
  assert.deepEqual(statusAndOutcome(await shop.order("k", {}, { body: Buffer.alloc(256 * 1024 + 1) })), [413, "body_too_large"]);
  const chunked = new Blob([Buffer.alloc(256 * 1024 + 1)]).stream();
  const response = await fetch(`${shop.url}/orders`, { method: "POST", headers: { "idempotency-key": "k" }, body: chunked, duplex: "half" });
  assert.equal(response.headers.get("onceward-outcome"), "body_too_large");
  assert.deepEqual(ledger.lines(), []);
});

onEveryStack("GET, HEAD and unprotected routes are untouched", async ({ shop, ledger }) => {
  const open = await shop.order(undefined, {}, { path: "/open" });
  assert.deepEqual(statusAndOutcome(open), [201, null]);
  const count = await fetch(`${shop.url}/orders`);
  assert.deepEqual([await count.text(), count.headers.get("onceward-outcome")], ["1", null]);
  assert.deepEqual(ledger.lines(), ["order"]);
});

/** Route and headers of a request, its status and outcome, and the outcome of its duplicate. */
const EFFECTS = [
  ["/orders", { "x-raise": "before" }, [500, "unknown"], "outcome_unknown"],
  ["/orders", { "x-raise": "after" }, [500, "unknown"], "outcome_unknown"],
  ["/orders", { "x-raise": "not-applied" }, [500, "not_applied"], "not_applied"],
  ["/orders", { "x-raise": "unknown" }, [500, "unknown"], "outcome_unknown"],
  ["/orders", { "x-status": "302" }, [302, "executed"], "replayed"],
  ["/orders", { "x-status": "422" }, [422, "executed"], "replayed"],
  ["/orders", { "x-status": "429" }, [429, "not_applied"], "not_applied"],
  ["/orders", { "x-status": "503" }, [503, "unknown"], "outcome_unknown"],
  ["/orders", { "x-status": "503", "x-effect": "applied" }, [503, "executed"], "replayed"],
  ["/orders", { "x-status": "201", "x-effect": "not-applied" }, [201, "not_applied"], "not_applied"],
  ["/orders", { "x-status": "201", "x-effect": "unknown" }, [201, "unknown"], "outcome_unknown"],
  ["/retryable", { "x-raise": "after" }, [500, "not_applied"], "not_applied"],
  ["/retryable", { "x-raise": "unknown" }, [500, "unknown"], "in_progress"],
  ["/retryable", { "x-status": "502" }, [502, "unknown"], "in_progress"],
  ["/forms", { "x-status": "422" }, [422, "not_applied"], "not_applied"],
  ["/forms", { "x-raise": "after" }, [500, "not_applied"], "not_applied"],
  ["/forms", { "x-raise": "unknown" }, [500, "unknown"], "outcome_unknown"],
  ["/forms", { "x-status": "504" }, [504, "unknown"], "outcome_unknown"],
];

onEveryStack(
  "effect of a response decides what the duplicate receives",
  async ({ shop }) => {
    await Promise.all(
      EFFECTS.map(async ([path, headers, first, second]) => {
        const [key, token] = path === "/forms" ? [undefined, await shop.token()] : [JSON.stringify(headers).replace(/\W/g, "-"), undefined];
        const send = () => shop.order(key, { ...headers, ...(token && { "onceward-token": token }) }, { path });
        assert.deepEqual(statusAndOutcome(await send()), first, `${path} ${JSON.stringify(headers)}`);
        const isOver = async () => (await send()).outcome === second;
        if (second === "in_progress") assert.ok(await isOver());
        // The lease ends before the outcome is unknown to others.
        else await until(`${path} ${JSON.stringify(headers)}: ${second}`, isOver);
      }),
    );
  },
  { env: { LEASE: "3000" } },
);

onEveryStack("form is submitted once under its token", async ({ shop, ledger }) => {
  const token = await shop.token();
  const form = () => {
    const fields = new FormData();
    fields.set("item", "tea");
    fields.set("_onceward", token);
    fields.set("file", new Blob([Buffer.from([0, 255, 10])]), "file.bin");
    return fields;
  };
  // Each has a boundary of its own.
  const send = async () => {
    const { body, headers } = new Request("http://localhost", { method: "POST", body: form() });
    return shop.order(undefined, { "content-type": headers.get("content-type") }, { path: "/forms", body: Buffer.from(await new Response(body).arrayBuffer()) });
  };
  const [first, again] = [await send(), await send()];
  assert.deepEqual([first.outcome, again.outcome], ["executed", "replayed"]);
  const urlencoded = { "content-type": "application/x-www-form-urlencoded" };
  const other = await shop.token();
  const post = () => shop.order(undefined, urlencoded, { path: "/forms", body: `a=1&_onceward=${other}` });
  assert.deepEqual([(await post()).outcome, (await post()).outcome], ["executed", "replayed"]);
  assert.equal(ledger.lines().length, 2);
});

onEveryStack("streamed response passes through and is not stored", async ({ shop, ledger }) => {
  const response = await fetch(`${shop.url}/orders`, { method: "POST", headers: { "idempotency-key": "k", "content-type": "text/plain", "x-stream": "20" }, body: "tea" });
  const times = [];
  const chunks = [];
  for await (const chunk of response.body) {
    times.push(Date.now());
    chunks.push(chunk);
  }
  assert.ok(times.at(-1) - times[0] > 200, "the chunks arrive one by one");
  assert.equal(Buffer.concat(chunks).toString(), Array.from({ length: 20 }, (_, at) => `chunk ${at}\n`).join(""));
  assert.equal(response.headers.get("onceward-outcome"), "executed");
  assert.deepEqual(statusAndOutcome(await shop.order("k", { "x-stream": "20" })), [409, "reply_not_kept"]);
  await assert.rejects(shop.order("broken", { "x-stream": "5", "x-fail-stream": "yes" }), "the client sees that the stream broke");
  assert.deepEqual(statusAndOutcome(await shop.order("broken")), [409, "reply_not_kept"]);
  assert.deepEqual(statusAndOutcome(await shop.order("large", { "x-size": "2000000" })), [201, "executed"]);
  assert.deepEqual(statusAndOutcome(await shop.order("large")), [409, "reply_not_kept"]);
  assert.equal(ledger.lines().length, 3);
});

onEveryStack(
  "duplicate in flight is rejected, and the claim of a slow handler is renewed",
  async ({ shop, ledger }) => {
    const slow = shop.order("k", { "x-takes": "2500" });
    await until("the handler runs", () => ledger.lines().includes("begun"));
    const duplicate = await shop.order("k");
    assert.deepEqual(statusAndOutcome(duplicate), [409, "in_progress"]);
    assert.deepEqual([duplicate.headers.get("onceward-retry"), duplicate.headers.get("retry-after")], ["same", "1"]);
    assert.equal((await slow).outcome, "executed");
    assert.equal((await shop.order("k")).outcome, "replayed");
    assert.deepEqual(ledger.lines(), ["begun", "order"]);
  },
  { env: { LEASE: "600" } },
);

onEveryStack(
  "duplicate waits for the first response",
  async ({ shop, ledger }) => {
    const [one, two] = await Promise.all([shop.order("k", { "x-takes": "300" }), shop.order("k", { "x-takes": "300" })]);
    assert.deepEqual([one.outcome, two.outcome].sort(), ["executed", "replayed"]);
    assert.deepEqual(one.body, two.body);
    assert.deepEqual(ledger.lines(), ["begun", "order"]);
  },
  { env: { WAIT: "5000" } },
);

onEveryStack("100 duplicates over two processes run once", async ({ t, stack, service, shop, ledger }) => {
  const other = await startShop(t, stack, service.url, ledger);
  const send = (at) => [shop, other][at % 2].order("k", { "x-takes": "200" });
  const answers = await Promise.all(Array.from({ length: 100 }, (_, at) => send(at)));
  assert.equal(answers.filter(({ outcome }) => outcome === "executed").length, 1);
  assert.ok(answers.every(({ outcome }) => ["executed", "replayed", "in_progress"].includes(outcome)));
  assert.deepEqual(ledger.lines(), ["begun", "order"]);
});

onEveryStack(
  "handler runs on after its client has disconnected",
  async ({ shop, ledger }) => {
    const cut = new AbortController();
    const lost = shop.order("k", { "x-takes": "600" }, { signal: cut.signal });
    await until("the handler runs", () => ledger.lines().includes("begun"));
    cut.abort();
    await assert.rejects(lost);
    assert.equal((await shop.order("k")).outcome, "in_progress");
    await until("the response is stored", async () => (await shop.order("k")).outcome === "replayed");
    assert.deepEqual(ledger.lines(), ["begun", "order"]);
  },
  { env: { LEASE: "1000" } },
);

onEveryStack(
  "killed process leaves an unknown outcome, or frees a retryable key",
  async ({ t, stack, service, shop, ledger }) => {
    const orders = [shop.order("k", { "x-takes": "60000" }), shop.order("r", { "x-takes": "60000" }, { path: "/retryable" })];
    const lost = Promise.allSettled(orders);
    await until("the handlers run", () => ledger.lines().length === 2);
    shop.child.kill("SIGKILL");
    assert.deepEqual((await lost).map(({ status }) => status), ["rejected", "rejected"]);
    const next = await startShop(t, stack, service.url, ledger);
    await until("the lease has expired", async () => (await next.order("k")).outcome === "outcome_unknown");
    await until("the key is free", async () => (await next.order("r", {}, { path: "/retryable" })).outcome === "executed");
    assert.deepEqual(ledger.lines(), ["begun", "begun", "order"]);
  },
  { env: { LEASE: "1000" } },
);

onEveryStack("nothing runs while the service is down or rejects the API key", async ({ t, stack, service, shop, ledger }) => {
  const wrong = await startShop(t, stack, service.url, ledger, { ONCEWARD_API_KEY: "a-wrong-api-key-canary" });
  const rejected = await wrong.order("k-canary");
  assert.deepEqual(statusAndOutcome(rejected), [503, "store_unavailable"]);
  assert.equal(rejected.headers.get("www-authenticate"), null);
  await until("the log names the error", () => wrong.log.includes("ONCEWARD_API_KEY is missing or wrong"));
  service.stop();
  const down = await shop.order("k-canary");
  assert.deepEqual(statusAndOutcome(down), [503, "store_unavailable"]);
  assert.deepEqual([down.headers.get("retry-after"), down.headers.get("onceward-retry")], ["1", "same"]);
  assert.deepEqual(ledger.lines(), []);
  assert.doesNotMatch(wrong.log + shop.log, /canary/);
  assert.ok(API_KEY.includes("canary"));
});

for (const fault of ["lose", "drop", "cut", 503]) {
  onEveryStack(
    `first two calls of each kind fail (${fault}), and the order is placed once`,
    async ({ shop, ledger, proxy }) => {
      const first = await shop.order("k");
      assert.equal(first.status, 201);
      const [one, two, three] = proxy.seen.filter(({ path }) => path === "/claim").map(({ body }) => JSON.parse(body).attempt);
      assert.ok(one && one === two && two === three, "one attempt");
      await until("the response is stored", async () => (await shop.order("k")).outcome === "replayed");
      assert.deepEqual((await shop.order("k")).body, first.body);
      const notApplied = await shop.order("n", { "x-raise": "not-applied" });
      assert.deepEqual(statusAndOutcome(notApplied), [500, "not_applied"]);
      assert.deepEqual(ledger.lines(), ["order"]);
    },
    { env: { LEASE: "2000" }, plan: () => (_, count) => (count < 2 ? fault : undefined) },
  );
}

onEveryStack(
  "failed completion does not hide the effect, and is repeated",
  async ({ shop, ledger, proxy, service }) => {
    const first = await shop.order("k");
    assert.deepEqual(statusAndOutcome(first), [201, "unprotected"]);
    assert.equal(await service.state("k"), "running");
    proxy.plan = () => undefined;
    await until("the response is stored", async () => (await shop.order("k")).outcome === "replayed");
    assert.deepEqual((await shop.order("k")).body, first.body);
    assert.deepEqual(ledger.lines(), ["order"]);
  },
  { env: { LEASE: "900" }, plan: () => (path) => (path === "/claim/complete" ? 503 : undefined) },
);

const LOST = { status: 409, code: "claim_lost", retry: "no" };

onEveryStack(
  "claim that is lost in the middle of a run does not hide its effect",
  async ({ shop, ledger, proxy }) => {
    const slow = await shop.order("k", { "x-takes": "1500" });
    assert.ok(proxy.count("/claim/renew") > 0);
    assert.deepEqual(statusAndOutcome(slow), [201, "unprotected"]);
    assert.deepEqual(ledger.lines(), ["begun", "order"]);
  },
  { env: { LEASE: "1200" }, plan: () => (path) => (path === "/claim/renew" ? { problem: LOST } : undefined) },
);

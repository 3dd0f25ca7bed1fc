// Requests with `Onceward-Look: true`: they receive the stored response or a rejection, and nothing ever runs.

import assert from "node:assert/strict";
import { onEveryStack, statusAndOutcome } from "./stage/every_stack.mjs";
import { until } from "./stage/shop.mjs";

/** Creates one submission under a key, and one under a token: each sends the same request again, with more headers. */
async function submissions(shop) {
  const token = await shop.token();
  const byKey = (headers = {}) => shop.order("k", headers);
  const byToken = (headers = {}) => shop.order(undefined, { "onceward-token": token, ...headers }, { path: "/forms" });
  return { key: withLook(byKey), token: withLook(byToken) };
}

function withLook(send) {
  return { send, look: () => send({ "onceward-look": "true" }) };
}

const NOT_FOUND = { type: "/problems/not_found", title: "Not found", status: 404, detail: "No record exists for this submission.", code: "not_found", retry: "no" };

onEveryStack("look before a run finds nothing, and claims nothing", async ({ shop, ledger, service }) => {
  const both = Object.values(await submissions(shop));
  for (const { look } of both) {
    const absent = await look();
    assert.deepEqual([...statusAndOutcome(absent), absent.headers.get("onceward-retry")], [404, "not_found", "no"]);
    assert.equal(absent.headers.get("content-type"), "application/problem+json");
    assert.equal(absent.headers.get("server-timing"), "onceward;desc=not_found");
    assert.deepEqual(JSON.parse(absent.text), NOT_FOUND);
  }
  assert.deepEqual([await service.state("k"), ledger.lines()], ["absent", []]);
  for (const { send } of both) assert.deepEqual(statusAndOutcome(await send()), [201, "executed"]);
  assert.deepEqual(ledger.lines(), ["order", "order"]);
});

onEveryStack("look during a run is rejected as in progress", async ({ shop, ledger }) => {
  for (const { send, look } of Object.values(await submissions(shop))) {
    const slow = send({ "x-takes": "700" });
    await until("the handler runs", () => ledger.lines().includes("begun"));
    const seen = await look();
    assert.deepEqual(statusAndOutcome(seen), [409, "in_progress"]);
    assert.deepEqual([seen.headers.get("onceward-retry"), seen.headers.get("retry-after")], ["same", "1"]);
    assert.equal((await slow).outcome, "executed");
    assert.deepEqual(ledger.lines(), ["begun", "order"]);
    ledger.clear();
  }
});

onEveryStack("look after a run receives the stored response", async ({ shop, ledger }) => {
  for (const { send, look } of Object.values(await submissions(shop))) {
    const first = await send();
    for (const seen of [await look(), await look()]) {
      assert.deepEqual([...statusAndOutcome(seen), seen.text], [201, "replayed", first.text]);
      assert.deepEqual([seen.headers.get("idempotent-replayed"), seen.headers.get("server-timing")], ["true", "onceward;desc=replayed"]);
      for (const name of ["location", "content-type", "content-length"]) assert.equal(seen.headers.get(name), first.headers.get(name), name);
    }
    assert.deepEqual(ledger.lines(), ["order"]);
    ledger.clear();
  }
});

onEveryStack("look after a response that was not stored says so", async ({ shop, ledger }) => {
  for (const { send, look } of Object.values(await submissions(shop))) {
    await send({ "x-stream": "2" });
    assert.deepEqual(statusAndOutcome(await look()), [409, "reply_not_kept"]);
    assert.deepEqual(ledger.lines(), ["order"]);
    ledger.clear();
  }
});

onEveryStack(
  "look after an unknown outcome runs nothing",
  async ({ shop, ledger }) => {
    for (const { send, look } of Object.values(await submissions(shop))) {
      assert.equal((await send({ "x-raise": "unknown" })).outcome, "unknown");
      await until("the lease expires", async () => (await look()).outcome !== "in_progress");
      const seen = await look();
      assert.deepEqual([...statusAndOutcome(seen), seen.headers.get("onceward-retry")], [409, "outcome_unknown", "no"]);
      assert.deepEqual(ledger.lines(), ["order"]);
      ledger.clear();
    }
  },
  { env: { LEASE: "600" } },
);

onEveryStack(
  "look after an unknown outcome of a retryable key runs nothing, also when the key is free",
  async ({ shop, ledger }) => {
    const send = (headers) => shop.order("k", headers, { path: "/retryable" });
    assert.equal((await send({ "x-status": "504" })).outcome, "unknown");
    const look = () => send({ "onceward-look": "true" });
    await until("the lease expires", async () => (await look()).outcome !== "in_progress");
    assert.deepEqual(statusAndOutcome(await look()), [404, "not_found"]);
    assert.deepEqual(ledger.lines(), ["order"]);
  },
  { env: { LEASE: "600" } },
);

onEveryStack("look after a run without an effect finds nothing", async ({ shop, ledger }) => {
  const { send, look } = (await submissions(shop)).key;
  assert.equal((await send({ "x-raise": "not-applied" })).outcome, "not_applied");
  assert.deepEqual(statusAndOutcome(await look()), [404, "not_found"]);
  assert.deepEqual(ledger.lines(), []);
});

onEveryStack("look belongs to its subject and path, and needs a key or token", async ({ shop, ledger }) => {
  const look = { "onceward-look": "true" };
  await shop.order("k");
  assert.equal((await shop.order("k", { ...look, "x-user": "bob" })).outcome, "not_found");
  assert.equal((await shop.order("k", look, { path: "/retryable" })).outcome, "not_found");
  assert.equal((await shop.order("k", look, { body: "without the content of the first" })).outcome, "replayed");
  assert.deepEqual(statusAndOutcome(await shop.order(undefined, look)), [400, "key_missing"]);
  assert.deepEqual(statusAndOutcome(await shop.order(undefined, look, { path: "/forms" })), [400, "token_missing"]);
  assert.deepEqual(statusAndOutcome(await shop.order(undefined, { ...look, "onceward-token": "forged" }, { path: "/forms" })), [400, "token_malformed"]);
  assert.deepEqual(ledger.lines(), ["order"]);
});

onEveryStack("look header is true or false, and nothing runs with another value", async ({ shop, ledger }) => {
  for (const { send } of Object.values(await submissions(shop))) {
    for (const value of ["perhaps", "TRUE", "1", "0", "no", "", "true, true", "false, true"]) {
      const rejected = await send({ "onceward-look": value });
      assert.deepEqual(statusAndOutcome(rejected), [400, "bad_request"], value);
      assert.equal(JSON.parse(rejected.text).detail, "Onceward-Look has to be true or false.");
    }
    assert.deepEqual(ledger.lines(), []);
    assert.equal((await send({ "onceward-look": "false" })).outcome, "executed");
    assert.equal((await send({ "onceward-look": "false" })).outcome, "replayed");
    assert.deepEqual(ledger.lines(), ["order"]);
    ledger.clear();
  }
});

onEveryStack("look finds the token in its form", async ({ shop, ledger }) => {
  const body = `a=1&_onceward=${await shop.token()}`;
  const send = (more) => shop.order(undefined, { "content-type": "application/x-www-form-urlencoded", ...more }, { path: "/forms", body });
  assert.equal((await send({ "onceward-look": "true" })).outcome, "not_found");
  assert.equal((await send()).outcome, "executed");
  assert.equal((await send({ "onceward-look": "true" })).outcome, "replayed");
  assert.deepEqual(ledger.lines(), ["order"]);
});

onEveryStack(
  "look is repeated after a lost answer, and is rejected while the service is down",
  async ({ shop, ledger, service }) => {
    await shop.order("k");
    assert.equal((await shop.order("k", { "onceward-look": "true" })).outcome, "replayed");
    service.stop();
    const down = await shop.order("k", { "onceward-look": "true" });
    assert.deepEqual([...statusAndOutcome(down), down.headers.get("retry-after")], [503, "store_unavailable", "1"]);
    assert.deepEqual(ledger.lines(), ["order"]);
  },
  { plan: () => (path, count) => (path === "/outcome" && count === 0 ? "lose" : undefined) },
);

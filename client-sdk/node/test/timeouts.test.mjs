// Calls of a handler that time out: what they asked for may have happened, so the outcome is unknown, and nothing runs again.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import express from "express";
import Fastify from "fastify";
import { NotApplied, stateEffect, Unknown } from "onceward-node";
import * as forExpress from "onceward-node/express";
import * as forFastify from "onceward-node/fastify";
import * as forFetch from "onceward-node/fetch";
import { client, listen, post, serve } from "./stage/app.mjs";
import { read } from "./stage/shop.mjs";

const { anonymous } = forExpress;

/** Starts a payment provider that charges and never responds. `charge` times out. */
async function startProvider(t) {
  const provider = { charges: 0 };
  const url = await serve(t, createServer(() => (provider.charges += 1)));
  provider.charge = async () => {
    const begun = provider.charges;
    const timeout = new AbortController();
    const call = fetch(url, { method: "POST", signal: timeout.signal });
    while (provider.charges === begun) await new Promise((go) => setTimeout(go, 5));
    // The reason of `AbortSignal.timeout`, as soon as the provider has charged.
    timeout.abort(new DOMException("The operation was aborted due to timeout", "TimeoutError"));
    return call;
  };
  return provider;
}

async function fastifyShop(t, protect, more, charge) {
  const app = Fastify();
  if (more.errorHandler) app.setErrorHandler(more.errorHandler);
  app.post("/orders", { ...protect, ...more.route }, more.handler?.(charge) ?? (async () => charge()));
  const url = `${await listen(t, app)}/orders`;
  return (headers) => post(url, "", headers);
}

function fetchShop(_, protect, options, charge) {
  const handler = protect(options, () => charge());
  return async (headers) => {
    const request = new Request("http://shop/orders", { method: "POST", headers: { "idempotency-key": "k", ...headers }, body: "tea" });
    return handler(request).then(read, (error) => ({ error, summary: [500, null] }));
  };
}

const errorPage = () => new Response("failed", { status: 500 });

/** How the error of a handler reaches the protection. */
const WAYS = {
  "fastify: the error page of Fastify": [fastifyShop, {}],
  "fastify: an error handler that responds": [fastifyShop, { errorHandler: (_error, _request, reply) => reply.code(500).send("failed") }],
  "fastify: an error handler that fails in turn": [fastifyShop, { errorHandler: async () => Promise.reject(new Error("no page")) }],
  "fastify: a callback": [fastifyShop, { handler: (charge) => (_, reply) => void charge().catch((error) => reply.send(error)) }],
  "fastify: an onError hook in place of the protection's": [fastifyShop, { route: { onError: async () => undefined } }],
  "fetch: onError": [fetchShop, { onError: errorPage }],
  "fetch: the error is thrown again": [fetchShop, {}],
};

function protections(onceward, stack, more) {
  const options = { subject: anonymous };
  if (stack === fastifyShop) {
    return { token: forFastify.protectToken(onceward, options), retryable: forFastify.protectKey(onceward, { ...options, atMostOnce: false }) };
  }
  return {
    token: (own, handler) => forFetch.protectToken(onceward, { ...options, ...own }, handler),
    retryable: (own, handler) => forFetch.protectKey(onceward, { ...options, atMostOnce: false, ...own }, handler),
  };
}

for (const [way, [stack, more]] of Object.entries(WAYS)) {
  test(`${way}: provider that times out charges once`, async (t) => {
    const onceward = await client(t);
    for (const protect of Object.values(protections(onceward, stack))) {
      const provider = await startProvider(t);
      const { token } = await onceward.issue();
      const send = await stack(t, protect, more, provider.charge);
      const first = await send({ "onceward-token": token });
      if (first.error) assert.equal(first.error.name, "TimeoutError");
      else assert.deepEqual([first.status, first.outcome], [500, "unknown"]);
      const again = await send({ "onceward-token": token });
      assert.deepEqual([again.status, again.outcome], [409, "in_progress"]);
      assert.equal(provider.charges, 1);
    }
  });
}

test("claim and once: work that times out runs once", async (t) => {
  const onceward = await client(t);
  const order = { action: "order", subject: "alice" };
  const { token } = await onceward.issue();
  for (const intent of [{ ...order, token }, { ...order, key: "k", atMostOnce: false }, { ...order, key: "at-most-once" }]) {
    const provider = await startProvider(t);
    await assert.rejects(onceward.claim(intent, provider.charge), { name: "TimeoutError" });
    await assert.rejects(onceward.once(() => intent, provider.charge)(), { code: "in_progress" });
    assert.equal(provider.charges, 1);
  }
});

test("timeout after NotApplied was created and caught is unknown, and NotApplied that wraps one is not applied", async (t) => {
  const onceward = await client(t);
  const intent = { action: "order", subject: "alice", atMostOnce: false };
  const provider = await startProvider(t);
  const handled = async () => {
    void new NotApplied();
    return provider.charge();
  };
  const send = fetchShop(t, protections(onceward).retryable, { onError: errorPage }, handled);
  assert.equal((await send()).outcome, "unknown");
  const refused = () => provider.charge().catch((error) => Promise.reject(new NotApplied("the provider reversed it", { cause: error })));
  for (const charges of [2, 3]) {
    await assert.rejects(onceward.claim({ ...intent, key: "n" }, refused), { name: "NotApplied" });
    assert.equal(provider.charges, charges);
  }
});

/** Responses of a handler that races its work against a timeout, and their outcome. */
const RACES = {
  "503": [() => new Response("too slow", { status: 503 }), "not_applied"],
  "504": [() => new Response("too slow", { status: 504 }), "unknown"],
  "503 that is stated as unknown": [() => (stateEffect("unknown"), new Response("too slow", { status: 503 })), "unknown"],
};

test("fetch: response of a race counts by its status, unless the handler states its effect", async (t) => {
  const onceward = await client(t);
  for (const [name, [tooSlow, expected]] of Object.entries(RACES)) {
    for (const protect of Object.values(protections(onceward))) {
      const { token } = await onceward.issue();
      let runs = 0;
      const work = () => ((runs += 1), new Promise(() => {}));
      const send = fetchShop(t, protect, {}, () => Promise.race([work(), sleep(10).then(tooSlow)]));
      const headers = { "idempotency-key": name.replaceAll(" ", "-"), "onceward-token": token };
      assert.equal((await send(headers)).outcome, expected, name);
      assert.equal((await send(headers)).outcome, expected === "unknown" ? "in_progress" : "not_applied", name);
      assert.equal(runs, expected === "unknown" ? 1 : 2);
    }
  }
});

/** The error handler that the README recommends. */
function recommended() {
  const [, handler] = readFileSync(new URL("../README.md", import.meta.url), "utf8").match(/ {2}app\.use\((\(error, request[^]*?)\);\n {2}```/);
  return new Function("Unknown", `return ${handler}`)(Unknown);
}

test("express: timeout counts by its error page, unless an error handler turns it into Unknown", async (t) => {
  const onceward = await client(t);
  for (const [handlers, expected] of [[[], "not_applied"], [[recommended()], "unknown"]]) {
    const provider = await startProvider(t);
    const app = express();
    app.post("/orders", forExpress.protectToken(onceward, { subject: anonymous }), async () => provider.charge());
    app.use(...handlers, (_error, _request, response, _next) => response.status(500).end());
    const url = `${await serve(t, app)}/orders`;
    const { token } = await onceward.issue();
    assert.deepEqual((await post(url, "", { "onceward-token": token })).summary, [500, expected]);
    const again = await post(url, "", { "onceward-token": token });
    assert.deepEqual([again.outcome, provider.charges], expected === "unknown" ? ["in_progress", 1] : ["not_applied", 2]);
  }
});

// Runs whose response is never sent: their claim is settled or left when they are over, and not renewed for an hour.

import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import express from "express";
import Fastify from "fastify";
import * as forExpress from "onceward-node/express";
import * as forFastify from "onceward-node/fastify";
import * as forFetch from "onceward-node/fetch";
import { listen, post, serve } from "./stage/app.mjs";
import { startProxy } from "./stage/faulty_proxy.mjs";
import { API_KEY, startService } from "./stage/service.mjs";
import { createLedger, until } from "./stage/shop.mjs";

const { anonymous, NotApplied, Onceward } = forExpress;
const OPTIONS = { subject: anonymous, action: "order", lease: 600 };

async function stage(t, plan) {
  const service = await startService(t);
  const proxy = await startProxy(t, service.url, plan);
  const onceward = new Onceward(proxy.url, { apiKey: API_KEY, log: () => undefined });
  return { proxy, onceward, state: (key) => service.state(key, { action: "order" }) };
}

/** A promise that `open` resolves. */
function gate() {
  let open;
  const promise = new Promise((go) => (open = go));
  return { promise, open };
}

/** Sends a request, and closes its connection as soon as `condition` holds. */
async function leave(url, key, condition, body = "") {
  const { hostname, port, pathname } = new URL(url);
  const socket = connect(Number(port), hostname);
  const head = `POST ${pathname} HTTP/1.1\r\nHost: shop\r\nContent-Type: text/plain\r\nContent-Length: ${body.length}\r\nIdempotency-Key: ${key}\r\n\r\n`;
  socket.write(head + body);
  await until("the client leaves", condition);
  socket.destroy();
  await once(socket, "close");
}

/** Serves a protected handler on Express. `runs` has the responses that it was called with. */
async function expressShop(t, onceward, handler, ...behind) {
  const runs = [];
  const app = express();
  app.post("/orders", forExpress.protectKey(onceward, OPTIONS), ...behind, (request, response, next) => {
    runs.push(response);
    return handler(request, response, next);
  });
  app.use((_error, _request, response, _next) => response.status(500).end());
  return { runs, url: `${await serve(t, app)}/orders` };
}

/** Serves a protected handler on Fastify. `runs` has the replies that it was called with. */
async function fastifyShop(t, onceward, handler) {
  const runs = [];
  const app = Fastify({ forceCloseConnections: true });
  app.post("/orders", forFastify.protectKey(onceward, OPTIONS), async (request, reply) => {
    runs.push(reply);
    return handler(request, reply);
  });
  return { runs, url: `${await listen(t, app)}/orders` };
}

test("express: file that is sent after its client has disconnected settles the run", async (t) => {
  const { onceward, state } = await stage(t);
  const path = join(createLedger(t).path, "../file.txt");
  writeFileSync(path, "x".repeat(100_000));
  const { promise, open } = gate();
  const { runs, url } = await expressShop(t, onceward, async (_, response) => {
    await promise;
    response.sendFile(path);
  });
  await leave(url, "k", () => runs.length === 1);
  await until("the server sees it", () => runs[0].destroyed);
  open();
  await until("the run is settled", async () => (await state("k")) === "done");
  assert.equal((await post(url, "", {}, "k")).outcome, "reply_not_kept");
});

test("express: file whose client disconnects before its first byte settles the run", async (t) => {
  const { onceward, state } = await stage(t);
  const path = join(createLedger(t).path, "../file.txt");
  writeFileSync(path, "x".repeat(100_000));
  const { runs, url } = await expressShop(t, onceward, (_, response) => {
    // The client leaves as soon as the file is open.
    response.once("pipe", () => response.req.socket.destroy());
    response.sendFile(path);
  });
  await assert.rejects(post(url, "", {}, "k"));
  await until("the run is settled", async () => (await state("k")) === "done");
  assert.equal(runs.length, 1);
});

for (const [name, shop] of [["express", (t, onceward, handler) => expressShop(t, onceward, handler, express.text())], ["fastify", fastifyShop]]) {
  test(`${name}: client that disconnects during the claim frees its key, and nothing runs`, async (t) => {
    const { proxy, onceward, state } = await stage(t, (path) => (path === "/claim" ? { delay: 100 } : undefined));
    const { runs, url } = await shop(t, onceward, (_, response) => response.send("made"));
    await leave(url, "k", () => proxy.count("/claim") === 1, "tea");
    await until("the key is released", () => proxy.count("/claim/release") === 1);
    await until("the key is free", async () => (await state("k")) === "absent");
    assert.equal(runs.length, 0);
    assert.equal((await post(url, "tea", { "content-type": "text/plain" }, "k")).outcome, "executed");
  });
}

test("timeout that responds during the claim frees its key, and nothing runs", async (t) => {
  const { proxy, onceward, state } = await stage(t, (path, count) => (path === "/claim" && count < 2 ? { delay: 100 } : undefined));
  const runs = [];
  /** Calls back when the claim is on its way. */
  const onClaim = (count, act) => until("the claim", () => proxy.count("/claim") === count).then(act);
  const app = express();
  app.use((request, response, next) => {
    if (request.get("x-timeout")) {
      void onClaim(1, () => response.status(503).write("too "));
      void until("the key is released", () => proxy.count("/claim/release") === 1).then(() => response.end("slow"));
    }
    next();
  });
  app.post("/orders", forExpress.protectKey(onceward, OPTIONS), (_, response) => response.send(`made ${runs.push("express")}`));
  const fast = Fastify();
  fast.addHook("onRequest", (request, reply, next) => {
    if (request.headers["x-timeout"]) void onClaim(2, () => reply.code(503).send("too slow"));
    next();
  });
  fast.post("/orders", forFastify.protectKey(onceward, OPTIONS), async () => `made ${runs.push("fastify")}`);
  for (const [key, url] of [["e", await serve(t, app)], ["f", await listen(t, fast)]]) {
    assert.equal((await post(`${url}/orders`, "", { "x-timeout": "yes" }, key)).status, 503);
    await until("the key is free", async () => proxy.count("/claim/release") > (key === "f") && (await state(key)) === "absent");
  }
  assert.deepEqual(runs, []);
});

/** The ways in which a Fastify handler ends without a hook after its client has disconnected, and the state of its key. */
const WITHOUT_HOOK = {
  "takes the response over before, and never ends it": [(reply) => reply.hijack(), () => new Promise(() => {}), "unknown"],
  "takes the response over before, and has begun it": [(reply) => reply.hijack().raw.write("a"), () => new Promise(() => {}), "done"],
  "takes the response over afterwards": [() => undefined, async (reply) => reply.hijack().raw.end("made"), "done"],
  "returns nothing": [() => undefined, async () => undefined, "done"],
  "returns a value": [() => undefined, async () => "made", "done"],
};

for (const [name, [before, after, expected]] of Object.entries(WITHOUT_HOOK)) {
  test(`fastify: handler that ${name} leaves no claim behind`, async (t) => {
    const { onceward, state } = await stage(t);
    const { promise, open } = gate();
    const { runs, url } = await fastifyShop(t, onceward, async (_, reply) => {
      before(reply);
      await promise;
      return after(reply);
    });
    await leave(url, "k", () => runs.length === 1);
    await until("the server sees it", () => runs[0].raw.destroyed);
    open();
    await until(`the key is ${expected}`, async () => (await state("k")) === expected);
  });
}

const REQUEST = () => new Request("http://shop/orders", { method: "POST", headers: { "idempotency-key": "k" }, body: "tea" });

/** Handlers of the Fetch API without a response, their options, and the state of the key. */
const WITHOUT_RESPONSE = {
  "returns no response": [async () => undefined, {}, TypeError, "unknown"],
  "returns a response that was read": [async () => read(), {}, TypeError, "unknown"],
  "throws, and so does onError": [() => fail(new Error("e")), { onError: () => fail(new RangeError()) }, RangeError, "unknown"],
  "throws, and onError rejects": [() => fail(new NotApplied()), { onError: async () => fail(new RangeError()) }, RangeError, "absent"],
  "throws, and onError returns no response": [() => fail(new Error("e")), { onError: () => undefined }, TypeError, "unknown"],
};

async function read() {
  const response = new Response("made");
  await response.text();
  return response;
}

function fail(error) {
  throw error;
}

for (const [name, [handler, options, error, expected]] of Object.entries(WITHOUT_RESPONSE)) {
  test(`fetch: handler that ${name} leaves no claim behind`, async (t) => {
    const { onceward, state } = await stage(t);
    await assert.rejects(forFetch.protectKey(onceward, { ...OPTIONS, ...options }, handler)(REQUEST()), error);
    await until(`the key is ${expected}`, async () => (await state("k")) === expected);
  });
}

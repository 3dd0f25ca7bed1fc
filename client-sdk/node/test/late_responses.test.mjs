// Decisions about a request whose response was sent meanwhile, by a timeout of the application.

import assert from "node:assert/strict";
import { Agent, request as send } from "node:http";
import { test } from "node:test";
import { setImmediate as tick } from "node:timers/promises";
import express from "express";
import { Onceward, protectKey } from "onceward-node/express";
import { serve } from "./stage/app.mjs";
import { API_KEY, startService } from "./stage/service.mjs";
import { read } from "./stage/shop.mjs";

/** Sends a request on a connection that is kept. */
function post(agent, url, key) {
  return new Promise((resolve, reject) => {
    const headers = { "idempotency-key": key, "content-length": 0 };
    const request = send(url, { method: "POST", agent, headers }, async (response) => {
      const [chunks, port] = [[], response.socket.localPort];
      for await (const chunk of response) chunks.push(chunk);
      resolve({ status: response.statusCode, text: Buffer.concat(chunks).toString(), port });
    });
    request.on("error", reject).end();
  });
}

for (const [name, decide, lines] of [
  ["is rejected", () => undefined, []],
  ["fails", () => { throw new Error("the session store is down"); }, ["a request failed after its response was sent, or its client left: Error: the session store is down"]],
]) {
  test(`request that ${name} after its response leaves the next request on its connection alone`, async (t) => {
    const [subject, handler] = [gate(), gate()];
    const log = [];
    const onceward = new Onceward((await startService(t)).url, { apiKey: API_KEY, log: (line) => log.push(line) });
    const app = express();
    app.use("/late", (request, response, next) => {
      next();
      response.status(503).send("too late");
    });
    app.post("/late", protectKey(onceward, { subject: () => subject.promise.then(decide) }), () => assert.fail("the handler ran"));
    app.post("/next", async (_, response) => {
      handler.resolve();
      await subject.promise;
      // The decision about the first request follows.
      await tick();
      await tick();
      response.send("made");
    });
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    t.after(() => agent.destroy());
    const url = await serve(t, app);
    const first = await post(agent, `${url}/late`, "k");
    assert.deepEqual([first.status, first.text], [503, "too late"]);
    const next = post(agent, `${url}/next`, "n");
    await handler.promise;
    subject.resolve();
    assert.deepEqual(await next, { status: 200, text: "made", port: first.port });
    assert.deepEqual(log, lines);
  });
}

test("own responses replace the headers of an earlier middleware, and add to Vary and Server-Timing", async (t) => {
  const onceward = new Onceward((await startService(t)).url, { apiKey: API_KEY, log: assert.fail });
  const app = express();
  app.use((_, response, next) => {
    response.type("json").set({ "cache-control": "no-cache", "server-timing": "db;dur=5", vary: "Origin" });
    next();
  });
  app.post("/orders", protectKey(onceward, { subject: (request) => request.get("x-user") }), (_, response) => {
    response.vary("Accept").set("link", ["<a>", "<b>"]).append("server-timing", "shop;dur=1").type("text").send("made");
  });
  const url = `${await serve(t, app)}/orders`;
  const sent = async (user) => (await read(await fetch(url, { method: "POST", headers: { "idempotency-key": "k", ...(user && { "x-user": user }) } }))).headers;
  const shown = (headers) => ["content-type", "cache-control", "server-timing", "vary", "link"].map((name) => headers.get(name));
  const first = shown(await sent("alice"));
  assert.deepEqual(first, ["text/plain; charset=utf-8", "no-cache", "db;dur=5, shop;dur=1, onceward;desc=executed", "Origin, Accept", "<a>, <b>"]);
  assert.deepEqual(shown(await sent("alice")), [...first.slice(0, 2), "db;dur=5, onceward;desc=replayed", ...first.slice(3)]);
  assert.deepEqual(shown(await sent()), ["application/problem+json", "no-store", "db;dur=5, onceward;desc=unauthorized", "Origin", null]);
});

function gate() {
  let resolve;
  const promise = new Promise((go) => (resolve = go));
  return { promise, resolve };
}

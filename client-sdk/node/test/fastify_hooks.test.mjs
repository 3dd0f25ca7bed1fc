// Hooks of an application beside those of the protection: a duplicate never reaches its handler.

import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import Fastify from "fastify";
import { anonymous, protectAll, protectKey, stateEffect } from "onceward-node/fastify";
import { client, listen, post } from "./stage/app.mjs";
import { until } from "./stage/shop.mjs";

/** Serves a route whose handler counts its runs. `hooks` returns the options of the route, and may change the application. */
async function shop(t, hooks, answer = async () => "made") {
  const app = Fastify();
  const protect = protectKey(await client(t), { subject: anonymous });
  const runs = [];
  app.post("/orders", await hooks(protect, app), async (request, reply) => {
    runs.push(request.headers["idempotency-key"] ?? "none");
    return answer(request, reply);
  });
  return { app, runs, url: `${await listen(t, app)}/orders` };
}

for (const delay of [undefined, 0, 40]) {
  test(`handler of a rejected or replayed request does not run behind an onSend hook that takes ${delay ?? "no"} ms`, async (t) => {
    const { app, runs, url } = await shop(t, (protect, app) => {
      app.addHook("onSend", async () => {
        if (delay !== undefined) await sleep(delay);
      });
      return protect;
    });
    for (const body of ["", "tea"]) {
      const headers = body && { "content-type": "text/plain" };
      assert.deepEqual((await post(url, body, headers, `k${body}`)).summary, [200, "executed"]);
      assert.deepEqual((await post(url, body, headers, `k${body}`)).summary, [200, "replayed"]);
      assert.deepEqual((await post(`${url}?express`, body, headers, `k${body}`)).summary, [422, "key_reused"]);
      assert.deepEqual((await post(url, body, headers, "a, b")).summary, [400, "key_malformed"]);
    }
    await app.close();
    assert.deepEqual(runs, ["k", "ktea"]);
  });
}

test("duplicate of a client that disconnects does not run, and its response is done", async (t) => {
  let sent = 0;
  const { app, runs, url } = await shop(t, (protect, app) => {
    app.addHook("onSend", () => sleep(40));
    app.addHook("onSend", async () => void (sent += 1));
    return protect;
  });
  await post(url, "");
  for (let at = 0; at < 5; at += 1) {
    const socket = connect(Number(new URL(url).port), "127.0.0.1");
    socket.write("POST /orders HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\nIdempotency-Key: k\r\n\r\n", () => socket.end());
    socket.resume();
  }
  await until("the responses are sent", () => sent === 6);
  await app.close();
  assert.deepEqual(runs, ["k"]);
});

/** The status and outcome of each kind of response, and the outcome of its duplicate. */
const KINDS = { made: [200, "executed", "replayed"], failed: [500, "unknown", "in_progress"], refused: [422, "executed", "replayed"], declined: [200, "not_applied", "not_applied"] };

async function answerOf({ headers }, reply) {
  if (headers["idempotency-key"] === "declined") stateEffect("not_applied");
  return reply.code(KINDS[headers["idempotency-key"]][0]).send("answer");
}

test("preHandler of the route in place of the protection's leaves the route protected", async (t) => {
  const { runs, url } = await shop(t, (protect) => ({ ...protect, preHandler: async () => undefined }), answerOf);
  for (const [kind, [status, first, second]] of Object.entries(KINDS)) {
    assert.deepEqual((await post(url, "", {}, kind)).summary, [status, first]);
    assert.equal((await post(url, "", {}, kind)).outcome, second);
  }
  assert.deepEqual(runs, [...Object.keys(KINDS), "declined"]);
});

test("preHandler in place of the protection's that rejects a request frees its key", async (t) => {
  const auth = async (request, reply) => {
    if (!request.headers["x-user"]) return reply.code(400).send("no user");
  };
  const { runs, url } = await shop(t, (protect) => ({ ...protect, preHandler: auth }));
  assert.deepEqual((await post(url, "")).summary, [400, "not_applied"]);
  assert.deepEqual((await post(url, "", { "x-user": "alice" })).summary, [200, "executed"]);
  assert.deepEqual((await post(url, "", { "x-user": "alice" })).summary, [200, "replayed"]);
  assert.deepEqual(runs, ["k"]);
});

test("preHandler of the application that fails frees the key of a request that did not run", async (t) => {
  const { runs, url } = await shop(t, (protect, app) => {
    app.addHook("preHandler", async (request) => {
      if (request.headers["x-fail"]) throw new Error("the hook failed");
    });
    return protect;
  });
  assert.deepEqual((await post(url, "", {}, "first")).summary, [200, "executed"]);
  assert.deepEqual((await post(url, "", { "x-fail": "yes" })).summary, [500, "not_applied"]);
  assert.deepEqual((await post(url, "")).summary, [200, "executed"]);
  assert.deepEqual(runs, ["first", "k"]);
});

test("hooks in arrays run beside the protection's", async (t) => {
  const seen = [];
  const see = (name) => async () => void seen.push(name);
  const { runs, url } = await shop(t, (protect) => ({ ...protect, preParsing: [see("preParsing"), protect.preParsing], preHandler: [protect.preHandler, see("preHandler")] }));
  assert.deepEqual([(await post(url, "")).outcome, (await post(url, "")).outcome], ["executed", "replayed"]);
  assert.deepEqual([runs, seen], [["k"], ["preParsing", "preHandler", "preParsing"]]);
});

test("hooks of a route run beside those of protectAll", async (t) => {
  const runs = [];
  const app = Fastify();
  await app.register(protectAll, protectKey(await client(t), { subject: anonymous }));
  const hook = async () => undefined;
  app.post("/orders", { preParsing: hook, preHandler: hook, onSend: hook }, async () => `made ${runs.push("run")}`);
  const url = `${await listen(t, app)}/orders`;
  assert.deepEqual([(await post(url, "")).outcome, (await post(url, "")).outcome], ["executed", "replayed"]);
  assert.equal(runs.length, 1);
});

test("Server-Timing and Vary of handlers and hooks stay", async (t) => {
  const answer = (_, reply) => reply.header("server-timing", "shop;dur=1").header("vary", "Origin, Accept").send("made");
  const { url } = await shop(t, (protect, app) => {
    app.addHook("onRequest", async (_, reply) => void reply.header("vary", "Origin").header("server-timing", "db;dur=5"));
    return protect;
  }, answer);
  const shown = async () => {
    const { headers } = await post(url, "");
    return [headers.get("server-timing"), headers.get("vary")];
  };
  assert.deepEqual(await shown(), ["shop;dur=1, onceward;desc=executed", "Origin, Accept"]);
  assert.deepEqual(await shown(), ["db;dur=5, onceward;desc=replayed", "Origin, Accept"]);
});

test("path without a route frees the key", async (t) => {
  const app = Fastify();
  await app.register(protectAll, protectKey(await client(t), { subject: anonymous, action: "order" }));
  app.post("/orders", async () => "made");
  const url = await listen(t, app);
  assert.deepEqual((await post(`${url}/order`, "")).summary, [404, "not_applied"]);
  assert.deepEqual((await post(`${url}/orders`, "")).summary, [200, "executed"]);
});

test("preParsing in place of the protection's is an error, and nothing runs", async (t) => {
  const { runs, url } = await shop(t, (protect) => ({ ...protect, preParsing: async () => undefined }));
  const { status, text } = await post(url, "");
  assert.equal(status, 500);
  assert.match(text, /preParsing hook has replaced that of Onceward/);
  assert.deepEqual(runs, []);
});

test("both hooks before the handler replaced is an error", async (t) => {
  const { url } = await shop(t, (protect) => ({ ...protect, preParsing: async () => undefined, preHandler: async () => undefined }));
  assert.deepEqual((await post(url, "")).summary, [500, null]);
});

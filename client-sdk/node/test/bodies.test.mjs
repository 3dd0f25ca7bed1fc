// Bodies: the parsers behind the protection find them as they were sent.

import assert from "node:assert/strict";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import multipart from "@fastify/multipart";
import express from "express";
import Fastify from "fastify";
import multer from "multer";
import * as forExpress from "onceward-node/express";
import * as forFastify from "onceward-node/fastify";
import { client, listen, post, serve } from "./stage/app.mjs";
import { until } from "./stage/shop.mjs";

const { anonymous, NotApplied } = forExpress;
const FILE = Buffer.from([...Array(256).keys()]);

function form(item = "tea") {
  const fields = new FormData();
  fields.set("item", item);
  fields.set("file", new Blob([FILE]), "file.bin");
  return fields;
}

const JSON_TYPE = { "content-type": "application/json" };

test("express: JSON, chunked, text and multipart parsers find the whole body", async (t) => {
  const protect = forExpress.protectKey(await client(t), { subject: anonymous });
  const app = express();
  app.post("/json", protect, express.json({ limit: "300kb" }), (request, response) => response.send({ length: request.body.text.length }));
  app.post("/raw", protect, express.raw({ type: () => true }), (request, response) => response.send(request.body));
  app.post("/form", protect, multer().single("file"), (request, response) => {
    assert.ok(request.file.buffer.equals(FILE));
    if (request.body.item === "none") throw new NotApplied();
    response.send(request.body.item);
  });
  app.post("/late", protect, async (request, response) => {
    await new Promise((go) => setTimeout(go, 50));
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    response.send(Buffer.concat(chunks));
  });
  const url = await serve(t, app);
  const large = JSON.stringify({ text: "x".repeat(200_000) });
  assert.equal((await post(`${url}/json`, large, JSON_TYPE)).text, '{"length":200000}');
  assert.deepEqual((await post(`${url}/json`, large, JSON_TYPE)).summary, [200, "replayed"]);
  const chunked = () => new Blob([FILE, "x".repeat(100_000)]).stream();
  assert.equal((await post(`${url}/raw`, chunked())).body.length, 100_256);
  assert.deepEqual((await post(`${url}/raw`, chunked())).summary, [200, "replayed"]);
  assert.equal((await post(`${url}/late`, chunked())).body.length, 100_256);
  assert.equal((await post(`${url}/late`, "", {}, "empty")).body.length, 0);
  assert.equal((await post(`${url}/form`, form())).text, "tea");
  assert.deepEqual((await post(`${url}/form`, form())).summary, [200, "replayed"]);
  assert.deepEqual((await post(`${url}/form`, form("coffee"))).summary, [422, "key_reused"]);
  assert.deepEqual((await post(`${url}/form`, form("none"), {}, "n")).summary, [500, "not_applied"], "multer keeps the context");
});

test("express: body that a parser has read before is compared by its value", async (t) => {
  const app = express();
  app.use(express.json(), multer().any());
  app.post("/json", forExpress.protectKey(await client(t), { subject: anonymous }), (request, response) => response.send(request.body));
  app.use((error, _request, response, _next) => response.status(500).send(error.message));
  const url = await serve(t, app);
  assert.deepEqual((await post(`${url}/json`, '{"a":1,"b":2}', JSON_TYPE)).summary, [200, "executed"]);
  assert.deepEqual((await post(`${url}/json`, '{"b":2,"a":1}', JSON_TYPE)).summary, [200, "replayed"]);
  assert.deepEqual((await post(`${url}/json`, '{"a":1,"b":3}', JSON_TYPE)).summary, [422, "key_reused"]);
  assert.match((await post(`${url}/json`, form(), {}, "f")).text, /put Onceward before/, "files would not be compared");
});

test("express: parsed value is compared, which is what the handler receives", async (t) => {
  const app = express();
  app.use(express.json({ strict: false }), express.text());
  app.post("/echo", forExpress.protectKey(await client(t), { subject: anonymous }), (request, response) => response.json(request.body));
  const url = `${await serve(t, app)}/echo`;
  const same = [['{"a":1.0, "b":"\\u0041"}', '{"b":"A","a":1e0}'], ['{"a":1,"a":2}', '{"a":2}'], ["0.1", "0.1000000000000000055511151231257827"]];
  for (const [at, [first, second]] of same.entries()) {
    assert.deepEqual(JSON.parse(first), JSON.parse(second));
    assert.equal((await post(url, first, JSON_TYPE, `same-${at}`)).outcome, "executed", first);
    assert.equal((await post(url, second, JSON_TYPE, `same-${at}`)).outcome, "replayed", second);
  }
  const different = [['{"a":1}', '"{\\"a\\":1}"'], ["[1,2]", "[2,1]"], ["null", '"null"'], ['{"a":"1"}', '{"a":1}']];
  for (const [at, [first, second]] of different.entries()) {
    assert.equal((await post(url, first, JSON_TYPE, `other-${at}`)).outcome, "executed", first);
    assert.equal((await post(url, second, JSON_TYPE, `other-${at}`)).outcome, "key_reused", second);
  }
  const text = { "content-type": "text/plain" };
  assert.deepEqual([(await post(url, "tea", text)).outcome, (await post(url, "tea", text)).outcome], ["executed", "replayed"]);
});

test("express: number whose digits a parser has lost is rejected", async (t) => {
  const app = express();
  let runs = 0;
  app.use(express.json());
  app.post("/accounts", forExpress.protectKey(await client(t), { subject: anonymous }), (_, response) => response.send(String((runs += 1))));
  app.use((error, _request, response, _next) => response.status(500).send(error.message));
  const url = `${await serve(t, app)}/accounts`;
  const send = (number, key) => post(url, `{"account":[${number}]}`, JSON_TYPE, key);
  // The same double, and so the same fingerprint.
  assert.equal(JSON.parse("12345678901234567890"), JSON.parse("12345678901234567891"));
  for (const number of ["12345678901234567890", "12345678901234567891", "-9007199254740993", "1e400"]) assert.match((await send(number, "a")).text, /put Onceward before it/, number);
  for (const number of ["9007199254740991", "0.1", "1e2"]) assert.deepEqual((await send(number, number)).summary, [200, "executed"], number);
  assert.equal(runs, 3);
});

/** Sends the head and the end of an empty chunked body in one packet. Returns the outcome. */
async function sendEmptyChunked(url, key) {
  const { hostname, port, pathname } = new URL(url);
  const socket = connect(Number(port), hostname);
  const head = `POST ${pathname} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nContent-Type: text/plain\r\nIdempotency-Key: ${key}\r\n`;
  socket.write(`${head}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n`);
  return /onceward-outcome: (\w+)/i.exec(await text(socket))?.[1];
}

test("empty chunked body is answered", { timeout: 20_000 }, async (t) => {
  const onceward = await client(t);
  const app = express();
  app.post("/orders", forExpress.protectKey(onceward, { subject: anonymous }), express.text(), (_, response) => response.send("made"));
  const fast = Fastify();
  fast.post("/fast", forFastify.protectKey(onceward, { subject: anonymous }), async () => "made");
  for (const url of [`${await serve(t, app)}/orders`, `${await listen(t, fast)}/fast`]) {
    assert.deepEqual([await sendEmptyChunked(url, "e"), await sendEmptyChunked(url, "e")], ["executed", "replayed"]);
  }
});

test("express: error after the response changes nothing, and a response that ends twice is sent once", async (t) => {
  const app = express();
  const protect = forExpress.protectKey(await client(t), { subject: anonymous });
  app.post("/late-error", protect, async (_, response) => {
    response.status(201).send("made");
    throw new Error("after the response");
  });
  app.post("/head", protect, (_, response) => {
    response.setHeader("x-one", "1");
    response.writeHead(201, "Made", ["X-Two", "2", "location", "/1"]);
    response.end("made");
    response.end("again");
  });
  app.post("/length", protect, (_, response) => {
    response.writeHead(201, { "content-length": 8 });
    assert.equal(response.write("made"), true);
    response.end("made");
  });
  const url = await serve(t, app);
  t.mock.method(console, "error", () => undefined);
  for (const outcome of ["executed", "replayed"]) {
    const late = await post(`${url}/late-error`, "");
    assert.deepEqual([...late.summary, late.text], [201, outcome, "made"]);
    const head = await post(`${url}/head`, "");
    assert.deepEqual([...head.summary, head.text, head.headers.get("location")], [201, outcome, "made", "/1"]);
    assert.deepEqual([head.headers.get("x-one"), head.headers.get("x-two")], outcome === "executed" ? ["1", "2"] : [null, null]);
    const length = await post(`${url}/length`, "");
    assert.deepEqual([...length.summary, length.text], [201, outcome, "mademade"]);
  }
});

test("express: large stream is sent with backpressure", async (t) => {
  const app = express();
  const size = 64 * 1024;
  let buffered = 0;
  app.post("/stream", forExpress.protectKey(await client(t), { subject: anonymous }), async (_, response) => {
    for (let at = 0; at < 400; at += 1) {
      if (!response.write(Buffer.alloc(size))) await new Promise((go) => response.once("drain", go));
      buffered = Math.max(buffered, response.writableLength);
    }
    response.end();
  });
  const answer = await post(`${await serve(t, app)}/stream`, "");
  assert.equal(answer.body.length, 400 * size);
  assert.ok(buffered <= 2 * size, `${buffered} bytes in memory`);
});

test("fastify: parsers and multipart find the whole body", async (t) => {
  const protect = forFastify.protectKey(await client(t), { subject: anonymous });
  const app = Fastify();
  await app.register(multipart);
  app.post("/json", protect, async ({ body }) => body);
  app.post("/checked", { ...protect, schema: { body: { type: "object", required: ["item"] } } }, async ({ body }) => body);
  app.post("/form", protect, async (request) => {
    const file = await request.file();
    assert.ok((await file.toBuffer()).equals(FILE));
    return file.fields.item.value;
  });
  app.post("/none", protect, async () => {
    throw new NotApplied();
  });
  app.setErrorHandler((error, _, reply) => reply.code(error.statusCode ?? 500).send({ failed: error.message }));
  const url = await listen(t, app);
  assert.equal((await post(`${url}/json`, '{"a":1}', JSON_TYPE)).text, '{"a":1}');
  assert.deepEqual((await post(`${url}/json`, '{"a":1}', JSON_TYPE)).summary, [200, "replayed"]);
  assert.equal((await post(`${url}/form`, form())).text, "tea");
  assert.deepEqual((await post(`${url}/form`, form())).summary, [200, "replayed"]);
  const chunked = () => new Blob(['{"item":"', "x".repeat(100_000), '"}']).stream();
  assert.equal((await post(`${url}/json`, chunked(), JSON_TYPE, "chunked")).text.length, 100_011);
  assert.deepEqual((await post(`${url}/checked`, "{}", JSON_TYPE)).summary, [400, "not_applied"], "the handler was not called");
  assert.deepEqual((await post(`${url}/checked`, '{"item":1}', JSON_TYPE)).summary, [200, "executed"]);
  assert.deepEqual((await post(`${url}/none`, "")).summary, [500, "not_applied"], "also with an error handler");
  const inject = () => app.inject({ method: "POST", url: "/json", headers: { "idempotency-key": "i" }, payload: { a: 1 } });
  assert.deepEqual([(await inject()).headers["onceward-outcome"], (await inject()).headers["onceward-outcome"]], ["executed", "replayed"]);
});

test("fastify: plugin protects the routes of its scope only", async (t) => {
  const onceward = await client(t);
  const app = Fastify();
  await app.register(async (scope) => {
    await scope.register(forFastify.protectAll, forFastify.protectKey(onceward, { subject: anonymous }));
    scope.post("/inside", async () => "made");
  });
  app.post("/outside", async () => "made");
  const url = await listen(t, app);
  assert.deepEqual([(await post(`${url}/inside`, "")).outcome, (await post(`${url}/outside`, "")).outcome], ["executed", null]);
});

test("response of a timeout is unknown while its handler still runs", async (t) => {
  const onceward = await client(t);
  const done = [];
  const slow = async () => {
    await new Promise((go) => setTimeout(go, 1500));
    done.push("order");
  };
  const app = express();
  app.use((_, response, next) => {
    setTimeout(() => response.headersSent || response.status(503).send("too slow"), 600);
    next();
  });
  app.post("/slow", forExpress.protectKey(onceward, { subject: anonymous, atMostOnce: false }), async (_, response) => {
    await slow();
    response.send("late");
  });
  const fast = Fastify();
  fast.addHook("onRequest", (_, reply, next) => {
    setTimeout(() => reply.sent || reply.code(503).send("too slow"), 600);
    next();
  });
  fast.post("/late", forFastify.protectKey(onceward, { subject: anonymous, atMostOnce: false }), async () => slow());
  const urls = [`${await serve(t, app)}/slow`, `${await listen(t, fast)}/late`];
  for (const url of urls) {
    assert.deepEqual((await post(url, "")).summary, [503, "unknown"]);
    assert.deepEqual((await post(url, "")).summary, [409, "in_progress"]);
  }
  await until("the handlers end", () => done.length === 2);
});

test("fastify: response that its handler writes itself is settled", async (t) => {
  const app = Fastify();
  app.post("/raw", forFastify.protectKey(await client(t), { subject: anonymous }), async (_, reply) => {
    reply.hijack();
    reply.raw.end("made");
  });
  const url = `${await listen(t, app)}/raw`;
  assert.deepEqual((await post(url, "")).summary, [200, null]);
  await until("the run is settled", async () => (await post(url, "")).outcome === "reply_not_kept");
});

// Middleware that wraps the methods of a response, before the protection and behind it.

import assert from "node:assert/strict";
import { pipeline } from "node:stream/promises";
import { Readable } from "node:stream";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import compression from "compression";
import cookieSession from "cookie-session";
import express from "express";
import session from "express-session";
import { anonymous, protectKey } from "onceward-node/express";
import { client, post, serve } from "./stage/app.mjs";

const LINE = "a line of some length\n";
const COMPRESSED = { "accept-encoding": "gzip" };

/** Serves routes that are protected between two lists of middleware. */
async function shop(t, { before = [], behind = [] }, handler) {
  const app = express();
  app.post("/orders", ...before, protectKey(await client(t), { subject: anonymous }), ...behind, handler);
  return `${await serve(t, app)}/orders`;
}

/** Stores sessions after a moment, as a database does. */
class SlowStore extends session.MemoryStore {
  set(...rest) {
    setTimeout(() => super.set(...rest), 30);
  }
}

const SESSIONS = {
  "express-session": () => session({ secret: "s", resave: false, saveUninitialized: false, store: new SlowStore() }),
  "cookie-session": () => cookieSession({ name: "cookie", secret: "s" }),
};

for (const [name, sessions] of Object.entries(SESSIONS)) {
  for (const place of ["before", "behind"]) {
    test(`${name} ${place} the protection saves the session and sets its cookie`, async (t) => {
      const url = await shop(t, { [place]: [sessions()] }, (request, response) => {
        request.session.count = (request.session.count ?? 0) + 1;
        if (request.get("x-empty")) return response.status(204).end();
        response.json({ count: request.session.count });
      });
      const first = await post(url, "");
      assert.deepEqual([...first.summary, first.text], [200, "executed", '{"count":1}']);
      const cookie = first.headers.getSetCookie().map((each) => each.split(";")[0]).join("; ");
      assert.ok(cookie);
      assert.equal((await post(url, "", { cookie }, "second")).text, '{"count":2}');
      const again = await post(url, "");
      assert.deepEqual([...again.summary, again.text], [200, "replayed", '{"count":1}']);
      const empty = await post(url, "", { "x-empty": "yes" }, "empty");
      assert.deepEqual([...empty.summary, empty.headers.getSetCookie().length > 0], [204, "executed", true]);
    });
  }
}

for (const place of ["before", "behind"]) {
  test(`compression ${place} the protection compresses the whole response`, { timeout: 30_000 }, async (t) => {
    const lines = (count) => Readable.from((async function* () {
      for (let at = 0; at < count; at += 1) {
        yield LINE;
        await sleep(10);
      }
    })());
    const url = await shop(t, { [place]: [compression({ threshold: 0 })] }, async (request, response) => {
      response.type("text/plain");
      if (request.get("x-whole")) return void response.send(LINE.repeat(100));
      if (request.get("x-large")) return pipeline(Readable.from(Array(200).fill(Buffer.alloc(20_000, "x"))), response);
      if (request.get("x-pipe")) return pipeline(lines(20), response);
      for (let at = 0; at < 20; at += 1) {
        response.write(LINE);
        response.flush();
        await sleep(10);
      }
      response.end("end");
    });
    const whole = await post(url, "", { ...COMPRESSED, "x-whole": "yes" });
    assert.deepEqual([...whole.summary, whole.text, whole.headers.get("content-encoding")], [200, "executed", LINE.repeat(100), "gzip"]);
    const again = await post(url, "", { ...COMPRESSED, "x-whole": "yes" });
    if (place === "before") assert.deepEqual([...again.summary, again.text, again.headers.get("content-encoding")], [200, "replayed", LINE.repeat(100), "gzip"]);
    else assert.deepEqual(again.summary, [409, "reply_not_kept"], "a stream is not stored");
    const streamed = await post(url, "", COMPRESSED, "streamed");
    assert.deepEqual([...streamed.summary, streamed.text], [200, "executed", `${LINE.repeat(20)}end`]);
    const piped = await post(url, "", { ...COMPRESSED, "x-pipe": "yes" }, "piped");
    assert.deepEqual([...piped.summary, piped.text, piped.headers.get("content-encoding")], [200, "executed", LINE.repeat(20), "gzip"]);
    const large = await post(url, "", { ...COMPRESSED, "x-large": "yes" }, "large");
    assert.deepEqual([...large.summary, large.body.length], [200, "executed", 4_000_000]);
  });
}

test("wrapper behind the protection stays in place for every chunk, and is not removed", async (t) => {
  const chunks = [];
  const wrap = (_, response, next) => {
    const { write } = response;
    response.write = (chunk, ...rest) => {
      chunks.push(String(chunk));
      return write.call(response, String(chunk).toUpperCase(), ...rest);
    };
    next();
  };
  const url = await shop(t, { behind: [wrap] }, async (_, response) => {
    for (const chunk of ["a", "b", "c"]) {
      await new Promise((go) => response.write(chunk, go));
      await sleep(20);
    }
    response.end();
  });
  assert.equal((await post(url, "")).text, "ABC");
  assert.deepEqual(chunks, ["a", "b", "c"]);
});

test("headers of writeHead that are listed twice are sent twice", async (t) => {
  const url = await shop(t, {}, (request, response) => {
    response.setHeader("Set-Cookie", "old=1");
    const [first, second] = [["Set-Cookie", "a=1"], ["Set-Cookie", "b=2"]];
    const shape = { flat: [...first, ...second], pairs: [first, second], values: ["Set-Cookie", ["a=1", "b=2"]], object: { "Set-Cookie": ["a=1", "b=2"] } };
    response.writeHead(200, shape[request.get("x-shape")]).end();
  });
  for (const shape of ["flat", "pairs", "values", "object"]) {
    assert.deepEqual((await post(url, "", { "x-shape": shape }, shape)).headers.getSetCookie(), ["a=1", "b=2"], shape);
  }
});

test("empty first chunk calls its callback, and the stream goes on", { timeout: 20_000 }, async (t) => {
  const url = await shop(t, {}, async (request, response) => {
    if (request.get("x-pipe")) return pipeline(Readable.from([Buffer.alloc(0), Buffer.from("made")], { objectMode: false }), response);
    await new Promise((go) => response.write("", go));
    response.end("made");
  });
  assert.equal((await post(url, "")).text, "made");
  assert.equal((await post(url, "", { "x-pipe": "yes" }, "piped")).text, "made");
});

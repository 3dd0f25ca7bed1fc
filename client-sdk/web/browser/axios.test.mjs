// The requests that the axios adapter changes, and those that it leaves alone.

import assert from "node:assert/strict";
import http from "node:http";
import { test } from "node:test";
import { serve } from "./clicking.mjs";
import { bundle } from "./libraries.mjs";
import { begun, orders, stage } from "./story.mjs";
import { Visitor } from "./stage.mjs";

/** The page: `axios`, guarded, and a form. */
const PAGE = `
  import axios from "axios";
  import { guardAxios } from "onceward/axios";
  window.axios = axios;
  guardAxios(axios, { baseUrl: "/web" });
  window.order = (item, settings) => axios.post("/web/orders", new URLSearchParams({ item }), settings);`;

/** Runs a function in the page, and returns its result and the headers of all requests to `/web/orders`. */
async function inPage(act, given, markup = "<form><input name=item><button>Order</button></form>") {
  const visitor = await Visitor.come(stage);
  const seen = [];
  visitor.context.on("request", (request) => request.url().includes("/orders") && seen.push(request.headers()));
  await serve(visitor, { "page.html": `<!doctype html><title>made</title><script src="page.js" defer></script>${markup}`, "page.js": await bundle(PAGE) });
  const page = await visitor.open("/web/made/page.html");
  const said = await page.evaluate(act, given);
  const tokens = seen.map((headers) => headers["onceward-token"]);
  await visitor.leave();
  return { said, seen, tokens };
}

test("each call outside of a submit event is a submission of its own", async () => {
  const { said, tokens } = await inPage(async () => {
    const results = await Promise.all([1, 2].map(() => order("separate.")));
    return results.map(({ status, config }) => [status, config.onceward.outcome]);
  });
  assert.deepEqual(said, [[200, "executed"], [200, "executed"]]);
  assert.equal(orders("separate."), 2);
  assert.equal(new Set(tokens).size, 2);
});

test("the same submission is replayed when its config is sent again", async () => {
  const { said, tokens } = await inPage(async () => {
    const first = await order("repeated.");
    const again = await axios(first.config);
    return [first.data == again.data, again.config.onceward.outcome];
  });
  assert.deepEqual(said, [true, "replayed"]);
  assert.deepEqual([begun("repeated."), new Set(tokens).size], [1, 1]);
});

test("calls of one submit event to two URLs are one submission each within a triple click", async () => {
  const { said } = await inPage(async () => {
    const form = document.querySelector("form");
    form.item.value = "submitted.";
    const sent = [];
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      sent.push(axios.post("/web/orders", new URLSearchParams({ item: form.item.value })), axios.post("/web/plain", new URLSearchParams({ item: `${form.item.value}log` })));
    });
    for (let click = 0; click < 3; click++) form.requestSubmit();
    return (await Promise.all(sent)).map(({ status }) => status);
  });
  assert.deepEqual(said, Array(6).fill(200));
  assert.deepEqual([orders("submitted.") - orders("submitted.log"), orders("submitted.log")], [1, 1], "both URLs, each once");
});

test("uploads of one submit event are one submission each, and one within a double click", async () => {
  const { said, tokens } = await inPage(async () => {
    const type = "application/x-www-form-urlencoded";
    const bytes = (text) => new TextEncoder().encode(text);
    const files = (text) => new File([text], `${text}.txt`, { type, lastModified: 1 });
    const parts = (text) => {
      const data = new FormData();
      data.set("part", new Blob([text]));
      return data;
    };
    // Data of the same kind and size. The blobs with `again` are one submission.
    const kinds = [files, (text) => new Blob([text], { type }), (text) => bytes(text).buffer, bytes];
    const make = () => kinds.flatMap((kind, at) => [1, 2, 3].map((number) => kind(`item=upload${at}-${number}.`)));
    const form = document.querySelector("form");
    const sent = [];
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const chunks = [1, 2, 3].map((number) => parts(`${number}`));
      const all = [...make(), ...["again.", "again."].map((text) => new Blob([`item=upload-${text}`], { type }))];
      for (const data of all) sent.push(axios.post("/web/orders", data, { headers: { "Content-Type": type } }));
      for (const data of chunks) sent.push(axios.post("/web/orders?chunk", data));
    });
    form.requestSubmit();
    return (await Promise.allSettled(sent)).map(({ value, reason }) => (value ?? reason.response).status);
  });
  assert.deepEqual(said.slice(0, 14), Array(14).fill(200));
  const uploads = [0, 1, 2, 3].map((at) => [1, 2, 3].map((number) => orders(`upload${at}-${number}.`)));
  assert.deepEqual([uploads, orders("upload-again.")], [Array(4).fill([1, 1, 1]), 1]);
  // Three chunks beside them.
  assert.equal(new Set(tokens).size, 12 + 1 + 3);
});

test("form data with an equal blob or file is one submission within a double click, whenever it was made", async () => {
  const { said, tokens } = await inPage(async () => {
    const values = [
      (text) => [new Blob([text])],
      (text) => [new Blob([text]), "photo.jpg"],
      (text) => [new File([text], "note.txt")],
    ];
    const form = document.querySelector("form");
    const sent = [];
    let make;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      for (let click = 0; click < 2; click++) {
        const now = Date.now();
        // Until a blob or file that is made has another time.
        while (Date.now() < now + 2);
        const data = new FormData();
        data.set("part", ...make());
        sent.push(axios.post("/web/orders?equal", data));
      }
    });
    for (const text of ["one", "two"]) {
      for (const value of values) {
        make = () => value(text);
        form.requestSubmit();
        await Promise.allSettled(sent);
      }
    }
    return sent.length;
  });
  assert.equal(said, 12);
  assert.equal(new Set(tokens).size, 6, "three kinds with two contents each");
});

test("a key is sent instead of a token", async () => {
  const { said, seen } = await inPage(async () => {
    const send = () => axios.post("/keyed/orders", "item=keyed", { onceward: { key: "axios-1" }, headers: { "x-order": "axios-keyed" } });
    const results = [await send(), await send()];
    return results.map(({ config }) => config.onceward.outcome);
  });
  assert.deepEqual(said, ["executed", "replayed"]);
  assert.deepEqual(seen.map((headers) => [headers["idempotency-key"], headers["onceward-token"]]), [["axios-1", undefined], ["axios-1", undefined]]);
});

test("a rejected request is an axios error with its outcome, and its config starts a new submission", async () => {
  const { said, tokens } = await inPage(async () => {
    const own = await order("rejected.", { headers: { "Onceward-Token": "wrong" } }).catch((error) => error);
    const { config } = own;
    config.headers.delete("Onceward-Token");
    const again = await axios(config);
    return [axios.isAxiosError(own), own.response.status, config.onceward.outcome, again.status];
  });
  assert.deepEqual([said[0], said[2], said[3]], [true, "rejected", 200]);
  assert.ok(said[1] >= 400 && said[1] < 500, `${said[1]}`);
  assert.equal(orders("rejected."), 1);
  assert.equal(tokens[0], "wrong");
});

test("a lost request whose repetition is rejected stays unknown, and keeps its token", async () => {
  const { said, tokens } = await inPage(async () => {
    // The shop places the order and its response is lost; then the store is unavailable, and then it is there again.
    const { fetch } = window;
    let calls = 0;
    const rejection = { "content-type": "application/problem+json", "onceward-outcome": "store_unavailable", "onceward-retry": "same", "retry-after": "0.001" };
    window.fetch = async (...call) => {
      if (!call[0].url?.includes("/orders") || (calls += 1) > 8) return fetch(...call);
      if (calls > 1) return new Response('{"code":"store_unavailable","retry":"same"}', { status: 503, headers: rejection });
      await fetch(...call);
      throw new TypeError("Failed to fetch");
    };
    const failed = (sent) => sent.then(() => "sent", (error) => error);
    const lost = await failed(order("lost."));
    const rejected = await failed(axios(lost.config));
    const { config, status } = await axios(rejected.config);
    return [lost.config.onceward.outcome, rejected.config.onceward.outcome, config.onceward.outcome, status];
  });
  assert.deepEqual(said, ["unknown", "unknown", "replayed", 200]);
  assert.deepEqual([orders("lost."), new Set(tokens).size], [1, 1]);
});

for (const [name, settings] of [["timeout", "({ timeout: 300 })"], ["signal", "({ signal: AbortSignal.timeout(300) })"]]) {
  test(`a request that ends by its ${name} is unknown, and its config repeats the same submission`, async () => {
    const item = `${name}.`;
    const { said, tokens } = await inPage(
      async ([item, settings]) => {
        const slow = { ...eval(settings), params: { takes: 1200 } };
        const error = await order(item, slow).catch((error) => error);
        const { timeout, signal, ...config } = error.config;
        let again;
        // The first run is in flight at first.
        for (let tries = 0; tries < 5 && again?.status != 200; tries += 1) again = await axios(again?.config ?? config).catch((error) => error);
        return [axios.isAxiosError(error) || axios.isCancel(error), error.config.onceward.outcome, again.config.onceward.outcome];
      },
      [item, settings],
    );
    assert.deepEqual(said, [true, "unknown", "replayed"]);
    assert.deepEqual([begun(item), orders(item), new Set(tokens).size], [1, 1, 1]);
  });
}

test("a request that is aborted before it is sent is rejected", async () => {
  const { said, tokens } = await inPage(async () => {
    const error = await order("unsent.", { signal: AbortSignal.abort() }).catch((error) => error);
    return [axios.isCancel(error), (await order("unsent.")).status];
  });
  assert.deepEqual([said, orders("unsent."), tokens.length], [[true, 200], 1, 1]);
});

test("GET, another origin and an adapter function are left alone", async () => {
  const seen = [];
  const other = http.createServer((request, answer) => {
    seen.push([request.method, request.headers["onceward-token"], request.headers["idempotency-key"]]);
    answer.writeHead(200, { "access-control-allow-origin": "*", "access-control-allow-headers": "*" }).end("other");
  });
  await new Promise((go) => other.listen(0, "127.0.0.1", go));
  // Chromium keeps a page that a test has made up from requests to another local port.
  const visitor = await Visitor.come(stage, { bypassCSP: true });
  const page = await visitor.open("/web/pages/receipt");
  await page.evaluate(await bundle(PAGE));
  const got = await page.evaluate(async (url) => {
    const mocked = [];
    const adapter = async (config) => (mocked.push(config.headers.has("Onceward-Token")), { data: "mock", status: 200, headers: {}, config });
    const results = [await axios.post(url, "item=other"), await axios.get("/web/pages/receipt"), await axios.post("/web/orders", "item=mock", { adapter })];
    return [mocked, ...results.map(({ config }) => config.onceward)];
  }, `http://127.0.0.1:${other.address().port}/orders`);
  await visitor.context.close();
  other.close();
  assert.deepEqual(got, [[false], undefined, undefined, undefined]);
  assert.deepEqual(seen, [["POST", undefined, undefined]]);
});

// `onceward.fetch` in a real browser, against a real guard.

import assert from "node:assert/strict";
import http from "node:http";
import { after, before, test } from "node:test";
import { Stage, Visitor } from "./stage.mjs";

let stage;
before(async () => (stage = await Stage.open()));
after(() => stage.close());

/** Runs a function in a page of the shop, with its script. */
async function inPage(act, ...given) {
  const visitor = await Visitor.come(stage);
  const page = await visitor.open("/web/pages/receipt");
  const said = await page.evaluate(act, given);
  return [said, await visitor.leave()];
}

test("each call is a separate submission, and a lost response is retried with the same token", async () => {
  stage.proxy.lose("POST /web/orders");
  setTimeout(() => stage.proxy.well(), 300);
  const [outcomes, wrong] = await inPage(async () => {
    const send = () => onceward.fetch("/web/orders", { method: "POST", body: new URLSearchParams({ item: "fetched" }) });
    const results = [await send(), await send()];
    return Promise.all(results.map(async ({ outcome, response }) => [outcome, (await response.text()).includes("receipt")]));
  });
  assert.deepEqual(outcomes[1], ["executed", true]);
  assert.match(outcomes[0].join(), /^(executed|replayed),true$/);
  assert.equal(stage.orders("item=fetched").length, 2);
  assert.deepEqual(wrong, []);
});

test("concurrent calls with one key are one request, and a later one is replayed", async () => {
  const [said, wrong] = await inPage(async () => {
    const keyed = { method: "POST", key: "browser-1", headers: { "x-order": "keyed" } };
    const together = await Promise.all([1, 2, 3].map(() => onceward.fetch("/keyed/orders", keyed)));
    const later = await onceward.fetch("/keyed/orders", keyed);
    return Promise.all([...together, later].map(async ({ outcome, response }) => [outcome, await response.text()]));
  });
  assert.deepEqual(said.map(([outcome]) => outcome), ["executed", "executed", "executed", "replayed"]);
  assert.equal(new Set(said.map(([, text]) => text)).size, 1);
  assert.equal(stage.orders("keyed").length, 1);
  assert.deepEqual(wrong, []);
});

test("a token follows no redirect to another origin", async () => {
  const seen = [];
  const other = http.createServer((request, answer) => {
    seen.push(request.method, request.headers["onceward-token"]);
    answer.writeHead(204, { "access-control-allow-origin": "*", "access-control-allow-headers": "*" }).end();
  });
  await new Promise((go) => other.listen(0, "127.0.0.1", go));
  const visitor = await Visitor.come(stage);
  await visitor.context.route("**/web/orders", (route) =>
    route.fulfill({ status: 307, headers: { location: `http://127.0.0.1:${other.address().port}/orders` } }),
  );
  const page = await visitor.open("/web/pages/receipt");
  const outcome = await page.evaluate(async () => (await onceward.fetch("/web/orders", { method: "POST" })).outcome);
  await visitor.leave();
  other.close();
  assert.deepEqual([outcome, seen], ["unknown", []]);
});

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

test("a form is sent with each blob or buffer of its own", async () => {
  const [said, wrong] = await inPage(async () => {
    const form = document.createElement("form");
    const headers = { "content-type": "application/x-www-form-urlencoded" };
    const texts = [1, 2].map((number) => `item=blob${number}.`);
    const bodies = [...texts.map((text) => new Blob([text])), ...texts.map((text) => new TextEncoder().encode(text).buffer)];
    const results = [...bodies, "item=text.", "item=text."].map((body) => onceward.fetch("/web/orders", { form, headers, body }));
    return (await Promise.all(results)).map(({ outcome }) => outcome);
  });
  assert.deepEqual(said, Array(6).fill("executed"));
  assert.deepEqual(["blob1", "blob2", "text"].map((item) => stage.orders(`item=${item}.`).length), [2, 2, 1]);
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

/** Responds to submissions in place of the shop, with these rejections in an envelope and the status 200. */
async function enveloped(visitor, ...rejections) {
  const tokens = [];
  await visitor.context.route("**/web/orders", async (route) => {
    tokens.push((await route.request().allHeaders())["onceward-token"] ?? route.request().postData()?.match(/ow1_[^\r\n&]+/)?.[0]);
    const [code, retry] = rejections.shift() ?? ["token_used", "no"];
    const headers = { "onceward-outcome": code, "onceward-retry": retry, "server-timing": `onceward;desc=${code}` };
    await route.fulfill({ status: 200, headers, contentType: "application/json", body: '{"code":20001,"message":"later","data":null}' });
  });
  return tokens;
}

test("a rejection in an envelope with 200 is a rejection", async () => {
  const visitor = await Visitor.come(stage);
  const tokens = await enveloped(visitor, ["store_unavailable", "same"], ["token_used", "no"], ["token_expired", "new_token"], ["key_reused", "no"]);
  const page = await visitor.open("/web/pages/receipt");
  const outcomes = await page.evaluate(async () => {
    const send = () => onceward.fetch("/web/orders", { method: "POST" }).then(({ outcome, problem }) => [outcome, problem.code, problem.message]);
    return [await send(), await send()];
  });
  await visitor.leave();
  // After store_unavailable, an own attempt may have used the token.
  assert.deepEqual(outcomes, [["unknown", "token_used", "later"], ["rejected", "key_reused", "later"]]);
  assert.equal(tokens.length, 4);
  assert.equal(tokens[0], tokens[1]);
  assert.equal(new Set(tokens).size, 3);
});

test("a form that the page sends keeps its token after a rejection in an envelope that ran nothing", async () => {
  const visitor = await Visitor.come(stage);
  const tokens = await enveloped(visitor, ["store_unavailable", "same"], ["too_soon", "no"], ["key_reused", "no"]);
  const page = await visitor.open("/web/pages/receipt");
  await page.evaluate(() => {
    document.body.innerHTML = '<form method="post" action="/web/orders" data-onceward><input name="item" value="tea"><button>Order</button></form>';
    const form = document.querySelector("form");
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const response = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)) });
      onceward.answered(form, response);
      form.dataset.count = +(form.dataset.count ?? 0) + 1;
    });
  });
  for (const count of [1, 2, 3]) {
    // A later click than a double click.
    await page.waitForTimeout(1100);
    await page.click("button");
    await page.waitForFunction((count) => document.querySelector("form").dataset.count == count, count);
  }
  await visitor.leave();
  // store_unavailable leaves the token valid; after too_soon the next submission is a new one.
  assert.equal(tokens.length, 3);
  assert.equal(tokens[0], tokens[1]);
  assert.notEqual(tokens[1], tokens[2]);
});

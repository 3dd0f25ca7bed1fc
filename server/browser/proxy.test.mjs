// The proxy in a real browser, in front of an application that knows nothing of Onceward.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Visitor } from "../../client-sdk/web/browser/stage.mjs";
import { lowContrasts } from "./contrast.mjs";
import { LegacyShop } from "./legacy_shop.mjs";

let shop;
let plain;
let injecting;
let impatient;
before(async () => {
  shop = await LegacyShop.open();
  plain = await shop.proxy();
  injecting = await shop.proxy("--inject", "true");
  impatient = await shop.proxy("--inject", "true", "--upstream-timeout", "300ms");
});
after(() => shop.close());

/** A visitor of a page behind a proxy. `orders` lists the orders since the visitor came. */
async function visit(proxy, path, options = {}) {
  const visitor = await Visitor.come(proxy, options);
  const known = shop.orders().length;
  const page = await visitor.open(path);
  return {
    visitor,
    page,
    orders: () => shop.orders().slice(known),
    next: known + 1,
    leave: async () => assert.deepEqual(await visitor.leave(), []),
  };
}

/** The ways in which a user or a script sends a form three times. */
const TRIPLES = {
  "a triple click": (page) => page.click("#order", { clickCount: 3, delay: 15 }),
  "three submits by a script": (page) => page.evaluate(() => {
    for (let times = 0; times < 3; times++) document.forms[0].requestSubmit();
  }),
};

/** Enters the form as a user does, and waits for its token. */
async function guarded(page) {
  await page.focus("[name=item]");
  await page.waitForSelector("form[data-onceward-state=ready]");
}

/** Waits for a page and its script, which records the response to the form. */
async function shows(visitor, title) {
  await visitor.at(title);
  await visitor.page.waitForLoadState();
}

/** Sends the form of the page somewhere else. */
const sendTo = (page, action) => page.evaluate((action) => (document.forms[0].action = action), action);

/** The pages whose forms are guarded: the application's own, and the proxy in front of it. */
const PAGES = [
  ["a form with the script and data-onceward", () => plain, "/scripted"],
  ["an unchanged form behind --inject", () => injecting, "/"],
  ["an unchanged upload behind --inject", () => injecting, "/upload"],
  ["a page with default-src 'self' behind --inject", () => injecting, "/?csp=default-src%20%27self%27"],
];

for (const [name, proxy, path] of PAGES) {
  for (const [triple, send] of Object.entries(TRIPLES)) {
    test(`${name} orders once after ${triple}`, async () => {
      const { visitor, page, orders, next, leave } = await visit(proxy(), path);
      await guarded(page);
      if (path === "/upload") await page.setInputFiles("[name=file]", { name: "photo.txt", mimeType: "text/plain", buffer: Buffer.from("sunset") });
      await send(page);
      await visitor.at(`Order ${next}`);
      assert.equal(orders().length, 1);
      assert.ok(orders()[0].run, "the application receives the id of the run");
      await leave();
    });
  }
}

test("duplicates that reach the proxy show the first response", async () => {
  const { visitor, page, orders, next, leave } = await visit(injecting, "/");
  await guarded(page);
  await sendTo(page, "/orders?slow=0.5");
  const token = await page.evaluate(async () => (await (await fetch("/_onceward/token", { method: "POST" })).json()).token);
  // The browser cancels the first two navigations. The proxy receives all three.
  await page.evaluate((token) => {
    const form = document.forms[0];
    const field = form.elements._onceward ?? form.appendChild(Object.assign(document.createElement("input"), { name: "_onceward", type: "hidden" }));
    field.value = token;
    form.submit();
    setTimeout(() => form.submit(), 100);
    setTimeout(() => form.submit(), 200);
  }, token);
  await visitor.at(`Order ${next}`);
  assert.equal(orders().length, 1);
  await leave();
});

test("a page whose policy forbids the script stays unchanged and its form works", async () => {
  const { visitor, page, orders, next, leave } = await visit(injecting, "/?csp=default-src%20%27none%27");
  const upstream = await (await fetch(`${shop.upstream}/?csp=default-src%20%27none%27`)).text();
  const served = await (await fetch(`${injecting.url}/?csp=default-src%20%27none%27`, { headers: { accept: "text/html" } })).text();
  assert.equal(served, upstream);
  await page.click("#order");
  await visitor.at(`Order ${next}`);
  assert.deepEqual(orders().map(({ run }) => run), [null], "it is not protected");
  await leave();
});

test("a form that opts out is sent without a token", async () => {
  const { visitor, page, orders, next, leave } = await visit(injecting, "/");
  await page.evaluate(() => (document.forms[0].dataset.onceward = "off"));
  await page.click("#order");
  await visitor.at(`Order ${next}`);
  assert.deepEqual(orders().map(({ run }) => run), [null]);
  await leave();
});

test("after a 500 of the application the token is valid again", async () => {
  const { visitor, page, orders, next, leave } = await visit(injecting, "/");
  for (let times = 0; times < 2; times++) {
    if (times > 0) await visitor.back("Shop");
    await guarded(page);
    await sendTo(page, "/orders?before=500");
    await page.click("#order");
    await shows(visitor, "Error");
  }
  const [first, second] = visitor.sent.map((fields) => fields.get("_onceward"));
  assert.ok(first && first === second, "the form keeps its token");
  assert.equal(orders().length, 0);
  const answer = await page.request.post(`${injecting.url}/orders`, { form: { _onceward: first, item: "tea" } });
  assert.deepEqual([answer.status(), orders().length], [201, 1]);
  assert.match(await answer.text(), new RegExp(`Order ${next}`));
  await leave();
});

test("Back after an order and ordering again is a second order", async () => {
  const { visitor, page, orders, next, leave } = await visit(injecting, "/");
  await guarded(page);
  await page.click("#order");
  await shows(visitor, `Order ${next}`);
  await visitor.back("Shop");
  await guarded(page);
  await page.click("#order");
  await visitor.at(`Order ${next + 1}`);
  assert.equal(orders().length, 2);
  await leave();
});

test("a reload of the result shows the first response and orders nothing", async () => {
  const { visitor, page, orders, next, leave } = await visit(injecting, "/");
  await guarded(page);
  await page.click("#order");
  await visitor.at(`Order ${next}`);
  const [response] = await Promise.all([
    page.waitForResponse((response) => response.request().method() === "POST" && response.request().isNavigationRequest()),
    page.reload(),
  ]);
  assert.equal(response.headers()["idempotent-replayed"], "true");
  assert.deepEqual([await page.title(), await page.textContent("h1")], [`Order ${next}`, `Order ${next}`]);
  assert.equal(orders().length, 1);
  await leave();
});

for (const colorScheme of ["light", "dark"]) {
  test(`a timeout shows that the outcome is unknown, in the ${colorScheme} scheme`, async () => {
    const { visitor, page, orders, leave } = await visit(impatient, "/", { colorScheme, viewport: { width: 390, height: 740 } });
    await guarded(page);
    await sendTo(page, "/orders?slow=1.5");
    const [response] = await Promise.all([
      page.waitForResponse((response) => response.request().isNavigationRequest() && response.request().method() === "POST"),
      page.click("#order"),
    ]);
    assert.equal(response.status(), 504);
    await visitor.at("We do not know how it ended");
    assert.equal(response.headers()["onceward-outcome"], "unknown");
    assert.deepEqual(await page.evaluate(lowContrasts), []);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0);
    // The same submission again, by a reload: it does not run again.
    const [again] = await Promise.all([
      page.waitForResponse((response) => response.request().isNavigationRequest() && response.request().method() === "POST"),
      page.reload(),
    ]);
    assert.deepEqual([again.status(), again.headers()["onceward-outcome"]], [409, "outcome_unknown"]);
    await visitor.at("We do not know how it ended");
    assert.equal(orders().length, 1);
    await leave();
  });
}

test("the page about an unknown outcome links to its explanation", async () => {
  const { visitor, page, leave } = await visit(impatient, "/");
  await guarded(page);
  await sendTo(page, "/orders?slow=1.5");
  await page.click("#order");
  await visitor.at("We do not know how it ended");
  for (const link of await page.$$eval("a[href]", (links) => links.map((link) => link.href))) {
    if (link.startsWith(impatient.url)) assert.equal((await page.request.get(link)).status(), 200, link);
  }
  await leave();
});

// The pages about error codes in a real browser: the index, the page of a code, and the page after a rejected form.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Visitor } from "../../client-sdk/web/browser/stage.mjs";
import { Shop } from "../../web-demo/browser/shop.mjs";
import { lowContrasts } from "./contrast.mjs";

let shop;
before(async () => (shop = await Shop.open()));
after(() => shop.close());

/** Sends the demo's form twice with one token, without a script: the second request is rejected. */
async function rejectedForm(page) {
  await page.route(`${shop.url}/`, async (route) => {
    const answer = await route.fetch();
    const text = (await answer.text()).replace("/demo/orders/remembered", "/demo/orders/token");
    await route.fulfill({ response: answer, body: text });
  });
  await page.goto(`${shop.url}/`);
  const token = await page.getAttribute("#guarded [name=_onceward]", "value");
  const first = await page.request.post(`${shop.url}/demo/orders/token`, { form: { _onceward: token, item: "tea", quantity: "1", name: "Ada" } });
  assert.equal(first.status(), 201);
  await page.fill("#guarded-name", "Grace");
  await page.click("#guarded .order");
  await page.waitForURL(/\/demo\/orders\/token/);
}

const PAGES = [
  ["the index", async (page) => page.goto(`${shop.url}/problems`)],
  ["the page of a code", async (page) => page.goto(`${shop.url}/problems/redeem_unknown`)],
  ["a rejected form", rejectedForm],
];

for (const [name, open] of PAGES) {
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [390, 768, 1280]) {
      test(`${name} is readable at ${width} pixels, in the ${colorScheme} scheme`, async () => {
        const visitor = await Visitor.come(shop, { colorScheme, viewport: { width, height: 740 }, javaScriptEnabled: false });
        const { page } = visitor;
        await open(page);
        for (const summary of await page.locator("summary").all()) await summary.click();
        const found = await page.evaluate(() => ({
          beyond: document.documentElement.scrollWidth - document.documentElement.clientWidth,
          cut: [...document.querySelectorAll("main *")].filter((element) => element.getBoundingClientRect().right > innerWidth + 0.5 && element.checkVisibility({ contentVisibilityAuto: true }) && !element.closest("thead")).map(({ tagName }) => tagName),
          ground: getComputedStyle(document.body).backgroundColor,
        }));
        assert.deepEqual([found.beyond, found.cut], [0, []]);
        const isDark = found.ground.match(/\d+/g).map(Number).every((part) => part < 64);
        assert.equal(isDark, colorScheme === "dark", found.ground);
        assert.deepEqual(await page.evaluate(lowContrasts), []);
        await visitor.leave();
      });
    }
  }
}

test("every code of the index links to its page, and back", async () => {
  const visitor = await Visitor.come(shop, {});
  const { page } = visitor;
  await page.goto(`${shop.url}/problems`);
  const links = await page.$$eval("tbody a", (links) => links.map((link) => link.getAttribute("href")));
  assert.ok(links.length >= 27);
  for (const link of links) assert.equal((await page.request.get(shop.url + link)).status(), 200, link);
  await page.click("tbody a >> nth=3");
  assert.equal(await page.textContent("dd code >> nth=0"), links[3].split("/").at(-1));
  await page.click("text=All error codes");
  await page.waitForURL(`${shop.url}/problems`);
  assert.deepEqual(await visitor.leave(), []);
});

test("the page after a rejected form has no jargon and works without a script", async () => {
  const visitor = await Visitor.come(shop, { javaScriptEnabled: false });
  const { page } = visitor;
  await rejectedForm(page);
  assert.equal(await page.textContent("h1"), "This was already sent");
  const shown = await page.innerText("main");
  assert.doesNotMatch(shown, /token|key|claim|store|RFC/i, "the details are collapsed");
  assert.match(shown, /not carried out a second time/);
  await page.click("summary");
  const details = await page.innerText("details");
  assert.match(details, /token_used/);
  assert.match(details, /[0-9a-f]{8}-[0-9a-f]{4}-/, "the request id, as in the log");
  await page.goBack();
  assert.ok(await page.isVisible("#guarded .order"), "the Back button returns to the form");
  await page.goForward();
  await page.click("text=Go to the start page");
  await page.waitForURL(`${shop.url}/`);
  await visitor.leave();
});

// The pages of the service in a Chinese browser: they are in Chinese, fit, and have a font with their characters.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Visitor } from "../../client-sdk/web/browser/stage.mjs";
import { Shop } from "../../web-demo/browser/shop.mjs";
import { lowContrasts } from "./contrast.mjs";

let shop;
before(async () => (shop = await Shop.open()));
after(() => shop.close());

/** Sends the demo's form without its token and without a script. */
async function rejectedForm(page) {
  await page.goto(`${shop.url}/`);
  await page.route(`${shop.url}/demo/orders/remembered`, (route) => route.continue({ postData: "item=tea&quantity=1&name=Ada" }));
  await page.click("#guarded .order");
  await page.waitForURL(/\/demo\/orders\/remembered/);
}

const PAGES = {
  "the index": [async (page) => page.goto(`${shop.url}/problems`), "错误码"],
  "the page of a code": [async (page) => page.goto(`${shop.url}/problems/token_used`), "请勿重复提交"],
  "a rejected form": [rejectedForm, "请重新打开表单"],
};

/** The families of the fonts that draw an element. */
async function fontsOf(page, selector) {
  const session = await page.context().newCDPSession(page);
  await session.send("DOM.enable");
  await session.send("CSS.enable");
  const { root } = await session.send("DOM.getDocument");
  const { nodeId } = await session.send("DOM.querySelector", { nodeId: root.nodeId, selector });
  const { fonts } = await session.send("CSS.getPlatformFontsForNode", { nodeId });
  return fonts.map(({ familyName }) => familyName).join(", ");
}

for (const [name, [open, heading]] of Object.entries(PAGES)) {
  for (const width of [390, 1280]) {
    test(`${name} is Chinese and readable at ${width} pixels`, async () => {
      const visitor = await Visitor.come(shop, { locale: "zh-CN", viewport: { width, height: 740 }, javaScriptEnabled: false });
      const { page } = visitor;
      await open(page);
      for (const summary of await page.locator("summary").all()) await summary.click();
      assert.equal(await page.getAttribute("html", "lang"), "zh-CN");
      assert.equal(await page.textContent("h1"), heading);
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0);
      assert.deepEqual(await page.evaluate(lowContrasts), []);
      const fonts = await fontsOf(page, "h1");
      assert.match(fonts, /WenQuanYi|Noto Sans CJK|Source Han/, `${fonts}: install a Chinese font: apt-get install fonts-wqy-microhei`);
      assert.deepEqual(await visitor.leave(), []);
    });
  }
}

// Double clicks, and browsers without JavaScript. Every test ends with the right number of orders in the server's ledger.

import assert from "node:assert/strict";
import { begun, orders, receipt, stage, state, story, until } from "./story.mjs";

story("a double click is one order, and shows its response", async (visitor, item) => {
  const page = await visitor.open("/web/pages/form");
  await page.fill("[name=item]", item);
  await page.dblclick("button");
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("a triple click before the first token is one order", async (visitor, item) => {
  const page = await visitor.open("/web/pages/form");
  stage.proxy.delay("POST /web/token", 500);
  await page.fill("[name=item]", item);
  await page.click("button", { clickCount: 3 });
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("a triple click on a slow server is one order", async (visitor, item) => {
  const page = await visitor.open("/web/pages/slow");
  await page.fill("[name=item]", item);
  await state(page, "ready");
  await visitor.meanwhile(() => (sessionStorage.busy = document.querySelector("form").ariaBusy));
  await page.click("button", { clickCount: 3 });
  await receipt(page);
  assert.equal(await page.evaluate(() => sessionStorage.busy), "true");
  assert.deepEqual([orders(item), begun(item)], [1, 1]);
});

story("Enter and a click are one order, with the value of the button", async (visitor, item) => {
  const page = await visitor.open("/web/pages/form");
  await page.fill("[name=item]", item);
  const button = await page.locator("button").boundingBox();
  await Promise.all([page.keyboard.press("Enter"), page.mouse.click(button.x + 5, button.y + 5)]);
  await receipt(page);
  assert.deepEqual(stage.orders(`item=${item}`), [`item=${item}&go=order`]);
});

story("two tabs are two orders", async (visitor, item) => {
  const page = await visitor.open("/web/pages/form");
  const other = await visitor.context.newPage();
  await other.goto(page.url());
  for (const tab of [page, other]) await tab.fill("[name=item]", item);
  await Promise.all([page, other].map((tab) => tab.dblclick("button")));
  await Promise.all([page, other].map(receipt));
  assert.equal(orders(item), 2);
});

story("with the script blocked, a form with a server-rendered token is one order", async (visitor, item) => {
  await visitor.context.route("**/onceward.js", (route) => route.abort());
  const page = await visitor.open("/web/pages/rendered");
  await page.fill("[name=item]", item);
  await page.dblclick("button");
  await receipt(page);
  assert.deepEqual([orders(item), begun(item)], [1, 1]);
});

story("with the script blocked, a form without a token is rejected and keeps its input", async (visitor, item) => {
  await visitor.context.route("**/onceward.js", (route) => route.abort());
  const page = await visitor.open("/web/pages/form");
  await page.fill("[name=item]", item);
  await page.dblclick("button");
  await until("the rejection", async () => (await page.textContent("body")).includes("token_missing"));
  await visitor.back("form");
  assert.deepEqual([orders(item), await page.inputValue("[name=item]")], [0, item]);
});

story(
  "without JavaScript a form with a server-rendered token is one order",
  async (visitor, item) => {
    const page = await visitor.open("/web/pages/rendered");
    await page.fill("[name=item]", item);
    await page.dblclick("button");
    await receipt(page);
    assert.deepEqual([orders(item), begun(item)], [1, 1]);
    // Back and sent again by mistake: the server replays the response. A new page is a new order.
    const first = await receipt(page);
    await visitor.back();
    await page.waitForSelector("form");
    await page.fill("[name=item]", item);
    await page.click("button");
    assert.equal(await receipt(page), first);
    assert.equal(orders(item), 1);
    await visitor.open("/web/pages/rendered");
    await page.fill("[name=item]", item);
    await page.click("button");
    assert.notEqual(await receipt(page), first);
    assert.equal(orders(item), 2);
  },
  { javaScriptEnabled: false },
);

story("a form is sent with its server-rendered token if no other can be fetched", async (visitor, item) => {
  await visitor.context.route("**/token", (route) => route.fulfill({ status: 404 }));
  const page = await visitor.open("/web/pages/rendered");
  await page.fill("[name=item]", item);
  await page.dblclick("button");
  await receipt(page);
  assert.equal(orders(item), 1);
});

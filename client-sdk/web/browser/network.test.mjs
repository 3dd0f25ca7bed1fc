// Networks that are slow, lose responses or are down. The input is not lost, and nothing is ordered twice.

import assert from "node:assert/strict";
import { begun, message, orders, receipt, stage, state, story, until } from "./story.mjs";

story("on a slow network a submit waits for its token", async (visitor, item) => {
  const page = await visitor.open("/web/pages/form");
  stage.proxy.delay("POST /web/token", 2500);
  await page.fill("[name=item]", item);
  await page.click("button");
  await state(page, "waiting");
  await page.click("button");
  assert.equal(orders(item), 0);
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("offline nothing is sent, and online the same form is sent", async (visitor, item) => {
  const page = await visitor.open("/web/pages/form");
  await page.fill("[name=item]", item);
  await state(page, "ready");
  await visitor.context.setOffline(true);
  await page.click("button");
  await state(page, "error");
  assert.equal(await message(page), "You are offline. Nothing was sent.");
  assert.equal(await page.inputValue("[name=item]"), item);
  await visitor.context.setOffline(false);
  await page.click("button");
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("a reload during a submit causes no second order", async (visitor, item) => {
  const page = await visitor.open("/web/pages/slow");
  await page.fill("[name=item]", item);
  await state(page, "ready");
  await visitor.meanwhile(() => location.reload());
  await page.click("button");
  await page.waitForFunction(() => performance.getEntriesByType("navigation")[0].type == "reload");
  assert.equal(begun(item), 1, "the first has started");
  await page.fill("[name=item]", item);
  await page.click("button");
  await receipt(page);
  assert.deepEqual([orders(item), begun(item)], [1, 1]);
});

story("leaving the page during a submit causes no second order", async (visitor, item) => {
  const page = await visitor.open("/web/pages/slow");
  await page.fill("[name=item]", item);
  await state(page, "ready");
  await visitor.meanwhile(() => document.querySelector("a").click());
  await page.click("button");
  await visitor.at("receipt");
  await visitor.back("slow");
  assert.equal(await page.inputValue("[name=item]"), item);
  await page.click("button");
  await until("the response", () => page.url().includes("/orders"));
  await receipt(page);
  assert.deepEqual([orders(item), begun(item)], [1, 1]);
});

story("the same content after a lost response is one order", async (visitor, item) => {
  const page = await visitor.open("/web/pages/form");
  await page.fill("[name=item]", item);
  await state(page, "ready");
  stage.proxy.lose("POST /web/orders");
  await page.click("button");
  await until("the handler has run", () => orders(item) == 1);
  await until("the browser's error page", () => page.url().startsWith("chrome-error:"));
  stage.proxy.well();
  await visitor.back("form");
  assert.equal(await page.inputValue("[name=item]"), item);
  await page.click("button");
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("content edited after a lost response is sent only when the user confirms", async (visitor, item) => {
  const page = await visitor.open("/web/pages/form");
  await page.fill("[name=item]", item);
  await state(page, "ready");
  stage.proxy.lose("POST /web/orders");
  await page.click("button");
  await until("the handler has run", () => orders(item) == 1);
  await until("the browser's error page", () => page.url().startsWith("chrome-error:"));
  stage.proxy.well();
  await visitor.back("form");
  await page.fill("[name=item]", `${item}edited`);
  await page.dblclick("button");
  await state(page, "unknown");
  assert.match(await message(page), /^Your earlier submission may have arrived\. Send this as well$/);
  assert.equal(await page.getAttribute("[data-onceward-message]", "role"), "alert");
  assert.deepEqual([orders(item), await page.inputValue("[name=item]")], [1, `${item}edited`]);
  await page.click("[data-onceward-message] button");
  await receipt(page);
  assert.deepEqual([orders(item), orders(`${item}edited`)], [2, 1]);
});

story("a server that is down before the first token shows a message, and then it works", async (visitor, item) => {
  const page = await visitor.open("/web/pages/hasty");
  await stage.proxy.down();
  await page.fill("[name=item]", item);
  await page.click("button");
  await state(page, "error");
  assert.equal(await message(page), "The server is not available. Nothing was sent.");
  assert.equal(await page.inputValue("[name=item]"), item);
  await stage.proxy.up();
  await page.click("button");
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("the same content sent again to a slow server is one order", async (visitor, item) => {
  const page = await visitor.open("/web/pages/hasty");
  await page.fill("[name=item]", item);
  await state(page, "ready");
  // The user waits until the form can be used again, and clicks again.
  await page.evaluate(() => {
    const form = document.querySelector("form");
    const seen = new MutationObserver(() => {
      if (!/No response yet/.test(form.textContent)) return;
      seen.disconnect();
      sessionStorage.message = form.querySelector("[data-onceward-message]").textContent;
      form.requestSubmit(form.querySelector("button"));
    });
    seen.observe(form, { subtree: true, childList: true });
  });
  await page.click("button");
  await receipt(page);
  assert.equal(await page.evaluate(() => sessionStorage.message), "No response yet. It is safe to send it again.");
  assert.deepEqual([orders(item), begun(item)], [1, 1]);
});

story("a token is renewed before it expires, and on return to the tab", async (visitor, item) => {
  const page = await visitor.open("/brief/pages/form");
  const token = () => page.inputValue("[name=_onceward]");
  await page.fill("[name=item]", item);
  await state(page, "ready");
  const first = await token();
  await until("another token", async () => (await token()) != first);
  // A headless tab is always visible: this overrides it.
  const show = (isHidden) =>
    page.evaluate((isHidden) => {
      Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
    }, isHidden);
  await show(true);
  const last = await token();
  await new Promise((go) => setTimeout(go, 2200));
  assert.equal(await token(), last, "a hidden tab fetches no token");
  await show(false);
  await until("another token", async () => (await token()) != last);
  await page.click("button");
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("a form sent while the server is down is one order after Back", async (visitor, item) => {
  const page = await visitor.open("/web/pages/form");
  await page.fill("[name=item]", item);
  await state(page, "ready");
  await stage.proxy.down();
  await page.click("button");
  await until("the browser's error page", () => page.url().startsWith("chrome-error:"));
  await stage.proxy.up();
  await visitor.back("form");
  assert.equal(await page.inputValue("[name=item]"), item);
  await page.dblclick("button");
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("after a failure with an unknown outcome, the same content is sent only when the user confirms", async (visitor, item) => {
  const page = await visitor.open("/web/pages/form");
  await page.evaluate(() => document.querySelector("form").setAttribute("action", "../orders?answer=gateway"));
  await page.fill("[name=item]", item);
  await page.click("button");
  await visitor.at("gateway");
  await page.waitForFunction(() => window.onceward);
  await visitor.back("form");
  await page.click("button");
  await state(page, "unknown");
  assert.match(await message(page), /^Your earlier submission may have arrived\. Send this as well$/);
  assert.equal(orders(item), 1);
});

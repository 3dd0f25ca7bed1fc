// After a response: a form that was corrected, returned to with Back, cancelled or sent by the page itself can be used again.

import assert from "node:assert/strict";
import { begun, message, orders, receipt, stage, state, story, until } from "./story.mjs";

/** Waits until a click no longer counts as part of the last one. */
const later = () => new Promise((go) => setTimeout(go, 1100));

story("a validation error is corrected and sent again", async (visitor, item) => {
  const page = await visitor.open("/web/pages/form");
  await page.fill("[name=item]", `wrong ${item}`);
  await page.click("button");
  await visitor.at("wrong");
  await page.fill("[name=item]", item);
  await page.dblclick("button");
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("a validation error is corrected after Back", async (visitor, item) => {
  const page = await visitor.open("/web/pages/form");
  await page.fill("[name=item]", `wrong ${item}`);
  await page.click("button");
  await visitor.at("wrong");
  await visitor.back("form");
  assert.equal(await page.inputValue("[name=item]"), `wrong ${item}`);
  await page.fill("[name=item]", item);
  await page.click("button");
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("a form can be used again after the page cancels a submit", async (visitor, item) => {
  const page = await visitor.open("/web/pages/stopped");
  await page.focus("[name=item]");
  await state(page, "ready");
  await page.dblclick("button");
  await page.waitForSelector('form:not([data-onceward-state="sending"])');
  await page.fill("[name=item]", item);
  await page.dblclick("button");
  await receipt(page);
  assert.equal(orders(item), 1);
});

for (const way of ["requestSubmit", "click"]) story(`a page that checks a submit and then submits the form by script (${way}) sends it once`, async (visitor, item) => {
  const page = await visitor.open("/web/pages/stopped");
  await page.evaluate((way) => {
    let isChecked = false;
    const form = document.querySelector("form");
    form.addEventListener("submit", async (event) => {
      if (isChecked) return;
      event.preventDefault();
      // A check on the server that sends the input.
      await fetch("../open", { method: "POST", body: new URLSearchParams({ checked: form.querySelector("[name=item]").value }) });
      isChecked = true;
      if (way == "click") event.submitter.click();
      else form.requestSubmit(event.submitter);
    });
  }, way);
  await page.fill("[name=item]", item);
  await page.dblclick("button");
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("a page that sends the form itself has one token per click, and reports the response", async (visitor, item) => {
  const page = await visitor.open("/web/pages/by_itself");
  // In any order: the response to a second request may be handled before that to the first.
  const words = async () => (await page.textContent("output")).trim().split(" ").toSorted().join(" ");
  let replays = "";
  const said = (expected) => until(expected + replays, async () => (await words()) == expected + replays);
  await page.fill("[name=item]", item);
  await state(page, "ready");
  await page.evaluate(() => {
    const form = document.querySelector("form");
    form.setAttribute("action", "../orders?takes=6000");
    window.submits = 0;
    form.addEventListener("submit", () => window.submits++);
  });
  await page.click("button", { clickCount: 3 });
  // In flight for longer than a double click: the page receives the click, and the server replays.
  await later();
  await page.click("button");
  // Two submits reach the page, or more if the machine is too busy to click three times within a second.
  const submits = await page.evaluate(() => window.submits);
  assert.ok(submits >= 2 && submits <= 4);
  replays = " replayed".repeat(submits - 2);
  await said("executed replayed");
  assert.deepEqual([orders(item), begun(item)], [1, 1]);
  await page.evaluate(() => document.querySelector("form").setAttribute("action", "../orders"));
  await page.click("button");
  await said("executed executed replayed");
  assert.equal(orders(item), 2, "the last response was final: this is a new order");
  stage.proxy.lose("POST /web/orders");
  await page.fill("[name=item]", `${item}more`);
  await page.click("button");
  await said("executed executed lost replayed");
  stage.proxy.well();
  await later();
  await page.click("button");
  await said("executed executed lost replayed replayed");
  assert.equal(orders(`${item}more`), 1);
});

story("a late response, after the form became usable again, still counts", async (visitor, item) => {
  const page = await visitor.open("/web/pages/hasty");
  await page.fill("[name=item]", item);
  await state(page, "ready");
  await page.click("button");
  await receipt(page);
  await page.waitForFunction(() => window.onceward);
  await visitor.back("hasty");
  assert.equal(await message(page), "", "the message about the missing response is removed");
  await page.fill("[name=item]", `${item}edited`);
  await page.click("button");
  await until("the order without a question", () => orders(`${item}edited`) == 1);
});

story("a page that sends the form itself uses a new token if the response requires one", async (visitor, item) => {
  const page = await visitor.open("/web/pages/by_itself");
  const tokens = [];
  await visitor.context.route("**/orders?*", (route) => {
    tokens.push(new URLSearchParams(route.request().postData()).get("_onceward"));
    const code = tokens.length == 1 ? "store_unavailable" : "redeem_unknown";
    return route.fulfill({ status: 503, headers: { "onceward-outcome": code } });
  });
  await page.fill("[name=item]", item);
  for (const count of [1, 2, 3]) {
    await state(page, "ready");
    await page.click("button");
    await until(`${count} responses`, async () => (await page.textContent("output")).trim().split(" ").length == count);
    await later();
  }
  assert.equal(tokens[1], tokens[0], "nothing ran, and the token is still valid");
  assert.notEqual(tokens[2], tokens[1], "nothing ran, and the token may be used");
});

story("after a response that only the user has seen, the same content is sent only when the user confirms", async (visitor, item) => {
  const page = await visitor.open("/web/pages/bare");
  await page.fill("[name=item]", item);
  await page.click("button");
  const first = await receipt(page);
  await visitor.back("bare form");
  await page.dblclick("button");
  await state(page, "unknown");
  assert.match(await message(page), /^You have sent this before\. Send this as well$/);
  assert.equal(orders(item), 1);
  await page.click("[data-onceward-message] button");
  assert.notEqual(await receipt(page), first);
  assert.equal(orders(item), 2);
});

story("a page may ask the user itself", async (visitor, item) => {
  const page = await visitor.open("/web/pages/bare");
  await page.fill("[name=item]", item);
  await page.click("button");
  await receipt(page);
  await visitor.back("bare form");
  await page.evaluate(() =>
    addEventListener("onceward:duplicate", (event) => {
      event.preventDefault();
      window.confirmed = event.detail.confirm;
    }),
  );
  await page.click("button");
  await state(page, "unknown");
  assert.equal(await page.locator("[data-onceward-message]").count(), 0);
  await page.evaluate(() => window.confirmed());
  await receipt(page);
  assert.equal(orders(item), 2);
});

// What comes after an answer: corrected, gone back to, stopped or sent by the page itself, a form can always be used.

import assert from "node:assert/strict";
import { begun, message, orders, receipt, stage, state, story, until } from "./story.mjs";

/** Waits until a click is no longer part of the last one. */
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

story("a page that stops a submit gets its form back", async (visitor, item) => {
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
      // A check on the server that sends what was written.
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

story("a page that sends by itself has one token for one click, and says how it ended", async (visitor, item) => {
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
  // In flight for longer than a double click takes: the page gets the click, and the server replays.
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
  assert.equal(orders(item), 2, "the last answer was final: this is another order");
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

story("an answer that comes when the form has long been given back is an answer all the same", async (visitor, item) => {
  const page = await visitor.open("/web/pages/hasty");
  await page.fill("[name=item]", item);
  await state(page, "ready");
  await page.click("button");
  await receipt(page);
  await page.waitForFunction(() => window.onceward);
  await visitor.back("hasty");
  assert.equal(await message(page), "", "what was said of its being late is taken back");
  await page.fill("[name=item]", `${item}edited`);
  await page.click("button");
  await until("it is sent without a question", () => orders(`${item}edited`) == 1);
});

story("a page that sends by itself takes a new token where the answer says that it is needed", async (visitor, item) => {
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
    await until(`${count} answers`, async () => (await page.textContent("output")).trim().split(" ").length == count);
    await later();
  }
  assert.equal(tokens[1], tokens[0], "nobody knows what became of the first: the same again");
  assert.notEqual(tokens[2], tokens[1], "nothing ran, and the token may be spent");
});

story("after an answer that only the person has seen, the same is sent again only when the person confirms", async (visitor, item) => {
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

story("a page may ask and tell in its own way", async (visitor, item) => {
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

// A page with `data-forms="all"`, which also contains its own script: every POST form is guarded, without a change to the form.

import assert from "node:assert/strict";
import { orders, receipt, state, story } from "./story.mjs";

story("a form without data-onceward is one order after a double click", async (visitor, item) => {
  const page = await visitor.open("/web/pages/all");
  await page.fill("#plain [name=item]", item);
  await page.dblclick("#plain button");
  await receipt(page);
  assert.equal(orders(item), 1);
  assert.equal(visitor.sent.length, 1);
  assert.equal(visitor.sent[0].getAll("_onceward").length, 1, "the second script adds no second token");
});

story("a form that is added later is guarded without data-onceward", async (visitor, item) => {
  const page = await visitor.open("/web/pages/all");
  await page.evaluate(() => {
    const form = document.querySelector("#plain").cloneNode(true);
    form.id = "later";
    document.querySelector("main").append(form);
  });
  await page.fill("#later [name=item]", item);
  await state(page, "ready");
  await page.dblclick("#later button");
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("a button with formmethod=post is guarded on a GET form", async (visitor, item) => {
  const page = await visitor.open("/web/pages/all");
  await page.fill("#get [name=item]", item);
  await page.dblclick("#post");
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("forms with GET, with another origin or with data-onceward=off are left alone", async (visitor, item) => {
  const page = await visitor.open("/web/pages/all");
  for (const form of ["#off", "#search", "#abroad"]) {
    await page.fill(`${form} [name=item]`, item);
    assert.equal(await page.locator(`${form}[data-onceward-state], ${form} [name=_onceward]`).count(), 0, form);
  }
  await page.click("#off button");
  await receipt(page);
  assert.equal(visitor.sent[0].has("_onceward"), false);
  assert.equal(orders(item), 1);
});

// Forms of every shape: buttons, files, targets and query tokens work as they do without the SDK.

import assert from "node:assert/strict";
import http from "node:http";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { Visitor } from "./stage.mjs";
import { message, orders, receipt, stage, state, story, until } from "./story.mjs";

story("an upload is one order, with its file", async (visitor, item) => {
  const page = await visitor.open("/web/pages/upload");
  await page.fill("[name=item]", item);
  await page.setInputFiles("[name=picture]", { name: "a.png", mimeType: "image/png", buffer: Buffer.alloc(100_000, 7) });
  await page.dblclick("button");
  await receipt(page);
  assert.deepEqual(stage.orders(`item=${item}`), [`item=${item}&picture=a.png:100000`]);
});

story("a form that is added later is guarded", async (visitor, item) => {
  const page = await visitor.open("/web/pages/later");
  await page.fill("[name=item]", item);
  await page.dblclick("button");
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("fields that a script replaces are still sent with a token", async (visitor, item) => {
  const page = await visitor.open("/web/pages/form");
  await page.fill("[name=item]", item);
  await state(page, "ready");
  await page.evaluate(() => (document.querySelector("form").innerHTML = '<input name="item"><button>Order</button>'));
  await page.fill("[name=item]", item);
  await page.dblclick("button");
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("a copy of a form does not show the state of the original", async (visitor, item) => {
  const page = await visitor.open("/web/pages/form");
  await page.fill("[name=item]", item);
  await state(page, "ready");
  await page.evaluate(() => {
    document.activeElement.blur();
    const form = document.querySelector("form");
    form.replaceWith(form.cloneNode(true));
  });
  assert.equal(await page.getAttribute("form", "data-onceward-state"), "idle", "it has no token yet");
  await page.fill("[name=item]", item);
  await state(page, "ready");
  await page.dblclick("button");
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("requestSubmit works like a click", async (visitor, item) => {
  const page = await visitor.open("/web/pages/buttons");
  await page.fill("[name=item]", item);
  await page.evaluate(() => {
    const form = document.querySelector("form");
    form.requestSubmit(form.querySelector("[value=gift]"));
    form.requestSubmit(form.querySelector("[value=gift]"));
  });
  await receipt(page);
  assert.deepEqual(stage.orders(`item=${item}`), [`item=${item}&go=gift`]);
});

story("a button may have another action, stand outside the form, or skip validation", async (visitor, item) => {
  for (const value of ["else", "outside", "draft"]) {
    const page = await visitor.open("/web/pages/buttons");
    await page.fill("[name=item]", `${item}${value}`);
    await page.dblclick(`[value=${value}]`);
    await receipt(page);
    assert.deepEqual(stage.orders(`item=${item}${value}`), [`item=${item}${value}&go=${value}`]);
    assert.equal(page.url().endsWith(value == "else" ? "/web/plain" : "/web/orders"), true);
  }
});

story("a button that sends with GET leaves the token out of the URL", async (visitor, item) => {
  const page = await visitor.open("/web/pages/buttons");
  await page.fill("[name=item]", item);
  await state(page, "ready");
  await page.click("[value=search]");
  await receipt(page);
  assert.equal(new URL(page.url()).search, `?item=${item}&go=search`);
  await visitor.back("buttons");
  await page.click("[value=order]");
  await until("the response", () => page.url().endsWith("/web/orders"));
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("forms with GET or a dialog, and forms that are not marked, are left alone", async (visitor) => {
  const page = await visitor.open("/web/pages/others");
  await page.fill("#get [name=item]", "searched");
  assert.equal(await page.locator("[data-onceward-state], [name=_onceward]").count(), 0, "they have no token, and show no state");
  await page.click("#dialog button");
  assert.equal(await page.evaluate(() => document.querySelector("dialog").open), false);
  await page.click("#get button");
  await receipt(page);
  assert.equal(new URL(page.url()).search, "?item=searched");
  await visitor.back("others");
  await page.fill("#plain [name=item]", "open");
  await page.click("#plain button");
  await receipt(page);
});

story("with target=_blank the response opens in a new tab, and the form can be used again", async (visitor, item) => {
  const page = await visitor.open("/web/pages/blank");
  await page.fill("[name=item]", item);
  await state(page, "ready");
  const opened = visitor.context.waitForEvent("page");
  await page.dblclick("button");
  const first = await receipt(await opened);
  await page.waitForSelector('form:not([data-onceward-state="sending"])');
  assert.equal(visitor.context.pages().length, 2);
  const again = visitor.context.waitForEvent("page");
  await page.click("button");
  assert.equal(await receipt(await again), first, "the same content is the same order");
  assert.equal(orders(item), 1);
});

for (const [what, button] of [["a download", "button"], ["a response without content", "#nothing"]]) {
  story(`after ${what} the form can be used again`, async (visitor, item) => {
    const page = await visitor.open("/web/pages/download");
    await page.fill("[name=item]", item);
    await state(page, "ready");
    await page.dblclick(button);
    await until("the handler has run", () => orders(item) == 1);
    await page.waitForSelector('form:not([data-onceward-state="sending"])');
    assert.equal(await message(page), "No response yet. It is safe to send it again.");
    assert.equal(await page.inputValue("[name=item]"), item);
    await page.click(button);
    await state(page, "sending");
    await page.waitForSelector('form:not([data-onceward-state="sending"])');
    assert.equal(orders(item), 1);
  });
}

story("a token in the query reaches a gateway, also with a button that has another action", async (visitor, item) => {
  for (const [button, path] of [["button", "orders"], ["#plain", "plain"]]) {
    const page = await visitor.open("/web/pages/query");
    await page.fill("[name=item]", `${item}${path}`);
    const sent = page.waitForRequest((request) => request.url().includes(`/web/${path}`));
    await page.dblclick(button);
    const address = new URL((await sent).url());
    assert.match(address.searchParams.get("_onceward"), /^ow1_/);
    assert.equal(address.searchParams.get("answer"), path == "orders" ? "bare" : null);
    await receipt(page);
    assert.equal(orders(`${item}${path}`), 1);
  }
});

test("a form with an action on another origin sends no token there", async () => {
  const bodies = [];
  const other = http.createServer(async (request, answer) => {
    bodies.push(await text(request));
    answer.writeHead(200, { "content-type": "text/html" }).end("<title>other</title>");
  });
  await new Promise((go) => other.listen(0, "127.0.0.1", go));
  const visitor = await Visitor.come(stage);
  const page = await visitor.open("/web/pages/form");
  const action = `http://127.0.0.1:${other.address().port}/`;
  await page.evaluate((action) => document.querySelector("form").setAttribute("action", action), action);
  await page.fill("[name=item]", "abroad");
  assert.equal(await page.getAttribute("form", "data-onceward-state"), null, "it has no token, and shows no state");
  await page.click("button");
  await visitor.at("other");
  const wrong = await visitor.leave();
  assert.ok(wrong.every((what) => what.startsWith(`left the origin: ${action}`)), wrong.join());
  other.close();
  assert.equal(bodies[0], "item=abroad&go=order");
});

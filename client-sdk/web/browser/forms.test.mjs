// Forms in a real browser. Every story ends with the right number of orders in the server's ledger, nothing that was
// written is lost, and the form can be used.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Stage, Visitor, until } from "./stage.mjs";

let stage;
before(async () => (stage = await Stage.open()));
after(() => stage.close());

let number = 0;

/** A story of one visitor, who buys something that nobody else buys, and notices everything that is wrong. */
function story(name, tell, options) {
  test(name, async () => {
    const item = `thing${++number}.`;
    const visitor = await Visitor.come(stage, options);
    await tell(visitor, item);
    assert.deepEqual(await visitor.leave(), []);
  });
}

const orders = (item) => stage.orders(`item=${item}`).length;
const begun = (item) => stage.orders(`begun item=${item}`).length;
const state = (page, expected) => page.waitForSelector(`form[data-onceward-state="${expected}"]`);
const receipt = (page) => page.waitForSelector("#receipt").then((place) => place.textContent());
const message = (page) => page.textContent("[data-onceward-message]");

story("a double click is one order, and shows its answer", async (visitor, item) => {
  const page = await visitor.open("/web/pages/form");
  await page.fill("[name=item]", item);
  await page.dblclick("button");
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("a triple click before any token is there is one order", async (visitor, item) => {
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

story("on a slow network a submit waits for its token", async (visitor, item) => {
  const page = await visitor.open("/web/pages/form");
  stage.proxy.delay("POST /web/token", 1500);
  await page.fill("[name=item]", item);
  await page.click("button");
  await state(page, "waiting");
  await page.click("button");
  assert.equal(orders(item), 0);
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("offline nothing is sent, and online the same form is", async (visitor, item) => {
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

story("a reload during a submit does not make a second order of the same", async (visitor, item) => {
  const page = await visitor.open("/web/pages/slow");
  await page.fill("[name=item]", item);
  await state(page, "ready");
  await visitor.meanwhile(() => location.reload());
  await page.click("button");
  await page.waitForFunction(() => performance.getEntriesByType("navigation")[0].type == "reload");
  assert.deepEqual([orders(item), begun(item)], [0, 1], "it is under way");
  await page.fill("[name=item]", item);
  await page.click("button");
  await receipt(page);
  assert.deepEqual([orders(item), begun(item)], [1, 1]);
});

story("leaving during a submit does not make a second order of the same", async (visitor, item) => {
  const page = await visitor.open("/web/pages/slow");
  await page.fill("[name=item]", item);
  await state(page, "ready");
  await visitor.meanwhile(() => document.querySelector("a").click());
  await page.click("button");
  await visitor.at("receipt");
  await visitor.back("slow");
  assert.equal(await page.inputValue("[name=item]"), item);
  await page.click("button");
  await until("the answer", () => page.url().includes("/orders"));
  await receipt(page);
  assert.deepEqual([orders(item), begun(item)], [1, 1]);
});

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

story("a lost answer and the same again is one order", async (visitor, item) => {
  const page = await visitor.open("/web/pages/form");
  await page.fill("[name=item]", item);
  await state(page, "ready");
  stage.proxy.lose("POST /web/orders");
  await page.click("button");
  await until("it has run", () => orders(item) == 1);
  await until("the browser says so", () => page.url().startsWith("chrome-error:"));
  stage.proxy.well();
  await visitor.back("form");
  assert.equal(await page.inputValue("[name=item]"), item);
  await page.click("button");
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("edited after a lost answer, it is sent only when the person confirms", async (visitor, item) => {
  const page = await visitor.open("/web/pages/form");
  await page.fill("[name=item]", item);
  await state(page, "ready");
  stage.proxy.lose("POST /web/orders");
  await page.click("button");
  await until("it has run", () => orders(item) == 1);
  await until("the browser says so", () => page.url().startsWith("chrome-error:"));
  stage.proxy.well();
  await visitor.back("form");
  await page.fill("[name=item]", `${item}edited`);
  await page.dblclick("button");
  await state(page, "unknown");
  assert.match(await message(page), /^What you sent before may have arrived\. Send this as well$/);
  assert.equal(await page.getAttribute("[data-onceward-message]", "role"), "alert");
  assert.deepEqual([orders(item), await page.inputValue("[name=item]")], [1, `${item}edited`]);
  await page.click("[data-onceward-message] button");
  await receipt(page);
  assert.deepEqual([orders(item), orders(`${item}edited`)], [2, 1]);
});

story("two tabs are two intents", async (visitor, item) => {
  const page = await visitor.open("/web/pages/form");
  const other = await visitor.context.newPage();
  await other.goto(page.url());
  for (const tab of [page, other]) await tab.fill("[name=item]", item);
  await Promise.all([page, other].map((tab) => tab.dblclick("button")));
  await Promise.all([page, other].map(receipt));
  assert.equal(orders(item), 2);
});

story("with the script blocked, a form with a token of the server's is one order", async (visitor, item) => {
  await visitor.context.route("**/onceward.js", (route) => route.abort());
  const page = await visitor.open("/web/pages/rendered");
  await page.fill("[name=item]", item);
  await page.dblclick("button");
  await receipt(page);
  assert.deepEqual([orders(item), begun(item)], [1, 1]);
});

story("with the script blocked, a form without a token is refused and keeps what was written", async (visitor, item) => {
  await visitor.context.route("**/onceward.js", (route) => route.abort());
  const page = await visitor.open("/web/pages/form");
  await page.fill("[name=item]", item);
  await page.dblclick("button");
  await until("the refusal", async () => (await page.textContent("body")).includes("token_missing"));
  await visitor.back("form");
  assert.deepEqual([orders(item), await page.inputValue("[name=item]")], [0, item]);
});

story(
  "without JavaScript a form with a token of the server's is one order",
  async (visitor, item) => {
    const page = await visitor.open("/web/pages/rendered");
    await page.fill("[name=item]", item);
    await page.dblclick("button");
    await receipt(page);
    assert.deepEqual([orders(item), begun(item)], [1, 1]);
    // Back and sent again by mistake: the same answer again. A new page is a new order.
    const first = await receipt(page);
    await page.goBack({ waitUntil: "commit" });
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

story("a form of the server's is sent with its own token where no other can be had", async (visitor, item) => {
  await visitor.context.route("**/token", (route) => route.fulfill({ status: 404 }));
  const page = await visitor.open("/web/pages/rendered");
  await page.fill("[name=item]", item);
  await page.dblclick("button");
  await receipt(page);
  assert.equal(orders(item), 1);
});

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

story("a server that is down before there is a token is said to be so, and then it works", async (visitor, item) => {
  const page = await visitor.open("/web/pages/form");
  await stage.proxy.down();
  await page.fill("[name=item]", item);
  await page.click("button");
  await page.waitForSelector('form[data-onceward-state="error"]', { timeout: 15_000 });
  assert.equal(await message(page), "The server does not answer. Nothing was sent.");
  assert.equal(await page.inputValue("[name=item]"), item);
  await stage.proxy.up();
  await page.click("button");
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("a server that is down when the form is sent gets it once, after Back", async (visitor, item) => {
  const page = await visitor.open("/web/pages/form");
  await page.fill("[name=item]", item);
  await state(page, "ready");
  await stage.proxy.down();
  await page.click("button");
  await until("the browser says so", () => page.url().startsWith("chrome-error:"));
  await stage.proxy.up();
  await visitor.back("form");
  assert.equal(await page.inputValue("[name=item]"), item);
  await page.dblclick("button");
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("requestSubmit takes the same way as a person", async (visitor, item) => {
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

story("a button may lead elsewhere, stand outside, or skip validation", async (visitor, item) => {
  for (const value of ["else", "outside", "draft"]) {
    const page = await visitor.open("/web/pages/buttons");
    await page.fill("[name=item]", `${item}${value}`);
    await page.dblclick(`[value=${value}]`);
    await receipt(page);
    assert.deepEqual(stage.orders(`item=${item}${value}`), [`item=${item}${value}&go=${value}`]);
    assert.equal(page.url().endsWith(value == "else" ? "/web/plain" : "/web/orders"), true);
  }
});

story("a button that sends with GET leaves the token out of the address", async (visitor, item) => {
  const page = await visitor.open("/web/pages/buttons");
  await page.fill("[name=item]", item);
  await state(page, "ready");
  await page.click("[value=search]");
  await receipt(page);
  assert.equal(new URL(page.url()).search, `?item=${item}&go=search`);
  await visitor.back("buttons");
  await page.click("[value=order]");
  await until("the answer", () => page.url().endsWith("/web/orders"));
  await receipt(page);
  assert.equal(orders(item), 1);
});

story("forms with GET or a dialog, and forms that are not marked, are left alone", async (visitor) => {
  const page = await visitor.open("/web/pages/others");
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

story("with target=_blank the answer is elsewhere, and the form can be used again", async (visitor, item) => {
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
  assert.equal(await receipt(await again), first, "the same again is the same order");
  assert.equal(orders(item), 1);
});

for (const [what, button] of [["a download", "button"], ["an answer without content", "#nothing"]]) {
  story(`after ${what} the form can be used again`, async (visitor, item) => {
    const page = await visitor.open("/web/pages/download");
    await page.fill("[name=item]", item);
    await state(page, "ready");
    await page.dblclick(button);
    await until("it has run", () => orders(item) == 1);
    await page.waitForSelector('form:not([data-onceward-state="sending"])');
    assert.equal(await message(page), "No answer yet. Sending the same again is safe.");
    assert.equal(await page.inputValue("[name=item]"), item);
    await page.click(button);
    await state(page, "sending");
    await page.waitForSelector('form:not([data-onceward-state="sending"])');
    assert.equal(orders(item), 1);
  });
}

story("a token in the query reaches a gateway, also by a button that leads elsewhere", async (visitor, item) => {
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

story("a page that sends by itself has a token in every click, and says how it ended", async (visitor, item) => {
  const page = await visitor.open("/web/pages/by_itself");
  const said = (expected) => until(expected, async () => (await page.textContent("output")).trim() == expected);
  await page.fill("[name=item]", item);
  await state(page, "ready");
  await page.click("button", { clickCount: 3, delay: 20 });
  await said("executed replayed replayed");
  assert.equal(orders(item), 1);
  await page.click("button");
  await said("executed replayed replayed executed");
  assert.equal(orders(item), 2, "the last answer was final: this is another order");
  stage.proxy.lose("POST /web/orders");
  await page.fill("[name=item]", `${item}more`);
  await page.click("button");
  await said("executed replayed replayed executed lost");
  stage.proxy.well();
  await page.click("button");
  await said("executed replayed replayed executed lost replayed");
  assert.equal(orders(`${item}more`), 1);
});

story("the answer of a gateway that does not know keeps the token, where its page has the script", async (visitor, item) => {
  const page = await visitor.open("/web/pages/form");
  await page.evaluate(() => document.querySelector("form").setAttribute("action", "../orders?answer=gateway"));
  await page.fill("[name=item]", item);
  await page.click("button");
  await visitor.at("gateway");
  await visitor.back("form");
  await page.click("button");
  await until("the refusal", async () => (await page.textContent("body")).includes("outcome_unknown"));
  assert.equal(orders(item), 1);
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

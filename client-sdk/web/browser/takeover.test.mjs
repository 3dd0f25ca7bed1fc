// Pages that send a form themselves and do not call `answered`: one click keeps one token until its response is seen.

import assert from "node:assert/strict";
import { serve } from "./clicking.mjs";
import { begun, message, orders, stage, state, story, until } from "./story.mjs";

/** Waits until a click no longer counts as part of the last one. */
const later = (millis = 1300) => new Promise((go) => setTimeout(go, millis));

/** Opens a page with this script and a form with these attributes. */
async function open(visitor, attributes, script, fields = "") {
  await serve(visitor, {
    "page.html": `<!doctype html><title>made</title><script src="../sdk/onceward.js" defer></script><script src="page.js" defer></script>
      <form ${attributes}><input name="item">${fields}<button>Order</button></form>`,
    "page.js": script,
  });
  return visitor.open("/web/made/page.html");
}

/** A script that sends the form after the code in `when`. */
const sender = (address, when = "") => `
  const form = document.querySelector("form");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    ${when}
    fetch(${address}, { method: "POST", body: new URLSearchParams(new FormData(form)) }).then((answer) => answer.text());
  });`;
const POST = "form.getAttribute('action')";

story("the rejection of a second click does not end the order in flight", async (visitor, item) => {
  const page = await open(visitor, 'method="post" action="/web/plain?takes=6000" data-onceward', sender(POST));
  await page.fill("[name=item]", item);
  await page.click("button");
  await until("the handler runs", () => begun(item) == 1);
  await later();
  await Promise.all([page.waitForResponse((response) => response.status() == 409), page.click("button")]);
  await later();
  await page.click("button");
  await state(page, "unknown");
  await until("the order", () => orders(item) == 1);
  assert.deepEqual([begun(item), orders(item)], [1, 1]);
});

story("a rate-limited second click does not end the order in flight", async (visitor, item) => {
  let sent = 0;
  await visitor.context.route("**/web/orders?*", (route) => (++sent == 2 ? route.fulfill({ status: 429 }) : route.continue()));
  const page = await open(visitor, 'method="post" action="/web/orders?takes=6000" data-onceward', sender(POST));
  await page.fill("[name=item]", item);
  await page.click("button");
  await until("the handler runs", () => begun(item) == 1);
  await later();
  await page.click("button");
  await until("the second request", () => sent == 2);
  await later();
  await page.click("button");
  await state(page, "unknown");
  await until("the order", () => orders(item) == 1);
  assert.deepEqual([begun(item), sent], [1, 2]);
});

for (const [status, outcome, keeps] of [[500, "executed", false], [500, "not_applied", true], [503, "store_unavailable", true], [503, "executed", false]]) {
  story(`after a ${status} with ${outcome} the same content ${keeps ? "keeps its token" : "uses a new one"}`, async (visitor, item) => {
    const tokens = [];
    await visitor.context.route("**/web/plain", (route) => {
      tokens.push(new URLSearchParams(route.request().postData()).get("_onceward"));
      return route.fulfill({ status, headers: { "server-timing": `onceward;desc=${outcome}` } });
    });
    const page = await open(visitor, 'method="post" action="/web/plain" data-onceward', sender(POST));
    await page.fill("[name=item]", item);
    for (const count of [1, 2]) {
      await page.click("button");
      await until(`${count} requests`, () => tokens.length == count);
      await later();
    }
    assert.equal(tokens[0] == tokens[1], keeps);
  });
}

story("a token that arrives between the submit and the request is used for the next submit", async (visitor, item) => {
  const ready = `if (!window.isReady) await new Promise((go) => form.addEventListener("onceward:ready", () => go(window.isReady = true)));`;
  const page = await open(visitor, 'method="post" action="/web/orders?takes=4000" data-onceward', sender(POST, ready));
  await page.fill("[name=item]", item);
  await state(page, "ready");
  await page.click("button");
  // Focusing the field makes the form fetch its next token.
  await page.focus("[name=item]");
  await until("the handler runs", () => begun(item) == 1);
  await later();
  await page.click("button");
  await until("the order", () => orders(item) > 0);
  await later();
  assert.deepEqual([begun(item), orders(item)], [1, 1]);
});

story("a relative URL in a custom attribute is recognized", async (visitor, item) => {
  const script = sender("form.getAttribute('data-post')");
  const page = await open(visitor, 'method="post" data-post="../plain?takes=20" data-onceward', script, '<input type="hidden" name="attributes">');
  await page.fill("[name=item]", item);
  for (const count of [1, 2]) {
    await page.click("button");
    await until(`${count} orders`, () => orders(item) == count);
    await later();
  }
});

story("another form in the place of the first does not receive its attempt", async (visitor, item) => {
  const page = await open(visitor, 'method="post" action="/web/orders?takes=6000" data-onceward', sender(POST));
  await page.fill("[name=item]", item);
  await page.click("button");
  await until("the handler runs", () => begun(item) == 1);
  await page.evaluate(() => {
    const other = document.querySelector("form").cloneNode(true);
    other.setAttribute("action", "/web/plain");
    other.querySelector("[name=item]").value = "other";
    other.querySelector("[name=_onceward]").remove();
    document.querySelector("form").before(other);
    other.addEventListener("submit", (event) => {
      event.preventDefault();
      fetch("/web/plain", { method: "POST", body: new URLSearchParams(new FormData(other)) });
    });
  });
  await page.fill("[name=item] >> nth=0", `${item}other`);
  await page.click("button >> nth=0");
  await until("the other order", () => orders(`${item}other`) == 1);
  await later();
  assert.equal(orders(item), 1, "the first is still in flight");
  await page.click("button >> nth=1");
  await until("the order", () => orders(item) > 1);
  await later();
  assert.deepEqual([begun(item), orders(item)], [2, 2], "one of each");
});

story("`token` returns the token of an attempt only for its content, also if storage is blocked", async (visitor, item) => {
  await visitor.context.addInitScript(() => {
    Storage.prototype.getItem = Storage.prototype.setItem = () => {
      throw Error("blocked");
    };
  });
  const page = await open(visitor, 'method="post" action="/web/orders?takes=6000" data-onceward', sender(POST));
  await page.fill("[name=item]", item);
  await page.click("button");
  await until("the handler runs", () => begun(item) == 1);
  const token = () => page.evaluate(() => onceward.token(document.querySelector("form")));
  const sent = await token();
  assert.equal(await token(), sent);
  await page.fill("[name=item]", `${item}edited`);
  assert.notEqual(await token(), sent);
  await page.evaluate(() => dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true })));
  assert.match(await token(), /^ow1_/);
});

story("a page without a response may send the same content again with the same token", async (visitor, item) => {
  const tokens = [];
  await visitor.context.route("**/web/orders", (route) => {
    tokens.push(new URLSearchParams(route.request().postData()).get("_onceward"));
    return tokens.length == 1 ? route.abort() : route.continue();
  });
  const page = await open(visitor, 'method="post" action="/web/orders" data-onceward', `
    const form = document.querySelector("form");
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)) }).catch(() => null);
      onceward.answered(form, answer);
      if (!answer) form.requestSubmit();
    });`);
  await page.fill("[name=item]", item);
  await page.click("button");
  await until("the order", () => orders(item) == 1);
  assert.deepEqual([tokens.length, new Set(tokens).size], [2, 1]);
});

story("a form without data-onceward is not changed by `answered`", async (visitor) => {
  const page = await open(visitor, 'method="post" action="/web/open"', "");
  await page.evaluate(() => onceward.answered(document.querySelector("form"), new Response()));
  assert.deepEqual(await page.evaluate(() => document.querySelector("form").getAttributeNames()), ["method", "action"]);
});

story("a form with an invalid action URL is left alone", async (visitor, item) => {
  const page = await open(visitor, 'method="post" action="http://[" data-onceward', sender("'/web/open'"));
  await page.fill("[name=item]", item);
  await page.click("button");
  await until("the order", () => orders(item) == 1);
  assert.equal(await page.getAttribute("form", "data-onceward-state"), null);
});

story("a token that arrives while the user is asked does not remove the question", async (visitor, item) => {
  const page = await visitor.open("/web/pages/bare");
  await page.fill("[name=item]", item);
  await page.click("button");
  await page.waitForSelector("#receipt");
  await visitor.context.addInitScript(() => addEventListener("onceward:ready", () => (window.isReady = true)));
  stage.proxy.delay("POST /web/token", 2000);
  await visitor.back("bare form");
  await page.evaluate(() => addEventListener("onceward:ready", () => (window.isReady = true)));
  await page.click("button");
  await state(page, "unknown");
  await page.waitForFunction(() => window.isReady);
  assert.equal(await page.getAttribute("form", "data-onceward-state"), "unknown");
  assert.match(await message(page), /Send this as well$/);
});

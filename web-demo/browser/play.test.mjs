// The demo in a real browser. Orders are counted on the server.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { until } from "../../client-sdk/web/browser/stage.mjs";
import { Shop } from "./shop.mjs";

let shop;
before(async () => (shop = await Shop.open()));
after(() => shop.close());

/** A test with a new visitor. It fails on any error in the page. */
function story(name, tell, options) {
  test(name, async () => {
    const customer = await shop.enter(options);
    await tell(customer, customer.page);
    await customer.leave();
  });
}

for (const pace of ["slow", "quick"]) {
  story(`a triple click on both forms is three orders and one, with a ${pace} handler`, async (customer) => {
    if (pace === "quick") await customer.turn("slow");
    await customer.click("unguarded", 3);
    await customer.click("guarded", 3);
    await customer.sees(3, 1);
    assert.deepEqual(await customer.wire("unguarded", 3), ["unprotected", "unprotected", "unprotected"]);
    const { executed, refused } = await customer.tally();
    assert.deepEqual([executed, refused], [1, 0]);
  });
}

story("one button sends both three times, and again as another order", async (customer, page) => {
  await page.click("#both");
  await customer.sees(3, 1);
  assert.deepEqual(await customer.wire("guarded", 3), ["executed", "replayed", "replayed"]);
  assert.match(await page.textContent("#guarded-said"), /^Order 1 is placed, once\. 2 more clicks received the same response\.$/);
  assert.equal(await page.textContent("#unguarded-said"), "3 clicks, 3 orders.");
  await page.click("#both");
  await customer.sees(6, 2);
});

for (const [policy, duplicate] of [["remembered", "replayed"], ["token", "refused"], ["key", "replayed"], ["interval", "refused"]]) {
  story(`with ${policy} a triple click is one order, and each click is shown`, async (customer, page) => {
    await customer.turn(policy);
    // A visitor who fills in the form has a token before the click.
    await page.fill("#guarded-name", "Grace");
    if (policy === "remembered" || policy === "token") await page.waitForSelector("#guarded[data-onceward-state=ready]");
    await customer.click("guarded", 3);
    await customer.sees(0, 1);
    assert.deepEqual(await customer.wire("guarded", 3), ["executed", duplicate, duplicate]);
    assert.equal(await page.locator("#guarded-chart rect").count(), 3);
    assert.equal(await page.textContent(`#total-${duplicate}`), "2");
    await page.waitForFunction(() => /once\. 2 more clicks/.test(document.querySelector("#guarded-said").textContent));
  });
}

story("a triple click before the token arrives is sent once", async (customer, page) => {
  await customer.turn("slow");
  let letThrough;
  const isLetThrough = new Promise((go) => (letThrough = go));
  await page.route("**/token", async (route) => {
    await isLetThrough;
    await route.continue();
  });
  await customer.click("guarded", 3);
  await page.waitForFunction(() => document.querySelector("#guarded-said").textContent.startsWith("One click is enough"));
  letThrough();
  await customer.sees(0, 1);
  assert.deepEqual(await customer.wire("guarded", 1), ["executed"]);
  assert.equal(await page.locator("#guarded-wire > li").count(), 1, "the fetch of the token is shown in the submission that used it");
});

story("a failing handler orders nothing, and the same order succeeds afterwards", async (customer, page) => {
  await customer.turn("slow", "fails");
  for (const form of ["unguarded", "guarded"]) await customer.click(form);
  assert.deepEqual(await customer.wire("guarded", 1), ["failed"]);
  await customer.sees(0, 0);
  assert.match(await page.textContent("#guarded-said"), /Nothing was ordered\. Send it again/);
  await customer.turn("fails");
  await customer.click("guarded");
  assert.deepEqual(await customer.wire("guarded", 2), ["executed", "failed"]);
  await customer.sees(0, 1);
});

story("after a lost response, sending it again is a second order only without a guard", async (customer, page) => {
  await customer.turn("slow", "loses");
  for (const form of ["unguarded", "guarded"]) {
    await customer.click(form);
    assert.deepEqual(await customer.wire(form, 1), ["lost"]);
    await page.waitForFunction((form) => document.getElementById(`${form}-said`).textContent.startsWith("Response lost"), form);
    await customer.click(form);
  }
  assert.deepEqual(await customer.wire("guarded", 2), ["lost", "replayed"]);
  await customer.sees(2, 1);
});

story("several faults are one message, also if the last response is in_progress", async (customer, page) => {
  await customer.turn("fails", "loses");
  for (const [policy, said] of [["remembered", /the token is valid again/], ["token", /the token is valid again/], ["key", /the key is free again/], ["interval", /not count as a duplicate/]]) {
    await customer.turn(policy);
    await page.click("#guarded [type=reset]");
    if (policy === "remembered" || policy === "token") {
      await page.fill("#guarded-name", policy);
      await page.waitForSelector("#guarded[data-onceward-state=ready]");
    }
    await customer.click("guarded", 3);
    await until(`the message for ${policy}`, async () => /Send it again/.test(await page.textContent("#guarded-said")));
    const text = await page.textContent("#guarded-said");
    assert.match(text, /^The stockroom did not respond\. Nothing was ordered\./, policy);
    assert.match(text, said, policy);
    assert.doesNotMatch(text, /still running|placed/, policy);
  }
  await customer.sees(0, 0);
});

story("content edited after a lost response is sent only if the user confirms", async (customer, page) => {
  await customer.turn("slow", "loses");
  await customer.click("guarded");
  assert.deepEqual(await customer.wire("guarded", 1), ["lost"]);
  await page.fill("#guarded-name", "Grace");
  await customer.click("guarded");
  const message = page.locator("#guarded [data-onceward-message]");
  await message.waitFor();
  await customer.sees(0, 1);
  await message.locator("button").click();
  await customer.sees(0, 2);
});

story("an edited order and a reset form are new orders", async (customer, page) => {
  await customer.turn("slow");
  for (const policy of ["remembered", "key"]) {
    const before = (await customer.tally()).guarded;
    await customer.turn(policy);
    await customer.click("guarded", 2);
    await customer.sees(0, before + 1);
    await until("the replay", async () => (await customer.wire("guarded", 2)).includes("replayed"));
    await customer.sees(0, before + 1);
    await page.selectOption("#guarded-item", "coffee");
    await customer.click("guarded");
    await customer.sees(0, before + 2);
    await page.click("#guarded [type=reset]");
    await customer.click("guarded");
    await customer.sees(0, before + 3);
  }
});

story("the snippets follow the settings, and the curl lines run as copied", async (customer, page) => {
  const text = async (tab) => {
    await page.click(`#tab-${tab}`);
    return page.textContent("#snippet-text");
  };
  const has = { remembered: "remember(Duration::from_secs(600))", token: "Protect::token(", key: "Protect::key(", interval: "Protect::interval(" };
  for (const [policy, line] of Object.entries(has)) {
    await customer.turn(policy);
    for (const tab of ["actix", "axum"]) assert.ok((await text(tab)).includes(line), `${tab} ${policy}`);
    assert.ok((await text("fetch")).includes(`/demo/orders/${policy}`), policy);
    assert.ok((await text("proxy")).includes(`policy = "${policy === "remembered" ? "token" : policy}"`), policy);
    assert.equal((await text("html")).includes("data-onceward"), policy === "remembered" || policy === "token", policy);
    const recipe = (await readFile(new URL("../../deploy/nginx.conf", import.meta.url), "utf8")).trim();
    const takesToken = policy === "remembered" || policy === "token";
    const whole = recipe.replace("127.0.0.1:8080", new URL(page.url()).host);
    assert.equal((await text("nginx")) === whole, takesToken, `${policy}: the whole recipe, or the reason why there is none`);
    const before = (await customer.tally()).guarded;
    const lines = await text("curl");
    for (const mode of ["slow"]) assert.ok(lines.includes(`Demo-Handler: ${mode}`));
    // The token is fetched once, the order is sent twice.
    const twice = lines.replace(/^curl -i[^]*$/m, (order) => `${order}\n${order}`);
    execFileSync("sh", ["-eu", "-c", twice], { stdio: "pipe" });
    assert.equal((await customer.tally()).guarded, before + 1, lines);
  }
  for (const policy of Object.keys(has)) {
    await customer.turn(policy);
    const names = {
      actix: ["App", "Duration", "Guard", "HttpResponse", "IntervalRules", "KeyRules", "Memory", "Protect", "SubjectFrom", "sleep", "token_route"],
      axum: ["Duration", "Guard", "IntervalRules", "KeyRules", "Memory", "Protect", "Router", "SocketAddr", "StatusCode", "SubjectFrom", "entered", "post", "sleep", "token_route"],
    };
    for (const tab of ["actix", "axum"]) {
      const [head, body] = (await text(tab)).split("\n\nasync fn");
      assert.equal(body.includes("claim is renewed"), policy === "remembered" || policy === "key", `${tab} ${policy}: only these have a claim`);
      const named = head.match(/\w+/g);
      for (const name of names[tab]) assert.equal(named.includes(name), new RegExp(`\\b${name}\\b`).test(body), `${tab} ${policy}: ${name}`);
    }
  }
  await customer.turn("slow", "loses");
  for (const policy of Object.keys(has)) {
    await customer.turn(policy);
    for (const tab of ["actix", "axum"]) {
      assert.equal((await text(tab)).includes("is replayed"), policy === "remembered" || policy === "key", `${tab} ${policy}`);
    }
  }
  await customer.turn("loses", "fails");
  assert.match(await text("actix"), /ServiceUnavailable/);
  assert.match(await text("axum"), /SERVICE_UNAVAILABLE/);
  assert.match(await text("fetch"), /"Demo-Handler": "fails"/);
  assert.match(await text("curl"), /Demo-Handler: fails/);
});

story("the code for backends follows the policy, and links to complete servers", async (customer, page) => {
  const asked = { remembered: /"?\/claim", \{ ?"?token/, token: /\/token\/redeem/, key: /"?\/claim", \{ ?"?key/, interval: /"?\/claim", \{ ?"?interval"?: "5s"/ };
  for (const [policy, call] of Object.entries(asked)) {
    await customer.turn(policy);
    for (const tab of ["python", "node"]) {
      await page.click(`#tab-${tab}`);
      const text = await page.textContent("#snippet-text");
      assert.match(text, call, `${tab} ${policy}`);
      assert.ok(text.includes(new URL(page.url()).origin), "it calls this service");
    }
  }
  for (const link of await page.$$eval("a[href^='/']", (links) => links.map((link) => link.getAttribute("href")))) {
    assert.equal((await page.request.get(shop.url + link)).status(), 200, link);
  }
  for (const [file, text] of [["payments.py", "import"], ["payments.mjs", "import"]]) {
    const answer = await page.request.get(`${shop.url}/demo/${file}`);
    assert.match(answer.headers()["content-type"], /^text\/plain/);
    assert.ok((await answer.text()).includes(text), file);
  }
  assert.ok(await page.isVisible("nav a[href='/docs/']"));
});

story("the fetch lines run as copied", async (customer, page) => {
  await page.click("#tab-fetch");
  for (const policy of ["remembered", "token", "key", "interval"]) {
    await customer.turn(policy);
    const before = (await customer.tally()).guarded;
    const lines = await page.textContent("#snippet-text");
    const status = await page.evaluate(`(async () => { ${lines}\nreturn response.status; })()`);
    assert.equal(status, 201, lines);
    assert.equal((await customer.tally()).guarded, before + 1, lines);
  }
});

test("the snippet is copied to the clipboard", async () => {
  const customer = await shop.enter({ permissions: ["clipboard-read", "clipboard-write"] });
  const { page } = customer;
  await page.click("#copy");
  await until("the message", async () => (await page.textContent("#copied")) === "Copied.");
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), await page.textContent("#snippet-text"));
  await customer.leave();
});

story("no token is shown completely", async (customer, page) => {
  const tokens = [];
  page.on("response", async (answer) => {
    if (answer.url().endsWith("/token")) tokens.push((await answer.json()).token);
  });
  await page.click("#both");
  await customer.sees(3, 1);
  await customer.turn("key");
  await customer.click("guarded");
  await customer.sees(3, 2);
  assert.ok(tokens.length >= 1);
  const shown = await page.innerText("body");
  for (const token of tokens) {
    assert.ok(shown.includes(token.slice(0, 8)), "a short form is shown");
    assert.ok(!shown.includes(token.slice(0, 16)));
  }
});

story("start over resets the counts", async (customer, page) => {
  await page.click("#both");
  await customer.sees(3, 1);
  await page.click("#start-over");
  await customer.sees(0, 0);
  assert.equal(await page.locator(".trip", { hasText: "/demo/orders" }).count(), 0);
  await page.click("#both");
  await customer.sees(3, 1);
});

story("offline the counts stay with a message, and online the page works again", async (customer, page) => {
  await page.click("#both");
  await customer.sees(3, 1);
  for (const form of ["unguarded", "guarded"]) await customer.wire(form, 3);
  await page.context().setOffline(true);
  await page.click("#start-over");
  await page.waitForFunction(() => document.querySelector("#guarded-said").textContent.startsWith("The server does not respond"));
  assert.equal(await page.textContent("#guarded-count"), "1");
  await page.context().setOffline(false);
  await page.click("#start-over");
  await customer.sees(0, 0);
});

test("with the SDK blocked nothing is ordered without a token, and the page shows why", async () => {
  const customer = await shop.enter();
  const { page } = customer;
  await page.route("**/sdk/**", (route) => route.abort());
  await page.reload();
  await customer.turn("slow");
  await customer.click("guarded", 2);
  assert.deepEqual(await customer.wire("guarded", 2), ["refused", "refused"]);
  await until("the message", async () => (await page.textContent("#guarded-said")) === "Rejected: A token is missing.");
  await customer.turn("key");
  await customer.click("guarded", 2);
  await customer.sees(0, 1);
  await customer.leave();
});

test("two visitors do not affect each other", async () => {
  const [one, other] = [await shop.enter(), await shop.enter()];
  await one.turn("interval");
  await other.turn("interval");
  await one.click("guarded");
  await other.click("guarded");
  await one.sees(0, 1);
  await other.sees(0, 1);
  await one.leave();
  await other.leave();
});

test("without JavaScript the guarded form is still guarded", async () => {
  const customer = await shop.enter({ javaScriptEnabled: false });
  const { page } = customer;
  await page.dblclick("#guarded .order");
  await page.waitForURL(/\/demo\/orders\//);
  assert.equal(await page.textContent("h1"), "Order 1 is placed");
  await page.reload();
  assert.equal(await page.textContent("h1"), "Order 1 is placed", "sent again by the browser");
  assert.equal((await customer.tally()).guarded, 1);
  await page.goto(`${shop.url}/`);
  await page.click("#unguarded .order");
  await page.waitForURL(/\/demo\/orders\//);
  await page.reload();
  assert.equal(await page.textContent("h1"), "Order 2 is placed");
  await customer.leave();
});

// Forms sent by a library: with `data-onceward` none orders less than without it, and none shows a wrong state.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { click, observe, PATIENCE, quiet, serve } from "./clicking.mjs";
import { LIBRARIES } from "./libraries.mjs";
import { begun, orders, stage, until } from "./story.mjs";
import { Visitor } from "./stage.mjs";

/** After this time in milliseconds, a submit of the same content is a new one. */
const LATER = 1200;

/** The orders of one user on one page of a library, with checks of the state that the form shows. */
class Customer {
  static async enter(name, path, mark) {
    const { script, body, answer, takesToken, leaves } = LIBRARIES[name];
    const customer = Object.assign(new Customer(), { takesToken, leaves, isGuarded: !!mark, counts: {}, sent: new Set() });
    customer.id = `${name}-${path}-${mark}`.replaceAll(/[^\w-]/g, "");
    customer.visitor = await Visitor.come(stage);
    customer.page = customer.visitor.page;
    await observe(customer.visitor);
    const text = `<!doctype html><html><head><title>made</title>
      <meta name="htmx-config" content='{"includeIndicatorStyles":false}'>
      <script src="../sdk/onceward.js" defer></script><script src="library.js" defer></script></head>
      <body>${body(`/web/${path}?takes=20&answer=${answer}`, mark)}</body></html>`;
    await serve(customer.visitor, { "page.html": text, "library.js": await script() }, "");
    customer.page.on("request", (request) => {
      const token = request.postData()?.match(/ow1_[\w.-]+/)?.[0];
      if (token) customer.sent.add(token);
    });
    return customer;
  }

  async open() {
    await this.visitor.open("/web/made/page.html");
    await this.page.waitForSelector("form");
  }

  /** Orders an item, and counts its orders so far. */
  async order(step, item, count = 1) {
    const { page } = this;
    await this.isTrue(`before: ${step}`);
    await page.evaluate(() => document.querySelector("#receipt")?.remove());
    await page.fill("[name=item]", this.id + item);
    await click(page, count, 100);
    await page.waitForSelector("#receipt", { timeout: PATIENCE / 2 }).catch(() => assert.fail(`${this.id}, ${step}: no receipt is shown`));
    await quiet(page);
    await this.isTrue(`after: ${step}`);
    this.counts[step] = orders(this.id + item);
    await new Promise((go) => setTimeout(go, LATER));
  }

  /** Checks the state that the form shows: `ready` means that there is a token for the next submit. */
  async isTrue(when) {
    const shown = await this.page.evaluate(() => {
      const form = document.querySelector("form");
      return form && { state: form.dataset.oncewardState, token: form.querySelector("[name=_onceward]")?.value };
    });
    if (!shown) return;
    const { state, token } = shown;
    const said = `${this.id}, ${when}: ${state}`;
    if (!this.isGuarded || !this.takesToken) return assert.equal(state, undefined, said);
    assert.match(String(state), /^(idle|ready)$/, said);
    if (state == "ready") assert.ok(/^ow1_/.test(token) && !this.sent.has(token), `${said}, with a token that was not sent before`);
  }

  /** Opens the form again after an order whose response is another page. */
  async again() {
    if (this.leaves) await this.open();
  }

  async tell() {
    await this.open();
    await this.order("first", "one.");
    await this.again();
    await this.order("second, equal", "one.");
    await this.again();
    await this.order("edited", "two.");
    if (!this.leaves) await this.visitor.open("/web/pages/receipt");
    await this.visitor.back();
    await this.page.waitForSelector("form");
    await this.page.waitForFunction(() => window.onceward);
    await this.order("after Back, equal", "two.");
    await this.again();
    await this.order("before a reload", "three.");
    await this.again();
    await this.page.reload();
    await this.page.waitForSelector("form");
    await this.order("after a reload, equal", "three.");
    await this.again();
    await this.order("a double click", "double.", 2);
    assert.deepEqual(await this.visitor.leave(), []);
    return this.counts;
  }
}

// These tests mostly wait.
describe("forms sent by a library", { concurrency: 2 }, () => {
  for (const [name, { takesToken }] of Object.entries(LIBRARIES)) {
    test(`${name}: a form with data-onceward orders as it does without it`, async () => {
      const cases = [["open", ""], ["open", "data-onceward"]];
      if (takesToken) cases.push(["orders", "data-onceward"], ["plain", "data-onceward"]);
      const customers = await Promise.all(cases.map(([path, mark]) => Customer.enter(name, path, mark)));
      const [{ "a double click": unguarded, ...control }, ...guarded] = await Promise.all(customers.map((customer) => customer.tell()));
      assert.deepEqual(control, { first: 1, "second, equal": 2, edited: 1, "after Back, equal": 2, "before a reload": 1, "after a reload, equal": 2 });
      // Without a token of the SDK, the number of orders of a double click depends on the library and on the load of the machine.
      const most = takesToken ? 1 : 2;
      for (const { "a double click": double, ...counts } of guarded) {
        assert.deepEqual(counts, control);
        assert.ok(double >= 1 && double <= most, `${double} orders, and ${unguarded} without data-onceward`);
      }
    });
  }
});

test("a request to another URL does not end an order in flight: the same content keeps its token", async () => {
  const visitor = await Visitor.come(stage);
  const { page } = visitor;
  const item = "polled.";
  await observe(visitor);
  await serve(visitor, {
    "page.html": `<!doctype html><title>made</title><script src="../sdk/onceward.js" defer></script><script src="page.js" defer></script>
      <form method="post" action="/web/orders?takes=8000" data-status="/web/made/poll.html" data-onceward><input name="item" required><button>Order</button></form>`,
    "page.js": `const form = document.querySelector("form");
      window.polls = 0;
      setInterval(() => fetch("poll.html").then(() => window.polls++), 100);
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        fetch(form.action, { method: "POST", body: new FormData(form) });
      });`,
    "poll.html": "polled",
  });
  await visitor.open("/web/made/page.html");
  await page.fill("[name=item]", item);
  await click(page, 1);
  await until("the handler runs", () => begun(item) == 1);
  const polls = await page.evaluate(() => window.polls);
  await page.waitForFunction((polls) => window.polls > polls + 2 && performance.now() - window.clicks[0] > 1100, polls);
  assert.equal(orders(item), 0, "the handler still runs");
  const again = page.waitForResponse((response) => response.request().method() == "POST" && response.url().includes("takes=8000"));
  await click(page, 1);
  await again;
  await until("the order", () => orders(item) > 0);
  assert.deepEqual([begun(item), orders(item)], [1, 1]);
  await visitor.leave();
});

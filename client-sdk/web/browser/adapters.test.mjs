// Forms and requests of a library, through its adapter: a form recovers with the response, and a lost or failed request does not order twice.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ADAPTERS } from "./adapters.mjs";
import { click, observe, PATIENCE, quiet, serve } from "./clicking.mjs";
import { begun, message, orders, stage, state, until } from "./story.mjs";
import { Visitor } from "./stage.mjs";

/** Waits until a click no longer counts as part of the last one. */
const later = () => new Promise((go) => setTimeout(go, 1200));

let number = 0;

/** A user on a page that sends its form to `path` of the shop, with the adapter of this library. */
class Customer {
  static async enter(name, path = "orders", takes = 20) {
    const { sdk, script, body, url } = ADAPTERS[name];
    const customer = new Customer();
    customer.item = `adapter${++number}.`;
    customer.visitor = await Visitor.come(stage);
    customer.page = customer.visitor.page;
    await observe(customer.visitor);
    const text = `<!doctype html><html><head><title>made</title><meta name="htmx-config" content='{"includeIndicatorStyles":false}'>
      ${sdk ? `<script src="../sdk/${sdk}" defer></script>` : ""}<script src="library.js" defer></script></head>
      <body>${body(url(path, takes))}</body></html>`;
    await serve(customer.visitor, { "page.html": text, "library.js": await script() }, "");
    await customer.open();
    return customer;
  }

  /** Opens the page, and fills the form. */
  async open() {
    await this.visitor.open("/web/made/page.html");
    await this.page.waitForSelector("form");
    await this.page.fill("[name=item]", this.item);
  }

  /** Clicks, and returns the receipt. */
  async order(count = 1, gap = 60) {
    const { page } = this;
    await page.evaluate(() => document.querySelector("#receipt")?.remove());
    await click(page, count, gap);
    return page.waitForSelector("#receipt", { timeout: PATIENCE / 4 }).then((place) => place.textContent());
  }

  /** Loses the responses of the shop to one click. */
  async lose() {
    stage.proxy.lose("POST /web/orders");
    await click(this.page, 1);
    await until("the order", () => orders(this.item) == 1);
    await quiet(this.page);
    // Without the core's own form, the page shows the outcome after all attempts.
    await this.page.waitForFunction(() => document.querySelector("#outcome")?.textContent != "");
    stage.proxy.well();
  }

  count() {
    return [begun(this.item), orders(this.item)];
  }
}

for (const [name, { sdk }] of Object.entries(ADAPTERS)) {
  describe(name, { concurrency: 1 }, () => {
    test("a triple click is one order, and a deliberate second order is another", async () => {
      for (const takes of [5, 300, 1500]) {
        const customer = await Customer.enter(name, "orders", takes);
        const first = await customer.order(3);
        await quiet(customer.page);
        assert.deepEqual([await customer.page.textContent("#receipt"), ...customer.count()], [first, 1, 1], `a handler of ${takes} ms`);
        await later();
        assert.notEqual(await customer.order(), first);
        assert.deepEqual(customer.count(), [2, 2]);
        assert.deepEqual(await customer.visitor.leave(), []);
      }
    });

    test("the form can be sent again in the moment in which the response is shown", async () => {
      const customer = await Customer.enter(name);
      // A hook settles a call in the task of its response; a guarded form already has.
      await customer.page.evaluate((isGuarded) => {
        const shown = new MutationObserver(() => {
          if (!document.querySelector("#receipt")) return;
          shown.disconnect();
          document.querySelector("#receipt").remove();
          const form = document.querySelector("form");
          form.item.dispatchEvent(new InputEvent("input", { bubbles: true }));
          if (isGuarded) form.requestSubmit();
          else setTimeout(() => form.requestSubmit());
        });
        shown.observe(document.querySelector("#place"), { childList: true, subtree: true });
      }, !!sdk);
      await click(customer.page, 1);
      await customer.page.waitForSelector("#receipt");
      assert.deepEqual(customer.count(), [2, 2]);
      assert.deepEqual(await customer.visitor.leave(), []);
    });

    test("after a 500 the same form is sent again and is one order", async () => {
      const customer = await Customer.enter(name);
      const { page } = customer;
      let sent = 0;
      await customer.visitor.context.route("**/web/orders?*", (route) => {
        const url = route.request().url();
        return route.continue({ url: ++sent == 1 ? url.replace(/answer=\w+/, "answer=broken") : url });
      });
      const failed = page.waitForResponse((response) => response.status() == 500);
      await click(page, 1);
      await failed;
      await quiet(page);
      await later();
      // Turbo shows a failure as a page of its own.
      if (!(await page.$("form"))) await customer.open();
      await customer.order();
      assert.deepEqual([sent, ...customer.count()], [2, 1, 1]);
      await customer.visitor.leave();
    });

    test("after a lost response the same content receives the response of the first run", async () => {
      const customer = await Customer.enter(name);
      await customer.lose();
      if (sdk) assert.match(await customer.page.getAttribute("form", "data-onceward-state"), /idle|ready/);
      else assert.equal(await customer.page.textContent("#outcome"), "unknown");
      await later();
      await customer.order();
      assert.deepEqual(customer.count(), [1, 1]);
      await later();
      await customer.order();
      assert.deepEqual(customer.count(), [2, 2], "the next one is a new order");
      await customer.visitor.leave();
    });

    if (!sdk) return;
    test("after a lost response edited content is sent only when the user confirms", async () => {
      const customer = await Customer.enter(name);
      const { page, item } = customer;
      await customer.lose();
      await page.fill("[name=item]", `${item}edited`);
      await click(page, 1);
      await state(page, "unknown");
      assert.match(await message(page), /^Your earlier submission may have arrived\. Send this as well$/);
      assert.equal(orders(`${item}edited`), 0);
      await page.click("[data-onceward-message] button");
      await until("the edited order", () => orders(`${item}edited`) == 1);
      await customer.visitor.leave();
    });
  });
}

// No layout shift: settings and forms stay in place, for every setting and every message.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { guardedMessage, handlerNote, POLICY_NOTES, unguardedMessage } from "../assets/messages.js";
import { until } from "../../client-sdk/web/browser/stage.mjs";
import { Shop } from "./shop.mjs";

let shop;
before(async () => (shop = await Shop.open()));
after(() => shop.close());

/** The boxes of everything that a visitor may click, and of the elements below the texts. */
function boxes() {
  const all = document.querySelectorAll(".hero button, .switches, .switches label, .switches label span, .pair form, .pair form *:not([data-onceward-message], [data-onceward-message] *), .pair h3, .pair header, [role=tab], #copy");
  return [...all].filter((element) => element.checkVisibility()).map((element) => {
    const { x, y, width, height } = element.getBoundingClientRect();
    // The snippets are below the list of requests, which grows: only their horizontal position counts.
    const top = element.matches("[role=tab], #copy") ? 0 : Math.round(10 * (y + scrollY));
    return `${element.id || element.parentElement.id} ${element.tagName} ${element.className} ${[Math.round(10 * x), top, Math.round(10 * width), Math.round(10 * height)]}`;
  });
}

const FAULTS = ["slow", "fails", "loses"];

for (const width of [1280, 768, 390]) {
  test(`at ${width} pixels no setting and no text moves the settings and forms`, async () => {
    const customer = await shop.enter({ viewport: { width, height: 900 } });
    const { page } = customer;
    await page.evaluate(() => document.fonts.ready);
    const before = await page.evaluate(boxes);
    assert.ok(before.length > 40, String(before.length));
    for (const policy of ["token", "key", "interval", "remembered"]) {
      await customer.turn(policy);
      assert.deepEqual(await page.evaluate(boxes), before, policy);
      // A walk through all eight combinations, one switch at a time.
      for (const fault of [0, 1, 0, 2, 0, 1, 0, 2].map((at) => FAULTS[at])) {
        await customer.turn(fault);
        assert.deepEqual(await page.evaluate(boxes), before, `${policy}, ${fault} turned`);
      }
    }
    for (const tab of await page.locator("[role=tab]").all()) {
      await tab.click();
      assert.deepEqual(await page.evaluate(boxes), before, await tab.textContent());
    }
    await customer.turn("slow", "fails");
    for (const form of ["guarded", "unguarded"]) {
      await customer.click(form, 3);
      await until("the message", async () => /failed/.test(await page.textContent(`#${form}-said`)));
      assert.deepEqual(await page.evaluate(boxes), before, `after clicks on ${form}`);
    }
    await customer.turn("fails", "loses");
    await page.click("#guarded [type=reset]");
    await customer.click("guarded");
    await until("the lost response", async () => /^Response lost/.test(await page.textContent("#guarded-said")));
    await page.fill("#guarded-name", "Grace");
    await customer.click("guarded");
    await page.locator("#guarded [data-onceward-message] button").waitFor();
    assert.deepEqual(await page.evaluate(boxes), before, "while the SDK asks");
    await customer.leave();
  });
}

test("every text fits into the space that is reserved for it", async () => {
  const customer = await shop.enter({ viewport: { width: 390, height: 900 } });
  const { page } = customer;
  const answers = (kinds) => Object.entries(kinds).flatMap(([kind, count]) => Array.from({ length: count }, (_, at) => ({ kind, ...ANSWERS[kind], order: ANSWERS[kind].order && at + 1 })));
  const ANSWERS = {
    executed: { status: 201, order: 1, text: "" },
    unprotected: { status: 201, order: 1, text: "" },
    replayed: { status: 201, order: 1, text: "" },
    refused: { status: 409, order: null, text: "The first request is still running" },
    failed: { status: 503, order: null, text: "The stockroom did not respond. Nothing was ordered." },
    lost: {},
  };
  const texts = { "policy-note": Object.values(POLICY_NOTES), "handler-note": [], "guarded-said": [], "unguarded-said": [] };
  for (let bits = 0; bits < 8; bits++) texts["handler-note"].push(handlerNote({ slow: bits & 1, fails: bits & 2, loses: bits & 4 }));
  for (const policy of Object.keys(POLICY_NOTES)) {
    for (const kinds of [{ failed: 2, refused: 2 }, { lost: 1, refused: 3 }, { lost: 1, replayed: 2, failed: 1 }, { executed: 1, failed: 2, refused: 2 }, { executed: 2, refused: 1 }]) {
      texts["guarded-said"].push(guardedMessage(policy, answers(kinds)));
    }
  }
  for (const kinds of [{ lost: 2 }, { lost: 1 }, { unprotected: 2, failed: 1, lost: 2 }, { failed: 3 }]) texts["unguarded-said"].push(unguardedMessage("none", answers(kinds)));
  const tooLong = await page.evaluate((texts) => Object.entries(texts).flatMap(([id, all]) => {
    const place = document.getElementById(id);
    const height = place.parentElement.getBoundingClientRect().height;
    return all.filter((text) => ((place.textContent = text), place.parentElement.getBoundingClientRect().height > height));
  }), texts);
  assert.deepEqual(tooLong, []);
  await customer.leave();
});
